// What was said in one session and what it asked, read as the desk hints that there is more.

import { computed, effect, signal } from '../vendor/preact.js';
import { Refused, call, pagesOfAsks, pathOf, post } from '../core/api.js';
import { find, onEvent, put, sessions } from '../core/desk.js';
import { openAsks } from './states.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../core/api.js').Session} Session */
/** @typedef {import('../types/api').Message} Message */
/**
 * @typedef {{key: string, at: string, kind: 'message', message: Message}
 *   | {key: string, at: string, kind: 'tools', messages: Message[]}
 *   | {key: string, at: string, kind: 'ask', id: string}} Entry
 */

const PAGE = 200; // messages that the desk tells at a time

export class Talk {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this._own = signal(/** @type {Session | null} */ (null));
    this._asks = signal(/** @type {string[]} */ ([]));
    this.messages = signal(/** @type {Message[]} */ ([]));
    /** What was sent from here and its turn has not come. */
    this.queued = signal(/** @type {string[]} */ ([]));
    this.isMissing = signal(false);
    this.isRead = signal(false);
    this._reads = false;
    this._again = false;
    this._isOver = false;
    /** @type {(() => unknown)[]} */
    this._stops = [];
    /** The session: of the list where that has it, which is only of the newest. */
    this.session = computed(() => sessions.value.find((session) => session.id === id) ?? this._own.value);
    /** Everything in the order it happened; what is open at the end. */
    this.entries = computed(() => {
      const open = (openAsks.value.get(id) ?? []).map((ask) => ask.id);
      const settled = this._asks.value.filter((ask) => !open.includes(ask));
      const said = gathered(this.messages.value);
      for (const ask of settled) said.push({ key: `ask ${ask}`, at: find(ask)?.value.asked_at ?? '', kind: 'ask', id: ask });
      // It sorts stably, so that what was said at the same moment stays as it was told.
      said.sort((a, b) => (a.at < b.at ? -1 : Number(a.at > b.at)));
      return [...said, ...open.map((ask) => entryOf(ask))];
    });
  }

  /** Read, and go on reading. */
  start() {
    this._stops.push(
      onEvent((_, ask) => this._isOurs(ask) && this._note(ask)),
      effect(() => {
        void sessions.value; // read anew with every hint
        this._readOn();
      }),
    );
    this._readAsks().catch(() => undefined); // the banner says what is wrong
  }

  stop() {
    this._isOver = true;
    for (const stop of this._stops) stop();
  }

  /** @param {string} text */
  async prompt(text) {
    this.queued.value = [...this.queued.peek(), text];
    try {
      this._own.value = await post(pathOf('sessions', this.id, 'prompt'), { prompt: text });
    } catch (error) {
      this._unqueue(text);
      throw error;
    }
  }

  /** @param {'abort' | 'close'} order */
  async order(order) {
    this._own.value = await post(pathOf('sessions', this.id, order));
  }

  /** @param {Ask} ask */
  _isOurs(ask) {
    return ask.origin.session === this.id || ask.origin.parent === this.id;
  }

  /** @param {Ask} ask */
  _note(ask) {
    if (!this._asks.peek().includes(ask.id)) this._asks.value = [...this._asks.peek(), ask.id];
  }

  async _readAsks() {
    for await (const page of pagesOfAsks({ session: this.id })) {
      if (this._isOver) return;
      for (const ask of page) {
        if (!find(ask.id)) put(ask);
        this._note(ask);
      }
    }
  }

  /** One at a time, and once more if something changed meanwhile. */
  async _readOn() {
    this._again = true;
    if (this._reads) return;
    this._reads = true;
    while (this._again && !this._isOver) {
      this._again = false;
      try {
        await this._read();
      } catch (error) {
        if (error instanceof Refused && error.status === 404) this.isMissing.value = true;
      }
    }
    this._reads = false;
  }

  async _read() {
    if (!sessions.peek().some((session) => session.id === this.id)) this._own.value = await call(pathOf('sessions', this.id));
    for (;;) {
      const after = this.messages.peek().at(-1)?.id ?? '';
      const query = after ? `?${new URLSearchParams({ after })}` : '';
      /** @type {Message[]} */
      const more = (await call(pathOf('sessions', this.id, 'messages') + query)).messages;
      if (this._isOver) return;
      if (more.length > 0) this.messages.value = [...this.messages.peek(), ...more];
      for (const message of more) if (message.role === 'person') this._unqueue(message.text);
      if (more.length < PAGE) break;
    }
    this.isRead.value = true;
  }

  /** @param {string} text */
  _unqueue(text) {
    const place = this.queued.peek().indexOf(text);
    if (place !== -1) this.queued.value = this.queued.peek().toSpliced(place, 1);
  }
}

/** @param {string} id @returns {Entry} */
const entryOf = (id) => ({ key: `ask ${id}`, at: '', kind: 'ask', id });

/** Messages as entries, tool calls that follow each other as one. @param {Message[]} messages @returns {Entry[]} */
function gathered(messages) {
  /** @type {Entry[]} */
  const entries = [];
  for (const message of messages) {
    const last = entries.at(-1);
    if (message.role === 'tool' && last?.kind === 'tools') last.messages.push(message);
    else if (message.role === 'tool') entries.push({ key: message.id, at: message.at, kind: 'tools', messages: [message] });
    else entries.push({ key: message.id, at: message.at, kind: 'message', message });
  }
  return entries;
}
