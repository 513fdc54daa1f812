// The raw messages of one session, read from the end and followed; between them what the desk noted of its asks.

import { computed, signal } from '../vendor/preact.js';
import { call, pathOf, reasonOf, Refused } from '../core/api.js';
import { find, onEvent, put } from '../core/desk.js';
import { inert } from '../core/text.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../types/api').Wire} Wire */
/** @typedef {{way: string, name: string, q: string, asks: boolean}} Wanted */
/**
 * A line of the list: a message, or what the desk noted.
 * @typedef {{id: string, at: string, way: 'in' | 'out' | 'desk', name: string, ask: string | null, body: unknown, size?: number, pieces?: number}} Line
 */

const PAGE = 200;
const PAGE_OF_ALL = 500;
const MOST = 1000; // lines that are drawn while it is followed; the older ones are read again when somebody wants them
const WAIT = 25; // seconds that a call waits for more
const PAUSE = 2000; // milliseconds until a desk that did not answer is asked again

export class Wiretap {
  wires = signal(/** @type {Wire[]} */ ([]));
  /** Where to read on for older ones; null where there are none. */
  older = signal(/** @type {string | null} */ (null));
  isRecording = signal(true);
  isRead = signal(false);
  isFollowing = signal(true);
  /** `forbidden`, `missing`, or why it cannot be read. */
  trouble = signal('');
  wanted = signal(/** @type {Wanted} */ ({ way: '', name: '', q: '', asks: false }));
  names = signal(/** @type {string[]} */ ([]));
  #asks = signal(/** @type {string[]} */ ([]));
  #reading = new AbortController();
  /** @type {(() => void)[]} */
  #stops = [];

  /** What is shown, the oldest first. */
  lines = computed(() => {
    const wires = /** @type {Line[]} */ (this.wanted.value.way === 'desk' ? [] : this.wires.value);
    const since = this.older.value === null ? '' : (this.wires.value[0]?.at ?? '');
    const notes = this.#notes().filter((note) => note.at >= since);
    return notes.length === 0 ? wires : [...wires, ...notes].sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
  });

  /** @param {string} id */
  constructor(id) {
    this.id = id;
  }

  start() {
    const isOurs = (/** @type {Ask} */ ask) => ask.origin.session === this.id || ask.origin.parent === this.id;
    const stop = onEvent((_, ask) => {
      if (isOurs(ask) && !this.#asks.peek().includes(ask.id)) this.#asks.value = [...this.#asks.peek(), ask.id];
    });
    // A tab that nobody looks at keeps no connection: a browser has few of them.
    const look = () => (document.hidden ? this.#reading.abort() : this.isRead.peek() ? this.#follow() : this.read());
    document.addEventListener('visibilitychange', look);
    this.#stops = [() => void stop(), () => document.removeEventListener('visibilitychange', look)];
    this.read();
    this.#readAsks();
  }

  stop() {
    this.#reading.abort();
    for (const stop of this.#stops) stop();
  }

  /** @param {Partial<Wanted>} changes */
  want(changes) {
    this.wanted.value = { ...this.wanted.peek(), ...changes };
    return this.read();
  }

  /** @param {boolean} isFollowing */
  follow(isFollowing) {
    this.isFollowing.value = isFollowing;
    if (isFollowing) this.#follow();
    else this.#reading.abort();
  }

  /** The last ones that are wanted, and then what comes. @returns {Promise<void>} */
  async read() {
    const { signal: stopped } = this.#anew();
    const page = await this.#page({}, stopped);
    if (stopped.aborted) return;
    if (page === null) {
      if (this.#isOver()) return;
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      return stopped.aborted ? undefined : this.read();
    }
    this.older.value = page.next ?? null;
    this.#show(page.wire);
    this.isRead.value = true;
    this.#follow();
  }

  async readOlder() {
    const page = await this.#page({ before: this.older.peek() ?? '' });
    if (page === null) return;
    this.older.value = page.next ?? null;
    this.#show([...page.wire, ...this.wires.peek()]);
  }

  /** Every message that is wanted, as lines of JSON. */
  async all() {
    /** @type {Wire[]} */
    let found = [];
    for (let before = ''; ; ) {
      const page = await this.#page({ limit: String(PAGE_OF_ALL), ...(before ? { before } : {}) });
      if (page === null) return '';
      found = [...page.wire, ...found];
      if (!page.next) return found.map((wire) => `${JSON.stringify(wire)}\n`).join('');
      before = page.next;
    }
  }

  async #follow() {
    const { signal: stopped } = this.#anew();
    while (this.isFollowing.peek() && !document.hidden && !this.#isOver()) {
      const after = this.wires.peek().at(-1)?.id ?? '';
      const page = await this.#page({ after, wait: String(WAIT) }, stopped);
      if (stopped.aborted) return;
      if (page === null) await new Promise((resolve) => setTimeout(resolve, PAUSE));
      if (stopped.aborted) return;
      if (page !== null && page.wire.length > 0) this.#append(page.wire);
    }
  }

  /** @param {Wire[]} wires */
  #append(wires) {
    const all = [...this.wires.peek(), ...wires];
    if (all.length > MOST) this.older.value = all[all.length - MOST].id;
    this.#show(all.slice(-MOST));
  }

  /** @param {Wire[]} wires */
  #show(wires) {
    this.wires.value = wires;
    const names = new Set([...this.names.peek(), ...wires.map((wire) => wire.name)]);
    if (names.size !== this.names.peek().length) this.names.value = [...names].sort();
  }

  /** Whether asking again would not help. */
  #isOver() {
    return ['forbidden', 'missing'].includes(this.trouble.peek());
  }

  #anew() {
    this.#reading.abort();
    return (this.#reading = new AbortController());
  }

  /**
   * @param {Record<string, string>} more
   * @param {AbortSignal} [stopped]
   * @returns {Promise<import('../types/api').Wires | null>} null where it could not be read, which is said
   */
  async #page(more, stopped) {
    const { way, name, q, asks } = this.wanted.peek();
    const wanted = { ...(way && way !== 'desk' ? { way } : {}), ...(name ? { name } : {}), ...(q ? { q } : {}), ...(asks ? { ask: '*' } : {}) };
    try {
      const query = new URLSearchParams({ limit: String(PAGE), ...wanted, ...more });
      const page = await call(`${pathOf('sessions', this.id, 'wire')}?${query}`, { signal: stopped });
      this.isRecording.value = page.recording;
      this.trouble.value = '';
      return page;
    } catch (error) {
      if (stopped?.aborted) return null;
      const status = error instanceof Refused ? error.status : 0;
      this.trouble.value = status === 403 ? 'forbidden' : status === 404 ? 'missing' : inert(reasonOf(error));
      return null;
    }
  }

  // What the desk noted ------------------------------------------------------------------------------------------

  async #readAsks() {
    const query = new URLSearchParams({ session: this.id, order: 'newest', limit: String(PAGE) });
    const page = await call(`/v1/asks?${query}`).catch(() => ({ asks: [] }));
    for (const ask of page.asks) put(ask);
    const ids = page.asks.map((/** @type {Ask} */ ask) => ask.id);
    this.#asks.value = [...new Set([...ids, ...this.#asks.peek()])];
  }

  /** @returns {Line[]} */
  #notes() {
    const { way, name, q } = this.wanted.value;
    if (way === 'in' || way === 'out') return [];
    const asks = this.#asks.value.map((id) => find(id)?.value).filter((ask) => ask !== undefined);
    return asks.flatMap(notesOf).filter((note) => (!name || note.name === name) && holds(note.body, q));
  }
}

/**
 * When it was asked, when it was settled, and when the agent had the answer. What it says is told without secrets beside
 * the messages that it came with.
 * @param {Ask} ask
 * @returns {Line[]}
 */
function notesOf(ask) {
  /** @param {string} name @param {string | null | undefined} at @param {unknown} body @returns {Line[]} */
  const note = (name, at, body) => (at ? [{ id: `${name} ${ask.id}`, at, way: 'desk', name, ask: ask.id, body }] : []);
  return [
    ...note('asked', ask.asked_at, { id: ask.id, origin: ask.origin }),
    ...note(ask.state, ask.answer?.at, { id: ask.id, by: ask.answer?.by, via: ask.answer?.via }),
    ...note('delivered', ask.delivered_at, { id: ask.id, error: ask.delivery_error }),
  ];
}

/** @param {unknown} body @param {string} text */
const holds = (body, text) => !text || JSON.stringify(body).toLowerCase().includes(text.toLowerCase());
