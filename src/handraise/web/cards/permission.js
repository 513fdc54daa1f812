// The permission card: what the agent wants, the facts, and the ways to answer. Nothing is allowed by accident: no button
// has the focus by itself, Enter presses only the button that has it, and what is risky wants a second press.

import { html, useComputed, useEffect, useId, useRef, useSignal } from '../vendor/preact.js';
import { inUse, isRisky, remaining } from '../core/desk.js';
import { draftOf, forgetDraft, saveDraft } from '../core/drafts.js';
import { byKeyboard, isTyping, nameOf } from '../core/keys.js';
import { answer, keepWaiting } from '../core/outbox.js';
import { cardOf, short, warningsOf } from '../core/card.js';
import { inert, Plain } from '../core/text.js';
import { t } from '../core/words.js';
import { focusCard } from './card.js';
import { deliver } from './deliver.js';
import { canChange, changed, Edit, original } from './permission_edit.js';
import { always, More } from './permission_more.js';
import { Wanted } from './permission_object.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {'more' | 'change' | 'why'} Panel */
/** @typedef {import('./permission_more.js').Picked & {panel?: Panel | null, message?: string, change?: string}} Draft */

const LONGEST_NAME = 60; // characters of a reply on its button

/** Replies that are neither of the three that everybody knows. @param {Ask} ask */
const otherReplies = ({ permission }) =>
  (permission?.replies ?? []).filter((reply) => !['once', 'always', 'reject'].includes(reply));

/** @param {{ask: Ask, isInert: boolean, children?: any}} props the children stand above the actions */
export function Permission({ ask, isInert, children }) {
  const root = useRef(/** @type {HTMLElement | null} */ (null));
  const moving = useRef(0); // the frame in which the focus goes to what was just opened
  const armed = useSignal(/** @type {string | null} */ (null)); // the reply that wants a second press
  const draft = /** @type {Draft} */ (draftOf(ask.id).value ?? {});
  const replies = ask.permission?.replies ?? [];
  const canMore = replies.includes('always');
  const panel = draft.panel ?? null;
  const second = armed.value;

  const stay = () => {
    cancelAnimationFrame(moving.current);
    moving.current = 0;
  };
  const focus = (/** @type {string} */ selector) => {
    stay();
    moving.current = requestAnimationFrame(() => {
      moving.current = 0;
      const found = root.current?.querySelector(selector);
      if (found instanceof HTMLElement) found.focus();
    });
  };
  const change = (/** @type {Draft} */ changes) => saveDraft(ask.id, { ...draftOf(ask.id).peek(), ...changes });
  const edit = (/** @type {Draft} */ changes) => {
    // Whoever begins to write gets the time for it, once.
    if (draft.message === undefined && draft.change === undefined && remaining(ask) !== null) keepWaiting(ask.id).catch(() => undefined);
    change(changes);
  };
  const open = (/** @type {Panel} */ wanted) => {
    armed.value = null;
    change({ panel: wanted });
    focus('[data-first]');
  };
  const close = () => {
    const { panel: was, ...rest } = /** @type {Draft} */ (draftOf(ask.id).peek() ?? {});
    if (Object.values(rest).some((value) => value !== undefined && value !== '')) saveDraft(ask.id, rest);
    else forgetDraft(ask.id);
    focus(`[data-action="${was}"]`);
  };
  const panelNow = () => /** @type {Draft} */ (draftOf(ask.id).peek() ?? {}).panel ?? null;
  const toggle = (/** @type {Panel} */ wanted) => (panel === wanted ? close() : open(wanted));

  /** @param {Record<string, unknown>} body */
  const send = (body) => {
    if (isInert) return;
    armed.value = null;
    deliver(ask.id, () => answer(ask.id, body));
  };
  const allow = (/** @type {string} */ reply) => {
    if (!isRisky(ask)) return send({ reply });
    if (armed.peek() === reply) return; // the same key again is no second press
    if (panelNow() !== null) close();
    armed.value = reply;
    focus('[data-action="run"]');
  };
  const deny = (/** @type {string} */ message = '') => send({ reply: 'reject', ...(message ? { message } : {}) });
  const disarm = () => {
    armed.value = null;
    focus('[data-action="allow"]');
  };

  /** @param {KeyboardEvent} event @returns {boolean} whether it meant something */
  const press = (event) => {
    const name = nameOf(event);
    if (isTyping(event.target)) {
      if (name === 'Escape') focusCard(ask.id);
      else if (name === 'Mod+Enter' && panelNow() === 'why') deny(draftOf(ask.id).peek()?.message);
      else return false;
      return true;
    }
    if (name === 'Escape') {
      stay();
      if (armed.peek() !== null) disarm();
      else if (panelNow() !== null) close();
      else document.getElementById('main')?.focus();
      return true;
    }
    if (moving.current !== 0) return true; // meant for what is about to have the focus, and no answer by accident
    if (isInert || event.repeat) return false;
    if (name === 'y' && replies.includes('once')) allow('once');
    else if (name === 'd') deny();
    else if (name === 'Shift+A' && canMore) open('more');
    else if (name === 'n') open('why');
    else return false;
    return true;
  };
  const pressed = useRef(press);
  pressed.current = press;
  useEffect(() => {
    // Keys work wherever the focus is in the card, also on its heading.
    const frame = root.current?.closest('article');
    const listen = (/** @type {KeyboardEvent} */ event) => {
      if (!event.defaultPrevented && pressed.current(event)) event.preventDefault();
    };
    frame?.addEventListener('keydown', listen);
    return () => frame?.removeEventListener('keydown', listen);
  }, []);

  const text = draft.change ?? original(ask);
  const warnings = warningsOf(ask);
  return html`<div class="permission" ref=${root}>
    <${Wanted} ask=${ask} />
    <${Facts} ask=${ask} />
    ${warnings.length > 0 &&
    html`<div class="warning">
      ${warnings.map(
        ({ risk, says }) => html`<p data-risk=${risk} data-doubt=${risk === undefined || undefined}><span aria-hidden="true">⚠ </span>${says}</p>`,
      )}
    </div>`}
    ${children}
    <div class="actions">
      <button type="button" data-action="deny" aria-keyshortcuts="d" disabled=${isInert} onClick=${() => deny()}>${t('perm.deny')}</button>
      ${replies.includes('once') &&
      html`<button
        type="button"
        class="primary"
        data-action="allow"
        aria-keyshortcuts="y"
        aria-expanded=${isRisky(ask) ? String(second !== null) : undefined}
        disabled=${isInert}
        onClick=${() => allow('once')}
      >
        ${t('perm.allowOnce')}
      </button>`}
      ${otherReplies(ask).map(
        (reply) => html`<button type="button" data-action="reply" disabled=${isInert} onClick=${() => allow(reply)}>
          <${Plain} text=${reply} limit=${LONGEST_NAME} />
        </button>`,
      )}
      ${canMore &&
      html`<button
        type="button"
        data-action="more"
        aria-keyshortcuts="Shift+A"
        aria-expanded=${String(panel === 'more')}
        disabled=${isInert}
        onClick=${() => toggle('more')}
      >
        ${t('perm.allowMore')}
      </button>`}
      ${canChange(ask) &&
      html`<button
        type="button"
        class="quiet"
        data-action="change"
        aria-expanded=${String(panel === 'change')}
        disabled=${isInert}
        onClick=${() => toggle('change')}
      >
        ${t('perm.change')}
      </button>`}
      <button
        type="button"
        class="quiet"
        data-action="why"
        aria-keyshortcuts="n"
        aria-expanded=${String(panel === 'why')}
        disabled=${isInert}
        onClick=${() => toggle('why')}
      >
        ${t('perm.denyWhy')}
      </button>
    </div>
    ${panel === 'more' &&
    canMore &&
    html`<${More} ask=${ask} picked=${draft} isInert=${isInert} change=${change} allow=${() => send(always(ask, draft))} close=${close} />`}
    ${panel === 'change' &&
    canChange(ask) &&
    html`<${Edit}
      ask=${ask}
      text=${text}
      isInert=${isInert}
      change=${(/** @type {string} */ typed) => edit({ change: typed })}
      allow=${() => send({ reply: 'once', ...changed(ask, text) })}
      close=${close}
    />`}
    ${panel === 'why' &&
    html`<${Why}
      ask=${ask}
      message=${draft.message ?? ''}
      isInert=${isInert}
      change=${(/** @type {string} */ message) => edit({ message })}
      deny=${() => deny(draft.message)}
      close=${close}
    />`}
    ${second !== null && html`<${Confirm} isInert=${isInert} run=${() => send({ reply: second })} close=${disarm} />`}
    <${Hints} ask=${ask} />
  </div>`;
}

/** Where it would happen and with what; last what the agent says of it, which may be a lie. @param {{ask: Ask}} props */
function Facts({ ask }) {
  const { cwd = ask.origin.cwd, tool, summary } = /** @type {import('../types/api').Permission} */ (ask.permission);
  return html`<dl class="perm-facts">
    ${cwd && html`<div><dt>${t('perm.fact.folder')}</dt><dd><bdi class="path" dir="ltr">${inert(cwd)}</bdi></dd></div>`}
    <div><dt>${t('perm.fact.tool')}</dt><dd><${Plain} text=${tool} limit=${120} /></dd></div>
    ${cardOf(ask).claim &&
    summary &&
    html`<div data-claim><dt>${t('perm.fact.why')}</dt><dd><${Plain} text=${summary} limit=${500} /></dd></div>`}
  </dl>`;
}

/** The keys that work here, for whoever uses them. @param {{ask: Ask}} props */
function Hints({ ask }) {
  const isSeen = useComputed(() => byKeyboard.value && inUse.value === ask.id);
  if (!isSeen.value) return null;
  const replies = ask.permission?.replies ?? [];
  return html`<p class="hints" aria-hidden="true">
    ${replies.includes('once') && html`<span><kbd>y</kbd> ${t('perm.allowOnce')}</span>`}
    <span><kbd>d</kbd> ${t('perm.deny')}</span>
    ${replies.includes('always') && html`<span><kbd>Shift</kbd> <kbd>A</kbd> ${t('perm.allowMore')}</span>`}
    <span><kbd>n</kbd> ${t('perm.denyWhy')}</span>
    <span><kbd>Esc</kbd> ${t('hint.leave')}</span>
    <span><kbd>?</kbd> ${t('hint.keys')}</span>
  </p>`;
}

/** @param {{ask: Ask, message: string, isInert: boolean, change: (message: string) => void, deny: () => void, close: () => void}} props */
function Why({ ask, message, isInert, change, deny, close }) {
  const id = useId();
  const type = (/** @type {Event} */ event) => change(/** @type {HTMLTextAreaElement} */ (event.currentTarget).value);
  return html`<section class="perm-panel" data-panel="why" aria-labelledby=${`${id}-title`}>
    <p class="panel-title" id=${`${id}-title`}>${t('perm.denyWhy')}</p>
    <label for=${id}>${t('perm.why.label', { agent: short(ask.origin.agent) })}</label>
    <textarea id=${id} dir="auto" data-first data-field="message" disabled=${isInert} value=${message} onInput=${type}></textarea>
    <div class="actions">
      <button type="button" data-action="send-why" aria-keyshortcuts="Control+Enter" disabled=${isInert} onClick=${deny}>
        ${t('perm.why.confirm')}
      </button>
      <button type="button" class="quiet" data-action="close" disabled=${isInert} onClick=${close}>${t('action.cancel')}</button>
    </div>
  </section>`;
}

/** The second press. A key that is held and the second half of a double click are none. @param {{isInert: boolean, run: () => void, close: () => void}} props */
function Confirm({ isInert, run, close }) {
  const hold = (/** @type {KeyboardEvent} */ event) => event.repeat && event.preventDefault();
  const press = (/** @type {MouseEvent} */ event) => event.detail < 2 && run();
  return html`<div class="perm-panel" data-risky data-panel="confirm">
    <div class="actions">
      <button type="button" class="danger" data-action="run" disabled=${isInert} onKeyDown=${hold} onClick=${press}>
        ${t('perm.risky.confirm')}
      </button>
      <button type="button" class="quiet" data-action="close" disabled=${isInert} onClick=${close}>${t('action.cancel')}</button>
    </div>
  </div>`;
}
