// The one live region of the page: says what happened, politely, and several new questions as one sentence.

import { signal } from '../vendor/preact.js';
import { onEvent, remaining } from './desk.js';
import { inert } from './text.js';
import { t } from './words.js';

/** @typedef {import('./api.js').Ask} Ask */

const GATHER = 250; // milliseconds in which a burst is gathered
const LONGEST = 120; // characters of a name that anybody listens to
const CALM = 2000; // milliseconds between two sentences about new questions

export const said = signal('');

/** Say it, with what agents wrote in it made harmless. @param {string} text */
export function announce(text) {
  const safe = inert(text);
  said.value = safe === said.peek() ? `${safe}\u00a0` : safe; // the same words again are no change, and nobody would hear them
}

/** What an ask is called in one word or two. @param {Ask} ask */
export const headerOf = (ask) =>
  (ask.permission ? ask.permission.tool : ask.questions[0]?.header || ask.questions[0]?.question || '').slice(0, LONGEST);

/** @type {Ask[]} */
let fresh = [];
let quietUntil = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let telling;

function tellNew() {
  telling = undefined;
  quietUntil = performance.now() + CALM;
  const [first] = fresh;
  if (first) announce(t('live.new', { count: fresh.length, agent: first.origin.agent, header: headerOf(first) }));
  fresh = [];
}

/** Settled here by the person at this page; they know. @type {Set<string>} */
export const own = new Set();

onEvent((type, ask, isNew) => {
  if (isNew && ask.state === 'asked') {
    fresh.push(ask);
    telling ??= setTimeout(tellNew, Math.max(GATHER, quietUntil - performance.now()));
  } else if (ask.state !== 'asked') {
    fresh = fresh.filter((other) => other.id !== ask.id);
    if (type === 'withdrawn') announce(t('live.gone', { header: headerOf(ask) }));
    else if ((type === 'answered' || type === 'rejected' || type === 'settled') && ask.answer && !own.has(ask.id))
      announce(t('live.answered', { header: headerOf(ask), person: ask.answer.by }));
  }
});

/** Deadlines that were further away than a mark when last seen. @type {Set<string>} */
const ahead = new Set();

/** Say that a deadline comes near: at sixty seconds and at ten, once each unless it is moved. @param {Ask} ask */
export function warn(ask) {
  const left = remaining(ask);
  if (left === null) return;
  for (const mark of [60, 10]) {
    const name = `${mark} ${ask.id}`;
    if (left > mark) ahead.add(name);
    else if (ahead.delete(name) && left > 0)
      announce(t('live.deadline', { header: headerOf(ask), seconds: Math.ceil(left) }));
  }
}
