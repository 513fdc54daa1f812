// What waits, across agents, machines and runs, each as a card. Long lists grow as they are read.

import { Component, computed, html, useEffect, useRef, useState } from '../vendor/preact.js';
import { Card } from '../cards/card.js';
import { Groups } from '../core/groups.js';
import { asOf, checkpoints, clearSettled, countOfAll, find, held, inUse, isLoaded, shown, sort } from '../core/desk.js';
import { lazily } from '../core/lazy.js';
import { t } from '../core/words.js';

const CheckpointCard = lazily(() => import('../cards/checkpoint.js'), 'CheckpointCard');
const FirstRun = lazily(() => import('./first_run.js'), 'FirstRun');

const FIRST = 12; // cards that are drawn at once
const MORE = 4; // in each frame after that
const FAR = '3000px'; // from what is seen
/** A signal, so that a new ask does not draw every card again. */
const total = computed(() => shown.value.length);

/** The first of them: so many that wait, and what was settled in between. @param {string[]} order @param {number} most */
function first(order, most) {
  let open = 0;
  const end = order.findIndex((id) => find(id)?.peek().state === 'asked' && ++open > most);
  return end === -1 ? order : order.slice(0, end);
}

export function Inbox() {
  const [drawn, setDrawn] = useState(FIRST);
  const order = shown.value;
  const count = countOfAll.value;
  const groups = useRef(new Groups());
  const near = first(order, drawn);
  const left = order.length - near.length;
  const hasSettled =
    order.some((id) => find(id)?.peek().state !== 'asked') || checkpoints.value.some((each) => each.state !== 'open');
  return html`<section aria-labelledby="inbox-title">
    <header class="page-head">
      <h1 id="inbox-title" tabindex="-1">${t('inbox.title')}</h1>
      ${isLoaded.value && html`<p class="quiet-text" data-count=${count}>${t('inbox.waiting', { count })}</p>`}
      ${hasSettled && html`<button type="button" class="quiet" onClick=${clearSettled}>${t('inbox.clear')}</button>`}
    </header>
    ${held.value.length > 0 &&
    html`<button type="button" class="pill" onClick=${toTop}>${t('inbox.above', { count: held.value.length })}</button>`}
    ${!isLoaded.value && asOf.value === null && html`<p class="quiet-text">${t('inbox.loading')}</p>`}
    ${isLoaded.value && count === 0 && order.length === 0 && !hasSettled && html`<${FirstRun} />`}
    ${order.length + checkpoints.value.length > 0 &&
    html`<div role="feed" aria-labelledby="inbox-title" aria-busy=${!isLoaded.value} class="cards">
      ${checkpoints.value.map((checkpoint) => html`<${CheckpointCard} key=${checkpoint.id} checkpoint=${checkpoint} />`)}
      ${grouped(groups.current.of(near))}
    </div>`}
    ${left > 0 && html`<${More} left=${left} draw=${() => setDrawn(drawn + MORE)} />`}
  </section>`;
}

/** @param {{key: number, ids: string[]}[]} groups */
function grouped(groups) {
  let place = 1;
  return groups.map(({ key, ids }) => {
    const from = place;
    place += ids.length;
    return html`<${Group} key=${key} ids=${JSON.stringify(ids)} from=${from} />`; // a text, since equal ones are not drawn again
  });
}

/**
 * Some cards. While they are far from what is seen only their height is kept, unless one of them is in use.
 * @extends {Component<{ids: string, from: number}, {height: number | null}>}
 */
class Group extends Component {
  constructor() {
    super();
    this.state = { height: null }; // of the group while its cards are not drawn
    /** @type {HTMLElement | null} */
    this._element = null;
    this._observer = new IntersectionObserver(([entry]) => this._moved(entry), { rootMargin: FAR });
  }

  /** @param {IntersectionObserverEntry} entry */
  _moved(entry) {
    const isUsed = inUse.peek() !== null && JSON.parse(this.props.ids).includes(inUse.peek());
    if (entry.isIntersecting) this.setState({ height: null });
    else if (!isUsed && this.state.height === null) this.setState({ height: entry.boundingClientRect.height });
  }

  componentDidMount() {
    if (this._element) this._observer.observe(this._element);
  }

  componentWillUnmount() {
    this._observer.disconnect();
  }

  /** @param {{ids: string, from: number}} next @param {{height: number | null}} state */
  shouldComponentUpdate(next, state) {
    return next.ids !== this.props.ids || next.from !== this.props.from || state.height !== this.state.height;
  }

  render() {
    const { height } = this.state;
    /** @type {string[]} */
    const ids = height === null ? JSON.parse(this.props.ids) : [];
    return html`<div
      class="group"
      ref=${(/** @type {HTMLElement | null} */ element) => (this._element = element)}
      style=${{ blockSize: height === null ? '' : `${height}px` }}
    >
      ${ids.map((id, place) => html`<${Card} key=${id} id=${id} place=${this.props.from + place} total=${total} />`)}
    </div>`;
  }
}

function toTop() {
  sort();
  scrollTo({ top: 0 });
  document.getElementById('inbox-title')?.focus({ preventScroll: true });
}

/** Draws more before the end is reached; a button for those who do not scroll. @param {{left: number, draw: () => void}} props */
function More({ left, draw }) {
  const end = useRef(/** @type {HTMLButtonElement | null} */ (null));
  useEffect(() => {
    const observer = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && requestAnimationFrame(draw),
      { rootMargin: '1200px' },
    );
    if (end.current) observer.observe(end.current);
    return () => observer.disconnect();
  }, [draw]);
  return html`<button type="button" class="quiet more" ref=${end} onClick=${draw}>${t('inbox.more', { count: left })}</button>`;
}
