// What went wrong with an answer that was sent, above the actions, with the draft still there.

import { html, useEffect, useRef } from '../vendor/preact.js';
import { Refused, reasonOf } from '../core/api.js';
import { sendingOf } from '../core/outbox.js';
import { inert } from '../core/text.js';
import { signedOut, t } from '../core/words.js';
import { deliver } from './deliver.js';
import { answerText, channelName, outcome } from './resolved.js';

/** @typedef {import('../core/api.js').Ask} Ask */

/** One sentence about it. @param {unknown} error @param {Ask} ask */
export function troubleText(error, ask) {
  if (error instanceof Refused) {
    if (error.code === 'already_answered') return alreadyText(error.fields, ask);
    if (error.status === 401) return signedOut();
    if (error.code === 'ask_withdrawn') return t('error.withdrawn', { agent: inert(ask.origin.agent) });
  }
  return t('error.sendFailed', { reason: inert(reasonOf(error)) });
}

/** @param {any} fields @param {Ask} ask */
export function alreadyText({ by, via, answer }, ask) {
  const settled = { ...ask, state: answer?.rejected ? /** @type {const} */ ('rejected') : /** @type {const} */ ('answered'), answer };
  if (String(by).startsWith('policy:') && answer) return outcome(settled);
  return t('error.alreadyAnswered', {
    person: inert(String(by ?? '')),
    channel: channelName(String(via ?? '')),
    answer: answer ? answerText(settled) : '',
  });
}

/** Whether the same answer could be taken at another time. @param {unknown} error */
const mayHelpAgain = (error) => !(error instanceof Refused) || error.status >= 500 || [401, 408, 429].includes(error.status);

/** @param {{ask: Ask}} props */
export function Trouble({ ask }) {
  const sending = sendingOf(ask.id).value;
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const hasFailed = sending?.state === 'failed';
  useEffect(() => {
    // What was kept while the desk was away may fail while the person does something else.
    const focused = document.activeElement;
    const isHere = focused === null || focused === document.body || box.current?.closest('article')?.contains(focused);
    if (hasFailed && isHere) box.current?.focus();
  }, [hasFailed]);
  if (!hasFailed) return null;
  const { again, error } = sending;
  return html`<div role="alert" class="error" tabindex="-1" ref=${box}>
    <p dir="auto">${troubleText(error, ask)}</p>
    ${again &&
    mayHelpAgain(error) &&
    html`<button type="button" data-action="retry" onClick=${() => deliver(ask.id, again)}>${t('action.retry')}</button>`}
  </div>`;
}
