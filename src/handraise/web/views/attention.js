// Where the focus goes when a question comes in the conversation that is open.

import { focusCard } from '../cards/card.js';
import { isTyping } from '../core/keys.js';

/**
 * To the field for an own answer, else to the first choice, unless the person is at something else. A field where one
 * writes, and nothing is written, is none of that if a message would answer the question as well.
 * @param {import('../core/api.js').Ask} ask @param {{isAnsweredByMessage?: boolean}} [options]
 */
export function attend(ask, { isAnsweredByMessage = false } = {}) {
  const focused = document.activeElement;
  const isFree = isAnsweredByMessage && focused instanceof HTMLTextAreaElement && focused.value === '' && focused.closest('.composer');
  const isBusy = (isTyping(focused) && !isFree) || !(getSelection()?.isCollapsed ?? true);
  if (!document.hasFocus() || isBusy || document.querySelector('dialog[open]')) return;
  if (focused?.closest('article[data-state="asked"]')) return; // at another one
  const card = document.querySelector(`article[data-ask=${JSON.stringify(ask.id)}]`);
  const field = ask.permission ? null : (card?.querySelector('[data-field="own"]') ?? card?.querySelector('[data-choice]'));
  if (field instanceof HTMLElement) field.focus();
  else focusCard(ask.id);
}
