// "Allow with changes": the command or the arguments as a field, and before it is sent what was asked above what will
// be done instead.

import { html, useId } from '../vendor/preact.js';
import { reasonOf } from '../core/api.js';
import { exact, inert } from '../core/text.js';
import { t } from '../core/words.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {{input: Record<string, unknown>} | {problem: string}} Changed */

/** A command is changed as text, anything else as JSON. @param {Ask} ask */
function isCommand({ permission }) {
  return permission?.command !== undefined && permission.input?.command === permission.command;
}

/** Whether the agent takes a changed input, and there is one to change. @param {Ask} ask */
export const canChange = ({ permission }) =>
  permission !== null && permission.editable && permission.input !== undefined && permission.replies.includes('once');

/** What the field begins with. @param {Ask} ask @returns {string} */
export function original(ask) {
  if (isCommand(ask)) return ask.permission?.command ?? '';
  return JSON.stringify(ask.permission?.input ?? {}, null, 2);
}

/** The whole input with what was typed. @param {Ask} ask @param {string} text @returns {Changed} */
export function changed(ask, text) {
  if (isCommand(ask)) {
    if (text.trim() === '') return { problem: t('perm.change.empty') };
    return { input: { ...ask.permission?.input, command: text } };
  }
  try {
    const input = JSON.parse(text);
    if (input !== null && typeof input === 'object' && !Array.isArray(input)) return { input };
    return { problem: t('perm.change.noObject') };
  } catch (error) {
    return { problem: t('json.problem', { reason: reasonOf(error) }) };
  }
}

/**
 * @param {{ask: Ask, text: string, isInert: boolean, change: (text: string) => void, allow: () => void, close: () => void}} props
 */
export function Edit({ ask, text, isInert, change, allow, close }) {
  const result = changed(ask, text);
  const problem = 'problem' in result ? result.problem : null;
  const isSame = text === original(ask);
  const id = useId();
  const type = (/** @type {Event} */ event) => change(/** @type {HTMLTextAreaElement} */ (event.currentTarget).value);
  return html`<section class="perm-panel" data-panel="change" aria-labelledby=${`${id}-title`}>
    <p class="panel-title" id=${`${id}-title`}>${t('perm.change.title')}</p>
    <label for=${id}>${isCommand(ask) ? t('perm.change.command') : t('perm.change.arguments')}</label>
    <textarea
      id=${id}
      class="code"
      dir="ltr"
      spellcheck=${false}
      autocomplete="off"
      data-first
      data-field="change"
      disabled=${isInert}
      aria-invalid=${problem ? 'true' : undefined}
      aria-describedby=${problem ? `${id}-problem` : undefined}
      value=${text}
      onInput=${type}
    ></textarea>
    ${problem && html`<p id=${`${id}-problem`} class="problem"><bdi>${inert(problem)}</bdi></p>`}
    ${!isSame &&
    html`<dl class="compared">
      <dt>${t('perm.change.before')}</dt>
      <dd><pre class="object" dir="ltr" data-object="before">${exact(original(ask))}</pre></dd>
      <dt>${t('perm.change.after')}</dt>
      <dd><pre class="object" dir="ltr" data-object="after">${exact(text)}</pre></dd>
    </dl>`}
    <div class="actions">
      <button type="button" data-action="send-change" disabled=${isInert || isSame || problem !== null} onClick=${allow}>
        ${t('perm.change.confirm')}
      </button>
      <button type="button" class="quiet" data-action="close" disabled=${isInert} onClick=${close}>${t('action.cancel')}</button>
    </div>
  </section>`;
}
