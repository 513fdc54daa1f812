// The steps of a run as a graph: one below the other, and what runs at the same time beside each other between two bars.
// To those who listen it is a list with lists in it.

import { html, useMemo } from '../vendor/preact.js';
import { second } from '../core/clock.js';
import { inert } from '../core/text.js';
import { t } from '../core/words.js';
import { MARKS, stateText, took } from './run_words.js';

/** @typedef {import('./run_story.js').Story} Story */
/** @typedef {import('./run_steps.js').Part} Part */
/** @typedef {import('./run_steps.js').Step} Step */
/** @typedef {{story: Story, selected: string | null, select: (step: string) => void}} Props */

/** @param {Props} props */
export function Graph({ story, selected, select }) {
  const steps = new Map(story.steps.value.map((step) => [step.id, step]));
  // A run of many steps changes often, and most of them do not: those are not drawn again.
  const made = useMemo(() => new WeakMap(), [story, selected]);
  /** @param {string} id */
  const node = (id) => {
    const step = steps.get(id);
    if (step && !made.has(step)) made.set(step, html`<${Node} step=${step} story=${story} isSelected=${id === selected} select=${select} />`);
    return step && made.get(step);
  };
  return html`<div class="graph" onKeyDown=${move}><${Sequence} parts=${story.outline.value} node=${node} /></div>`;
}

/** @param {{parts: Part[], node: (id: string) => any}} props */
function Sequence({ parts, node }) {
  return html`<ol class="sequence">
    ${parts.map((part, place) =>
      'branches' in part
        ? html`<li class="fork" key=${`fork ${place}`}>
            <p class="unseen">${t('run.parallel')}</p>
            <ul class="branches">
              ${part.branches.map((branch) => html`<li class="branch"><${Sequence} parts=${branch} node=${node} /></li>`)}
            </ul>
          </li>`
        : html`<li key=${part.id}>${node(part.id)}</li>`,
    )}
  </ol>`;
}

/** @param {{step: Step, story: Story, isSelected: boolean, select: Props['select']}} props */
function Node({ step, story, isSelected, select }) {
  const state = story.stateOf(step);
  const waits = story.waiting(step.id).length;
  const attempt = step.attempts.at(-1);
  return html`<button
    type="button"
    class="node"
    data-step=${step.id}
    data-standing=${state}
    aria-current=${isSelected ? 'true' : undefined}
    onClick=${() => select(step.id)}
  >
    <span aria-hidden="true" class="mark">${MARKS[state]}</span>
    <strong><bdi>${inert(step.id)}</bdi></strong> <span class="kind">${inert(step.kind)}</span>${' '}
    <span class="node-state">${stateText(state)}</span>${' '}
    <span class="node-facts">
      ${waits > 1 && html`<span>${t('inbox.waiting', { count: waits })}</span>`}${' '}
      ${attempt && attempt.number > 1 && html`<span>${t('run.attempt', { number: attempt.number })}</span>`}${' '}
      ${attempt && state !== 'pending' && html`<${Time} from=${attempt.started} to=${attempt.ended} isRunning=${state === 'running' || state === 'waiting'} />`}
    </span>
  </button>`;
}

/** How long it took, or takes until now. @param {{from: string, to: string | null, isRunning: boolean}} props */
export function Time({ from, to, isRunning }) {
  if (to !== null) return html`<span class="time">${took(from, to)}</span>`;
  if (!isRunning) return null; // it was cut off, and nobody noted when
  void second.value; // it goes on
  return html`<span class="time">${took(from, Date.now())}</span>`;
}

/** Arrow keys go from step to step, and from branch to branch. @param {KeyboardEvent} event */
function move(event) {
  const here = event.target;
  if (!(here instanceof HTMLElement) || !(event.currentTarget instanceof HTMLElement)) return;
  const nodes = [...event.currentTarget.querySelectorAll('button.node')];
  const place = nodes.indexOf(here);
  const isBack = document.documentElement.dir === 'rtl' ? event.key === 'ArrowRight' : event.key === 'ArrowLeft';
  const next =
    event.key === 'ArrowDown'
      ? nodes[place + 1]
      : event.key === 'ArrowUp'
        ? nodes[place - 1]
        : event.key === 'Home'
          ? nodes[0]
          : event.key === 'End'
            ? nodes.at(-1)
            : event.key === 'ArrowLeft' || event.key === 'ArrowRight'
              ? beside(here, isBack)
              : undefined;
  if (!(next instanceof HTMLElement)) return;
  event.preventDefault();
  next.focus();
}

/** The first step of the branch beside. @param {HTMLElement} node @param {boolean} isBack */
function beside(node, isBack) {
  const branch = node.closest('.branch');
  return (isBack ? branch?.previousElementSibling : branch?.nextElementSibling)?.querySelector('button.node');
}
