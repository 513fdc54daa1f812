// One session as a conversation: what was said, what it did, what it asked in its place; and a line to tell it more.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { reasonOf } from '../core/api.js';
import { Card, focusCard } from '../cards/card.js';
import { onEvent } from '../core/desk.js';
import { isTyping, nameOf } from '../core/keys.js';
import { keep, recall } from '../core/memory.js';
import { inert, Plain, Prose } from '../core/text.js';
import { language, moment, t } from '../core/words.js';
import { Facts } from './sessions.js';
import { standing, StandingMark } from './states.js';
import { Talk } from './talk.js';

/** @typedef {import('../core/api.js').Session} SessionRecord */
/** @typedef {import('../types/api').Message} Message */
/** @typedef {import('./talk.js').Entry} Entry */
/** @typedef {import('./states.js').Standing} Standing */

const PAGE = 200; // entries that are drawn at a time
const NEAR = 120; // pixels from the end that still count as there

/** @param {{id: string}} props */
export function Session({ id }) {
  const talk = useMemo(() => new Talk(id), [id]);
  useEffect(() => {
    talk.start();
    return () => talk.stop();
  }, [talk]);
  const session = talk.session.value;
  if (session === null)
    return html`<section class="view">
      <p><a class="reach" href="#/sessions">${t('sessions.title')}</a></p>
      <p class="quiet-text">${talk.isMissing.value ? t('session.unknown') : t('app.loading')}</p>
    </section>`;
  const state = standing(session);
  return html`<section class="view session" aria-labelledby="session-title" data-session=${id}>
    <p><a class="reach" href="#/sessions">${t('sessions.title')}</a></p>
    <header class="page-head">
      <h1 id="session-title" tabindex="-1" dir="auto">${inert(session.agent)}</h1>
      <${StandingMark} state=${state} />
      ${session.managed && html`<${Orders} talk=${talk} state=${state} />`}
    </header>
    <${Facts} session=${session} />
    ${state === 'failed' &&
    session.error &&
    html`<p class="error" dir="auto">${t('session.failed', { reason: inert(session.error) })}</p>`}
    <${Conversation} talk=${talk} agent=${session.agent} />
    ${!session.managed
      ? html`<p class="note">${t('session.foreign')}</p>`
      : state === 'done'
        ? html`<p class="note">${t('session.ended')}</p>`
        : html`<${Composer} talk=${talk} agent=${session.agent} state=${state} />`}
  </section>`;
}

// What was said ----------------------------------------------------------------------------------------------

/** @param {{talk: Talk, agent: string}} props */
function Conversation({ talk, agent }) {
  const [drawn, setDrawn] = useState(PAGE);
  const [isBelow, setBelow] = useState(false);
  const isAtEnd = useRef(true);
  const entries = talk.entries.value;
  const queued = talk.queued.value;
  const left = Math.max(0, entries.length - drawn);
  // The same list is not drawn again, however often the session changes.
  const list = useMemo(
    () => entries.slice(left).map((entry) => html`<${Item} key=${entry.key} entry=${entry} agent=${agent} />`),
    [entries, left, agent, language.value],
  );
  useEffect(() => {
    const look = () => {
      isAtEnd.current = distance() < NEAR;
      if (isAtEnd.current) setBelow(false);
    };
    addEventListener('scroll', look, { passive: true });
    return () => removeEventListener('scroll', look);
  }, []);
  useEffect(() => onNewAsk(talk), [talk]);
  const last = `${entries.length} ${entries.at(-1)?.key} ${queued.length}`;
  useLayoutEffect(() => {
    if (isAtEnd.current) toEnd();
    else setBelow(true);
  }, [last]);
  return html`
    <h2 id="talk" class="unseen">${t('session.talk')}</h2>
    ${left > 0 &&
    html`<button type="button" class="quiet more" onClick=${() => setDrawn(drawn + PAGE)}>
      ${t('session.older', { count: Math.min(left, PAGE) })}
    </button>`}
    ${talk.isRead.value && entries.length === 0 && queued.length === 0 && html`<p class="quiet-text">${t('session.empty')}</p>`}
    <ol class="talk" aria-labelledby="talk">
      ${list}
      ${queued.map(
        (text, place) => html`<li class="said" data-role="person" data-queued key=${`queued ${place}`}>
          <p class="who">${t('session.you')} · ${t('session.queued')}</p>
          <${Plain} as="p" class="lines" text=${text} limit=${4000} />
        </li>`,
      )}
    </ol>
    ${isBelow && html`<button type="button" class="pill below" onClick=${toEnd}>${t('session.below')}</button>`}
  `;
}

/** How far the end is from what is seen. */
const distance = () => document.documentElement.scrollHeight - innerHeight - scrollY;

function toEnd() {
  const jump = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' });
  jump();
  requestAnimationFrame(jump); // what came into sight may be taller than it was thought
}

/** @param {{entry: Entry, agent: string}} props */
function Item({ entry, agent }) {
  if (entry.kind === 'ask') return html`<li><${Card} id=${entry.id} level=${3} /></li>`;
  if (entry.kind === 'tools') return html`<${Tools} messages=${entry.messages} />`;
  const { role, text, at } = entry.message;
  const name = role === 'person' ? t('session.you') : role === 'agent' ? inert(agent) : t('session.notice');
  return html`<li class="said" data-role=${role}>
    <p class="who"><span dir="auto">${name}</span> · <time datetime=${at}>${moment(new Date(at))}</time></p>
    ${role === 'agent'
      ? html`<${Prose} text=${text} limit=${8000} />`
      : html`<${Plain} as="p" class="lines" text=${text} limit=${4000} />`}
  </li>`;
}

/** Tool calls, folded. @param {{messages: Message[]}} props */
function Tools({ messages }) {
  const [isOpen, setOpen] = useState(false);
  const [first] = messages;
  return html`<li class="said" data-role="tool">
    <details onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span aria-hidden="true">⚙</span>${' '}
        ${messages.length === 1
          ? html`<bdi>${inert(first.text).slice(0, 120)}</bdi>`
          : t('session.tools', { count: messages.length })}
      </summary>
      ${isOpen &&
      html`<ul class="calls">
        ${messages.map(
          (message) => html`<li key=${message.id}>
            <${Plain} as="p" class="lines" text=${message.text} limit=${500} />
            ${message.extra?.input !== undefined && html`<${Plain} as="pre" class="object" text=${shownInput(message.extra.input)} limit=${2000} />`}
          </li>`,
        )}
      </ul>`}
    </details>
  </li>`;
}

/** @param {unknown} input */
const shownInput = (input) => (typeof input === 'string' ? input : JSON.stringify(input, null, 2));

/**
 * In the conversation that asked, the focus goes to a new question, unless the person is at something else.
 * @param {Talk} talk
 */
const onNewAsk = (talk) =>
  onEvent((_, ask, isNew) => {
    if (!isNew || ask.state !== 'asked' || ask.origin.session !== talk.id) return undefined;
    const isBusy = isTyping(document.activeElement) || !(getSelection()?.isCollapsed ?? true);
    if (!document.hasFocus() || isBusy || document.querySelector('dialog[open]')) return undefined;
    const inCard = document.activeElement?.closest('article[data-ask]');
    if (inCard) return undefined;
    requestAnimationFrame(() => {
      const card = document.querySelector(`article[data-ask=${JSON.stringify(ask.id)}]`);
      const field = ask.permission ? null : (card?.querySelector('textarea') ?? card?.querySelector('input'));
      if (field instanceof HTMLElement) field.focus();
      else focusCard(ask.id);
    });
    return undefined;
  });

// What people tell it ----------------------------------------------------------------------------------------

/** @param {{talk: Talk, state: Standing}} props */
function Orders({ talk, state }) {
  const [isSure, setSure] = useState(false);
  const [isStopping, setStopping] = useState(false);
  const [problem, setProblem] = useState('');
  const isBusy = state === 'running' || state === 'waiting';
  useEffect(() => setStopping(false), [isBusy]);
  /** @param {'abort' | 'close'} kind */
  const order = async (kind) => {
    setProblem('');
    setStopping(true);
    setSure(false);
    await talk.order(kind).catch((error) => {
      setStopping(false);
      setProblem(t('session.orderFailed', { reason: inert(reasonOf(error)) }));
    });
  };
  if (state === 'done') return null;
  return html`<span class="orders">
      ${isBusy &&
      html`<button type="button" data-action="stop" disabled=${isStopping} onClick=${() => order('abort')}>
        ${isStopping ? t('session.stopping') : t('session.stop')}
      </button>`}
      ${isSure
        ? html`<button type="button" class="danger" data-action="end" onClick=${() => order('close')}>${t('session.end.sure')}</button>
            <button type="button" class="quiet" onClick=${() => setSure(false)}>${t('action.cancel')}</button>`
        : html`<button type="button" class="quiet" data-action="end" onClick=${() => setSure(true)}>${t('session.end')}</button>`}
    </span>
    ${problem && html`<p class="error" role="alert">${problem}</p>`}`;
}

/** @param {{talk: Talk, agent: string, state: Standing}} props */
function Composer({ talk, agent, state }) {
  const name = `message.${talk.id}`;
  const [text, setText] = useState(() => recall(name, ''));
  const [problem, setProblem] = useState('');
  const values = { agent: inert(agent) };
  const hint =
    state === 'waiting'
      ? t('session.hint.waiting', values)
      : state === 'running'
        ? t('session.hint.running', values)
        : t('session.hint.idle');
  /** @param {string} wanted */
  const write = (wanted) => {
    setText(wanted);
    keep(name, wanted);
  };
  /** @param {Event} [event] */
  const send = async (event) => {
    event?.preventDefault();
    const said = text.trim();
    if (said === '') return;
    write('');
    setProblem('');
    await talk.prompt(said).catch((error) => {
      write(said);
      setProblem(t('session.orderFailed', { reason: inert(reasonOf(error)) }));
    });
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    const key = nameOf(event);
    if ((key === 'Enter' && !event.shiftKey) || key === 'Mod+Enter') send(event);
    else if (key === 'Escape' && event.currentTarget instanceof HTMLElement) event.currentTarget.blur();
  };
  return html`<form class="composer" onSubmit=${send}>
    ${problem && html`<p class="error" role="alert">${problem}</p>`}
    <label for="message">${t('session.message', values)}</label>
    <div class="line">
      <textarea
        id="message"
        rows="1"
        dir="auto"
        aria-describedby="message-hint"
        placeholder=${t('session.message.placeholder')}
        value=${text}
        onInput=${(/** @type {any} */ event) => write(event.currentTarget.value)}
        onKeyDown=${press}
      ></textarea>
      <button class="primary" data-action="send" disabled=${text.trim() === ''}>${t('action.send')}</button>
    </div>
    <p id="message-hint" class="quiet-text">${hint}</p>
  </form>`;
}
