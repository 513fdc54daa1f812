// One chat with a model: what was said, the question that waits under the reply that asked it, and where people write.

import { html, useComputed, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { Refused, call, pathOf, reasonOf } from '../core/api.js';
import { find, put } from '../core/desk.js';
import { own } from '../core/live.js';
import { sendingOf } from '../core/outbox.js';
import { go } from '../core/route.js';
import { inert, Plain } from '../core/text.js';
import { moment, t } from '../core/words.js';
import { settledText } from './aim.js';
import { Block } from './chat_blocks.js';
import { ChatMark, ChatOrders, titleOf } from './chat_orders.js';
import { nameOf } from './chat_question.js';
import { ChatTalk } from './chat_talk.js';
import { Composer, useMessage } from './composer.js';
import { Conversation } from './conversation.js';

/** @typedef {import('./chat_talk.js').MessageSignal} MessageSignal */
/** @typedef {import('../types/api').ListedChat} ListedChat */

/** @param {{id: string}} props */
export function Chat({ id }) {
  const talk = useMemo(() => new ChatTalk(id), [id]);
  useEffect(() => {
    talk.start();
    return () => talk.stop();
  }, [talk]);
  const chat = talk.chat.value;
  const isShown = chat !== null && !talk.isMissing.value;
  // Whoever comes here from the list has left behind what had the focus.
  useEffect(() => {
    if (isShown && document.activeElement === document.body) document.getElementById('chat-title')?.focus({ preventScroll: true });
  }, [isShown]);
  if (!isShown)
    return html`<section class="view">
      <p><a class="reach" href="#/chats">${t('nav.chats')}</a></p>
      <p class="quiet-text">${talk.isMissing.value ? t('chat.unknown') : t('app.loading')}</p>
    </section>`;
  return html`<section class="view chat" aria-labelledby="chat-title" data-chat=${id}>
    <p><a class="reach" href="#/chats">${t('nav.chats')}</a></p>
    <header class="page-head">
      <h1 id="chat-title" tabindex="-1" dir="auto">${titleOf(chat)}</h1>
      <${ChatMark} state=${chat.state} />
      <${ChatOrders} chat=${chat} done=${(/** @type {string} */ what) => what === 'deleted' && go('chats')} />
    </header>
    <${Told} talk=${talk} model=${chat.model} />
    <${Telling} talk=${talk} chat=${chat} />
  </section>`;
}

// What was said ----------------------------------------------------------------------------------------------

/** @param {{talk: ChatTalk, model: string}} props */
function Told({ talk, model }) {
  const messages = talk.messages.value;
  const rows = useMemo(
    () =>
      messages.map((message) => {
        const key = message.peek().id;
        return { key, row: html`<${Said} key=${key} talk=${talk} message=${message} model=${model} />` };
      }),
    [messages, model],
  );
  return html`<${Conversation} rows=${rows} label=${t('session.talk')} grown=${talk.grown.value} />`;
}

/** @param {{talk: ChatTalk, message: MessageSignal, model: string}} props */
function Said({ talk, message, model }) {
  const { id, role, state, blocks, at, version } = message.value;
  const isRetriable = useComputed(() => talk.retriable.value === id);
  const isPerson = role === 'user';
  return html`<li class="said" data-role=${isPerson ? 'person' : 'agent'} data-state=${state} aria-busy=${state === 'writing' || undefined}>
    <p class="who"><span dir="auto">${isPerson ? t('session.you') : inert(model)}</span> · <time datetime=${at}>${moment(new Date(at))}</time></p>
    ${isPerson
      ? html`<${Plain} as="p" class="lines" text=${blocks.map((block) => block.content ?? '').join('\n')} limit=${4000} />`
      : blocks.map((block, place) => html`<${Block} key=${place} block=${block} isNew=${version > talk.begun} hasAsks=${talk.hasAsks} />`)}
    ${state === 'writing' && html`<p class="writing"><span class="unseen">${t('chat.state.writing')}</span></p>`}
    ${state === 'stopped' && html`<p class="quiet-text">${t('chat.stopped')}</p>`}
    ${isRetriable.value && html`<${Retry} talk=${talk} />`}
  </li>`;
}

/** @param {{talk: ChatTalk}} props */
function Retry({ talk }) {
  const [problem, setProblem] = useState('');
  const button = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const { current } = button;
    const field = document.querySelector('.chat .composer textarea');
    // It goes when it has done its work, and takes the focus with it.
    return () => void (document.activeElement === current && field instanceof HTMLElement && field.focus({ preventScroll: true }));
  }, []);
  const again = () => {
    setProblem('');
    talk.order('retry').catch((error) => setProblem(t('session.orderFailed', { reason: inert(reasonOf(error)) })));
  };
  return html`<div class="actions">
    <button type="button" data-action="retry" ref=${button} onClick=${again}>${t('action.retry')}</button>
    ${problem && html`<p class="error" role="alert" dir="auto">${problem}</p>`}
  </div>`;
}

// What people write ------------------------------------------------------------------------------------------

/** Every message answers the question that waits, if one does. @param {{talk: ChatTalk, chat: ListedChat}} props */
function Telling({ talk, chat }) {
  const { id, ask, state } = chat;
  const message = useMessage(id);
  /** The ask that waited when the message was begun: what is meant for it goes nowhere else unseen. */
  const [begun, setBegun] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState('');
  const wasFor = begun ? find(begun)?.value : undefined;
  const lost = wasFor && wasFor.state !== 'asked' && !own.has(wasFor.id) && message.text !== '' ? wasFor : null;
  const sending = ask ? sendingOf(ask).value?.state : undefined;
  const isOnItsWay = sending === 'sending' || sending === 'queued';
  const isWriting = state === 'writing';
  const question = talk.question.value;

  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const hadFocus = document.activeElement instanceof HTMLElement && document.activeElement.dataset.action === 'stop';
  useLayoutEffect(() => {
    if (hadFocus && !isWriting) frame.current?.querySelector('textarea')?.focus();
  }, [isWriting]);

  const says = lost
    ? t('deadline.draftNotSent')
    : isWriting
      ? t('chat.busy')
      : sending === 'sending'
        ? t('state.sending')
        : sending === 'queued'
          ? t('state.queued')
          : question
            ? t('chat.willAnswer', { header: nameOf(question) })
            : t('session.hint.idle');
  /** @param {string} text */
  const write = (text) => {
    message.write(text);
    if (text.trim() === '') setBegun(null);
    else if (lost === null && ask) setBegun(ask);
  };
  /** @param {string} text */
  const send = async (text) => {
    try {
      await talk.say(text);
    } catch (error) {
      const now = ask && error instanceof Refused ? await call(pathOf('asks', ask)).then(put, () => undefined) : undefined;
      // Somebody was faster: who and what is told above.
      throw new Error(now && now.peek().state !== 'asked' ? '' : t('session.orderFailed', { reason: reasonOf(error) }));
    }
    setBegun(null);
  };
  const stop = async () => {
    setProblem('');
    await talk.order('stop').catch((error) => setProblem(t('session.orderFailed', { reason: inert(reasonOf(error)) })));
  };
  const forget = () => {
    frame.current?.querySelector('textarea')?.focus();
    setBegun(null);
  };
  return html`<div class="telling" ref=${frame}>
    <${Composer}
      message=${{ ...message, write }}
      label=${t('session.message', { agent: inert(chat.model) })}
      placeholder=${question ? t('question.own.placeholder') : t('session.message.placeholder')}
      says=${says}
      isHeld=${lost !== null || isWriting || isOnItsWay}
      send=${send}
      beside=${isWriting && html`<button type="button" data-action="stop" onClick=${stop}>${t('chat.stop')}</button>`}
      alert=${lost
        ? html`<div class="error" role="alert">
            <p dir="auto">${settledText(lost)}</p>
            <button type="button" class="quiet" data-action="close" onClick=${forget}>${t('keys.close')}</button>
          </div>`
        : problem && html`<p class="error" role="alert" dir="auto">${problem}</p>`}
    />
  </div>`;
}
