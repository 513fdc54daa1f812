// Chats with a model, the newest first; a field to begin one; and, where there is no model yet, how to get one.

import { effect, html, useEffect, useState } from '../vendor/preact.js';
import { call, post, reasonOf } from '../core/api.js';
import { minute } from '../core/clock.js';
import { calmly, chatsChanged } from '../core/desk.js';
import { sender } from '../core/outbox.js';
import { go, href } from '../core/route.js';
import { inert } from '../core/text.js';
import { ago, t } from '../core/words.js';
import { ChatMark, ChatOrders, titleOf } from './chat_orders.js';
import { noteBegun } from './chat_talk.js';
import { Composer, useMessage } from './composer.js';

/** @typedef {import('../types/api').Chats} Told */
/** @typedef {import('../types/api').ListedChat} Chat */

const EXAMPLE = `[models.local]
api = "openai"
model = "qwen3"
url = "http://127.0.0.1:11434/v1"

[models.claude]
api = "anthropic"
model = "claude-sonnet-4-5"
key_env = "ANTHROPIC_API_KEY"`;

export function Chats() {
  const [told, setTold] = useState(/** @type {Told | null} */ (null));
  useEffect(() => {
    let isOver = false;
    const again = calmly(async () => {
      const now = await call('/v1/chats');
      if (!isOver) setTold(now);
    });
    const stop = effect(() => {
      void chatsChanged.value;
      again();
    });
    return () => {
      isOver = true;
      stop();
    };
  }, []);
  return html`<section aria-labelledby="chats-title" class="view chats">
    <header class="page-head"><h1 id="chats-title" tabindex="-1">${t('nav.chats')}</h1></header>
    ${told === null && html`<p class="quiet-text">${t('app.loading')}</p>`}
    ${told?.models.length === 0 && html`<${NoModel} />`} ${told && told.models.length > 0 && html`<${NewChat} told=${told} />`}
    ${told && told.chats.length > 0 && html`<ul class="rows" aria-labelledby="chats-title">${told.chats.map((chat) => html`<${Row} key=${chat.id} chat=${chat} />`)}</ul>`}
  </section>`;
}

function NoModel() {
  return html`<div class="panel">
    <p>${t('chats.noModel')}</p>
    <pre class="object" dir="ltr">${EXAMPLE}</pre>
  </div>`;
}

/** @param {{told: Told}} props */
function NewChat({ told: { models, model } }) {
  const message = useMessage('chats');
  const [chosen, choose] = useState(model ?? '');
  /** @param {string} text */
  const send = async (text) => {
    const begun = await post('/v1/chats', { text, model: chosen || null, ...sender() }).catch((error) => {
      throw new Error(t('sessions.form.failed', { reason: reasonOf(error) }));
    });
    noteBegun(begun);
    go('chats', begun.id);
  };
  return html`<div class="panel">
    <${Composer}
      message=${message}
      label=${t('chats.new')}
      placeholder=${t('session.message.placeholder')}
      says=${t('session.hint.idle')}
      action=${t('sessions.form.go')}
      send=${send}
    >
      ${models.length > 1 &&
      html`<label class="model">
        <span>${t('chats.model')}</span>
        <select name="model" value=${chosen} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
          ${models.map((each) => html`<option value=${each.name} selected=${each.name === chosen}>${inert(each.name)} (${inert(each.model)})</option>`)}
        </select>
      </label>`}
    <//>
  </div>`;
}

/** @param {{chat: Chat}} props */
function Row({ chat }) {
  const seconds = Math.max(0, (minute.value - Date.parse(chat.updated_at)) / 1000);
  return html`<li class="row" data-chat=${chat.id}>
    <a class="row-head" href=${href('chats', chat.id)}>
      <${ChatMark} state=${chat.state} />
      <strong class="row-title" dir="auto">${titleOf(chat)}</strong>
    </a>
    <p class="facts">
      <span dir="auto">${inert(chat.model)}</span>
      <time datetime=${chat.updated_at}>${t('session.active', { time: ago(seconds) })}</time>
    </p>
    <${ChatOrders} chat=${chat} done=${(/** @type {string} */ what) => what === 'deleted' && document.getElementById('chats-title')?.focus()} />
  </li>`;
}
