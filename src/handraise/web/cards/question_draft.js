// What a person has begun to answer to the questions of an ask: how it is kept, what would be sent of it, and the sending.

import { forgetDraft, draftOf, saveDraft } from '../core/drafts.js';
import { remaining } from '../core/desk.js';
import { answer, forgive, keepWaiting, reject, sendingOf } from '../core/outbox.js';
import { deliver } from './deliver.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../types/api').Question} Question */
/**
 * @typedef {object} Draft each list has one entry per question
 * @property {string[][]} picked values of options
 * @property {string[][]} added own answers that were added to a multiple choice
 * @property {string[]} own the text in the field
 * @property {string[]} notes
 * @property {string} reason why it would be declined
 * @property {number} step which question is shown; their number is the review
 * @property {boolean} [isExtended] the deadline was moved for the first edit
 */

/** The draft of an ask, empty where there is none. What was kept may be older than this page. @param {Ask} ask @returns {Draft} */
export function draftFor(ask) {
  const kept = draftOf(ask.id).value ?? {};
  const texts = (/** @type {unknown} */ list) => ask.questions.map((_, place) => text(at(list, place)));
  const lists = (/** @type {unknown} */ list) => ask.questions.map((_, place) => strings(at(list, place)));
  return {
    picked: lists(kept.picked).map((values, place) => values.filter((value) => isOffered(ask.questions[place], value))),
    added: lists(kept.added),
    own: texts(kept.own),
    notes: texts(kept.notes),
    reason: text(kept.reason),
    step: Number.isInteger(kept.step) ? Math.min(Math.max(kept.step, 0), lastStep(ask)) : 0,
    isExtended: kept.isExtended === true,
  };
}

/** @param {unknown} list @param {number} place @returns {unknown} */
const at = (list, place) => (Array.isArray(list) ? list[place] : undefined);
/** @param {unknown} value */
const text = (value) => (typeof value === 'string' ? value : '');
/** @param {unknown} value @returns {string[]} */
const strings = (value) => (Array.isArray(value) ? value.filter((each) => typeof each === 'string') : []);
/** @param {Question} question @param {string} value */
const isOffered = (question, value) => question.options.some((option) => option.value === value);

/** The review is one more step, where there is more than one question. @param {Ask} ask */
export const lastStep = (ask) => (ask.questions.length > 1 ? ask.questions.length : 0);

/** Whether there is something in it that a person would miss. @param {Draft} draft */
export const hasContent = (draft) =>
  draft.reason !== '' || [...draft.picked, ...draft.added, draft.own, draft.notes].flat().some((each) => each !== '');

// Changing it ------------------------------------------------------------------------------------------------

/** Cards whose first edit has moved the deadline, should the draft be emptied again. @type {Set<string>} */
const extended = new Set();

/** The first edit of an ask with a deadline asks for more time, once. @param {Ask} ask @param {Draft} draft */
export function stay(ask, draft = draftFor(ask)) {
  if (draft.isExtended || extended.has(ask.id) || remaining(ask) === null) return;
  extended.add(ask.id);
  keepWaiting(ask.id).catch(() => undefined); // a lost connection or a settled ask says so itself
}

/** Keep a change. @param {Ask} ask @param {Partial<Draft>} changes @param {{isEdit?: boolean}} [options] */
export function change(ask, changes, { isEdit = true } = {}) {
  const draft = { ...draftFor(ask), ...changes };
  if (isEdit) stay(ask, draft);
  draft.isExtended ||= extended.has(ask.id);
  if (isEdit && sendingOf(ask.id).peek()?.state === 'failed') forgive(ask.id);
  if (hasContent(draft) || draft.step > 0) saveDraft(ask.id, draft);
  else forgetDraft(ask.id);
}

/** A list with one entry replaced. @template T @param {T[]} list @param {number} place @param {T} value */
export const replaced = (list, place, value) => list.with(place, value);

/**
 * Pick the one choice. Text that was typed before becomes a note to it.
 * @param {Ask} ask @param {number} place @param {string} value
 */
export function pick(ask, place, value, { isEdit = true } = {}) {
  const { picked, own, notes } = draftFor(ask);
  const typed = own[place].trim();
  if (picked[place][0] === value && typed === '') return;
  const note = [notes[place], typed].filter((each) => each !== '').join('\n');
  change(
    ask,
    { picked: replaced(picked, place, [value]), own: replaced(own, place, ''), notes: replaced(notes, place, note) },
    { isEdit },
  );
}

/** @param {Ask} ask @param {number} place @param {string} value @param {boolean} isPicked */
export function toggle(ask, place, value, isPicked) {
  const { picked } = draftFor(ask);
  const others = picked[place].filter((each) => each !== value);
  change(ask, { picked: replaced(picked, place, isPicked ? [...others, value] : others) });
}

/** What is typed replaces a single choice, and joins a multiple one. @param {Ask} ask @param {number} place @param {string} typed */
export function type(ask, place, typed) {
  const { picked, own } = draftFor(ask);
  const isInstead = !ask.questions[place].multiple && typed.trim() !== '';
  change(ask, { own: replaced(own, place, typed), ...(isInstead ? { picked: replaced(picked, place, []) } : {}) });
}

/** Move the typed text to the selection of a multiple choice. @param {Ask} ask @param {number} place */
export function add(ask, place) {
  const { added, own } = draftFor(ask);
  const typed = own[place].trim();
  const others = added[place].filter((each) => each !== typed);
  change(ask, { added: replaced(added, place, [...others, typed]), own: replaced(own, place, '') });
}

/** Take everything back that would answer a question. @param {Ask} ask @param {number} place */
export function clear(ask, place) {
  const { picked, added, own } = draftFor(ask);
  change(ask, {
    picked: replaced(picked, place, []),
    added: replaced(added, place, []),
    own: replaced(own, place, ''),
  });
}

// What it says -----------------------------------------------------------------------------------------------

/** @param {Question} question */
export const takesOwn = (question) => question.custom || (question.options.length === 0 && question.kind !== 'choice');

// As the desk has it; JavaScript would take 0x10 too.
const NUMBER = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*$/iu;

/** Whether typed text is no answer to it. @param {Question} question @param {string} typed */
export const isWrong = (question, typed) =>
  question.kind === 'number' && typed.trim() !== '' && !(NUMBER.test(typed) && Number.isFinite(Number(typed)));

/** The values that would be sent: choices in the agent's order, own text last. @param {Ask} ask @param {Draft} draft @param {number} place */
export function entriesOf(ask, draft, place) {
  const question = ask.questions[place];
  const typed = draft.own[place].trim();
  const picked = question.options.filter((option) => draft.picked[place].includes(option.value));
  if (!question.multiple) return typed !== '' ? [typed] : picked.slice(0, 1).map((option) => option.value);
  // Who types the name of a choice that is picked already has said it once.
  const said = new Set(picked.flatMap((option) => [option.value, option.label]));
  const texts = new Set([...draft.added[place], typed].filter((each) => each !== '' && !said.has(each)));
  return [...picked.map((option) => option.value), ...texts];
}

/** @param {Ask} ask @param {Draft} draft @param {number} place */
export const isAnswered = (ask, draft, place) =>
  entriesOf(ask, draft, place).length > 0 && !isWrong(ask.questions[place], draft.own[place]);

/** How many are answered, and whether what is typed somewhere is no answer. @param {Ask} ask @param {Draft} draft */
export function progress(ask, draft) {
  const done = ask.questions.filter((_, place) => isAnswered(ask, draft, place)).length;
  const isBroken = ask.questions.some((question, place) => isWrong(question, draft.own[place]));
  return { done, total: ask.questions.length, isBroken, isComplete: done === ask.questions.length };
}

// Sending ----------------------------------------------------------------------------------------------------

/** @param {Ask} ask @param {Draft} draft */
export function send(ask, draft = draftFor(ask)) {
  const answers = ask.questions.map((_, place) => entriesOf(ask, draft, place));
  const notes = draft.notes.map((note) => note.trim() || null);
  return deliver(ask.id, () => answer(ask.id, { answers, ...(notes.some((note) => note !== null) ? { notes } : {}) }));
}

/** @param {Ask} ask */
export const decline = (ask) => deliver(ask.id, () => reject(ask.id, draftFor(ask).reason.trim()));
