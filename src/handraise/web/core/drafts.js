// What a person has begun to answer, kept on this device across reloads until the ask is settled.

import { signal } from '../vendor/preact.js';
import { keep, kept, recall } from './memory.js';

/** @typedef {Record<string, any>} Draft */

const PAUSE = 250; // milliseconds without typing until it is written

/** @type {Map<string, import('../vendor/preact.js').Signal<Draft | null>>} */
const drafts = new Map();
/** @type {Map<string, ReturnType<typeof setTimeout>>} */
const writing = new Map();

/** @param {string} id */
export function draftOf(id) {
  let found = drafts.get(id);
  if (found === undefined) {
    found = signal(recall(`draft.${id}`, /** @type {Draft | null} */ (null)));
    drafts.set(id, found);
  }
  return found;
}

/** @param {string} id @param {Draft} draft */
export function saveDraft(id, draft) {
  draftOf(id).value = draft;
  clearTimeout(writing.get(id));
  writing.set(id, setTimeout(() => write(id), PAUSE));
}

/** @param {string} id */
function write(id) {
  clearTimeout(writing.get(id));
  writing.delete(id);
  keep(`draft.${id}`, draftOf(id).peek() ?? undefined);
}

/** It was sent. @param {string} id */
export function forgetDraft(id) {
  if (drafts.has(id)) draftOf(id).value = null;
  write(id);
}

/** Settled by somebody else: it stays on the page, for the person to copy, and nowhere else. @param {string} id */
export function orphanDraft(id) {
  clearTimeout(writing.get(id));
  writing.delete(id);
  keep(`draft.${id}`, undefined);
}

/** Forget those of asks that are not open any more. @param {(id: string) => boolean} isOpen */
export function sweepDrafts(isOpen) {
  for (const name of kept('draft.')) {
    const id = name.slice('draft.'.length);
    if (!isOpen(id)) keep(name, undefined);
  }
}

/** Write all of them again: a browser may have dropped what it kept while this page was open. */
export const writeDrafts = () => [...drafts.keys()].forEach(write);

// A tab may be closed before the pause is over.
addEventListener('pagehide', () => [...writing.keys()].forEach(write));
