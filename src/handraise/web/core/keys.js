// Keys. Those of a card work while the focus is in it and not in a text field; `j`, `k`, `g i` and `?` everywhere, unless
// they are switched off.

import { signal } from '../vendor/preact.js';
import { recall } from './memory.js';
import { go } from './route.js';

/** Whether a keyboard was used last, so that hints are worth their place. */
export const byKeyboard = signal(false);
export const helpIsOpen = signal(false);

addEventListener('keydown', (event) => (byKeyboard.value = event.key !== 'Shift' ? true : byKeyboard.peek()), true);
addEventListener('pointerdown', () => (byKeyboard.value = false), true);

/** @param {EventTarget | null} target */
export const isTyping = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable ||
    target instanceof HTMLTextAreaElement ||
    target instanceof HTMLSelectElement ||
    (target instanceof HTMLInputElement && !['radio', 'checkbox', 'button', 'submit'].includes(target.type)));

/**
 * The name of a key press as cards know it: `Enter`, `Mod+Enter`, `Shift+A`, `2`.
 * @param {KeyboardEvent} event
 */
export function nameOf(event) {
  if (event.isComposing || event.altKey) return '';
  if (event.ctrlKey || event.metaKey) return `Mod+${event.key}`;
  return event.shiftKey && /^\p{L}$/u.test(event.key) ? `Shift+${event.key.toUpperCase()}` : event.key;
}

/** Put the focus on the heading of the next or previous card. @param {1 | -1} step */
export function moveToCard(step) {
  const headings = [...document.querySelectorAll('main article h2, main article h3')].filter(
    (heading) => heading instanceof HTMLElement && heading.tabIndex === -1,
  );
  const current = headings.findIndex((heading) => heading.closest('article')?.contains(document.activeElement));
  const next = headings[current === -1 ? (step === 1 ? 0 : headings.length - 1) : current + step];
  if (next instanceof HTMLElement) {
    next.focus({ preventScroll: true });
    next.closest('article')?.scrollIntoView({ block: 'nearest' });
  }
}

let pressedG = 0;

addEventListener('keydown', (event) => {
  if (event.defaultPrevented || isTyping(event.target) || event.repeat || recall('noGlobalKeys', false)) return;
  if (document.querySelector('dialog[open]')) return;
  const name = nameOf(event);
  const isAfterG = performance.now() - pressedG < 1500;
  pressedG = 0;
  if (name === 'j') moveToCard(1);
  else if (name === 'k') moveToCard(-1);
  else if (name === 'g') pressedG = performance.now();
  else if (name === 'i' && isAfterG) go();
  else if (name === '?') helpIsOpen.value = true;
  else return;
  event.preventDefault();
});
