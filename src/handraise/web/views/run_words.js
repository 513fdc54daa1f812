// How runs and their steps stand, for people: a word and a sign each; how long something took; JSON to fold and to copy.

import { computed, html, useMemo, useState } from '../vendor/preact.js';
import { Refused, reasonOf } from '../core/api.js';
import { trustHref } from '../core/route.js';
import { inert, Plain } from '../core/text.js';
import { duration, language, t } from '../core/words.js';

/** @typedef {import('../types/api').Run['state'] | import('./run_steps.js').Progress} State of a run or of a step */

/** @type {Record<State, string>} */
export const MARKS = {
  waiting: '!',
  running: '▶',
  done: '✓',
  failed: '✕',
  cancelled: '⊘',
  parked: '⏸',
  pending: '○',
  again: '↻',
  kept: '↷',
};

/** @param {State} state */
export function stateText(state) {
  if (state === 'waiting') return t('session.state.waiting');
  if (state === 'running') return t('run.state.running');
  if (state === 'done') return t('run.state.done');
  if (state === 'failed') return t('session.state.failed');
  if (state === 'cancelled') return t('run.state.cancelled');
  if (state === 'parked') return t('run.state.parked');
  if (state === 'again') return t('run.state.again');
  if (state === 'kept') return t('run.state.kept');
  return t('run.state.pending');
}

/** The state as a word and a sign. @param {{state: State}} props */
export function StateMark({ state }) {
  return html`<span class="standing" data-standing=${state}
    ><span aria-hidden="true" class="mark">${MARKS[state]}</span> ${stateText(state)}</span
  >`;
}

/** How long from one time to another. @param {string} from @param {string | number} to */
export function took(from, to) {
  const seconds = Math.max(0, (new Date(to).getTime() - Date.parse(from)) / 1000);
  return seconds >= 1 ? duration(Math.floor(seconds)) : formats.value.short.format(seconds * 1000);
}

// To make one takes longer than to use it, and a trace is long.
const formats = computed(() => ({
  short: new Intl.NumberFormat(language.value, { style: 'unit', unit: 'millisecond', maximumFractionDigits: 0 }),
  time: new Intl.DateTimeFormat(language.value, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }),
}));

/** The time of day, with its seconds. @param {string} at */
export const timeOfDay = (at) => formats.value.time.format(new Date(at));

/** What the desk has against it, for people. @param {unknown} error */
export const refusal = (error) =>
  error instanceof Refused && error.code === 'forbidden' ? t('run.forbidden') : inert(reasonOf(error));

/** Whether it is that nobody trusted a file. @param {unknown} error */
export const isUntrusted = (error) => error instanceof Refused && error.code === 'workflow_not_trusted';

/** Leads to where the project of a folder is trusted. @param {{cwd: string}} props */
export const TrustLink = ({ cwd }) => html`<p><a class="reach" href=${trustHref(cwd)}>${t('trust.link')}</a></p>`;

/** Anything as JSON, and a text as it is. @param {unknown} value */
export const written = (value) => (typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? ''));

/** Anything that a step took or gave, folded. @param {{title: string, value: unknown, isOpen?: boolean}} props */
export function Folded({ title, value, isOpen = false }) {
  const [open, setOpen] = useState(isOpen);
  return html`<details class="folded" open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>${title}</summary>
    ${open && html`<${Whole} value=${value} />`}
  </details>`;
}

const LONGEST = 4000; // characters that are shown at once

/** @param {{value: unknown}} props */
export function Whole({ value }) {
  const [isCopied, setCopied] = useState(false);
  const text = useMemo(() => written(value), [value]);
  // Browsers have a clipboard only at an address that they trust.
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true), () => undefined);
  return html`<div class="whole">
    <${Plain} as="pre" class="object" text=${text} limit=${LONGEST} />
    ${navigator.clipboard && html`<button type="button" class="quiet" data-action="copy" onClick=${copy}>${isCopied ? t('action.copied') : t('action.copy')}</button>`}
  </div>`;
}
