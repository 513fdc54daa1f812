// One step of a run: what it was told, what it gave, why it failed, what it asks, and each attempt.

import { html, useState } from '../vendor/preact.js';
import { call, pathOf, reasonOf } from '../core/api.js';
import { Card } from '../cards/card.js';
import { CheckpointCard } from '../cards/checkpoint.js';
import { href } from '../core/route.js';
import { inert, Plain } from '../core/text.js';
import { moment, t } from '../core/words.js';
import { Time } from './run_graph.js';
import { Folded, StateMark, Whole } from './run_words.js';

/** @typedef {import('./run_story.js').Story} Story */
/** @typedef {import('./run_steps.js').Step} Step */
/** @typedef {import('./run_steps.js').Attempt} Attempt */

/** @param {string} step */
export const headingOfStep = (step) => `step-${encodeURIComponent(step)}`;

/** Of the step that the person looks at: everything. @param {{story: Story, step: Step, retry: (() => void) | null}} props */
export function StepDetails({ story, step, retry }) {
  const state = story.stateOf(step);
  const attempt = step.attempts.at(-1);
  const isFailed = state === 'failed' || state === 'again';
  return html`<section class="panel step-details" data-details=${step.id} aria-labelledby=${headingOfStep(step.id)}>
    <header class="page-head">
      <h2 id=${headingOfStep(step.id)} tabindex="-1"><bdi>${inert(step.id)}</bdi></h2>
      <${StateMark} state=${state} />
      ${retry && html`<button type="button" class="quiet" data-action="retry-from" onClick=${retry}>${t('run.retry.from')}</button>`}
    </header>
    <p class="facts">
      <span>${inert(step.kind)}</span>
      ${attempt?.agent && html`<span><bdi>${inert(attempt.agent)}</bdi></span>`}
      ${attempt && html`<time datetime=${attempt.started}>${moment(new Date(attempt.started))}</time>`}
      ${attempt && html`<${Time} from=${attempt.started} to=${attempt.ended} isRunning=${state === 'running' || state === 'waiting'} />`}
      ${attempt?.session && html`<a class="reach" href=${href('sessions', attempt.session)}>${t('run.session')}</a>`}
    </p>
    ${isFailed && attempt?.error && html`<${Plain} as="p" class="error lines" text=${attempt.error} limit=${4000} />`}
    <${Cards} story=${story} step=${step.id} all />
    ${attempt?.command && html`<${Folded} title=${t('perm.change.command')} value=${attempt.command} isOpen />`}
    ${attempt?.session && html`<${Prompt} key=${attempt.session} session=${attempt.session} />`}
    ${step.output !== undefined && html`<${Folded} key=${`output ${attempt?.number}`} title=${t('run.output')} value=${step.output} isOpen />`}
    ${step.attempts.length > 1 && html`<${Attempts} attempts=${step.attempts} />`}
  </section>`;
}

/** Of another step: only what waits in it, or did while this page was looked at. @param {{story: Story, step: string}} props */
export function StepCards({ story, step }) {
  return html`<section class="step-cards" data-waiting=${step} aria-labelledby=${headingOfStep(step)}>
    <h2 id=${headingOfStep(step)} tabindex="-1"><bdi>${inert(step || story.id)}</bdi></h2>
    <${Cards} story=${story} step=${step} />
  </section>`;
}

/** @param {{story: Story, step: string, all?: boolean}} props all: also what was settled long ago */
function Cards({ story, step, all = false }) {
  const isShown = (/** @type {string} */ id, /** @type {boolean} */ isOpen) => all || isOpen || story.seen.has(id);
  const asks = (story.asks.value.get(step) ?? []).filter((ask) => isShown(ask.id, ask.state === 'asked'));
  const points = (story.checkpoints.value.get(step) ?? []).filter((each) => isShown(each.id, each.state === 'open'));
  return html`
    ${asks.map((ask) => html`<${Card} key=${ask.id} id=${ask.id} level=${3} />`)}
    ${points.map((each) => html`<${CheckpointCard} key=${each.id} checkpoint=${each} level=${3} />`)}
  `;
}

/** What the agent was told, which its session knows. @param {{session: string}} props */
function Prompt({ session }) {
  const [said, setSaid] = useState(/** @type {string | null} */ (null));
  const read = async () => {
    if (said !== null) return;
    const { messages } = await call(pathOf('sessions', session, 'messages'));
    setSaid(messages.find((/** @type {{role: string}} */ { role }) => role === 'person')?.text ?? '');
  };
  const open = (/** @type {any} */ event) => {
    if (event.currentTarget.open) read().catch((error) => setSaid(reasonOf(error)));
  };
  return html`<details class="folded" onToggle=${open}>
    <summary>${t('run.prompt')}</summary>
    ${said === null ? html`<p class="quiet-text">${t('app.loading')}</p>` : html`<${Whole} value=${said} />`}
  </details>`;
}

/** @param {{attempts: Attempt[]}} props */
function Attempts({ attempts }) {
  return html`<details class="folded">
    <summary>${t('run.attempts', { count: attempts.length })}</summary>
    <ol class="attempts">
      ${attempts.map(
        (attempt) => html`<li key=${`${attempt.number} ${attempt.started}`}>
          <p class="facts">
            <span>${t('run.attempt', { number: attempt.number })}</span>
            <time datetime=${attempt.started}>${moment(new Date(attempt.started))}</time>
            <${Time} from=${attempt.started} to=${attempt.ended} isRunning=${false} />
            ${attempt.isDone && html`<${StateMark} state="done" />`}
            ${attempt.error !== null && html`<${StateMark} state="failed" />`}
            ${attempt.session && html`<a class="reach" href=${href('sessions', attempt.session)}>${t('run.session')}</a>`}
          </p>
          ${attempt.error && html`<${Plain} as="p" class="row-error lines" text=${attempt.error} limit=${1000} />`}
        </li>`,
      )}
    </ol>
  </details>`;
}
