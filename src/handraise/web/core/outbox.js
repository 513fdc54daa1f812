// Answers on their way to the desk. Each is sent once; while the desk is away it is kept here and sent when it is back.

import { effect, signal } from '../vendor/preact.js';
import { Refused, Unreachable, pathOf, post } from './api.js';
import { connection, find, put, putCheckpoint } from './desk.js';
import { forgetDraft } from './drafts.js';
import { keep, recall } from './memory.js';

/** @typedef {{state: 'sending' | 'queued' | 'failed', error?: unknown, again?: () => Promise<boolean>}} Sending */
/** @typedef {{path: string, body: unknown}} Letter */

const NAME = 'outbox';

/** @type {Map<string, import('../vendor/preact.js').Signal<Sending | null>>} */
const sendings = new Map();

/** How it stands with what was sent for this ask or checkpoint. @param {string} id */
export function sendingOf(id) {
  let found = sendings.get(id);
  if (found === undefined) {
    found = signal(/** @type {Sending | null} */ (id in letters() ? { state: 'queued' } : null));
    sendings.set(id, found);
  }
  return found;
}

/** @returns {Record<string, Letter>} */
const letters = () => recall(NAME, {});

/** @param {string} id @param {Letter | undefined} letter */
function note(id, letter) {
  const all = letters();
  if (letter) all[id] = letter;
  else delete all[id];
  keep(NAME, Object.keys(all).length ? all : undefined);
}

/** Who answers here, in the words of the desk. */
export const sender = () => ({ via: 'web', ...(recall('name', '') ? { by: recall('name', '') } : {}) });

/** Answer an ask. @param {string} id @param {Record<string, unknown>} answer as `POST /v1/asks/{id}/answer` takes it */
export const answer = (id, answer) => send(id, pathOf('asks', id, 'answer'), { ...answer, ...sender() });

/** Decline it. @param {string} id @param {string} reason */
export const reject = (id, reason) =>
  send(id, pathOf('asks', id, 'reject'), { ...(reason ? { reason } : {}), ...sender() });

/** Give a checkpoint its output. @param {string} id @param {unknown} output */
export const give = (id, output) => send(id, pathOf('checkpoints', id), { output, ...sender() });

/** Push a deadline back. @param {string} id */
export const keepWaiting = async (id) => put(await post(pathOf('asks', id, 'keep-waiting')));

/** Have the agent told what it could not take. @param {string} id */
export const deliverAgain = (id) => post(pathOf('asks', id, 'deliver'));

/**
 * @param {string} id @param {string} path @param {unknown} body
 * @returns {Promise<boolean>} whether the desk has it
 */
async function send(id, path, body) {
  const sending = sendingOf(id);
  if (sending.value?.state === 'sending' || sending.value?.state === 'queued') return false; // once
  sending.value = { state: 'sending' };
  try {
    take(id, await post(path, body));
    return true;
  } catch (error) {
    if (error instanceof Unreachable) {
      note(id, { path, body });
      sending.value = { state: 'queued' };
    } else {
      sending.value = { state: 'failed', error, again: () => send(id, path, body) };
    }
    return false;
  }
}

/** @param {string} id @param {any} told */
function take(id, told) {
  const known = find(id)?.peek();
  if (told && typeof told === 'object' && 'questions' in told && (!known || known.state === 'asked')) put(told);
  if (told && typeof told === 'object' && 'schema' in told) putCheckpoint(told);
  forgetDraft(id);
  sendingOf(id).value = null;
}

/** Let go of an error, so that it can be tried again. @param {string} id */
export const forgive = (id) => (sendingOf(id).value = null);

async function flush() {
  for (const [id, { path, body }] of Object.entries(letters())) {
    try {
      const told = await post(path, body);
      note(id, undefined);
      take(id, told);
    } catch (error) {
      if (error instanceof Unreachable) return; // it is kept
      if (error instanceof Refused && error.status === 401) {
        connection.value = 'signed-out'; // a stream that is open may not have heard of it yet
        return;
      }
      if (error instanceof Refused && error.status >= 500) return;
      note(id, undefined);
      sendingOf(id).value = { state: 'failed', error, again: () => send(id, path, body) };
    }
  }
}

effect(() => {
  if (connection.value !== 'live' || Object.keys(letters()).length === 0) return;
  // One tab does it; the desk takes the same answer twice as one, should there be no locks.
  if (navigator.locks) navigator.locks.request('handraise-outbox', flush);
  else flush();
});
// What another tab sent for us.
addEventListener('storage', () => {
  const left = letters();
  for (const [id, sending] of sendings) if (sending.value?.state === 'queued' && !(id in left)) sending.value = null;
});
