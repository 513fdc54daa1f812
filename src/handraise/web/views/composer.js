// Where people write in a conversation: a field that grows, what sending it will do, and what went wrong with it.
// Its style is in talk.css.

import { html, useEffect, useId, useRef, useState } from '../vendor/preact.js';
import { reasonOf } from '../core/api.js';
import { nameOf } from '../core/keys.js';
import { keep, recall } from '../core/memory.js';
import { inert } from '../core/text.js';
import { t } from '../core/words.js';

/** @typedef {{text: string, write: (text: string) => void, send: (post: (text: string) => Promise<unknown>) => Promise<void>}} Message */

/**
 * What is being written in one conversation, kept on this device until it was sent.
 * @param {string} name of the conversation
 * @returns {Message}
 */
export function useMessage(name) {
  const key = `message.${name}`;
  const [text, show] = useState(() => recall(key, ''));
  const newest = useRef(text);
  /** @param {string} wanted */
  const write = (wanted) => {
    newest.current = wanted;
    show(wanted);
    keep(key, wanted);
  };
  /** The field is free at once; what could not be sent comes back before what was written meanwhile. @type {Message['send']} */
  const send = async (post) => {
    const said = newest.current.trim();
    newest.current = '';
    show('');
    try {
      await post(said);
      keep(key, newest.current);
    } catch (error) {
      write([said, newest.current].filter((each) => each !== '').join('\n'));
      throw error;
    }
  };
  return { text, write, send };
}

/**
 * Enter sends, Shift+Enter begins a line, Escape leaves.
 * @param {object} props
 * @param {Message} props.message from `useMessage`
 * @param {string} props.label
 * @param {any} props.says what sending will do, above the field
 * @param {(text: string) => Promise<unknown>} props.send the message of what it throws is shown, if there is one, and the text comes back
 * @param {string} [props.placeholder]
 * @param {string} [props.action] on the button, where sending is something else
 * @param {boolean} [props.isHeld] it can be written on, and is not sent; `says` says why
 * @param {any} [props.beside] another button, before that which sends
 * @param {any} [props.alert] what happened meanwhile, above it all
 * @param {any} [props.children] below the field
 */
export function Composer({ message, label, says, send, placeholder, action, isHeld = false, beside, alert, children }) {
  const id = useId();
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const [problem, setProblem] = useState('');
  const isReady = !isHeld && message.text.trim() !== '';
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    if (!isReady) return;
    setProblem('');
    await message.send(send).catch((error) => setProblem(inert(reasonOf(error))));
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    const key = nameOf(event);
    if ((key === 'Enter' && !event.shiftKey) || key === 'Mod+Enter') submit(event);
    else if (key === 'Escape' && event.currentTarget instanceof HTMLElement) event.currentTarget.blur();
  };
  useEffect(() => reserve(frame.current), []);
  return html`<form class="composer" ref=${frame} onSubmit=${submit}>
    ${alert} ${problem && html`<p class="error" role="alert" dir="auto">${problem}</p>`}
    <div class="purpose" key="purpose">
      <label for=${id}>${label}</label>
      <div id=${`${id}-says`} class="quiet-text" dir="auto">${says}</div>
    </div>
    <div class="line" key="line">
      <textarea
        key="field"
        id=${id}
        rows="1"
        dir="auto"
        enterkeyhint="send"
        aria-describedby=${`${id}-says`}
        placeholder=${placeholder}
        value=${message.text}
        onInput=${(/** @type {any} */ event) => message.write(event.currentTarget.value)}
        onKeyDown=${press}
      ></textarea>
      ${beside}
      <button class="primary" data-action="send" aria-disabled=${isReady ? undefined : 'true'}>${action ?? t('action.send')}</button>
    </div>
    ${children}
  </form>`;
}

/** Keep what has the focus, and the way to the end, clear of it. @param {HTMLElement | null} frame */
function reserve(frame) {
  if (frame === null) return undefined;
  const { style } = document.documentElement;
  const observer = new ResizeObserver(() => style.setProperty('--composer', `${frame.offsetHeight}px`));
  observer.observe(frame);
  return () => (observer.disconnect(), style.removeProperty('--composer'));
}
