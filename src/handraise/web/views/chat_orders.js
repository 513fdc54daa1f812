// How it stands with a chat, and what can be done with all of it: another name, or away with it.

import { html, useId, useState } from '../vendor/preact.js';
import { call, pathOf, post, reasonOf } from '../core/api.js';
import { keep } from '../core/memory.js';
import { inert } from '../core/text.js';
import { t } from '../core/words.js';

/** @typedef {import('../types/api').ListedChat} Chat */

const SIGNS = /** @type {const} */ ({ writing: ['running', '▶'], asking: ['waiting', '!'], idle: ['idle', '○'] });

/** The state as a word and a sign. @param {{state: Chat['state']}} props */
export function ChatMark({ state }) {
  const [standing, sign] = SIGNS[state];
  const word = state === 'writing' ? t('chat.state.writing') : state === 'asking' ? t('chat.state.asking') : t('session.state.idle');
  return html`<span class="standing" data-standing=${standing}><span aria-hidden="true" class="mark">${sign}</span> ${word}</span>`;
}

/** @param {Chat} chat */
export const titleOf = ({ title }) => inert(title) || t('chats.new');

/** @param {{chat: Chat, done: (what: 'renamed' | 'deleted') => void}} props */
export function ChatOrders({ chat, done }) {
  const id = useId();
  const [step, go] = useState(/** @type {'' | 'naming' | 'sure'} */ (''));
  const [name, setName] = useState('');
  const [problem, setProblem] = useState('');
  /** The focus goes where the person goes on. @param {typeof step} to @param {string} what */
  const turn = (to, what) => {
    go(to);
    setProblem('');
    requestAnimationFrame(() => document.getElementById(`${id}-${what}`)?.focus());
  };
  /** @param {Promise<unknown>} order @param {'renamed' | 'deleted'} what */
  const follow = async (order, what) => {
    try {
      await order;
    } catch (error) {
      setProblem(t('session.orderFailed', { reason: inert(reasonOf(error)) }));
      return;
    }
    if (what === 'deleted') keep(`message.${chat.id}`, undefined);
    else turn('', 'rename');
    done(what);
  };
  const beginNaming = () => {
    setName(chat.title);
    turn('naming', 'name');
  };
  /** @param {SubmitEvent} event */
  const rename = (event) => {
    event.preventDefault();
    if (name.trim() !== '') follow(post(pathOf('chats', chat.id), { title: name.trim() }), 'renamed');
  };
  const alert = problem && html`<p class="error" role="alert" dir="auto">${problem}</p>`;
  if (step === 'naming')
    return html`<form class="orders naming" onSubmit=${rename}>
      <label for=${`${id}-name`}>${t('chat.name')}</label>
      <input
        id=${`${id}-name`}
        type="text"
        dir="auto"
        required
        maxlength="80"
        autocomplete="off"
        value=${name}
        onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && turn('', 'rename')}
      />
      <button data-action="rename">${t('chat.rename')}</button>
      <button type="button" class="quiet" onClick=${() => turn('', 'rename')}>${t('action.cancel')}</button>
      ${alert}
    </form>`;
  return html`<span class="orders">
    ${step === 'sure'
      ? html`<button type="button" class="danger" data-action="delete" onClick=${() => follow(call(pathOf('chats', chat.id), { method: 'DELETE' }), 'deleted')}>
            ${t('chat.delete.sure')}
          </button>
          <button type="button" class="quiet" id=${`${id}-keep`} onClick=${() => turn('', 'delete')}>${t('action.cancel')}</button>`
      : html`<button type="button" class="quiet" id=${`${id}-rename`} data-action="rename" onClick=${beginNaming}>${t('chat.rename')}</button>
          <button type="button" class="quiet" id=${`${id}-delete`} data-action="delete" onClick=${() => turn('sure', 'keep')}>${t('chat.delete')}</button>`}
    ${alert}
  </span>`;
}
