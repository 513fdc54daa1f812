// The question at the end of a reply: an ordinary card while it waits; then what was asked and answered, and nothing that
// could be pressed. It is drawn from its block alone where the ask is not known any more.

import { html, useEffect, useLayoutEffect, useRef } from '../vendor/preact.js';
import { Card, headingId, headingOf, headingSays } from '../cards/card.js';
import { Unsent, channelName } from '../cards/resolved.js';
import { find, held, inUse, shown } from '../core/desk.js';
import { draftOf, orphanDraft } from '../core/drafts.js';
import { own } from '../core/live.js';
import { inert, Plain, Prose } from '../core/text.js';
import { t } from '../core/words.js';
import { attend } from './attention.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../types/api').ChatBlock} Block */
/**
 * @typedef {object} Asked a question as its block has it
 * @property {string} id of the ask
 * @property {string} header
 * @property {string} text
 * @property {{label: string, description: string}[]} options
 * @property {'asked' | 'replied' | 'rejected'} resolution
 * @property {string} answer
 */

const LONGEST_HEADER = 60;

/** The question of a block, if it is one that can be shown as such. @param {Block} block @returns {Asked | null} */
export function questionIn({ action_type, status, extra }) {
  if (action_type !== 'question_request' || typeof extra?.questionText !== 'string') return null;
  const options = listOf(extra.questionOptions);
  if (options === null) return null;
  return {
    id: textOf(extra.askId),
    header: textOf(extra.questionHeader),
    text: extra.questionText,
    options: options.map((option) => ({ label: textOf(option?.label), description: textOf(option?.description) })),
    resolution: status === 'pending' ? 'asked' : status === 'denied' ? 'rejected' : 'replied',
    answer: textOf(extra.answerText),
  };
}

/** @param {unknown} value */
const textOf = (value) => (typeof value === 'string' ? value : '');

/** Other programs keep options as JSON. @param {unknown} value @returns {any[] | null} */
function listOf(value) {
  if (typeof value !== 'string') return Array.isArray(value) ? value : null;
  try {
    return listOf(JSON.parse(value) ?? null);
  } catch {
    return null;
  }
}

/** What a question is called. @param {Asked} asked */
export function nameOf({ header, text }) {
  const name = inert(header || text);
  return name.length > LONGEST_HEADER ? `${name.slice(0, LONGEST_HEADER - 1)}…` : name;
}

/**
 * @param {object} props
 * @param {Asked} props.asked
 * @param {boolean} props.isNew it came while somebody looked
 * @param {import('../vendor/preact.js').ReadonlySignal<boolean>} props.hasAsks grows true when more asks are known
 */
export function QuestionBlock({ asked, isNew, hasAsks }) {
  const { id } = asked;
  const isKnown = find(id) !== undefined;
  if (!isKnown) void [hasAsks.value, shown.value, held.value]; // one of these says that it came
  const ask = find(id)?.value;
  const isOpen = asked.resolution === 'asked' && ask?.state === 'asked';

  // What had the focus is gone with the answer; it must not end up nowhere.
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const hadFocus = frame.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    if (hadFocus && !frame.current?.contains(document.activeElement)) headingOf(id)?.focus({ preventScroll: true });
  }, [isOpen]);
  useEffect(() => {
    if (isOpen) {
      if (isNew && ask) attend(ask, { isAnsweredByMessage: true });
      return;
    }
    if (inUse.peek() === id) inUse.value = null;
    if (draftOf(id).peek() !== null && !own.has(id)) orphanDraft(id);
  }, [isOpen]);

  return html`<div class="asked" ref=${frame}>
    ${isOpen ? html`<${Card} id=${id} level=${3} />` : html`<${Settled} asked=${latest(asked, ask)} ask=${ask} />`}
  </div>`;
}

/** An ask is heard of at once, and the chat a moment later. @param {Asked} asked @param {Ask} [ask] @returns {Asked} */
function latest(asked, ask) {
  if (asked.resolution !== 'asked' || ask === undefined || ask.state === 'asked') return asked;
  if (ask.state !== 'answered') return { ...asked, resolution: 'rejected' };
  const [question] = ask.questions;
  const labels = ask.answer?.answers?.[0]?.map((value) => question?.options.find((option) => option.value === value)?.label ?? value);
  return { ...asked, resolution: 'replied', answer: [...(labels ?? []), ...(ask.answer?.notes ?? [])].filter(Boolean).join('\n') };
}

const STATES = /** @type {const} */ ({ asked: 'unknown', replied: 'answered', rejected: 'rejected' });

/** @param {{asked: Asked, ask?: Ask}} props */
function Settled({ asked, ask }) {
  const { id, header, text, options, resolution, answer } = asked;
  const state = STATES[resolution];
  const isSaid = headingSays(/** @type {any} */ ({ questions: [{ header, question: text }] }));
  const lines = new Set(answer.split('\n'));
  const offered = html`<ul>
    ${options.map(({ label, description }) => {
      const isTaken = resolution === 'replied' && lines.has(label);
      return html`<li data-taken=${isTaken || undefined}>
        ${isTaken && html`<span class="mark" aria-hidden="true">✓ </span><span class="unseen">${t('question.taken')}: </span>`}
        <${Plain} text=${label} />${description && html`<br /><${Plain} class="quiet-text" text=${description} />`}
      </li>`;
    })}
  </ul>`;
  return html`<article class="card" data-ask=${id} data-state=${state} data-kind="question" aria-labelledby=${headingId(id)}>
    <h3 id=${headingId(id)} tabindex="-1" dir="auto">${isSaid ? inert(text) : nameOf(asked)}</h3>
    ${!isSaid && html`<${Prose} text=${text} />`}
    ${resolution === 'replied' &&
    html`<p class="outcome" data-outcome=${state}>
      <span aria-hidden="true" class="mark">✓</span><span class="unseen">${t('question.answered')}: </span>
      <${Plain} class="lines" text=${answer} limit=${Infinity} />
    </p>`}
    ${resolution === 'rejected' &&
    html`<p class="outcome" data-outcome=${state}><span aria-hidden="true" class="mark">✕</span>${t('chat.rejected')}</p>`}
    ${ask?.answer && html`<p class="delivery" dir="auto">${byWhom(ask.answer)}</p>`} ${ask && html`<${Unsent} ask=${ask} />`}
    ${options.length > 0 &&
    (resolution === 'asked'
      ? html`<div class="offered">${offered}</div>`
      : html`<details class="record">
          <summary>${t('card.shown')}</summary>
          <div class="offered">${offered}</div>
        </details>`)}
  </article>`;
}

/** @param {NonNullable<Ask['answer']>} answer */
function byWhom({ by, via, rejected, reason }) {
  const person = inert(by ?? '');
  if (!rejected) return t('checkpoint.given', { person, channel: channelName(via ?? '') });
  return reason ? t('state.declinedWhy', { person, reason: inert(reason) }) : t('state.declined', { person });
}
