// Reaching the person when the page is not in front: notifications, the app's badge; and the page without the desk.

import { effect, signal } from '../vendor/preact.js';
import { pathOf } from './api.js';
import { titleOf, warningsOf } from './card.js';
import { countOfAll, onEvent, stream } from './desk.js';
import { headerOf } from './live.js';
import { keep, recall } from './memory.js';
import { sessionSecret } from './session.js';
import { inert } from './text.js';
import { language, t } from './words.js';

/** @typedef {import('./api.js').Ask} Ask */
/** @typedef {'impossible' | 'insecure' | 'denied' | 'off' | 'on'} NotifyState */

const LONGEST = 300; // characters of a command that are shown; the desk refuses a yes to what is longer

export const notifyState = signal(state());

/** @returns {NotifyState} */
function state() {
  if (!isSecureContext) return 'insecure';
  if (!('serviceWorker' in navigator) || !('Notification' in globalThis)) return 'impossible';
  if (Notification.permission === 'denied') return 'denied';
  return Notification.permission === 'granted' && recall('notify', false) ? 'on' : 'off';
}

/** Switch them on; the browser asks the person once. */
export async function askToNotify() {
  if ((await Notification.requestPermission()) === 'granted') keep('notify', true);
  notifyState.value = state();
}

export function stopNotifying() {
  keep('notify', undefined);
  notifyState.value = state();
}

/** @param {unknown} message */
const post = async (message) => (await navigator.serviceWorker.ready).active?.postMessage(message);

/** From now on, for as long as the page is open. */
export async function startNotifying() {
  effect(() => {
    const count = countOfAll.value;
    if (count > 0) navigator.setAppBadge?.(count).catch(() => undefined);
    else navigator.clearAppBadge?.().catch(() => undefined);
  });
  if (!isSecureContext || !('serviceWorker' in navigator)) return;
  const isThere = await navigator.serviceWorker.register('/sw.js').then(
    () => true,
    () => false, // the page works without; it is tried again when it is opened next
  );
  if (!isThere) return;
  navigator.serviceWorker.addEventListener('message', ({ data }) => {
    if (data.kind === 'open') location.hash = data.hash;
  });
  post({ kind: 'session', secret: sessionSecret() });
  effect(() => void post({ kind: 'keep', paths: [`/app/words/${language.value}.json`] }));
  onEvent((_, ask, isNew) => {
    if (!stream.leads) return; // one tab is enough
    if (ask.state !== 'asked') post({ kind: 'close', tags: [ask.id] });
    else if (isNew && notifyState.value === 'on') post({ kind: 'notify', notification: notification(ask) });
  });
}

/** @param {Ask} ask */
export function notification(ask) {
  const agent = inert(ask.origin.agent);
  const header = inert(headerOf(ask));
  const title = ask.permission ? t('push.permission.title', { agent }) : t('push.question.title', { agent, header });
  const body = ask.permission ? wanted(ask) : inert(ask.questions[0]?.question ?? '').slice(0, LONGEST);
  const buttons = actionsOf(ask);
  return {
    title,
    body,
    tag: ask.id,
    actions: buttons.map(({ action, title }) => ({ action, title })),
    requests: Object.fromEntries(buttons.map(({ action, path, body }) => [action, { path, body }])),
  };
}

/** What is wanted, and what to think twice about. The rest is on the card. @param {Ask} ask */
function wanted(ask) {
  const said = inert(ask.permission?.command || titleOf(ask));
  const shown = said.length > LONGEST ? `${said.slice(0, LONGEST)}…` : said;
  return [shown, ...warningsOf(ask).map(({ says }) => `⚠ ${says}`)].join('\n');
}

/** At most two buttons, and none for what should not be one click. @param {Ask} ask */
function actionsOf(ask) {
  const sender = { via: 'web', ...(recall('name', '') ? { by: recall('name', '') } : {}) };
  const path = pathOf('asks', ask.id, 'answer');
  if (ask.permission) {
    if (!ask.card?.notification) return [];
    const pressed = { ...sender, via: 'notification' }; // the desk allows from there only what one can show whole
    return [
      { action: 'once', title: t('perm.allowOnce'), path, body: { reply: 'once', ...pressed } },
      { action: 'reject', title: t('perm.deny'), path, body: { reply: 'reject', ...pressed } },
    ];
  }
  const [question, ...others] = ask.questions;
  if (!question || others.length > 0 || question.multiple) return [];
  return question.options.slice(0, 2).map((option, place) => ({
    action: `choice-${place}`,
    title: inert(option.label),
    path,
    body: { answers: [[option.value]], ...sender },
  }));
}
