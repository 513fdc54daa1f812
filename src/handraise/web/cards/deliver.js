// Sends what a person decided on a card, and keeps the focus somewhere meanwhile.

import { own } from '../core/live.js';
import { sendingOf } from '../core/outbox.js';
import { focusAfter, headingOf } from './card.js';

/**
 * The focus stays on this card while it is under way, then goes to the next one that waits.
 * @param {string} id @param {() => Promise<boolean>} post
 */
export async function deliver(id, post) {
  const state = sendingOf(id).peek()?.state;
  if (state === 'sending' || state === 'queued') return;
  own.add(id);
  if (isWithin(id)) headingOf(id)?.focus({ preventScroll: true });
  const isTaken = await post();
  if (!isTaken && sendingOf(id).peek()?.state !== 'queued') {
    own.delete(id); // the box that says why takes the focus
    return;
  }
  if (isWithin(id)) focusAfter(id);
}

/** Whether the focus is in this card, or nowhere. @param {string} id */
function isWithin(id) {
  const focused = document.activeElement;
  if (focused === null || focused === document.body) return true;
  return focused.closest('article')?.dataset.ask === id;
}
