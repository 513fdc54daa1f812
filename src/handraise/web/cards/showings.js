// Where what waits was shown beside this page: sent to a channel, seen there, or why not. It is read when there is
// nothing else to do, all of it in one call, and again when the desk hints at a change.

import { effect, html, signal } from '../vendor/preact.js';
import { call } from '../core/api.js';
import { calmly, find, onEvent, showingsChanged, waiting } from '../core/desk.js';
import { announce, headerOf } from '../core/live.js';
import { href } from '../core/route.js';
import { inert } from '../core/text.js';
import { clockTime, t } from '../core/words.js';

/** @typedef {import('../types/api').Showing} Showing */

/** By ask. */
const showings = signal(/** @type {Map<string, Showing[]>} */ (new Map()));

const read = calmly(async () => {
  /** @type {{showings: (Showing & {ask: string})[]}} */
  const told = await call('/v1/showings');
  const found = new Map();
  for (const each of told.showings) found.set(each.ask, [...(found.get(each.ask) ?? []), each]);
  showings.value = found;
});
effect(() => {
  void showingsChanged.value;
  read();
});
onEvent((type, ask) => {
  if (type === 'unseen') announce(t('live.unseen', { header: headerOf(ask) }));
});

/** Calls once there is anything to show. @param {() => void} draw */
export function whenNeeded(draw) {
  const stop = effect(() => {
    if (showings.value.size > 0)
      queueMicrotask(() => {
        stop();
        draw();
      });
  });
}

/** Why nobody could be told, where it is so. @param {Showing[]} all */
function trouble(all) {
  if (all.length === 0 || all.some((each) => each.state !== 'failed')) return null;
  return all.map((each) => inert(`${each.channel}: ${each.error || '?'}`)).join('; ');
}

/** @param {Showing} showing */
function told({ channel, state, error, at }) {
  const values = { channel: inert(channel), time: clockTime(new Date(at)), reason: inert(error || '?') };
  if (state === 'failed') return t('showing.failed', values);
  return state === 'shown' ? t('showing.shown', values) : t('showing.sent', values);
}

/** Of one card. @param {{id: string}} props */
export function Showings({ id }) {
  const all = showings.value.get(id) ?? [];
  if (all.length === 0) return null;
  const reason = trouble(all);
  return reason === null
    ? html`<p class="quiet-text" data-showings dir="auto">${all.map(told).join(' · ')}</p>`
    : html`<p class="deadline" data-soon data-showings dir="auto">${t('unseen.card', { reason: reason.slice(0, 500) })}</p>`;
}

/** Above all cards, what nobody could be told. */
export function Unseen() {
  void waiting.value; // what is settled is no trouble any more
  const ids = [...showings.value].flatMap(([id, all]) => (trouble(all) !== null && find(id)?.value.state === 'asked' ? id : []));
  if (ids.length === 0) return null;
  return html`<p class="banner" role="status" data-unseen>
    <a href=${href('ask', ids[0])}>${t('unseen.banner', { count: ids.length })}</a>
  </p>`;
}
