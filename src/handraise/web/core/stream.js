// One event stream a browser, however many tabs: the tab that holds the lock listens and passes on what it hears.
//
// Every event says which one came before it, so that a tab that missed some knows, and reads everything again. Where
// there are no locks (a plain-HTTP address that is not this machine) each tab listens for itself.

import { Refused } from './api.js';
import { sessionHeaders } from './session.js';

/** @typedef {{type: string, at: string, ask?: import('./api.js').Ask, what?: string[], through?: number}} Told */
/** @typedef {import('../types/api').Draft} Draft */
/** @typedef {'connecting' | 'live' | 'lost' | 'signed-out'} State */
/**
 * @typedef {object} Heard
 * @property {(event: Told) => void} event of an ask
 * @property {(what: string[]) => void} hint that something else may have changed
 * @property {(draft: Draft) => void} draft of a chat's reply
 * @property {() => Promise<number>} missed read everything again; resolves to the cursor it stands for
 * @property {(state: State) => void} state of the connection
 */

const LOCK = 'handraise-stream';
const FIRST_PAUSE = 500; // milliseconds until the first try to connect again
const LONGEST_PAUSE = 8000;
const SILENCE = 40_000; // milliseconds after which a stream is thought dead; the desk's heart beats every 15 s

export class Stream {
  /** @param {Heard} heard */
  constructor(heard) {
    this._heard = heard;
    this._cursor = -1; // the last event that this tab knows of
    /** @type {State} */
    this._state = 'connecting';
    this._last = -1; // the last event that was passed on
    this.leads = false;
    this._reading = false;
    /** @type {{previous: number, cursor: number, event: Told}[]} */
    this._early = []; // heard while everything is read
    this._channel = new BroadcastChannel('handraise-events');
    this._channel.onmessage = ({ data }) => this._take(data);
    this._ended = new AbortController();
  }

  async start() {
    await this._read();
    if (navigator.locks) {
      this._channel.postMessage({ kind: 'hello' });
      navigator.locks
        .request(LOCK, { signal: this._ended.signal }, () => this._lead())
        .catch(() => undefined); // ended while it waited
    } else {
      this._lead();
    }
  }

  stop() {
    this._ended.abort();
    this._channel.close();
  }

  /** Read everything, and then what was heard meanwhile. */
  async _read() {
    if (this._reading) return;
    this._reading = true;
    try {
      this._cursor = await this._heard.missed();
    } catch (error) {
      if (error instanceof Refused && error.status === 401) this._say('signed-out');
      else this._say('lost');
    } finally {
      this._reading = false;
    }
    const early = this._early.splice(0);
    for (const each of early) this._event(each);
  }

  /** What another tab passed on. @param {any} data */
  _take(data) {
    if (this.leads && navigator.locks) {
      if (data.kind === 'hello') this._channel.postMessage({ kind: 'state', state: this._state, cursor: this._cursor });
      return;
    }
    if (!navigator.locks) return;
    if (data.kind === 'event') this._event(data);
    else if (data.kind === 'hint') this._heard.hint(data.what);
    else if (data.kind === 'draft') this._heard.draft(data.draft);
    else if (data.kind === 'state') {
      this._say(data.state);
      if (data.state === 'live' && data.cursor > this._cursor && !this._reading) this._read();
    }
  }

  /** @param {{previous: number, cursor: number, event: Told}} told */
  _event(told) {
    if (this._reading) {
      this._early.push(told);
    } else if (told.cursor > this._cursor) {
      if (told.previous > this._cursor || told.event.type === 'pruned') {
        this._early.push(told);
        this._read();
        return;
      }
      this._cursor = told.cursor;
      this._heard.event(told.event);
    }
  }

  /** @param {State} state */
  _say(state) {
    if (this.leads) this._pass({ kind: 'state', state, cursor: this._cursor });
    if (state !== this._state) {
      this._state = state;
      this._heard.state(state);
    }
  }

  /** @param {unknown} message */
  _pass(message) {
    if (navigator.locks && !this._ended.signal.aborted) this._channel.postMessage(message);
  }

  // Leading ----------------------------------------------------------------------------------------------------

  async _lead() {
    this.leads = true;
    let pause = FIRST_PAUSE;
    while (!this._ended.signal.aborted) {
      try {
        if (this._cursor < 0) await this._read(); // says what is wrong
        if (this._cursor >= 0) await this._listen(() => (pause = FIRST_PAUSE));
      } catch (error) {
        if (this._ended.signal.aborted) return;
        this._say(error instanceof Refused && error.status === 401 ? 'signed-out' : 'lost');
      }
      await rest(pause * (0.75 + Math.random() / 2));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  /** Until the stream ends. @param {() => void} connected */
  async _listen(connected) {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE);
    try {
      const response = await fetch('/v1/events?also=checkpoints,sessions,runs,chats,showings', {
        headers: { ...sessionHeaders(), 'last-event-id': String(this._cursor), accept: 'text/event-stream' },
        credentials: 'same-origin',
        cache: 'no-store',
        signal: AbortSignal.any([this._ended.signal, silence.signal]),
      });
      if (!response.ok || response.body === null) throw new Refused(response.status, {});
      connected();
      this._last = this._cursor;
      this._say('live');
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE);
        text += value;
        const frames = text.split('\n\n');
        text = frames.pop() ?? '';
        for (const frame of frames) this._frame(frame);
      }
    } finally {
      clearTimeout(timer);
      this._say(this._ended.signal.aborted ? 'connecting' : 'lost');
    }
  }

  /** @param {string} frame */
  _frame(frame) {
    let id = '';
    let data = '';
    for (const line of frame.split('\n')) {
      if (line.startsWith('id: ')) id = line.slice(4);
      else if (line.startsWith('data: ')) data += line.slice(6);
    }
    const cursor = id === '' ? this._cursor : Number(id);
    if (!data) {
      if (!this._reading && cursor > this._cursor) this._cursor = cursor; // nothing for us up to here
      return;
    }
    /** @type {any} */
    const event = JSON.parse(data);
    if (event.type === 'draft') {
      this._pass({ kind: 'draft', draft: event });
      this._heard.draft(event);
      return;
    }
    if (event.type === 'changed') {
      this._pass({ kind: 'hint', what: event.what });
      this._heard.hint(event.what ?? []);
      return;
    }
    const told = { kind: 'event', previous: this._last, cursor, event };
    this._last = cursor;
    this._pass(told);
    this._event(told);
  }
}

/** Until the time is up, or the person or the network is back. @param {number} milliseconds */
function rest(milliseconds) {
  return new Promise((done) => {
    const over = new AbortController();
    const end = () => (over.abort(), clearTimeout(timer), done(undefined));
    const timer = setTimeout(end, milliseconds);
    addEventListener('online', end, { signal: over.signal });
    addEventListener('focus', end, { signal: over.signal });
  });
}
