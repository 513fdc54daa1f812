// The inspector: the raw messages of a session in a list that follows the end, one of them whole, and how an ask was
// translated both ways.

import { html, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { call, pathOf } from '../core/api.js';
import { find } from '../core/desk.js';
import { asked, href } from '../core/route.js';
import { inert, revealed } from '../core/text.js';
import { language, t } from '../core/words.js';
import { Wiretap } from './wiretap.js';

/** @typedef {import('./wiretap.js').Line} Line */
/** @typedef {import('../types/api').Wire} Wire */

const PAUSE = 250; // milliseconds without typing until it is looked for
const LONGEST_GIST = 200;
const NEAR = 40; // pixels from the end at which the list still counts as being there

/** @param {{id: string}} props */
export function Inspector({ id }) {
  const tap = useMemo(() => new Wiretap(id), [id]);
  const [chosen, choose] = useState(/** @type {Line | null} */ (null));
  useEffect(() => {
    tap.start();
    return () => tap.stop();
  }, [tap]);
  const trouble = tap.trouble.value;
  const ask = chosen ? chosen.ask : asked.value.get('ask');
  return html`<section class="view inspector" aria-labelledby="inspect-title">
    <p><a class="reach" href=${href('sessions', id)}>${t('inspect.session')}</a></p>
    <header class="page-head">
      <h1 id="inspect-title" tabindex="-1">${t('inspect.title')}</h1>
      <span class="quiet-text"><bdi>${inert(id)}</bdi></span>
      <${CopyAll} tap=${tap} />
    </header>
    ${trouble === 'forbidden'
      ? html`<p class="note">${t('inspect.forbidden')}</p>`
      : trouble === 'missing'
        ? html`<p class="note">${t('session.unknown')}</p>`
        : html`
            <${Filters} tap=${tap} />
            ${trouble && html`<p class="error" role="alert">${t('inspect.failed', { reason: trouble })}</p>`}
            <${List} tap=${tap} chosen=${chosen} choose=${choose} />
            ${ask && html`<${Translation} key=${ask} session=${id} ask=${ask} />`} ${chosen && html`<${Whole} line=${chosen} />`}
          `}
  </section>`;
}

/** @param {{tap: Wiretap}} props */
function Filters({ tap }) {
  const { way, name, asks } = tap.wanted.value;
  const typing = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => () => clearTimeout(typing.current), []);
  /** @param {string} q */
  const type = (q) => {
    clearTimeout(typing.current);
    typing.current = setTimeout(() => tap.want({ q }), PAUSE);
  };
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label class="field wide">
      <span>${t('inspect.text')}</span>
      <input type="search" name="q" spellcheck=${false} onInput=${(/** @type {any} */ event) => type(event.currentTarget.value)} />
    </label>
    <label class="field">
      <span>${t('inspect.way')}</span>
      <select name="way" value=${way} onChange=${(/** @type {any} */ event) => tap.want({ way: event.currentTarget.value })}>
        <option value="">${t('inspect.all')}</option>
        <option value="in">${t('inspect.way.in')}</option>
        <option value="out">${t('inspect.way.out')}</option>
        <option value="desk">${t('inspect.way.desk')}</option>
      </select>
    </label>
    <label class="field">
      <span>${t('inspect.name')}</span>
      <select name="name" value=${name} onChange=${(/** @type {any} */ event) => tap.want({ name: event.currentTarget.value })}>
        <option value="">${t('inspect.all')}</option>
        ${tap.names.value.filter(Boolean).map((each) => html`<option value=${each}>${inert(each).slice(0, 80)}</option>`)}
      </select>
    </label>
    <div class="switches">
      <label class="setting"><input type="checkbox" name="asks" checked=${asks} onChange=${(/** @type {any} */ event) => tap.want({ asks: event.currentTarget.checked })} /> ${t('inspect.asks')}</label>
      <label class="setting"><input type="checkbox" name="follow" checked=${tap.isFollowing.value} onChange=${(/** @type {any} */ event) => tap.follow(event.currentTarget.checked)} /> ${t('inspect.follow')}</label>
    </div>
  </form>`;
}

/**
 * Arrow keys choose, as in every list of which one is chosen; what is chosen is shown below.
 * @param {{tap: Wiretap, chosen: Line | null, choose: (line: Line) => void}} props
 */
function List({ tap, chosen, choose }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const isAtEnd = useRef(true);
  const key = useId();
  const lines = tap.lines.value;
  const { way, name, q, asks } = tap.wanted.value;
  const isNarrowed = !!(way || name || q || asks);
  useLayoutEffect(() => {
    if (box.current && isAtEnd.current && tap.isFollowing.peek()) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  /** @param {Line} line */
  const idOf = (line) => `${key}-${encodeURIComponent(line.id)}`;
  const place = chosen ? lines.findIndex((line) => line.id === chosen.id) : -1;
  /** @param {number} to */
  const go = (to) => {
    const line = lines[Math.max(0, Math.min(lines.length - 1, to))];
    if (!line) return;
    choose(line);
    document.getElementById(idOf(line))?.scrollIntoView({ block: 'nearest' });
  };
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowDown: () => go(place + 1),
    ArrowUp: () => go(place < 0 ? lines.length - 1 : place - 1),
    PageDown: () => go(place + 10),
    PageUp: () => go(place < 0 ? lines.length - 1 : place - 10),
    Home: () => go(0),
    End: () => go(lines.length - 1),
  };
  const older = async () => {
    const before = box.current?.scrollHeight ?? 0;
    isAtEnd.current = false;
    await tap.readOlder();
    requestAnimationFrame(() => box.current?.scrollBy(0, box.current.scrollHeight - before)); // what was there stays there
  };
  if (!tap.isRead.value) return tap.trouble.value ? null : html`<p class="quiet-text">${t('app.loading')}</p>`;
  if (lines.length === 0)
    return html`<p class="note">${!tap.isRecording.value ? t('inspect.off') : isNarrowed ? t('inspect.noneFit') : t('inspect.none')}</p>`;
  return html`
    ${!tap.isRecording.value && html`<p class="note">${t('inspect.off')}</p>`}
    <div class="wires">
      ${tap.older.value !== null && html`<button type="button" class="quiet" data-action="older" onClick=${older}>${t('inspect.older')}</button>`}
      <ul
        role="listbox"
        tabindex="0"
        aria-label=${t('inspect.messages')}
        aria-activedescendant=${place < 0 ? undefined : idOf(lines[place])}
        ref=${box}
        onScroll=${(/** @type {any} */ { currentTarget: list }) => (isAtEnd.current = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR)}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
          if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          keys[event.key]();
        }}
      >
        ${lines.map((line) => html`<${Row} key=${line.id} id=${idOf(line)} line=${line} isChosen=${line.id === chosen?.id} choose=${choose} />`)}
      </ul>
    </div>
    ${chosen === null && html`<p class="quiet-text">${t('inspect.pick')}</p>`}
  `;
}

const ARROWS = { in: '←', out: '→', desk: '●' };

/** @param {{line: Line, id: string, isChosen: boolean, choose: (line: Line) => void}} props */
function Row({ line, id, isChosen, choose }) {
  return html`<li role="option" id=${id} class="wire" aria-selected=${isChosen} data-way=${line.way} onClick=${() => choose(line)}>
    <time datetime=${line.at}>${stamp(line.at)}</time>
    <span class="way"><span aria-hidden="true">${ARROWS[line.way]}</span> ${wayText(line)}</span>
    <span class="name"><bdi>${inert(line.name)}</bdi></span>
    <span class="mark">${line.ask ? html`<span class="badge">${t('inspect.isAsk')}</span>` : (line.pieces ?? 1) > 1 && `× ${line.pieces}`}</span>
    <span class="gist"><bdi>${gist(line.body)}</bdi></span>
  </li>`;
}

/** @param {Line} line */
function wayText({ way }) {
  if (way === 'in') return t('inspect.way.in');
  return way === 'out' ? t('inspect.way.out') : t('inspect.way.desk');
}

/** @param {string} at */
const stamp = (at) =>
  new Intl.DateTimeFormat(language.value, {
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    fractionalSecondDigits: 3,
    hourCycle: 'h23',
  }).format(new Date(at));

/** What is in it beyond the frame that its protocol has around everything. @param {any} body */
function gist(body) {
  const inner = body && typeof body === 'object' ? (body.params ?? body.result ?? body.properties ?? body.request ?? body.message ?? body) : body;
  const text = typeof inner === 'string' ? inner : (JSON.stringify(inner) ?? '');
  return inert(text.slice(0, LONGEST_GIST).replace(/\s+/gu, ' '));
}

// One of them --------------------------------------------------------------------------------------------------

/** @param {{line: Line}} props */
function Whole({ line }) {
  const text = pretty(line.body);
  const isCut = (line.size ?? 0) > JSON.stringify(line.body ?? null).length + 100;
  return html`<section class="whole" aria-labelledby="inspect-whole">
    <header class="page-head">
      <h2 id="inspect-whole"><bdi>${inert(line.name) || wayText(line)}</bdi></h2>
      <span class="quiet-text">${wayText(line)} · <time datetime=${line.at}>${stamp(line.at)}</time>${isCut && html` · ${t('inspect.cut', { size: line.size ?? 0 })}`}</span>
      <${Copy} text=${text} />
    </header>
    <${Body} text=${text} label=${t('inspect.message')} />
  </section>`;
}

/** A message and its answer on their way through the desk. @param {{session: string, ask: string}} props */
function Translation({ session, ask }) {
  const [wires, setWires] = useState(/** @type {Wire[]} */ ([]));
  const [told, setTold] = useState(/** @type {import('../types/api').Ask | null} */ (null));
  const known = find(ask)?.value;
  const standing = `${known?.state} ${known?.delivered_at}`;
  useEffect(() => {
    const stopped = new AbortController();
    const read = () =>
      call(`${pathOf('sessions', session, 'wire')}?${new URLSearchParams({ ask })}`, { signal: stopped.signal }).then(
        (page) => (setWires(page.wire), setTold(page.ask ?? null)),
        () => undefined,
      );
    read();
    // What was sent for an answer is written down a moment after the answer.
    const later = setTimeout(read, 1500);
    return () => (clearTimeout(later), stopped.abort());
  }, [session, ask, standing]);
  const last = wires.findLastIndex((wire) => wire.way === 'out');
  const sent = wires.filter((wire, place) => wire.way === 'in' && (last < 0 || place < last));
  const got = wires.filter((wire) => wire.way === 'out');
  return html`<section class="translation" aria-label=${t('inspect.translation')}>
    <ol>
      <${Box} name="sent" title=${t('inspect.sent')} wires=${sent} />
      <${Box} name="ask" title=${t('inspect.ask')} about=${told?.state} body=${told && askedOf(told)} />
      <${Box} name="answer" title=${t('inspect.answer')} about=${told?.answer?.by} body=${told?.answer} />
      <${Box} name="got" title=${t('inspect.got')} wires=${got} />
    </ol>
  </section>`;
}

/** An ask as it was asked. @param {import('../types/api').Ask} ask */
function askedOf({ id, questions, permission, origin, fallback, deadline }) {
  return { id, ...(permission ? { permission } : { questions }), origin, ...(deadline ? { deadline, fallback } : {}) };
}

/** @param {{name: string, title: string, about?: string, wires?: Wire[], body?: unknown}} props */
function Box({ name, title, about, wires = [], body }) {
  const texts = body ? [pretty(body)] : wires.map((wire) => pretty(wire.body));
  return html`<li data-box=${name}>
    <header><h2>${title}</h2>${texts.length > 0 && html`<${Copy} text=${texts.join('\n')} of=${title} />`}</header>
    ${texts.length > 0 && html`<p class="quiet-text"><bdi>${inert(about ?? wires.map((wire) => wire.name).join(', '))}</bdi></p>`}
    ${texts.length === 0 ? html`<p class="quiet-text">${t('inspect.nothing')}</p>` : html`<${Body} text=${texts.join('\n')} label=${title} />`}
  </li>`;
}

/** Long ones scroll, also by keyboard. @param {{text: string, label: string}} props */
const Body = ({ text, label }) => html`<pre class="object" dir="ltr" tabindex="0" role="region" aria-label=${label}>${revealed(text)}</pre>`;

/** @param {unknown} body */
const pretty = (body) => (typeof body === 'string' ? body : (JSON.stringify(body, null, 2) ?? ''));

/** @param {{text: string, of?: string}} props */
function Copy({ text, of }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => setDone(false), [text]);
  if (!navigator.clipboard) return null; // browsers have one only at an address that they trust
  const copy = () => navigator.clipboard.writeText(text).then(() => setDone(true), () => undefined);
  const says = isDone ? t('action.copied') : t('action.copy');
  return html`<button type="button" class="quiet" data-action="copy" aria-label=${of && `${says}: ${of}`} onClick=${copy}>${says}</button>`;
}

/** @param {{tap: Wiretap}} props */
function CopyAll({ tap }) {
  const [isDone, setDone] = useState(false);
  if (!navigator.clipboard || tap.wires.value.length === 0) return null;
  const copy = async () => {
    const text = await tap.all();
    if (text) await navigator.clipboard.writeText(text).then(() => setDone(true), () => undefined);
  };
  return html`<button type="button" class="quiet" data-action="copy-all" onClick=${copy}>${isDone ? t('action.copied') : t('inspect.copyAll')}</button>`;
}
