// How it stands with a session, from what the desk said of it and from the asks that are open here.

import { computed, html } from '../vendor/preact.js';
import { find, held, shown } from '../core/desk.js';
import { t } from '../core/words.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../core/api.js').Session} Session */
/** @typedef {'waiting' | 'running' | 'idle' | 'failed' | 'done' | 'foreign'} Standing */

/** What is open, by the session that asks and by the one that it works for. */
export const openAsks = computed(() => {
  /** @type {Map<string, Ask[]>} */
  const found = new Map();
  for (const id of [...shown.value, ...held.value]) {
    const ask = find(id)?.value;
    if (ask?.state !== 'asked') continue;
    for (const session of new Set([ask.origin.session, ask.origin.parent])) {
      if (!session) continue;
      const those = found.get(session);
      if (those) those.push(ask);
      else found.set(session, [ask]);
    }
  }
  return found;
});

/**
 * An ask is heard of at once and a session a moment later, so what is open decides between working and waiting.
 * @param {Session} session
 * @returns {Standing}
 */
export function standing(session) {
  const isAsking = openAsks.value.has(session.id);
  if (!session.managed) return isAsking ? 'waiting' : 'foreign';
  if (session.state === 'running' || session.state === 'waiting') return isAsking ? 'waiting' : 'running';
  return session.state;
}

const MARKS = { waiting: '!', running: '▶', idle: '⏸', failed: '✕', done: '■', foreign: '○' };

/** @param {Standing} state */
export function standingText(state) {
  if (state === 'waiting') return t('session.state.waiting');
  if (state === 'running') return t('session.state.running');
  if (state === 'idle') return t('session.state.idle');
  if (state === 'failed') return t('session.state.failed');
  if (state === 'done') return t('session.state.done');
  return t('session.state.foreign');
}

/** The state as a word and a sign. @param {{state: Standing}} props */
export function StandingMark({ state }) {
  return html`<span class="standing" data-standing=${state}
    ><span aria-hidden="true" class="mark">${MARKS[state]}</span> ${standingText(state)}</span
  >`;
}
