// One run: how it stands, its steps as they go, what waits in them for people, its trace, and what can be done with it.

import { html, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { focusCard } from '../cards/card.js';
import { nameOf } from '../core/keys.js';
import { asked, go, href } from '../core/route.js';
import { inert, middle, Plain } from '../core/text.js';
import { moment, t } from '../core/words.js';
import { Graph, Time } from './run_graph.js';
import { headingOfStep, StepCards, StepDetails } from './run_step.js';
import { isOpen, Story } from './run_story.js';
import { Trace } from './run_trace.js';
import { Folded, isUntrusted, refusal, StateMark, TrustLink } from './run_words.js';

/** @typedef {import('../types/api').Run} RunRecord */
/** @typedef {{kind: 'cancel' | 'retry' | 'rerun', from: string | null}} Order from: the step that a retry begins with */

const UNTRUSTED = 'handraise trust'; // what a run that was parked for that says to type

/** @param {{id: string}} props */
export function Run({ id }) {
  const story = useMemo(() => new Story(id), [id]);
  useEffect(() => {
    story.start();
    return () => story.stop();
  }, [story]);
  const [order, setOrder] = useState(/** @type {Order | null} */ (null));
  const run = story.run.value;
  if (run === null)
    return html`<section class="view">
      <p><a class="reach" href="#/runs">${t('nav.runs')}</a></p>
      <p class="quiet-text">${story.isMissing.value ? t('run.unknown') : t('app.loading')}</p>
    </section>`;
  const goesOn = isOpen(run);
  return html`<section class="view run" aria-labelledby="run-title" data-run=${id} data-state=${run.state}>
    <p><a class="reach" href="#/runs">${t('nav.runs')}</a></p>
    <header class="page-head">
      <h1 id="run-title" tabindex="-1"><bdi>${inert(run.workflow)}</bdi></h1>
      <${StateMark} state=${run.state} />
      <span class="orders">
        ${(goesOn || run.state === 'parked') && html`<${Button} kind="cancel" isBusy=${story.isEnding.value} setOrder=${setOrder} />`}
        ${!goesOn && run.state !== 'done' && html`<${Button} kind="retry" setOrder=${setOrder} />`}
        ${!goesOn && html`<${Button} kind="rerun" setOrder=${setOrder} />`}
      </span>
    </header>
    <${Facts} run=${run} story=${story} />
    ${order && html`<${Confirm} key=${JSON.stringify(order)} story=${story} order=${order} close=${() => setOrder(null)} />`}
    ${run.error && run.state !== 'cancelled' && html`<${Plain} as="p" class="error lines" text=${run.error} limit=${20_000} />`}
    ${run.state === 'parked' && run.error?.includes(UNTRUSTED) && html`<${TrustLink} cwd=${run.cwd} />`}
    <${Body} story=${story} retry=${goesOn ? null : (/** @type {string} */ from) => setOrder({ kind: 'retry', from })} />
    <${Trace} story=${story} />
  </section>`;
}

/** @param {{run: RunRecord, story: Story}} props */
function Facts({ run, story }) {
  const open = story.places.value.flatMap((step) => story.waiting(step));
  const goesOn = isOpen(run);
  return html`<p class="facts">
    <code dir="ltr">${inert(run.id)}</code>
    <span><bdi>${t('run.by', { person: inert(run.created_by) })}</bdi></span>
    <time datetime=${run.created_at}>${moment(new Date(run.created_at))}</time>
    <${Time} from=${run.created_at} to=${goesOn ? null : run.updated_at} isRunning=${goesOn} />
    <span class="path" dir="ltr" title=${inert(run.cwd)}>${middle(inert(run.cwd), 48)}</span>
    <span class="path" dir="ltr" title=${inert(run.file)}>${middle(inert(run.file.split('/').at(-1) ?? ''), 48)}</span>
    ${open.length > 0 && html`<button type="button" class="quiet" data-action="to-waiting" onClick=${() => focusCard(open[0])}>${t('inbox.waiting', { count: open.length })}</button>`}
  </p>`;
}

// Steps ------------------------------------------------------------------------------------------------------

/** @param {{story: Story, retry: ((from: string) => void) | null}} props */
function Body({ story, retry }) {
  const [selected, setSelected] = useState(asked.value.get('step'));
  const run = /** @type {RunRecord} */ (story.run.value);
  const steps = story.steps.value;
  const step = steps.find(({ id }) => id === selected);
  const places = story.places.value;
  for (const place of places) for (const open of story.waiting(place)) story.seen.add(open);
  const waiting = places.filter((place) => place !== step?.id && isSeen(story, place));
  // Where it was drawn first. To move it when the run ends would move the cards, and take the focus from them.
  const isBelow = useRef(isOpen(run)).current;
  const isWide = story.outline.value.some((part) => 'branches' in part && part.branches.length > 2);

  /** @param {string} wanted */
  const select = (wanted) => {
    story.seen.clear(); // what is settled need not be kept any longer
    setSelected(wanted);
    history.replaceState(null, '', `${href('runs', story.id)}?${new URLSearchParams({ step: wanted })}`);
    requestAnimationFrame(() => {
      const heading = document.getElementById(headingOfStep(wanted));
      heading?.focus({ preventScroll: true });
      heading?.closest('section')?.scrollIntoView({ block: 'nearest' });
    });
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    const within = event.target instanceof Element && event.target.closest('[data-details]');
    if (event.defaultPrevented || nameOf(event) !== 'Escape' || !(within instanceof HTMLElement)) return;
    const node = document.querySelector('.node[aria-current]');
    if (node instanceof HTMLElement) node.focus();
  };
  const graph = useMemo(() => html`<${Graph} story=${story} selected=${selected} select=${select} />`, [story, selected]); // it sees what changes
  const values = html`<div class="panel run-values" key="values">
    ${run.output !== null && html`<${Folded} key="output" title=${t('run.output')} value=${run.output} isOpen=${step === undefined} />`}
    <${Folded} key="input" title=${t('run.input')} value=${run.input} />
  </div>`;
  return html`<div class="run-body" data-wide=${isWide || undefined}>
    <section class="run-steps" aria-labelledby="steps-title">
      <h2 id="steps-title">${t('run.steps')}</h2>
      ${graph}
    </section>
    <div class="run-side" onKeyDown=${press}>
      ${step && html`<${StepDetails} key=${step.id} story=${story} step=${step} retry=${retry && step.attempts.length > 0 ? () => retry(step.id) : null} />`}
      ${!isBelow && values}
      ${waiting.map((place) => html`<${StepCards} key=${place} story=${story} step=${place} />`)}
      ${isBelow && values}
    </div>
  </div>`;
}

/** Whether something waits in a step, or did while somebody looked. @param {Story} story @param {string} step */
function isSeen(story, step) {
  const ids = [...(story.asks.value.get(step) ?? []), ...(story.checkpoints.value.get(step) ?? [])].map(({ id }) => id);
  return ids.some((id) => story.seen.has(id));
}

// What can be done with it -----------------------------------------------------------------------------------

/** @param {Order['kind']} kind */
function orderText(kind) {
  if (kind === 'cancel') return t('run.cancel');
  return kind === 'retry' ? t('run.retry') : t('run.rerun');
}

/** @param {{kind: Order['kind'], isBusy?: boolean, setOrder: (order: Order) => void}} props */
function Button({ kind, isBusy = false, setOrder }) {
  const order = () => setOrder({ kind, from: null });
  return html`<button type="button" data-action=${kind} disabled=${isBusy} onClick=${order}>${isBusy ? t('session.stopping') : orderText(kind)}</button>`;
}

/** Says what will be done, and does it. @param {{story: Story, order: Order, close: () => void}} props */
function Confirm({ story, order, close }) {
  const [plan, setPlan] = useState('');
  const [failure, setFailure] = useState(/** @type {unknown} */ (null));
  const problem = failure === null ? '' : refusal(failure);
  const [isSending, setSending] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    box.current?.focus();
    if (order.kind === 'cancel') setPlan(t('run.cancel.plan'));
    else if (order.kind === 'rerun') setPlan(t('run.rerun.plan'));
    else story.retry(order.from, true).then((told) => setPlan(planText(told)), setFailure);
  }, []);
  const done = () => {
    close();
    document.getElementById('run-title')?.focus();
  };
  const send = async () => {
    setSending(true);
    setFailure(null);
    try {
      if (order.kind === 'rerun') return void go('runs', (await story.rerun()).id);
      await (order.kind === 'cancel' ? story.cancel() : story.retry(order.from, false));
      done();
    } catch (error) {
      setFailure(error);
      setSending(false);
    }
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (nameOf(event) === 'Escape') done();
  };
  return html`<div class="panel confirm" role="group" aria-label=${orderText(order.kind)} tabindex="-1" ref=${box} onKeyDown=${press}>
    <p role="status"><bdi>${plan || (problem ? '' : t('app.loading'))}</bdi></p>
    ${problem && html`<p class="error" role="alert"><bdi>${problem}</bdi></p>`}
    ${isUntrusted(failure) && html`<${TrustLink} cwd=${story.run.value?.cwd ?? ''} />`}
    <div class="actions">
      ${plan && html`<button type="button" class=${order.kind === 'cancel' ? 'danger' : 'primary'} data-action="confirm" disabled=${isSending} onClick=${send}>${confirmText(order.kind)}</button>`}
      <button type="button" class="quiet" data-action="leave" onClick=${done}>${t('action.back')}</button>
    </div>
  </div>`;
}

/** @param {Order['kind']} kind */
function confirmText(kind) {
  if (kind === 'cancel') return t('run.cancel.sure');
  return kind === 'retry' ? t('run.retry.sure') : t('sessions.form.go');
}

/** What is done again, and what comes after that. @param {import('../types/api').Retried} told */
function planText({ again, then = [] }) {
  const first = again.length > 0 ? t('run.retry.again', { steps: inert(again.join(', ')) }) : t('run.retry.nothing');
  return then.length > 0 ? `${first} ${t('run.retry.then', { steps: inert(then.join(', ')) })}` : first;
}
