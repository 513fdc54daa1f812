// A card that is settled: the question and every choice that was offered stay readable, nothing can be pressed. Who
// answered, where and when; and whether the agent has it, which is another fact.

import { html, useState } from '../vendor/preact.js';
import { draftOf } from '../core/drafts.js';
import { deliverAgain, sendingOf } from '../core/outbox.js';
import { exact, inert, Plain, Prose } from '../core/text.js';
import { duration, moment, t } from '../core/words.js';
import { draftFor, entriesOf } from './question_draft.js';
import { troubleText } from './trouble.js';

/** @typedef {import('../core/api.js').Ask} Ask */

/** Where something was answered, for people. @param {string} via */
export function channelName(via) {
  if (via === 'web') return t('channel.web');
  if (via === 'cli') return t('channel.cli');
  if (via === 'terminal') return t('channel.terminal');
  if (via === 'http') return t('channel.http');
  if (via === 'link') return t('channel.link');
  if (via === 'notification') return t('channel.notification');
  if (via === 'policy') return t('channel.policy');
  return inert(via);
}

/** What was answered, in one line. @param {Ask} ask */
export function answerText(ask) {
  const { answer } = ask;
  if (!answer) return '';
  if (answer.rejected) {
    const word = ask.permission ? t('reply.denied') : t('reply.declined');
    return answer.reason ? `${word}: ${inert(answer.reason)}` : word;
  }
  if (answer.reply) return answer.reply === 'always' ? t('reply.always') : t('reply.once');
  const said = ask.questions.map((question, place) => {
    const values = answer.answers?.[place] ?? [];
    const labels = values.map((value) => question.options.find((option) => option.value === value)?.label ?? value);
    return labels.length ? labels.join(', ') : t('question.notAnswered');
  });
  return inert(said.join(' · '));
}

/** How it ended. @param {Ask} ask */
export function outcome(ask) {
  const { answer, origin } = ask;
  const agent = inert(origin.agent);
  if (ask.state === 'withdrawn' || !answer) {
    const reason = inert(ask.withdrawn_reason ?? '');
    return reason ? t('state.withdrawnWhy', { agent, reason }) : t('state.withdrawn', { agent });
  }
  const person = inert(answer.by ?? '');
  const reason = inert(answer.reason ?? '');
  if (answer.by === 'policy:timeout') {
    const values = { duration: duration(waited(ask)), answer: answerText(ask) };
    return answer.rejected ? t('state.byTimeoutReject', values) : t('state.byTimeout', values);
  }
  if (answer.by === 'policy:unseen') {
    const why = answer.why?.[0] ?? '';
    const values = { reason: inert(why.slice(why.indexOf('(') + 1, -1)), answer: answerText(ask) };
    return answer.rejected ? t('state.byUnseenReject', values) : t('state.byUnseen', values);
  }
  if (answer.by?.startsWith('policy:')) {
    const rule = inert(answer.why?.[0] ?? answer.by.slice('policy:'.length));
    return t('state.byRule', { rule, answer: answer.rejected ? reason || t('perm.deny') : answerText(ask) });
  }
  if (answer.rejected) {
    if (ask.permission) return reason ? t('state.deniedWhy', { person, reason }) : t('state.denied', { person });
    return reason ? t('state.declinedWhy', { person, reason }) : t('state.declined', { person });
  }
  const time = answer.at ? moment(new Date(answer.at)) : '';
  return t('state.delivered', { answer: answerText(ask), person, channel: channelName(answer.via ?? ''), time });
}

/** @param {Ask} ask seconds from asking to the answer */
const waited = (ask) => (ask.answer?.at ? (Date.parse(ask.answer.at) - Date.parse(ask.asked_at)) / 1000 : 0);

/** Whether the agent took it. @param {Ask} ask */
export function delivery(ask) {
  const agent = inert(ask.origin.agent);
  if (!ask.answer || ask.state === 'withdrawn') return '';
  if (ask.delivery_error) return t('state.deliveryFailed', { agent, reason: inert(ask.delivery_error) });
  return ask.delivered_at ? t('state.taken', { agent }) : t('state.accepted', { agent });
}

/** @param {{ask: Ask, isTold: boolean}} props `isTold`: the questions stand above what came of them */
export function Resolved({ ask, isTold }) {
  const taken = ask.delivery_error ? 'failed' : ask.delivered_at ? 'taken' : 'accepted';
  return html`
    ${isTold && ask.questions.map(({ question }) => html`<${Prose} text=${question} />`)}
    <p class="outcome" data-outcome=${ask.state}>
      <span aria-hidden="true" class="mark">${ask.state === 'answered' ? '✓' : ask.state === 'rejected' ? '✕' : '–'}</span>
      <${Plain} text=${outcome(ask)} limit=${500} />
    </p>
    ${ask.answer &&
    ask.state !== 'withdrawn' &&
    html`<p class="delivery" data-delivery=${taken} dir="auto">
      ${taken === 'failed' && html`<span aria-hidden="true">⚠ </span>`}${delivery(ask)}
    </p>`}
    ${taken === 'failed' && html`<${Again} ask=${ask} />`}
    <${Unsent} ask=${ask} />
    <details class="record">
      <summary>${t('card.shown')}</summary>
      <${Record} ask=${ask} />
    </details>
  `;
}

/** Tries once more to tell the agent. @param {{ask: Ask}} props */
function Again({ ask }) {
  const [said, setSaid] = useState('');
  const press = () => deliverAgain(ask.id).then(() => setSaid(t('state.accepted', { agent: inert(ask.origin.agent) })), (error) => setSaid(troubleText(error, ask)));
  if (said) return html`<p role="status" dir="auto">${said}</p>`;
  return html`<button type="button" class="quiet" data-action="deliver" onClick=${press}>${t('action.retry')}</button>`;
}

/** All that was asked and offered, as it was. @param {{ask: Ask}} props */
export function Record({ ask }) {
  return html`
    ${ask.permission
      ? html`<pre class="object" dir="ltr">${exact(objectOf(ask.permission))}</pre>`
      : ask.questions.map((_, place) => html`<${Offered} key=${place} ask=${ask} place=${place} />`)}
    <${Copy} text=${answerText(ask)} />
  `;
}

/** What it was about, in short. @param {NonNullable<Ask['permission']>} permission */
const objectOf = ({ command, paths, url, summary }) => [command, ...paths, url].filter(Boolean).join('\n') || summary;

/** Whether the answer says what the draft says; another tab of this browser may have sent it. @param {Ask} ask */
function isSaid(ask) {
  if (ask.permission || !ask.answer?.answers) return false;
  const draft = draftFor(ask);
  const { answers } = ask.answer;
  return ask.questions.every((_, place) => String(entriesOf(ask, draft, place)) === String(answers[place]));
}

/** What a person had begun and nobody got, and why. @param {{ask: Ask}} props */
export function Unsent({ ask }) {
  const draft = draftOf(ask.id).value;
  const sending = sendingOf(ask.id).value;
  // The desk may tell of our own answer before it replies to it.
  const text = draft && sending?.state !== 'sending' && !isSaid(ask) ? draftText(draft, ask) : '';
  return html`
    ${sending?.state === 'failed' && html`<p class="error" role="alert" dir="auto">${troubleText(sending.error, ask)}</p>`}
    ${text &&
    html`<div class="orphan">
      <p>${t('deadline.draftNotSent')}</p>
      <blockquote dir="auto">${text}</blockquote>
      <${Copy} text=${text} />
    </div>`}
  `;
}

const MOST_SHOWN = 20;

/** One question as it was asked, every choice, and which of them were taken. @param {{ask: Ask, place: number}} props */
function Offered({ ask, place }) {
  const question = ask.questions[place];
  const [isAll, setAll] = useState(false);
  const values = ask.answer?.answers?.[place] ?? [];
  const texts = values.filter((value) => !question.options.some((option) => option.value === value));
  const note = ask.answer?.notes?.[place];
  const drawn = isAll ? question.options : question.options.slice(0, MOST_SHOWN);
  const taken = html`<span class="mark" aria-hidden="true">✓ </span><span class="unseen">${t('question.taken')}: </span>`;
  return html`<div class="offered">
    <${Prose} text=${question.question} />
    <ul>
      ${drawn.map(
        (option) => html`<li key=${option.value} data-taken=${values.includes(option.value) || undefined}>
          ${values.includes(option.value) && taken}<${Plain} text=${option.label} limit=${120} />
        </li>`,
      )}
      ${texts.map((value) => html`<li data-taken>${taken}<${Plain} text=${value} limit=${500} /></li>`)}
      ${ask.answer?.answers && values.length === 0 && html`<li class="quiet-text">${t('question.notAnswered')}</li>`}
    </ul>
    ${drawn.length < question.options.length &&
    html`<button type="button" class="quiet" onClick=${() => setAll(true)}>
      ${t('question.allChoices', { count: question.options.length })}
    </button>`}
    ${note && html`<p class="note">${t('question.note')}: <${Plain} text=${note} limit=${500} /></p>`}
  </div>`;
}

/** What a person had typed or picked, with choices by their names. @param {Record<string, any>} draft @param {Ask} [ask] */
export function draftText(draft, ask) {
  const labels = (draft.picked ?? []).flatMap((/** @type {string[]} */ values, /** @type {number} */ place) =>
    values.map((value) => ask?.questions[place]?.options.find((option) => option.value === value)?.label ?? value),
  );
  const texts = [...labels, ...(draft.added ?? []).flat(), ...(draft.own ?? []), ...(draft.notes ?? []), draft.reason, draft.message];
  return inert(texts.filter((text) => typeof text === 'string' && text.trim() !== '').join('\n'));
}

/** @param {{text: string}} props */
function Copy({ text }) {
  const [isDone, setDone] = useState(false);
  if (!text) return null;
  const copy = () => navigator.clipboard?.writeText(text).then(() => setDone(true));
  return html`<button type="button" class="quiet" onClick=${copy}>${isDone ? t('action.copied') : t('action.copy')}</button>`;
}
