// One session as a conversation: what was said, what it did, what it asked in its place; and a line to tell it more.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { reasonOf } from '../core/api.js';
import { Card, focusCard } from '../cards/card.js';
import { stay } from '../cards/question_draft.js';
import { find, onEvent } from '../core/desk.js';
import { own } from '../core/live.js';
import { keep, recall } from '../core/memory.js';
import { href } from '../core/route.js';
import { inert, Plain, Prose } from '../core/text.js';
import { language, moment, t } from '../core/words.js';
import { aimAt, answerBy, hindrance, settledText } from './aim.js';
import { attend } from './attention.js';
import { Composer, useMessage } from './composer.js';
import { Conversation } from './conversation.js';
import { Facts } from './sessions.js';
import { standing, StandingMark } from './states.js';
import { Talk } from './talk.js';

/** @typedef {import('../core/api.js').Session} SessionRecord */
/** @typedef {import('../types/api').Message} Message */
/** @typedef {import('./conversation.js').Row} Row */
/** @typedef {import('./talk.js').Entry} Entry */
/** @typedef {import('./states.js').Standing} Standing */

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
      <a class="reach" href=${href('inspect', id)}>${t('inspect.link')}</a>
      ${session.managed && html`<${Orders} talk=${talk} state=${state} />`}
    </header>
    <${Facts} session=${session} />
    ${state === 'failed' &&
    session.error &&
    html`<p class="error" dir="auto">${t('session.failed', { reason: inert(session.error) })}</p>`}
    <${Told} talk=${talk} agent=${session.agent} />
    ${!session.managed
      ? html`<p class="note">${t('session.foreign')}</p>`
      : state === 'done' && html`<p class="note">${t('session.ended')}</p>`}
    <${Telling} talk=${talk} session=${session} state=${state} />
  </section>`;
}

// What was said ----------------------------------------------------------------------------------------------

/** @param {{talk: Talk, agent: string}} props */
function Told({ talk, agent }) {
  const entries = talk.entries.value;
  const queued = talk.queued.value;
  /** Rows as they were drawn: what did not change is not drawn again, however often the session does. */
  const drawn = useRef(/** @type {Map<string, {what: unknown, row: any}>} */ (new Map()));
  const rows = useMemo(() => {
    const before = drawn.current;
    drawn.current = new Map();
    const told = entries.map((entry) => {
      const what = `${entry.kind === 'tools' ? entry.messages.length : entry.kind} ${agent} ${language.value}`;
      const known = before.get(entry.key);
      const row = known?.what === what ? known.row : html`<${Item} key=${entry.key} entry=${entry} agent=${agent} />`;
      drawn.current.set(entry.key, { what, row });
      return { key: entry.key, row, isKept: entry.kind === 'ask' && find(entry.id)?.peek().state === 'asked' };
    });
    return [...told, ...queued.map(queuedRow)];
  }, [entries, queued, agent, language.value]);
  useEffect(() => onNewAsk(talk), [talk]);
  return html`
    ${talk.isRead.value && rows.length === 0 && html`<p class="quiet-text">${t('session.empty')}</p>`}
    <${Conversation} rows=${rows} label=${t('session.talk')} older=${talk.hasOlder.value ? () => talk.older() : null} />
  `;
}

/** @param {string} text @param {number} place @returns {Row} */
function queuedRow(text, place) {
  const key = `queued ${place}`;
  const row = html`<li class="said" data-role="person" data-queued key=${key}>
    <p class="who">${t('session.you')} · ${t('session.queued')}</p>
    <${Plain} as="p" class="lines" text=${text} limit=${4000} />
  </li>`;
  return { key, row };
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

/** A new question of this session may take the focus. @param {Talk} talk */
const onNewAsk = (talk) =>
  onEvent((_, ask, isNew) => {
    if (isNew && ask.state === 'asked' && ask.origin.session === talk.id) requestAnimationFrame(() => attend(ask));
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

const PLAIN = ''; // what a message was begun for, where that is no question

/**
 * Where people write. While a question waits a message answers it, unless they want otherwise; without one only a session
 * that was started here takes messages. What is written never goes elsewhere than where it was begun for.
 * @param {{talk: Talk, session: SessionRecord, state: Standing}} props
 */
function Telling({ talk, session, state }) {
  const { id } = session;
  const message = useMessage(id);
  const [isPlain, setPlain] = useState(() => recall(`plain.${id}`, false));
  /** The id of an ask, or `PLAIN`; null while nothing is written. */
  const [begun, setBegun] = useState(/** @type {string | null} */ (null));
  const aim = aimAt(talk.open.value);
  const takesMessages = session.managed && state !== 'done';
  const wasFor = begun ? find(begun)?.value : undefined;
  const lost = wasFor && wasFor.state !== 'asked' && !own.has(wasFor.id) && message.text !== '' ? wasFor : null;
  const staysPlain = isPlain || begun === PLAIN;
  const goesPlain = takesMessages && (aim === null || staysPlain);
  const isShown = takesMessages || aim !== null || lost !== null;

  // Where nothing is written any more, the focus goes to what was answered.
  const last = useRef('');
  last.current = aim?.ask.id ?? last.current;
  const hadFocus = !!document.activeElement?.closest('.composer');
  useLayoutEffect(() => {
    if (hadFocus && !isShown && !focusCard(last.current)) document.getElementById('session-title')?.focus();
  }, [isShown]);
  if (!isShown) return null;

  const agent = inert(session.agent);
  const hindered = aim === null ? '' : hindrance(aim, message.text);
  const isHeld = lost !== null || (!goesPlain && hindered !== '');
  const says = lost
    ? t('deadline.draftNotSent')
    : !goesPlain
      ? hindered || t('chat.willAnswer', { header: aim?.header ?? '' })
      : state === 'waiting'
        ? t('session.hint.waiting', { agent })
        : state === 'running'
          ? t('session.hint.running', { agent })
          : t('session.hint.idle');
  /** @param {string} text */
  const write = (text) => {
    message.write(text);
    if (text.trim() === '') setBegun(null);
    else if (lost === null && begun !== PLAIN) setBegun(goesPlain ? PLAIN : (aim?.ask.id ?? null));
    if (aim !== null && !goesPlain && hindered === '') stay(aim.ask);
  };
  /** @param {string} text */
  const send = async (text) => {
    if (aim !== null && !goesPlain) {
      setBegun(aim.ask.id); // also what was written before a reload
      await answerBy(aim, text);
    } else
      await talk.prompt(text).catch((error) => {
        throw new Error(t('session.orderFailed', { reason: reasonOf(error) }));
      });
    setBegun(null);
  };
  /** @param {Event & {currentTarget: HTMLInputElement}} event */
  const switchPlain = ({ currentTarget }) => {
    setPlain(currentTarget.checked);
    keep(`plain.${id}`, currentTarget.checked || undefined);
    setBegun(null);
  };
  /** @param {Event & {currentTarget: HTMLElement}} event */
  const forget = ({ currentTarget }) => {
    currentTarget.closest('form')?.querySelector('textarea')?.focus();
    setBegun(null);
  };
  return html`<${Composer}
    message=${{ ...message, write }}
    label=${t('session.message', { agent })}
    placeholder=${aim !== null && !goesPlain ? t('question.own.placeholder') : t('session.message.placeholder')}
    says=${says}
    isHeld=${isHeld}
    send=${send}
    alert=${lost &&
    html`<div class="error" role="alert">
      <p dir="auto">${settledText(lost)}</p>
      <button type="button" class="quiet" data-action="close" onClick=${forget}>${t('keys.close')}</button>
    </div>`}
  >
    ${aim !== null &&
    html`<div class="switches">
      ${takesMessages &&
      html`<label class="setting"><input type="checkbox" name="plain" checked=${staysPlain} onChange=${switchPlain} /> ${t('chat.plain')}</label>`}
      <button type="button" class="quiet" data-action="show" onClick=${() => focusCard(aim.ask.id)}>${t('chat.show')}</button>
    </div>`}
  <//>`;
}
