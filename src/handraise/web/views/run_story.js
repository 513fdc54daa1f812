// One run as the desk tells it: its record, its trace as far as it goes, what its agents asked and what waits for people.

import { batch, computed, effect, signal } from '../vendor/preact.js';
import { Refused, allCheckpoints, call, pagesOfAsks, pathOf, post } from '../core/api.js';
import { calmly, checkpoints, find, onEvent, put, runsChanged } from '../core/desk.js';
import { Steps } from './run_steps.js';

/** @typedef {import('../types/api').Run} Run */
/** @typedef {import('../types/api').Retried} Retried */
/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../core/api.js').Checkpoint} Checkpoint */
/** @typedef {import('./run_steps.js').Event} Event */
/** @typedef {import('./run_steps.js').Step} Step */
/** @typedef {import('./run_words.js').State} State */


export class Story {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.run = signal(/** @type {Run | null} */ (null));
    this.isMissing = signal(false);
    /** Somebody here wants it to end, and it has not yet. */
    this.isEnding = signal(false);
    this.events = signal(/** @type {Event[]} */ ([]));
    /** Grows with what is known of the steps. */
    this._known = signal(0);
    this._steps = new Steps();
    this._asks = signal(/** @type {string[]} */ ([]));
    this._checkpoints = signal(/** @type {Checkpoint[]} */ ([]));
    /** What waited while somebody looked at it, so that it does not go from under their eyes. @type {Set<string>} */
    this.seen = new Set();
    this._next = '';
    this._isOver = false;
    /** @type {(() => unknown)[]} */
    this._stops = [];

    this.steps = computed(() => (void this._known.value, this._steps.all));
    /** The asks and checkpoints that wait, by step. */
    this._open = computed(() => {
      const asks = [...this.asks.value.values()].flat().filter((ask) => ask.state === 'asked');
      const points = [...this.checkpoints.value.values()].flat().filter((each) => each.state === 'open');
      const all = [...asks.map((ask) => ({ id: ask.id, step: ask.origin.step ?? '' })), ...points];
      return grouped(all, ({ step }) => step);
    });
    /** Where something may wait: its steps, and whatever else an ask names. */
    this.places = computed(() => [
      ...new Set([...this.steps.value.map(({ id }) => id), ...this.asks.value.keys(), ...this.checkpoints.value.keys()]),
    ]);
    this.outline = computed(() => (void this._known.value, this._steps.outline));
    /** What its agents asked, by step, the oldest first. */
    this.asks = computed(() => grouped(this._asks.value.flatMap((ask) => find(ask)?.value ?? []), (ask) => ask.origin.step ?? ''));
    /** Its checkpoints by step. What was given here is known at once. */
    this.checkpoints = computed(() => {
      const heard = new Map(checkpoints.value.map((each) => [each.id, each]));
      const told = this._checkpoints.value.map((each) => (each.state === 'open' ? (heard.get(each.id) ?? each) : each));
      return grouped(told, (each) => each.step);
    });
  }

  /** Read, and go on reading. */
  start() {
    const again = calmly(() => this._read());
    this._stops.push(
      onEvent((_, ask) => {
        if (ask.origin.run !== this.id) return;
        this._note([ask]);
        again();
      }),
      effect(() => {
        void runsChanged.value;
        again();
      }),
    );
    this._readAsks().catch(() => undefined); // the banner says what is wrong
  }

  stop() {
    this._isOver = true;
    for (const stop of this._stops) stop();
  }

  /** The ids of the asks and checkpoints that wait in a step. @param {string} step */
  waiting(step) {
    return (this._open.value.get(step) ?? []).map(({ id }) => id);
  }

  /** How it stands with a step, with what waits in it and what became of the run. @param {Step} step @returns {State} */
  stateOf({ id, progress }) {
    if (progress !== 'running' && progress !== 'again') return progress;
    const run = this.run.value;
    if (run && !isOpen(run)) return run.state === 'parked' ? 'parked' : 'cancelled'; // nobody goes on with it
    return this.waiting(id).length > 0 ? 'waiting' : progress;
  }

  async cancel() {
    this.isEnding.value = true;
    try {
      this._tell(await post(pathOf('runs', this.id, 'cancel')));
    } catch (error) {
      this.isEnding.value = false;
      throw error;
    }
  }

  /** What a retry would do, or have it done. @param {string | null} from @param {boolean} isDry @returns {Promise<Retried>} */
  async retry(from, isDry) {
    const told = await post(pathOf('runs', this.id, 'retry'), { ...(from === null ? {} : { from }), dry_run: isDry });
    if (!isDry) this._tell(told);
    return told;
  }

  /** @returns {Promise<Retried>} the new run */
  rerun() {
    return post(pathOf('runs', this.id, 'rerun'));
  }

  async _read() {
    try {
      if (this.run.peek() === null) await this._look();
      let page;
      let count = 0;
      do {
        page = await call(`${pathOf('runs', this.id, 'trace')}?${new URLSearchParams({ after: this._next })}`);
        this._next = page.next;
        this._take(page.events);
        count += page.events.length;
      } while (page.events.length > 0 && !this._isOver);
      if (count > 0 || page.state !== this.run.peek()?.state) await this._look();
    } catch (error) {
      if (error instanceof Refused && error.status === 404) this.isMissing.value = true;
      else throw error;
    }
  }

  /** @param {Event[]} events */
  _take(events) {
    if (events.length === 0) return;
    this._steps.take(events);
    batch(() => {
      this.events.value = [...this.events.peek(), ...events];
      this._known.value += 1;
    });
  }

  async _look() {
    const [run, found] = await Promise.all([
      call(pathOf('runs', this.id)),
      allCheckpoints({ run: this.id }),
    ]);
    batch(() => {
      if (!isSame(run, this.run.peek())) this._tell(run);
      if (!isSame(found.map(stateIn), this._checkpoints.peek().map(stateIn))) this._checkpoints.value = found;
    });
  }

  /** @param {Run} run */
  _tell(run) {
    this.run.value = run;
    if (!isOpen(run)) this.isEnding.value = false;
  }

  async _readAsks() {
    for await (const page of pagesOfAsks({ run: this.id })) {
      if (this._isOver) return;
      for (const ask of page) if (!find(ask.id)) put(ask);
      this._note(page);
    }
  }

  /** @param {Ask[]} asks */
  _note(asks) {
    const known = new Set(this._asks.peek());
    const fresh = asks.filter((ask) => !known.has(ask.id)).map((ask) => ask.id);
    if (fresh.length > 0) this._asks.value = [...known, ...fresh];
  }
}

/** Whether it has not ended. @param {Run} run */
export const isOpen = ({ state }) => state === 'running' || state === 'waiting';

/** @param {Checkpoint} checkpoint */
const stateIn = ({ id, state }) => [id, state];

/** What is told again as it was need not be drawn again. @param {unknown} a @param {unknown} b */
const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** @template T @param {T[]} all @param {(each: T) => string} by @returns {Map<string, T[]>} */
function grouped(all, by) {
  /** @type {Map<string, T[]>} */
  const found = new Map();
  for (const each of all) {
    const those = found.get(by(each));
    if (those) those.push(each);
    else found.set(by(each), [each]);
  }
  return found;
}
