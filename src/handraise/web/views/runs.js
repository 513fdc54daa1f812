// The runs of workflows, the newest first; and a form to start one.

import { effect, html, useEffect, useMemo, useState } from '../vendor/preact.js';
import { call } from '../core/api.js';
import { minute } from '../core/clock.js';
import { calmly, runsChanged } from '../core/desk.js';
import { href } from '../core/route.js';
import { inert, middle } from '../core/text.js';
import { ago, t } from '../core/words.js';
import { StartForm } from './run_start.js';
import { StateMark, stateText, took } from './run_words.js';

/** @typedef {import('../types/api').ListedRun} ListedRun */

const PAGE = 100;
const MOST = 1000; // that the desk tells
/** @type {ListedRun['state'][]} */
const STATES = ['waiting', 'running', 'failed', 'parked', 'cancelled', 'done'];

export function Runs() {
  const [runs, setRuns] = useState(/** @type {ListedRun[] | null} */ (null));
  const [wanted, setWanted] = useState('');
  const [state, setState] = useState('');
  const [limit, setLimit] = useState(PAGE);
  const [isStarting, setStarting] = useState(false);
  useEffect(() => {
    let isOver = false;
    const again = calmly(async () => {
      const told = await call(`/v1/runs?limit=${limit}`);
      if (!isOver) setRuns(told.runs);
    });
    const stop = effect(() => {
      void runsChanged.value;
      again();
    });
    return () => {
      isOver = true;
      stop();
    };
  }, [limit]);
  const all = runs ?? [];
  const fits = useMemo(() => all.filter((run) => (!state || run.state === state) && matches(run, wanted)), [runs, state, wanted]);
  return html`<section aria-labelledby="runs-title" class="view runs">
    <header class="page-head">
      <h1 id="runs-title" tabindex="-1">${t('nav.runs')}</h1>
      <button type="button" class="aside" aria-expanded=${isStarting} onClick=${() => setStarting(!isStarting)}>${t('runs.start')}</button>
    </header>
    ${isStarting && html`<${StartForm} last=${all[0]?.cwd ?? ''} />`}
    ${all.length > 0 &&
    html`<div class="filters">
      <label class="field wide">
        <span>${t('history.search')}</span>
        <input type="search" value=${wanted} placeholder=${t('runs.search')} onInput=${(/** @type {any} */ event) => setWanted(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>${t('runs.state')}</span>
        <select value=${state} onChange=${(/** @type {any} */ event) => setState(event.currentTarget.value)}>
          <option value="">${t('history.state.all')}</option>
          ${STATES.map((each) => html`<option value=${each}>${stateText(each)}</option>`)}
        </select>
      </label>
    </div>`}
    ${runs === null && html`<p class="quiet-text">${t('app.loading')}</p>`}
    ${runs?.length === 0 && html`<p class="quiet-text">${t('runs.none')}</p>`}
    ${all.length > 0 && fits.length === 0 && html`<p class="quiet-text">${t('history.noneFit')}</p>`}
    ${fits.length > 0 && html`<ul class="rows" aria-labelledby="runs-title">${fits.map((run) => html`<${Row} key=${run.id} run=${run} />`)}</ul>`}
    ${all.length === limit && limit < MOST && html`<button type="button" class="quiet more" onClick=${() => setLimit(Math.min(MOST, limit + PAGE))}>${t('history.more')}</button>`}
  </section>`;
}

/** @param {ListedRun} run @param {string} wanted every word of it has to be found somewhere */
function matches({ workflow, cwd, created_by, id, error }, wanted) {
  const text = [workflow, cwd, created_by, id, error].join(' ').toLowerCase();
  return wanted
    .toLowerCase()
    .split(/\s+/u)
    .every((word) => text.includes(word));
}

/** @param {{run: ListedRun}} props */
function Row({ run }) {
  const { id, workflow, state, created_at, updated_at, created_by, cwd, error } = run;
  const waits = run.open_asks + run.open_checkpoints;
  const seconds = Math.max(0, (minute.value - Date.parse(created_at)) / 1000);
  const isOver = state !== 'running' && state !== 'waiting';
  return html`<li class="row" data-run=${id}>
    <a class="row-head" href=${href('runs', id)}>
      <${StateMark} state=${state} />
      <strong><bdi>${inert(workflow)}</bdi></strong>
      ${waits > 0 && html`<span class="row-title">${t('inbox.waiting', { count: waits })}</span>`}
    </a>
    <p class="facts">
      <time datetime=${created_at}>${ago(seconds)}</time>
      ${isOver && html`<span>${took(created_at, updated_at)}</span>`}
      <span><bdi>${t('run.by', { person: inert(created_by) })}</bdi></span>
      <span class="path" dir="ltr" title=${inert(cwd)}>${middle(inert(cwd), 48)}</span>
      <code dir="ltr">${inert(id)}</code>
    </p>
    ${error && (state === 'failed' || state === 'parked') && html`<p class="row-error"><bdi>${inert(error).slice(0, 300)}</bdi></p>`}
  </li>`;
}
