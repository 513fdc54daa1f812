// What a message does while a session waits: it answers a question, as that question's card would, if it can.

import { inUse, put, remaining } from '../core/desk.js';
import { call, pathOf } from '../core/api.js';
import { forgive, sendingOf } from '../core/outbox.js';
import { inert } from '../core/text.js';
import { t } from '../core/words.js';
import * as drafts from '../cards/question_draft.js';
import { alreadyText, troubleText } from '../cards/trouble.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/**
 * @typedef {object} Aim
 * @property {Ask} ask
 * @property {number} place of the question that a message answers, -1 where only the card can
 * @property {string} header what that question is called
 */

const LONGEST = 60; // characters of a header

/**
 * The question that a message would answer: that of the card in use, else the oldest. Never a permission.
 * @param {Ask[]} open
 * @returns {Aim | null}
 */
export function aimAt(open) {
  const asks = open.filter((ask) => !ask.permission && ask.questions.length > 0);
  asks.sort((a, b) => (a.asked_at < b.asked_at ? -1 : Number(a.asked_at > b.asked_at)));
  const ask = asks.find((each) => each.id === inUse.value) ?? asks[0];
  if (ask === undefined) return null;
  const place = placeIn(ask);
  const { header, question } = ask.questions[Math.max(place, 0)];
  return { ask, place, header: inert(header || question).slice(0, LONGEST) };
}

/** The first question that the card has not answered, if nothing else would go out unanswered. @param {Ask} ask */
function placeIn(ask) {
  if (ask.questions.length === 1) return 0;
  const draft = drafts.draftFor(ask);
  const left = ask.questions.flatMap((_, place) => (drafts.isAnswered(ask, draft, place) ? [] : [place]));
  return left.slice(1).every((place) => isOptional(ask.questions[place])) ? (left[0] ?? -1) : -1;
}

/** Whether the agent said that it need not be answered. @param {import('../types/api').Question} question */
function isOptional({ extra }) {
  const form = /** @type {{required?: unknown} | undefined} */ (extra?.form);
  return form?.required === false;
}

/** Why a text cannot answer it now; empty where it can. @param {Aim} aim @param {string} text */
export function hindrance({ ask, place, header }, text) {
  const sending = sendingOf(ask.id).value?.state;
  if (sending === 'sending') return t('state.sending');
  if (sending === 'queued') return t('state.queued');
  if (remaining(ask) === 0) return t('deadline.declining');
  if (place === -1) return t('chat.form', { header });
  if (!drafts.takesOwn(ask.questions[place])) return t('chat.noOwn', { header });
  return drafts.isWrong(ask.questions[place], text) ? t('question.notNumber') : '';
}

/**
 * Answer it, with whatever the card's draft says to the other questions. Throws a sentence where the desk did not take it,
 * and an empty one where that is because the ask is settled, which `settledText` tells.
 * @param {Aim} aim @param {string} text
 */
export async function answerBy({ ask, place }, text) {
  const draft = drafts.draftFor(ask);
  const { added, own, picked } = draft;
  const isMultiple = ask.questions[place].multiple;
  await drafts.send(ask, {
    ...draft,
    own: drafts.replaced(own, place, text),
    added: drafts.replaced(added, place, [...added[place], own[place].trim()]),
    picked: isMultiple ? picked : drafts.replaced(picked, place, []),
  });
  const sending = sendingOf(ask.id).peek();
  if (sending?.state === 'queued') drafts.type(ask, place, text); // the card keeps it until it was sent
  if (sending?.state !== 'failed') return;
  forgive(ask.id); // it is said where the message was written
  const now = await call(pathOf('asks', ask.id)).then(put, () => undefined);
  throw new Error(now && now.peek().state !== 'asked' ? '' : troubleText(sending.error, ask));
}

/** What came of an ask that a message was meant for. @param {Ask} ask */
export const settledText = (ask) =>
  ask.answer && ask.state !== 'withdrawn' ? alreadyText({ ...ask.answer, answer: ask.answer }, ask) : t('error.withdrawn', { agent: inert(ask.origin.agent) });
