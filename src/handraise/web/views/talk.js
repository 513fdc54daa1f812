// What was said in one session and what it asked: the newest first of all, older ones on demand, and more as the desk
// hints that there is.

import { batch, computed, effect, signal } from '../vendor/preact.js';
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


export class Talk {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this._own = signal(/** @type {Session | null} */ (null));
    this._asks = signal(/** @type {string[]} */ ([]));
    this.messages = signal(/** @type {Message[]} */ ([]));
    /** Whether the desk has messages before the first one here. */
    this.hasOlder = signal(false);
    /** The first message of each page: tool calls before it stay apart, so that nothing read before changes. @type {Set<string>} */
    this._pages = new Set();
    /** What was sent from here and its turn has not come. */
    this.queued = signal(/** @type {string[]} */ ([]));
    this.isMissing = signal(false);
    this.isRead = signal(false);
    this._reads = false;
    this._again = false;
    this._isOver = false;
    /** @type {Set<string>} sessions whose asks were read */
    this._known = new Set();
    /** @type {(() => unknown)[]} */
    this._stops = [];
    /** The session: of the list where that has it, which is only of the newest. */
    this.session = computed(() => sessions.value.find((session) => session.id === id) ?? this._own.value);
    /** What waits, of this session and its subagents. */
    this.open = computed(() => openAsks.value.get(id) ?? []);
    /** Everything in the order it happened. What is open is there however old it is. */
    this.entries = computed(() => {
      const messages = this.messages.value;
      const start = this.hasOlder.value ? (messages[0]?.at ?? '') : '';
      const ids = new Set([...this._asks.value, ...this.open.value.map((ask) => ask.id)]);
      /** @type {Entry[]} */
      const entries = messages.map((message) => ({ key: message.id, at: message.at, kind: 'message', message }));
      for (const ask of ids) {
        const known = find(ask)?.value;
        if (known && (known.state === 'asked' || known.asked_at >= start))
          entries.push({ key: `ask ${ask}`, at: known.asked_at, kind: 'ask', id: ask });
      }
      // It sorts stably, so that what was said at the same moment stays as it was told.
      return this._gathered(entries.sort((a, b) => (a.at < b.at ? -1 : Number(a.at > b.at))));
    });
  }

  /** Read, and go on reading. */
  start() {
    this._stops.push(
      onEvent((_, ask) => this._isOurs(ask) && this._note([ask.id])),
      effect(() => {
        void sessions.value; // read anew with every hint
        this._readOn();
      }),
    );
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

  /** Read what was said before. */
  async older() {
    const [first] = this.messages.peek();
    const { messages: more, next } = await this._page({ before: first?.id ?? '' });
    if (this._isOver || this.messages.peek()[0] !== first) return;
    if (first) this._pages.add(first.id);
    batch(() => {
      this.messages.value = [...more, ...this.messages.peek()];
      this.hasOlder.value = next !== undefined;
    });
  }

  /** @param {Ask} ask */
  _isOurs(ask) {
    return ask.origin.session === this.id || ask.origin.parent === this.id;
  }

  /** @param {string[]} ids of asks */
  _note(ids) {
    const known = this._asks.peek();
    const more = ids.filter((id) => !known.includes(id));
    if (more.length > 0) this._asks.value = [...known, ...more];
  }

  /** The settled asks of a session, once; those that come later are heard of. @param {string} session */
  async _readAsks(session) {
    if (this._known.has(session)) return;
    for await (const page of pagesOfAsks({ session, limit: '1000' })) {
      if (this._isOver) return;
      for (const ask of page) if (!find(ask.id)) put(ask);
      this._note(page.map((ask) => ask.id));
    }
    this._known.add(session);
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
    const children = sessions.peek().filter((session) => session.parent === this.id);
    for (const id of [this.id, ...children.map((session) => session.id)]) await this._readAsks(id);
    for (let isWhole = false; !isWhole; ) {
      const after = this.messages.peek().at(-1)?.id;
      const { messages: more, next } = await this._page(after === undefined ? { before: '' } : { after });
      if (this._isOver) return;
      batch(() => {
        if (after === undefined) this.hasOlder.value = next !== undefined;
        if (more.length > 0) this.messages.value = [...this.messages.peek(), ...more];
        for (const message of more) if (message.role === 'person') this._unqueue(message.text);
      });
      isWhole = after === undefined || next === undefined;
    }
    this.isRead.value = true;
  }

  /** @param {Record<string, string>} query @returns {Promise<{messages: Message[], next?: string}>} */
  _page(query) {
    return call(`${pathOf('sessions', this.id, 'messages')}?${new URLSearchParams(query)}`);
  }

  /** @param {string} text */
  _unqueue(text) {
    const place = this.queued.peek().indexOf(text);
    if (place !== -1) this.queued.value = this.queued.peek().toSpliced(place, 1);
  }

  /** Tool calls that follow each other as one. @param {Entry[]} entries */
  _gathered(entries) {
    /** @type {Entry[]} */
    const gathered = [];
    for (const entry of entries) {
      const last = gathered.at(-1);
      if (entry.kind !== 'message' || entry.message.role !== 'tool') gathered.push(entry);
      else if (last?.kind === 'tools' && !this._pages.has(entry.key)) last.messages.push(entry.message);
      else gathered.push({ key: entry.key, at: entry.at, kind: 'tools', messages: [entry.message] });
    }
    return gathered;
  }
}
