// The frame of every card: who asks, the heading, the deadline, what was sent, what came of it. What is asked is drawn
// by `question.js` and `permission.js`.

import { html, useComputed, useEffect, useErrorBoundary, useLayoutEffect, useRef } from '../vendor/preact.js';
import { titleOf } from '../core/card.js';
import { minute } from '../core/clock.js';
import { deadlineOf, find, inUse, remaining, shown } from '../core/desk.js';
import { draftOf, orphanDraft } from '../core/drafts.js';
import { isTyping, nameOf } from '../core/keys.js';
import { headerOf, own, warn } from '../core/live.js';
import { idly } from '../core/lazy.js';
import { keepWaiting, sendingOf } from '../core/outbox.js';
import { href } from '../core/route.js';
import { inert, middle, Plain } from '../core/text.js';
import { ago, clockTime, t } from '../core/words.js';
import { Permission } from './permission.js';
import { Question } from './question.js';
import { Resolved } from './resolved.js';
import { Trouble } from './trouble.js';

/** @typedef {import('../core/api.js').Ask} Ask */
const Showings = idly(() => import('./showings.js'), 'Showings');

/** @typedef {{ask: Ask, isInert: boolean}} BodyProps what a body gets; inert while something is on its way */

/** @param {{id: string, level?: 2 | 3, place?: number, total?: import('../vendor/preact.js').ReadonlySignal<number>}} props */
export function Card({ id, level = 2, place, total }) {
  const [broken, mend] = useErrorBoundary();
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const ask = find(id)?.value;
  useEffect(() => {
    if (ask !== undefined && ask.state !== 'asked' && !own.has(id)) orphanDraft(id);
  }, [ask?.state]);
  // What had the focus may be gone with the answer of somebody else; it must not end up nowhere.
  const hadFocus = frame.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    if (hadFocus && !frame.current?.contains(document.activeElement)) headingOf(id)?.focus({ preventScroll: true });
  }, [ask?.state]);
  if (ask === undefined) return html`<p class="quiet-text">${t('card.gone')}</p>`;
  const heading = headingId(id);
  const isOpen = ask.state === 'asked';
  const enter = () => (inUse.value = id);
  const leave = (/** @type {FocusEvent} */ event) => {
    const isInside = event.relatedTarget instanceof Node && frame.current?.contains(event.relatedTarget);
    if (!isInside && inUse.peek() === id && draftOf(id).peek() === null) inUse.value = null;
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (nameOf(event) !== 'w' || event.repeat || isTyping(event.target) || remaining(ask) === null) return;
    event.preventDefault();
    wait(id);
  };
  return html`<article
    ref=${frame}
    class="card"
    data-ask=${id}
    data-state=${ask.state}
    data-kind=${ask.permission ? 'permission' : 'question'}
    aria-labelledby=${heading}
    aria-posinset=${place}
    aria-setsize=${total}
    onFocusIn=${enter}
    onFocusOut=${leave}
    onKeyDown=${press}
  >
    <${OriginLine} ask=${ask} />
    <${level === 3 ? 'h3' : 'h2'} id=${heading} tabindex="-1" dir="auto">${title(ask)}<//>
    ${broken
      ? html`<p role="alert" class="error">
          ${t('app.broken', { reason: String(broken) })}
          <button type="button" onClick=${mend}>${t('action.retry')}</button>
        </p>`
      : isOpen
        ? html`<${Open} ask=${ask} /><${Showings} id=${id} />`
        : html`<${Resolved} ask=${ask} isTold=${level === 3 && !headingSays(ask)} />`}
  </article>`;
}

/** @param {Ask} ask */
function title(ask) {
  if (ask.permission) return titleOf(ask);
  const [first] = ask.questions;
  if (headingSays(ask)) return html`<${Plain} text=${first.question} limit=${LONGEST_TITLE} />`;
  if (ask.questions.length === 1) return html`<${Plain} text=${first.header || first.question} limit=${60} />`;
  return inert(ask.questions.map((question) => question.header || question.question.slice(0, 30)).join(' · ')).slice(0, 120);
}

const LONGEST_TITLE = 120;

/** Whether the heading is the question itself, which then need not be said again. @param {Ask} ask */
export function headingSays(ask) {
  const [first] = ask.questions;
  return ask.questions.length === 1 && !first.header && first.question.length <= LONGEST_TITLE && !/[\n`*_[\]]|:\/\//u.test(first.question);
}

/** @param {{ask: Ask}} props */
function Open({ ask }) {
  const sending = sendingOf(ask.id).value;
  const isOver = useComputed(() => remaining(ask) === 0); // a part that is typed in need not be drawn every second
  const isInert = sending?.state === 'sending' || sending?.state === 'queued' || isOver.value;
  // What can no longer be used loses the focus.
  const hadFocus = headingOf(ask.id)?.closest('article')?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    if (isInert && hadFocus) headingOf(ask.id)?.focus({ preventScroll: true });
  }, [isInert]);
  const queued =
    sending?.state === 'queued' &&
    html`<p class="status">${navigator.onLine ? t('state.queued') : t('error.offline')}</p>`;
  if (ask.permission)
    return html`<${Permission} ask=${ask} isInert=${isInert}>
      <${Trouble} ask=${ask} /><${Deadline} ask=${ask} />
      ${sending?.state === 'sending' && html`<p class="status">${t('state.sending')}</p>`}${queued}
    <//>`;
  return html`<${Question} ask=${ask} isInert=${isInert}><${Trouble} ask=${ask} /><${Deadline} ask=${ask} />${queued}<//>`;
}

/** @param {{ask: Ask}} props */
export function OriginLine({ ask }) {
  const { agent, run, step, cwd, machine, session, parent } = ask.origin;
  const seconds = Math.max(0, (minute.value - Date.parse(ask.asked_at)) / 1000);
  return html`<p class="origin">
    <span class="agent" data-agent=${agent}><bdi>${inert(agent)}</bdi></span>
    ${parent && html`<span>${t('card.subagent')}</span>`}
    ${run && html`<span><bdi>${inert(run)}</bdi></span>`} ${step && html`<span><bdi>${inert(step)}</bdi></span>`}
    ${cwd && html`<span class="path" title=${inert(cwd)}><bdi dir="ltr">${middle(inert(cwd), 40)}</bdi></span>`}
    ${machine && html`<span><bdi>${inert(machine)}</bdi></span>`}
    <a href=${href(agent === 'chat' ? 'chats' : 'sessions', session)} class="age">${t('card.age', { time: ago(seconds) })}</a>
  </p>`;
}

// Deadlines --------------------------------------------------------------------------------------------------

/** What policy would pick, for people. @param {Ask} ask @returns {string | null} */
export function fallbackChoice(ask) {
  const entries = ask.fallback?.answers?.flatMap((values, place) =>
    values.map((value) => ask.questions[place]?.options.find((option) => option.value === value)?.label ?? value),
  );
  return entries?.length ? inert(entries.join(', ')) : null;
}

/** @param {{ask: Ask}} props */
function Deadline({ ask }) {
  const left = remaining(ask);
  const time = deadlineOf(ask);
  useEffect(() => warn(ask), [left === null ? null : Math.ceil(left)]);
  if (left === null || time === null) return null;
  const choice = fallbackChoice(ask);
  if (left === 0)
    return html`<p class="deadline" data-soon>${choice ? t('deadline.picking', { choice }) : t('deadline.declining')}</p>`;
  const values = { time: clockTime(time), seconds: Math.ceil(left), choice: choice ?? '' };
  const isSoon = left < 60;
  return html`<p class="deadline" data-soon=${isSoon || undefined}>
    <span role="timer" aria-live="off">
      ${choice
        ? isSoon
          ? t('deadline.soon', values)
          : t('deadline.pick', values)
        : ask.permission
          ? isSoon
            ? t('deadline.soonDeny', values)
            : t('deadline.deny', values)
          : isSoon
            ? t('deadline.soonReject', values)
            : t('deadline.reject', values)}
    </span>
    <button type="button" class="quiet" data-action="keep-waiting" aria-keyshortcuts="w" onClick=${() => wait(ask.id)}>
      ${t('action.keepWaiting')}
    </button>
  </p>`;
}

/** A lost connection and a settled ask say so themselves. @param {string} id */
const wait = (id) => void keepWaiting(id).catch(() => undefined);

// Focus ------------------------------------------------------------------------------------------------------

/** After an answer was sent: the next card that waits, else the one that was answered. Never nowhere. @param {string} id */
export function focusAfter(id) {
  own.add(id);
  const order = shown.peek();
  const from = order.indexOf(id);
  const open = (/** @type {string} */ other) => other !== id && find(other)?.peek().state === 'asked' && headingOf(other) !== null;
  const next = order.slice(from + 1).find(open) ?? order.slice(0, Math.max(0, from)).find(open) ?? id;
  requestAnimationFrame(() => focusCard(next) || focusCard(id));
}

/** The id of an ask may hold spaces, which would make two names of it. @param {string} id */
export const headingId = (id) => `heading-${encodeURIComponent(id)}`;

/** @param {string} id */
export const headingOf = (id) => document.getElementById(headingId(id));

/** @param {string} id */
export function focusCard(id) {
  const heading = headingOf(id);
  heading?.focus({ preventScroll: true });
  heading?.closest('article')?.scrollIntoView({ block: 'nearest' });
  return heading !== null;
}

export { headerOf };
