// One chat as the desk tells it: what was said, piece by piece while it is written, and what people do in it.

import { batch, computed, effect, signal } from '../vendor/preact.js';
import { Refused, call, pagesOfAsks, pathOf, post } from '../core/api.js';
import { calmly, chatsChanged, find, onDraft, put } from '../core/desk.js';
import { announce, own } from '../core/live.js';
import { sender } from '../core/outbox.js';
import { questionIn } from './chat_question.js';

/** @typedef {import('../types/api').Chat} Chat */
/** @typedef {import('../types/api').ListedChat} ListedChat */
/** @typedef {import('../types/api').ChatMessage} Message */
/** @typedef {import('../vendor/preact.js').Signal<Message>} MessageSignal */

const LONGEST_SAID = 300; // characters of a reply that are read out

/** By chat, the version at which it was begun here; until it is shown. @type {Map<string, number>} */
const begun = new Map();

/** Somebody began it here, so all that comes in it is new to them, however soon. @param {ListedChat} chat */
export const noteBegun = ({ id, version }) => void begun.set(id, version);

export class ChatTalk {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.chat = signal(/** @type {ListedChat | null} */ (null));
    /** In the order they were said. Each is a signal, so that one that grows draws nothing else again. */
    this.messages = signal(/** @type {MessageSignal[]} */ ([]));
    /** Counts what was heard and read. */
    this.grown = signal(0);
    this.isMissing = signal(false);
    /** Whether the settled asks of this chat are known. */
    this.hasAsks = signal(false);
    /** The version that was known first: what is newer came while somebody looked. */
    this.begun = begun.get(id) ?? -1;
    begun.delete(id);
    /** The last message, where a reply to it can be tried again. */
    this.retriable = computed(() => {
      const last = this.messages.value.at(-1)?.value;
      const isOpen = last?.role === 'user' || last?.state === 'stopped' || last?.state === 'failed';
      return last && isOpen && this.chat.value?.state === 'idle' ? last.id : '';
    });
    /** The question that waits. */
    this.question = computed(() => {
      const last = this.messages.value.at(-1)?.value.blocks.at(-1);
      return this.chat.value?.state === 'asking' && last ? questionIn(last) : null;
    });
    /** @type {Map<string, MessageSignal>} */
    this._known = new Map();
    /** What is being sent: the same text again is the same message. @type {{text: string, nonce: string} | null} */
    this._sent = null;
    this._isOver = false;
    /** @type {(() => unknown)[]} */
    this._stops = [];
    this._readOn = calmly(() => this._read());
  }

  /** Read, and go on reading. */
  start() {
    this._stops.push(
      onDraft((draft) => draft.chat === this.id && this._grow(draft)),
      effect(() => {
        void chatsChanged.value;
        this._readOn();
      }),
    );
    this._readAsks().catch(() => undefined); // blocks say what they need themselves
  }

  stop() {
    this._isOver = true;
    for (const stop of this._stops) stop();
  }

  // What people do ---------------------------------------------------------------------------------------------

  /** @param {string} text */
  async say(text) {
    const before = this.chat.peek();
    if (this._sent?.text !== text) this._sent = { text, nonce: aName() };
    if (before?.ask) own.add(before.ask);
    try {
      const said = await post(pathOf('chats', this.id, 'messages'), { ...this._sent, ...sender() });
      this._sent = null;
      batch(() => {
        this._note([said]);
        const now = this.chat.peek();
        if (now && now.version === before?.version) this.chat.value = { ...now, state: 'writing', ask: null };
      });
    } catch (error) {
      if (before?.ask) own.delete(before.ask);
      throw error;
    } finally {
      this._readOn();
    }
  }

  /** @param {'stop' | 'retry'} what */
  async order(what) {
    this._take(await post(pathOf('chats', this.id, what)));
  }

  // What the desk tells ----------------------------------------------------------------------------------------

  async _read() {
    const version = this.chat.peek()?.version;
    try {
      const told = await call(pathOf('chats', this.id) + (version === undefined ? '' : `?since=${version}`));
      if (!this._isOver) this._take(told);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) this.isMissing.value = true;
      throw error;
    }
  }

  /** @param {Chat} told */
  _take({ messages, ...chat }) {
    const isFirst = this.begun === -1;
    if (isFirst) this.begun = chat.version;
    batch(() => {
      const news = this._note(messages);
      if ((this.chat.peek()?.version ?? -1) <= chat.version) this.chat.value = chat;
      if (!isFirst && news) announce(news);
    });
  }

  /** What was told of messages. Returns what is to be read out. @param {Message[]} told */
  _note(told) {
    let news = '';
    let isOther = false;
    for (const message of told) {
      const known = this._known.get(message.id);
      const isDone = message.role === 'assistant' && message.state === 'done';
      if (isDone && known?.peek().state !== 'done') news = textOf(message);
      if (message.state === 'replaced') {
        isOther = this._known.delete(message.id) || isOther;
      } else if (known === undefined) {
        this._known.set(message.id, signal(message));
        isOther = true;
      } else {
        known.value = newer(known.peek(), message);
      }
    }
    if (told.length > 0) this.grown.value += 1;
    if (isOther) this.messages.value = [...this._known.keys()].sort().flatMap((id) => this._known.get(id) ?? []);
    return news;
  }

  /** @param {import('../types/api').Draft} draft */
  _grow({ message, block: place, offset, text }) {
    const known = this._known.get(message);
    const said = known?.peek();
    const block = said?.blocks[place];
    if (known === undefined || said === undefined || block?.content === undefined || offset > block.content.length) {
      this._readOn();
      return;
    }
    const more = text.slice(block.content.length - offset);
    if (more === '' || said.state !== 'writing') return;
    batch(() => {
      known.value = { ...said, blocks: said.blocks.with(place, { ...block, content: block.content + more }) };
      this.grown.value += 1;
    });
  }

  /** Who answered what was asked before. Those that are open, and that come later, are heard of. */
  async _readAsks() {
    for await (const page of pagesOfAsks({ session: this.id, limit: '1000' })) {
      if (this._isOver) return;
      for (const ask of page) if (!find(ask.id)) put(ask);
    }
    this.hasAsks.value = true;
  }
}

/**
 * What was told, unless it is older than what is known: a reply is heard while it is read.
 * @param {Message} known @param {Message} told
 */
function newer(known, told) {
  if (told.version < known.version) return known;
  if (told.state !== 'writing') return told;
  const blocks = told.blocks.map((block, place) => {
    const here = known.blocks[place];
    const isBehind = here?.type === block.type && here.content !== undefined && here.content.startsWith(block.content ?? '');
    return isBehind ? { ...block, content: here.content } : block;
  });
  return { ...told, blocks };
}

/** What is read out of a reply; a question is told of elsewhere. @param {Message} message */
function textOf({ blocks }) {
  if (blocks.at(-1)?.type === 'action') return '';
  const said = blocks.flatMap((block) => (block.type === 'content' ? (block.content ?? '') : []));
  return said.join('\n').replace(/[*`#]+/gu, '').slice(0, LONGEST_SAID);
}

/** One that nobody else has; `randomUUID` wants an https address. */
const aName = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
