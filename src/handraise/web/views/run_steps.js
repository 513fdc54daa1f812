// What became of each step of a run, made out of its trace event by event. Pure: it reads nothing and draws nothing.

/** @typedef {import('../types/api').TraceEvent & Record<string, any>} Event */
/** @typedef {{id: string, kind: string}} Named a step as the outline has it */
/** @typedef {Named | {branches: Part[][]}} Part */
/**
 * @typedef {{
 *   number: number, started: string, ended: string | null, isDone: boolean, error: string | null,
 *   session: string | null, agent: string | null, command: string | null,
 * }} Attempt
 */
/** @typedef {'pending' | 'running' | 'again' | 'done' | 'kept' | 'failed'} Progress again: it failed, and is tried once more */
/** @typedef {{id: string, kind: string, progress: Progress, attempts: Attempt[], output: unknown}} Step */

export class Steps {
  constructor() {
    /** By id, in the order they were begun. @type {Map<string, Step>} */
    this._begun = new Map();
    /** @type {Part[] | null} of a run that was begun by an older desk nothing is known */
    this._outline = null;
    /** Those that were not begun, so that they stay the same. @type {WeakMap<Named, Step>} */
    this._others = new WeakMap();
  }

  /** @param {Event[]} events the next ones */
  take(events) {
    for (const event of events) this._take(event);
  }

  /** What stands after what: as the file has it, and before that what it no longer has. @returns {Part[]} */
  get outline() {
    const named = new Set(flat(this._outline ?? []).map(({ id }) => id));
    return [...[...this._begun.values()].filter(({ id }) => !named.has(id)), ...(this._outline ?? [])];
  }

  /** Every step in its order. @returns {Step[]} */
  get all() {
    return flat(this.outline).map((named) => this._begun.get(named.id) ?? this._other(named));
  }

  /** @param {Named} named @returns {Step} */
  _other(named) {
    const step = this._others.get(named) ?? pending(named);
    this._others.set(named, step);
    return step;
  }

  /** @param {Event} event */
  _take(event) {
    if (event.type === 'run_started' || event.type === 'steps_changed') this._outline = partsIn(event.steps);
    else if (event.type === 'run_retried') this._retry(event.step_id ?? null);
    else if (event.step_id) {
      const step = after(event, this._begun.get(event.step_id));
      if (step) this._begun.set(step.id, step);
    }
  }

  /** From that step on everything is done again, or what did not succeed. What is not, is kept. @param {string | null} from */
  _retry(from) {
    const order = flat(this.outline).map(({ id }) => id);
    const first = from === null ? -1 : order.indexOf(from);
    const later = new Set(first === -1 ? [] : order.slice(first));
    for (const [id, step] of this._begun) {
      const isKept = isOver(step) && !later.has(id);
      this._begun.set(id, { ...step, progress: isKept ? 'kept' : 'pending', output: isKept ? step.output : undefined });
    }
  }
}

/** @param {Step} step */
const isOver = ({ progress }) => progress === 'done' || progress === 'kept';

/** @param {Named} named @returns {Step} */
const pending = ({ id, kind }) => ({ id, kind, progress: 'pending', attempts: [], output: undefined });

/** @param {Part[]} parts @returns {Named[]} */
const flat = (parts) => parts.flatMap((part) => ('branches' in part ? part.branches.flatMap(flat) : [part]));

/** What a newer desk may tell otherwise is left out. @param {unknown} told @returns {Part[] | null} */
function partsIn(told) {
  if (!Array.isArray(told)) return null;
  return told.flatMap((part) => partIn(part) ?? []);
}

/** @param {any} told @returns {Part | null} */
function partIn(told) {
  if (Array.isArray(told?.branches)) return { branches: told.branches.map((/** @type {unknown} */ branch) => partsIn(branch) ?? []) };
  return typeof told?.id === 'string' ? { id: told.id, kind: String(told.kind ?? '') } : null;
}

/** The step after an event of it, if it was begun by then. @param {Event} event @param {Step} [before] @returns {Step | undefined} */
function after(event, before) {
  if (event.type === 'step_started') {
    const step = before ?? pending({ id: String(event.step_id), kind: '' });
    const attempt = {
      number: event.attempt ?? step.attempts.length + 1,
      started: event.timestamp,
      ended: null,
      isDone: false,
      error: null,
      session: event.session_id ?? null,
      agent: event.agent ?? null,
      command: event.command ?? null,
    };
    return { ...step, kind: event.kind ?? step.kind, progress: 'running', attempts: [...step.attempts, attempt], output: undefined };
  }
  if (before === undefined) return undefined;
  /** @param {Partial<Attempt>} changes */
  const last = (changes) => before.attempts.map((attempt, place) => (place === before.attempts.length - 1 ? { ...attempt, ...changes } : attempt));
  if (event.type === 'step_completed')
    return { ...before, progress: 'done', output: event.output, attempts: last({ ended: event.timestamp, isDone: true }) };
  if (event.type === 'step_failed')
    return { ...before, progress: event.final ? 'failed' : 'again', attempts: last({ ended: event.timestamp, error: event.error ?? '' }) };
  return before;
}
