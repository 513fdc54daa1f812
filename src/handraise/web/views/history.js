// What was settled, the newest first: a search, two filters, and each as two lines that open to the whole record.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { call, reasonOf } from '../core/api.js';
import { OriginLine } from '../cards/card.js';
import { titleOf } from '../core/card.js';
import { delivery, outcome, Record } from '../cards/resolved.js';
import { find, onEvent, put, sessions } from '../core/desk.js';
import { asked, href } from '../core/route.js';
import { inert } from '../core/text.js';
import { moment, t } from '../core/words.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {{q: string, state: string, agent: string}} Wanted */

const PAGE = 30;
const PAUSE = 250; // milliseconds without typing until it is looked for
const STATES = ['answered', 'rejected', 'withdrawn'];

/** @returns {Wanted} what the address says */
const fromAddress = () => ({
  q: asked.value.get('q') ?? '',
  state: STATES.includes(asked.value.get('state') ?? '') ? String(asked.value.get('state')) : '',
  agent: asked.value.get('agent') ?? '',
});

/** @param {Wanted} wanted @returns {Record<string, string>} */
const set = (wanted) => Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== ''));

export function History() {
  const [wanted, setWanted] = useState(fromAddress);
  const [ids, setIds] = useState(/** @type {string[] | null} */ (null));
  const [next, setNext] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState('');
  const current = useRef(wanted);
  const typing = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  const newest = useRef(0);

  /** @param {string} after empty for the first page */
  const read = async (after) => {
    const turn = (newest.current += 1);
    const query = { order: 'newest', state: 'settled', limit: String(PAGE), ...set(current.current), ...(after ? { after } : {}) };
    try {
      const page = await call(`/v1/asks?${new URLSearchParams(query)}`);
      if (turn !== newest.current) return; // something else is looked for by now
      for (const ask of page.asks) put(ask);
      const found = page.asks.map((/** @type {Ask} */ ask) => ask.id);
      setIds((before) => (after ? [...new Set([...(before ?? []), ...found])] : found));
      setNext(page.next ?? null);
      setProblem('');
    } catch (error) {
      if (turn === newest.current) setProblem(t('history.failed', { reason: inert(reasonOf(error)) }));
    }
  };

  /** @param {Partial<Wanted>} changes @param {number} pause */
  const want = (changes, pause = 0) => {
    current.current = { ...current.current, ...changes };
    setWanted(current.current);
    clearTimeout(typing.current);
    typing.current = setTimeout(() => {
      const query = String(new URLSearchParams(set(current.current)));
      history.replaceState(null, '', `#/history${query ? `?${query}` : ''}`);
      read('');
    }, pause);
  };

  // The address decides at the start and when the person goes back in it.
  const address = String(asked.value);
  useEffect(() => {
    current.current = fromAddress();
    setWanted(current.current);
    read('');
    return () => clearTimeout(typing.current);
  }, [address]);

  useEffect(() => {
    const stop = onEvent((_, ask) => {
      if (ask.state === 'asked' || !fits(ask, current.current)) return;
      setIds((before) => (before === null || before.includes(ask.id) ? before : [ask.id, ...before]));
    });
    return () => void stop();
  }, []);

  const names = new Set([...sessions.value.map((session) => session.agent), ...(wanted.agent ? [wanted.agent] : [])]);
  for (const id of ids ?? []) names.add(find(id)?.peek().origin.agent ?? '');
  const isNarrowed = Object.keys(set(wanted)).length > 0;
  return html`<section class="view" aria-labelledby="history-title">
    <header class="page-head"><h1 id="history-title" tabindex="-1">${t('history.title')}</h1></header>
    <form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label class="field wide">
        <span>${t('history.search')}</span>
        <input
          type="search"
          name="q"
          value=${wanted.q}
          placeholder=${t('history.search.placeholder')}
          onInput=${(/** @type {any} */ event) => want({ q: event.currentTarget.value }, PAUSE)}
        />
      </label>
      <label class="field">
        <span>${t('history.state')}</span>
        <select name="state" value=${wanted.state} onChange=${(/** @type {any} */ event) => want({ state: event.currentTarget.value })}>
          <option value="">${t('history.state.all')}</option>
          <option value="answered">${t('history.state.answered')}</option>
          <option value="rejected">${t('history.state.rejected')}</option>
          <option value="withdrawn">${t('history.state.withdrawn')}</option>
        </select>
      </label>
      <label class="field">
        <span>${t('history.agent')}</span>
        <select name="agent" value=${wanted.agent} onChange=${(/** @type {any} */ event) => want({ agent: event.currentTarget.value })}>
          <option value="">${t('history.agent.all')}</option>
          ${[...names].filter(Boolean).sort().map((name) => html`<option value=${name}>${inert(name).slice(0, 60)}</option>`)}
        </select>
      </label>
    </form>
    ${problem && html`<p class="error" role="alert">${problem}</p>`}
    ${ids === null && !problem && html`<p class="quiet-text">${t('app.loading')}</p>`}
    ${ids?.length === 0 && html`<p class="quiet-text">${isNarrowed ? t('history.noneFit') : t('history.empty')}</p>`}
    ${ids !== null && ids.length > 0 && html`<ul class="rows" aria-labelledby="history-title">${ids.map((id) => html`<${Row} key=${id} id=${id} />`)}</ul>`}
    ${next !== null && html`<button type="button" class="quiet more" onClick=${() => read(next)}>${t('history.more')}</button>`}
  </section>`;
}

/** Whether one that was just settled belongs to what is shown. @param {Ask} ask @param {Wanted} wanted */
function fits(ask, wanted) {
  if (wanted.state && ask.state !== wanted.state) return false;
  if (wanted.agent && ask.origin.agent !== wanted.agent) return false;
  return texts(ask).join('\n').toLowerCase().includes(wanted.q.toLowerCase());
}

/** Every text in it, without its field names. @param {unknown} value @returns {string[]} */
function texts(value) {
  if (typeof value === 'string') return [value];
  return value !== null && typeof value === 'object' ? Object.values(value).flatMap(texts) : [];
}

/** @param {{id: string}} props */
function Row({ id }) {
  const [isOpen, setOpen] = useState(false);
  const ask = find(id)?.value;
  if (ask === undefined) return null;
  const taken = delivery(ask);
  const at = ask.answer?.at ?? ask.asked_at;
  const mark = ask.state === 'answered' ? '✓' : ask.state === 'rejected' ? '✕' : '–';
  return html`<li class="row settled" data-settled=${id}>
    <details onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class="row-head">
          <strong class="row-title"><bdi>${titleText(ask)}</bdi></strong>
          <span class="row-side"><bdi>${inert(ask.origin.agent)}</bdi> <time datetime=${at}>${moment(new Date(at))}</time></span>
        </span>
        <span class="outcome" data-outcome=${ask.state}>
          <span aria-hidden="true" class="mark">${mark}</span>
          <bdi>${outcome(ask)}</bdi>
        </span>
        ${taken && html`<span class="delivery" data-delivery=${ask.delivery_error ? 'failed' : 'taken'}><bdi>${taken}</bdi></span>`}
      </summary>
      ${isOpen &&
      html`<div class="record">
        <${OriginLine} ask=${ask} />
        <${Record} ask=${ask} />
        <p><a class="reach" href=${href('ask', id)}>${t('history.open')}</a></p>
      </div>`}
    </details>
  </li>`;
}

/** What it was about, in one line. @param {Ask} ask */
function titleText(ask) {
  if (ask.permission) return titleOf(ask);
  const all = ask.questions.map((question) => question.header || question.question).join(' · ');
  return all.length > 120 ? `${inert(all.slice(0, 120))}…` : inert(all);
}
