// What happened in a run, event by event: each a short line that opens to all of it. It follows its end.

import { html, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { inert } from '../core/text.js';
import { language, t } from '../core/words.js';
import { timeOfDay, Whole } from './run_words.js';

/** @typedef {import('./run_story.js').Story} Story */
/** @typedef {import('./run_steps.js').Event} Event */

const PAGE = 200; // lines that are drawn at a time
const NEAR = 40; // pixels from the end that still count as there
const LONGEST = 160; // characters of a line
// What an event says of itself, in the order it is worth reading.
const TOLD = ['error', 'question', 'permission', 'answers', 'reply', 'reason', 'decision', 'command', 'agent', 'workflow', 'input', 'output', 'correction', 'path', 'branch', 'by', 'why'];

/** @param {{story: Story}} props */
export function Trace({ story }) {
  const [step, setStep] = useState('');
  const [kind, setKind] = useState('');
  const [drawn, setDrawn] = useState(PAGE);
  const [isBelow, setBelow] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const isAtEnd = useRef(true);
  const events = story.events.value;
  const fits = useMemo(() => events.filter((event) => (!step || event.step_id === step) && (!kind || kindOf(event) === kind)), [events, step, kind]);
  const left = Math.max(0, fits.length - drawn);
  // The same lines are not drawn again, however often the run changes.
  const made = useMemo(() => new WeakMap(), [language.value]);
  const lines = fits.slice(left).map((event) => {
    if (!made.has(event)) made.set(event, html`<${Line} key=${event.id} event=${event} />`);
    return made.get(event);
  });
  const last = fits.at(-1)?.id;
  const toEnd = () => box.current?.scrollTo({ top: box.current.scrollHeight, behavior: 'instant' });
  useLayoutEffect(() => {
    if (isAtEnd.current) toEnd();
    else setBelow(true);
  }, [last]);
  const look = () => {
    const { scrollHeight, scrollTop, clientHeight } = /** @type {HTMLElement} */ (box.current);
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR;
    if (isAtEnd.current) setBelow(false);
  };
  const showOlder = () => {
    setDrawn(drawn + PAGE);
    if (left <= PAGE) list.current?.focus({ preventScroll: true }); // the button had the focus, and goes
  };
  const steps = [...new Set(events.flatMap((event) => event.step_id || []))];
  const kinds = [...new Set(events.map(kindOf))];
  return html`<section class="trace" aria-labelledby="trace-title">
    <header class="page-head">
      <h2 id="trace-title">${t('run.trace')}</h2>
      <label class="field">
        <span>${t('run.step')}</span>
        <${Choice} name="step" value=${step} choose=${setStep} among=${steps} />
      </label>
      <label class="field">
        <span>${t('run.event')}</span>
        <${Choice} name="event" value=${kind} choose=${setKind} among=${kinds} />
      </label>
    </header>
    <div class="trace-box" ref=${box} onScroll=${look}>
      ${left > 0 && html`<button type="button" class="quiet more" data-action="older" onClick=${showOlder}>${t('chat.older')}</button>`}
      <ol aria-labelledby="trace-title" tabindex="-1" ref=${list}>
        ${lines}
      </ol>
      ${isBelow && html`<button type="button" class="pill below" onClick=${toEnd}>${t('chat.below')}</button>`}
    </div>
  </section>`;
}

/** @param {{name: string, value: string, choose: (value: string) => void, among: string[]}} props */
function Choice({ name, value, choose, among }) {
  const options = useMemo(() => among.map((each) => html`<option value=${each}>${inert(each).slice(0, 60)}</option>`), [among.join('\n')]);
  return html`<select name=${name} value=${value} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
    <option value="">${t('history.state.all')}</option>
    ${options}
  </select>`;
}

/** What it is about: `agent_question_asked` is of the kind `agent_question`. @param {Event} event */
const kindOf = ({ type }) => type.slice(0, Math.max(0, type.lastIndexOf('_'))) || type;

/** @param {{event: Event}} props */
function Line({ event }) {
  const [isOpen, setOpen] = useState(false);
  return html`<li data-event=${event.type} data-mark=${markOf(event.type)}>
    <details onToggle=${(/** @type {any} */ toggled) => setOpen(toggled.currentTarget.open)}>
      <summary>
        <time datetime=${event.timestamp}>${timeOfDay(event.timestamp)}</time>
        <span class="mark" aria-hidden="true">${markOf(event.type)}</span>
        <code dir="ltr">${inert(event.type)}</code>
        ${event.step_id && html`<strong><bdi>${inert(event.step_id)}</bdi></strong>`}
        <span class="told"><bdi>${short(event)}</bdi></span>
      </summary>
      ${isOpen && html`<${Whole} value=${event} />`}
    </details>
  </li>`;
}

/** @param {string} type */
function markOf(type) {
  if (/_(failed|cancelled)$/u.test(type)) return '✕';
  if (/_(asked|waiting|cut|kept|changed|repaired)$/u.test(type)) return '!';
  return /_(completed|answered|given)$/u.test(type) ? '✓' : '·';
}

/** @param {Event} event */
function short(event) {
  const attempt = event.type === 'step_started' && Number(event.attempt) > 1 ? [t('run.attempt', { number: Number(event.attempt) })] : [];
  const said = TOLD.map((name) => textOf(name, event[name])).filter((text) => text !== '');
  return inert([...attempt, ...said].join(' · ').slice(0, LONGEST)).replaceAll(/\s+/gu, ' ');
}

/** @param {string} name @param {any} value @returns {string} */
function textOf(name, value) {
  if (value === undefined || value === null) return '';
  if (name === 'question') return value.questions.map((/** @type {{header: string}} */ { header }) => header).join(', ');
  if (name === 'permission') return String(value.summary ?? '');
  if (name === 'answers') return value.flat().join(', ');
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.slice(0, LONGEST);
}
