// What people read, in their language. The catalogues are those of the terminal and the messages.

import { signal } from '../vendor/preact.js';
import { recall, keep } from './memory.js';

export const LANGUAGES = { en: 'English', de: 'Deutsch' };

/** @type {Record<string, string>} */
let texts = {};
/** Changes when another language is read, so that everything is drawn again. */
export const language = signal('en');

/** @param {string} wanted */
async function read(wanted) {
  const response = await fetch(`/app/words/${wanted}.json`, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`no words for ${wanted}`);
  return response.json();
}

/** The language the person chose, else the first of the browser's that we have. */
export async function learn() {
  const chosen = recall('language', '');
  const wanted = chosen || navigator.languages.map((tag) => tag.split('-')[0]).find((tag) => tag in LANGUAGES) || 'en';
  await speak(wanted).catch(() => speak('en'));
}

/** @param {string} wanted */
export async function speak(wanted) {
  texts = await read(wanted);
  document.documentElement.lang = wanted;
  document.documentElement.dir = texts.dir;
  language.value = wanted;
}

/** @param {string} wanted empty for the browser's */
export async function choose(wanted) {
  keep('language', wanted);
  await learn();
}

/**
 * The text of a key. With `count` the form of its plural category is taken, where there are forms.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  void language.value; // whoever draws this draws it again in another language
  let text = texts[key];
  if (text === undefined && 'count' in values) {
    const category = new Intl.PluralRules(language.value).select(Number(values.count));
    text = texts[`${key}.${category}`] ?? texts[`${key}.other`];
  }
  return (text ?? key).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** How to sign in. An address is signed in by itself: `localhost` is not `127.0.0.1`. */
export const signedOut = () => t('app.signedOut', { command: 'handraise open', address: location.host });

// Times ------------------------------------------------------------------------------------------------------

/** The language as the browser's owner writes it, such as British English, whose clock has 24 hours. */
const locale = () => navigator.languages.find((tag) => tag.split('-')[0] === language.value) ?? language.value;

/** @param {Date} date */
export const clockTime = (date) => date.toLocaleTimeString(locale(), { hour: '2-digit', minute: '2-digit' });

/** @param {Date} date the time alone if it was today */
export function moment(date) {
  const today = new Date().toDateString() === date.toDateString();
  return today ? clockTime(date) : date.toLocaleString(locale(), { dateStyle: 'medium', timeStyle: 'short' });
}

/** @param {number} seconds */
export function ago(seconds) {
  const format = new Intl.RelativeTimeFormat(language.value, { numeric: 'auto' });
  if (seconds < 45) return format.format(0, 'second');
  if (seconds < 3600) return format.format(-Math.round(seconds / 60), 'minute');
  if (seconds < 86_400) return format.format(-Math.round(seconds / 3600), 'hour');
  return format.format(-Math.round(seconds / 86_400), 'day');
}

/** @param {number} seconds */
export function duration(seconds) {
  const [amount, unit] =
    seconds < 120 ? [seconds, 'second'] : seconds < 7200 ? [seconds / 60, 'minute'] : [seconds / 3600, 'hour'];
  const format = new Intl.NumberFormat(language.value, { style: 'unit', unit, unitDisplay: 'short', maximumFractionDigits: 0 });
  return format.format(amount);
}
