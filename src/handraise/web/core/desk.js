// What the desk told this page: asks by id, what waits in which order, checkpoints, sessions, the connection.
//
// Asks are signals, so that an event draws one card again and nothing else.

import { batch, computed, signal } from '../vendor/preact.js';
import { allCheckpoints, call, pagesOfAsks, pathOf } from './api.js';
import { look, second } from './clock.js';
import { recall, keep } from './memory.js';
import { Stream } from './stream.js';

/** @typedef {import('./api.js').Ask} Ask */
/** @typedef {import('./api.js').Checkpoint} Checkpoint */
/** @typedef {import('./api.js').Session} Session */
/** @typedef {import('../vendor/preact.js').Signal<Ask>} AskSignal */

const MOST_KEPT = 200; // asks that are remembered on this device for an offline start
const KEEP_AFTER = 2000; // milliseconds without news until they are written

/** @type {Map<string, AskSignal>} */
const asks = new Map();
/** @type {Map<string, number>} by the clock of the page, see `performance.now` */
const deadlines = new Map();

/** What the inbox shows, in order: what waits, and what was settled while it was shown. */
export const shown = signal(/** @type {string[]} */ ([]));
/** New ones that would have come above the card in use. */
export const held = signal(/** @type {string[]} */ ([]));
export const checkpoints = signal(/** @type {Checkpoint[]} */ ([]));
export const sessions = signal(/** @type {Session[]} */ ([]));
/** Grows with every hint that runs changed. */
export const runsChanged = signal(0);
/** The same for chats. */
export const chatsChanged = signal(0);
/** And for where asks were shown. */
export const showingsChanged = signal(0);
export const connection = signal(/** @type {import('./stream.js').State} */ ('connecting'));
export const isLoaded = signal(false);
/** When what is shown was true, if it comes from this device and not from the desk. */
export const asOf = signal(/** @type {number | null} */ (null));
/** How many asks wait. */
export const waiting = signal(0);
/** The ask whose card is in use: it has the focus, or something was typed. */
export const inUse = signal(/** @type {string | null} */ (null));
export const countOfAll = computed(() => waiting.value + checkpoints.value.filter((each) => each.state === 'open').length);

/** @type {Set<(type: string, ask: Ask, isNew: boolean) => void>} */
const listeners = new Set();
/** Hear of every event of an ask. @param {(type: string, ask: Ask, isNew: boolean) => void} listener */
export function onEvent(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @type {Set<(draft: import('./stream.js').Draft) => void>} */
const draftListeners = new Set();
/** Hear what replies in chats grow by. @param {(draft: import('./stream.js').Draft) => void} listener */
export function onDraft(listener) {
  draftListeners.add(listener);
  return () => draftListeners.delete(listener);
}

/** @param {string} id @returns {AskSignal | undefined} */
export const find = (id) => asks.get(id);

/** Seconds until policy answers, counted on; `null` without a deadline. @param {Ask} ask @returns {number | null} */
export function remaining(ask) {
  const deadline = deadlines.get(ask.id);
  return ask.state !== 'asked' || deadline === undefined ? null : Math.max(0, (deadline - second.value) / 1000);
}

/** The time of day at which policy answers. @param {Ask} ask @returns {Date | null} */
export function deadlineOf(ask) {
  const deadline = deadlines.get(ask.id);
  return deadline === undefined ? null : new Date(Date.now() + deadline - performance.now());
}

/** Note an ask as the desk told it. @param {Ask} ask @returns {AskSignal} */
export function put(ask) {
  const known = asks.get(ask.id);
  if (ask.remaining === null || ask.remaining === undefined) deadlines.delete(ask.id);
  else deadlines.set(ask.id, performance.now() + ask.remaining * 1000);
  if (known === undefined) {
    const made = signal(ask);
    asks.set(ask.id, made);
    if (ask.state === 'asked') waiting.value += 1;
    return made;
  }
  waiting.value += Number(ask.state === 'asked') - Number(known.value.state === 'asked');
  known.value = ask;
  return known;
}

// Order ------------------------------------------------------------------------------------------------------

/** Nearest deadline, then risky permissions, then oldest. @param {Ask} a @param {Ask} b */
export function before(a, b) {
  return (
    (deadlines.get(a.id) ?? Infinity) - (deadlines.get(b.id) ?? Infinity) ||
    Number(isRisky(b)) - Number(isRisky(a)) ||
    (a.asked_at < b.asked_at ? -1 : a.asked_at > b.asked_at ? 1 : a.id < b.id ? -1 : Number(a.id > b.id))
  );
}

/** @param {Ask} ask */
export const isRisky = (ask) => (ask.risks?.length ?? 0) > 0;

/** @param {string} id @param {string} other */
const inOrder = (id, other) => {
  const [a, b] = [asks.get(id)?.peek(), asks.get(other)?.peek()];
  // Infinity minus Infinity is no number, and then no deadline decides.
  return a && b ? before(a, b) || 0 : 0;
};

/** Everything that waits anew in order, without what is settled. */
export function sort() {
  const open = [...asks.values()].map((ask) => ask.peek()).filter((ask) => ask.state === 'asked');
  batch(() => {
    shown.value = open.map((ask) => ask.id).sort(inOrder);
    held.value = [];
    checkpoints.value = checkpoints.peek().filter((each) => each.state === 'open');
  });
}

/** A new one goes to its place; if that is above the card in use, it is held and only counted. @param {string} id */
function place(id) {
  const order = shown.peek();
  if (order.includes(id) || held.peek().includes(id)) return;
  const place = order.findIndex((other) => asks.get(other)?.peek().state === 'asked' && inOrder(id, other) < 0);
  const used = inUse.peek() === null ? -1 : order.indexOf(/** @type {string} */ (inUse.peek()));
  if (place !== -1 && place <= used) held.value = [...held.peek(), id];
  else shown.value = order.toSpliced(place === -1 ? order.length : place, 0, id);
}

// What the desk says -----------------------------------------------------------------------------------------

/** Read everything that waits. Resolves to the cursor it stands for. */
async function readAll() {
  const { cursor } = await call('/v1/cursor');
  const found = new Set();
  for await (const page of pagesOfAsks({ state: 'asked', limit: '1000' })) {
    batch(() => {
      for (const ask of page) {
        found.add(ask.id);
        put(ask);
      }
    });
  }
  // What this page thinks open and the desk does not, was settled while nobody listened.
  const settled = [...asks.keys()].filter((id) => asks.get(id)?.peek().state === 'asked' && !found.has(id));
  for (const id of settled) {
    await call(`/v1/asks/${encodeURIComponent(id)}`).then(
      (ask) => tell('settled', ask),
      () => asks.delete(id),
    );
  }
  const isFirst = !isLoaded.peek();
  batch(() => {
    asOf.value = null;
    isLoaded.value = true;
    if (isFirst || shown.peek().length === 0) sort();
    else [...found].filter((id) => !shown.peek().includes(id)).forEach(place);
  });
  look();
  await Promise.all([readCheckpoints(), readSessions()]);
  rememberSoon();
  return cursor;
}

/** @param {string} type @param {Ask} ask */
function tell(type, ask) {
  const isNew = !asks.has(ask.id) || (type === 'asked' && asks.get(ask.id)?.peek().state !== 'asked');
  batch(() => {
    put(ask);
    if (ask.state === 'asked') place(ask.id);
    else if (held.peek().includes(ask.id)) held.value = held.peek().filter((id) => id !== ask.id);
  });
  if (ask.remaining) look();
  for (const listener of listeners) listener(type, ask, isNew);
}

/** Those that were shown stay when they are settled, as asks do; new ones come behind them. */
async function readCheckpoints() {
  const open = await allCheckpoints({ state: 'open' });
  const found = new Map(open.map((each) => [each.id, each]));
  const gone = checkpoints.peek().filter((each) => each.state === 'open' && !found.has(each.id));
  for (const { id } of gone) {
    const settled = await call(pathOf('checkpoints', id)).catch(() => undefined);
    if (settled !== undefined) found.set(id, settled);
  }
  const known = checkpoints.peek().flatMap((each) => found.get(each.id) ?? (each.state === 'open' ? [] : each));
  const places = new Set(known.map((each) => each.id));
  checkpoints.value = [...known, ...open.filter((each) => !places.has(each.id))];
}

/** Note a checkpoint as the desk told it. @param {Checkpoint} told */
export function putCheckpoint(told) {
  checkpoints.value = checkpoints.peek().map((each) => (each.id === told.id ? told : each));
}

async function readSessions() {
  sessions.value = (await call('/v1/sessions')).sessions;
}

/** One at a time, and once more if something changed meanwhile. @param {() => Promise<void>} read */
export function calmly(read) {
  let runs = false;
  let again = false;
  return async () => {
    if (runs) {
      again = true;
      return;
    }
    runs = true;
    do {
      again = false;
      await read().catch(() => undefined); // the stream says what is wrong
    } while (again);
    runs = false;
  };
}

const checkpointsAgain = calmly(readCheckpoints);
const sessionsAgain = calmly(readSessions);

export const stream = new Stream({
  missed: readAll,
  event(event) {
    if (event.ask === undefined) return; // newer desks may tell more
    tell(event.type, event.ask);
    if (!sessions.peek().some((session) => session.id === event.ask?.origin.session)) sessionsAgain();
    rememberSoon();
  },
  hint(what) {
    if (what.includes('checkpoints')) checkpointsAgain();
    if (what.includes('sessions')) sessionsAgain();
    if (what.includes('runs')) runsChanged.value += 1;
    if (what.includes('chats')) chatsChanged.value += 1;
    if (what.includes('showings')) showingsChanged.value += 1;
  },
  draft(draft) {
    for (const listener of draftListeners) listener(draft);
  },
  state(state) {
    connection.value = state;
  },
});

/** Show what this device remembers, then what the desk says. */
export async function start() {
  const last = recall('last', /** @type {{at: number, asks: Ask[]} | null} */ (null));
  const starting = stream.start();
  if (last) {
    const late = setTimeout(() => showRemembered(last), 300); // a desk that answers at once is better
    await starting.catch(() => undefined);
    clearTimeout(late);
    if (!isLoaded.peek()) showRemembered(last);
  } else {
    await starting;
  }
}

/** @param {{at: number, asks: Ask[]}} last */
function showRemembered(last) {
  if (isLoaded.peek() || asOf.peek() !== null) return;
  batch(() => {
    for (const ask of last.asks) put({ ...ask, remaining: null });
    sort();
    asOf.value = last.at;
  });
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let remembering;
function rememberSoon() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const open = shown.peek().flatMap((id) => asks.get(id)?.peek() ?? []);
    keep('last', { at: Date.now(), asks: open.filter((ask) => ask.state === 'asked').slice(0, MOST_KEPT) });
  }, KEEP_AFTER);
}

/** Take the settled ones out of the inbox. */
export function clearSettled() {
  sort();
}
