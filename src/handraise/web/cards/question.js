// What a question card asks: one question, or several as steps with a review at the end. What is picked and typed lives in
// the draft, so that neither news from the desk nor a reload takes it away. `card.js` draws the frame around it.

import { html, useComputed, useEffect, useId, useLayoutEffect, useRef, useState } from '../vendor/preact.js';
import { inUse, sessions } from '../core/desk.js';
import { byKeyboard, isTyping, nameOf } from '../core/keys.js';
import { announce } from '../core/live.js';
import { sendingOf } from '../core/outbox.js';
import { href, route } from '../core/route.js';
import { inert, Prose } from '../core/text.js';
import { t } from '../core/words.js';
import { headingOf, headingSays } from './card.js';
import { Beside, Choices, hasPreviews, isBeside } from './question_choices.js';
import * as drafts from './question_draft.js';
import { Review, Steps } from './question_steps.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('./question_choices.js').Preview} Preview */

const PAUSE = 150; // milliseconds in which a person sees what they picked before the next question comes

/** @param {{ask: Ask, isInert: boolean, children?: any}} props `children` are drawn above the actions */
export function Question({ ask, isInert, children }) {
  const { questions } = ask;
  const draft = drafts.draftFor(ask);
  const { step } = draft;
  const state = drafts.progress(ask, draft);
  const isReview = step === questions.length;
  const isSteps = questions.length > 1;
  const question = isReview ? undefined : questions[step];

  const root = useRef(/** @type {HTMLElement | null} */ (null));
  const [preview, show] = useState(/** @type {Preview} */ ({ at: null, isOpen: isBeside() }));
  const [isNoting, setNoting] = useState(false);
  const [isDeclining, setDeclining] = useState(draft.reason !== '');
  const [missing, setMissing] = useState('');
  /** Steps that were left once: whoever comes back to one wants to stay. */
  const left = useRef(/** @type {Set<number>} */ (new Set()));
  const goesTo = useRef(/** @type {number | null} */ (null));
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  const opened = useRef(''); // a selector of what gets the focus as it is drawn, so that the next key is meant for it
  const isMissing = missing !== '' && (state.done === 0 || state.isBroken);
  const hasNote = question !== undefined && (isNoting || draft.notes[step] !== '');

  /** @param {string} selector */
  const focus = (selector) => {
    const found = root.current?.querySelector(selector);
    if (found instanceof HTMLElement) found.focus();
    return found instanceof HTMLElement;
  };
  /** @param {number} to */
  const go = (to) => {
    clearTimeout(timer.current);
    left.current.add(step);
    goesTo.current = to;
    setNoting(false);
    setMissing('');
    show({ at: null, isOpen: preview.isOpen });
    drafts.change(ask, { step: to }, { isEdit: false });
  };
  const next = () => go(Math.min(step + 1, drafts.lastStep(ask)));
  const send = () => {
    if (isInert) return;
    const now = drafts.progress(ask, drafts.draftFor(ask));
    if (now.done > 0 && !now.isBroken) {
      setMissing('');
      drafts.send(ask);
      return;
    }
    setMissing(now.isBroken ? t('question.notNumber') : isSteps ? t('question.nothing.several') : t('question.nothing'));
  };
  /** Send it if that is all, else go on to what is left. */
  const sendOrNext = () => {
    const now = drafts.progress(ask, drafts.draftFor(ask));
    if (!isSteps || isReview || now.isComplete) send();
    else next();
  };
  /** Enter on a choice or in the field. */
  const goOn = () => {
    if (isSteps) next();
    else if (question?.multiple) focus('[data-action="send"]');
    else send();
  };
  /** @param {string} value */
  const pointed = (value) => {
    if (isInert) return;
    const mayGoOn = draft.own[step].trim() === '' && draft.notes[step] === '' && !isNoting && !isDeclining;
    drafts.pick(ask, step, value, { isEdit: isSteps || !mayGoOn });
    if (!mayGoOn) {
      if (draft.own[step].trim() !== '') announce(t('question.becameNote'));
    } else if (!isSteps) {
      drafts.send(ask);
    } else if (!left.current.has(step)) {
      const pause = matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : PAUSE;
      clearTimeout(timer.current);
      timer.current = setTimeout(next, pause);
    }
  };
  const open = (/** @type {string} */ selector) => {
    if (!focus(selector)) opened.current = selector;
  };
  const note = () => {
    setNoting(true);
    open('[data-field="note"]');
  };
  const openDecline = () => {
    setDeclining(true);
    open('[data-field="reason"]');
  };
  const closeDecline = () => {
    setDeclining(false);
    open('[data-action="decline"]');
  };
  const toChoices = () => focus('[data-choice]:checked') || focus('[data-choice]') || headingOf(ask.id)?.focus();

  useEffect(() => () => clearTimeout(timer.current), []);
  // Whoever moves to a step is put at its beginning.
  useLayoutEffect(() => {
    if (goesTo.current === step) focus('[data-beginning]');
    goesTo.current = null;
  }, [step]);
  useLayoutEffect(() => {
    if (opened.current !== '' && focus(opened.current)) opened.current = '';
  });

  /** @param {KeyboardEvent} event */
  const press = (event) => {
    const name = nameOf(event);
    const { target } = event;
    const isNewLine = event.key === 'Enter' && event.shiftKey;
    if (name === '' || isNewLine || event.defaultPrevented || !(target instanceof HTMLElement)) return;
    if (name === 'Escape') {
      if (leave(target)) event.preventDefault();
      return;
    }
    if (isInert || (event.repeat && !name.startsWith('Arrow'))) return;
    const field = target.dataset.field;
    const did = field !== undefined ? pressInField(name, field) : !isTyping(target) && pressInCard(name, target);
    if (did) event.preventDefault();
  };

  /** Escape never answers: out of a field, then the preview away, then to the heading, then to the list. @param {HTMLElement} target */
  const leave = (target) => {
    const heading = headingOf(ask.id);
    if (target.dataset.field === 'reason') closeDecline();
    else if (isTyping(target)) toChoices();
    else if (preview.isOpen && question !== undefined && hasPreviews(question) && (isBeside() || preview.at !== null)) {
      if (target.closest('.preview')) toChoices();
      show({ ...preview, isOpen: false });
    } else if (target !== heading) heading?.focus();
    else document.getElementById('inbox-title')?.focus();
    return true;
  };

  /** @param {string} name @param {string} field */
  const pressInField = (name, field) => {
    if (field === 'reason') {
      if (name === 'Enter' || name === 'Mod+Enter') drafts.decline(ask);
      return name === 'Enter' || name === 'Mod+Enter';
    }
    if (name === 'Mod+Enter') {
      sendOrNext();
      return true;
    }
    if (name !== 'Enter' || field !== 'own' || question === undefined) return false;
    const now = drafts.draftFor(ask);
    if (question.multiple && now.own[step].trim() !== '') {
      if (!drafts.isWrong(question, now.own[step])) drafts.add(ask, step);
    } else if (!isSteps || drafts.isAnswered(ask, now, step)) goOn();
    return true;
  };

  /** @param {string} name @param {HTMLElement} target */
  const pressInCard = (name, target) => {
    const isChoice = target.dataset.choice !== undefined;
    if (name === 'Mod+Enter') sendOrNext();
    else if (name === 'Enter' && target instanceof HTMLInputElement && isChoice) {
      // Nothing goes out that was not seen picked: one that has only the focus is picked first.
      if (target.type === 'radio' && !target.checked) target.click();
      else goOn();
    } else if (name === 'o' && question !== undefined) return focus('[data-field="own"]');
    else if (name === 'n' && question !== undefined) note();
    else if (name === 'x') openDecline();
    else if (name === 'p' && question !== undefined && hasPreviews(question)) {
      const at = Number(target.dataset.choice ?? preview.at ?? 0);
      show({ at: isBeside() ? preview.at : at, isOpen: !preview.isOpen });
    } else if (question !== undefined) return pressChoice(name, target, isChoice);
    else return false;
    return true;
  };

  /** @param {string} name @param {HTMLElement} target @param {boolean} isChoice */
  const pressChoice = (name, target, isChoice) => {
    const inputs = /** @type {HTMLInputElement[]} */ ([...(root.current?.querySelectorAll('[data-choice]') ?? [])]);
    if (/^[1-9]$/u.test(name)) {
      const input = inputs[Number(name) - 1];
      if (input === undefined) return false;
      input.focus();
      if (input.type === 'checkbox' || !input.checked) input.click(); // from no pointer, so it only selects
      return true;
    }
    if (!isChoice) return false;
    const at = inputs.indexOf(/** @type {HTMLInputElement} */ (target));
    const isBox = target instanceof HTMLInputElement && target.type === 'checkbox';
    let to = -1;
    if (name === 'Home') to = 0;
    else if (name === 'End') to = inputs.length - 1;
    else if (isBox && name === 'ArrowDown') to = (at + 1) % inputs.length;
    else if (isBox && name === 'ArrowUp') to = (at + inputs.length - 1) % inputs.length;
    if (to === -1) return false; // the browser moves between radios by itself
    inputs[to].focus();
    if (!isBox && !inputs[to].checked) inputs[to].click();
    return true;
  };

  const pressed = useRef(press);
  pressed.current = press;
  useEffect(() => {
    // The heading has the focus after the card before was sent, and lies outside of this part.
    const frame = root.current?.closest('article');
    const listen = (/** @type {KeyboardEvent} */ event) => pressed.current(event);
    frame?.addEventListener('keydown', listen);
    return () => frame?.removeEventListener('keydown', listen);
  }, []);

  return html`<div class="question" ref=${root}>
    ${isSteps && html`<${Steps} ask=${ask} draft=${draft} isInert=${isInert} go=${go} />`}
    <fieldset disabled=${isInert} key=${step} class="step">
      ${question === undefined
        ? html`<${Review} ask=${ask} draft=${draft} go=${go} />`
        : html`<${OneQuestion} ...${{ ask, place: step, draft, preview, show, pointed }} />`}
      ${hasNote && html`<${Note} ask=${ask} place=${step} draft=${draft} />`}
    </fieldset>
    ${children}
    ${isReview && state.done === 0 && !isMissing && html`<p class="missing">${t('question.nothing.several')}</p>`}
    ${isMissing && html`<p role="alert" class="missing">${missing}</p>`}
    <div class="actions">
      <${SendButton} ask=${ask} state=${state} isInert=${isInert} isOffered=${!isSteps || isReview || state.isComplete} send=${send} />
      ${isSteps && step > 0 && html`<button type="button" data-action="back" disabled=${isInert} onClick=${() => go(step - 1)}>${t('action.back')}</button>`}
      ${isSteps && !isReview && html`<${NextButton} ...${{ ask, step, draft, state, isInert, next }} />`}
      <span class="also">
        ${isSteps &&
        !isReview &&
        drafts.isAnswered(ask, draft, step) &&
        html`<${SkipButton} class="quiet" ...${{ ask, step, isInert, next }} />`}
        ${question !== undefined &&
        !hasNote &&
        html`<button type="button" class="quiet" data-action="note" disabled=${isInert} aria-keyshortcuts="n" onClick=${note}>
          ${t('question.note.add')}
        </button>`}
        ${isBeside() &&
        question !== undefined &&
        hasPreviews(question) &&
        html`<button
          type="button"
          class="quiet"
          data-action="preview"
          aria-expanded=${preview.isOpen}
          aria-keyshortcuts="p"
          onClick=${() => show({ ...preview, isOpen: !preview.isOpen })}
        >
          ${preview.isOpen ? t('question.preview.hide') : t('question.preview.show')}
        </button>`}
        <${Discuss} ask=${ask} />
        ${!isDeclining &&
        html`<button type="button" class="quiet" data-action="decline" disabled=${isInert} aria-keyshortcuts="x" onClick=${openDecline}>
          ${t('action.decline')}
        </button>`}
      </span>
      ${drafts.hasContent(draft) && !isInert && html`<span class="kept">${t('question.draftSaved')}</span>`}
    </div>
    ${isDeclining && html`<${Decline} ask=${ask} draft=${draft} isInert=${isInert} close=${closeDecline} />`}
    <${Hints} ask=${ask} question=${question} />
  </div>`;
}

/** @param {{ask: Ask, place: number, draft: drafts.Draft, preview: Preview, show: (preview: Preview) => void, pointed: (value: string) => void}} props */
function OneQuestion({ ask, place, draft, preview, show, pointed }) {
  const question = ask.questions[place];
  const isAlone = ask.questions.length === 1;
  const hasPane = isBeside() && preview.isOpen && hasPreviews(question);
  const hasChoices = question.options.length > 0;
  return html`
    <legend tabindex="-1" data-beginning class=${isAlone && headingSays(ask) ? 'unseen' : undefined}>
      ${!isAlone && html`<span class="which">${t('question.step', { current: place + 1, total: ask.questions.length })}</span>`}
      <${Prose} text=${question.question} />
    </legend>
    ${hasChoices && html`<p class="hint">${question.multiple ? t('question.hint.multi') : t('question.hint.single')}</p>`}
    <div class="choosing" data-beside=${hasPane || undefined}>
      <div class="answers">
        ${hasChoices && html`<${Choices} ...${{ ask, place, draft, preview, show, pointed }} />`}
        ${drafts.takesOwn(question) && html`<${Own} ask=${ask} place=${place} draft=${draft} />`}
      </div>
      ${hasPane && html`<${Beside} question=${question} preview=${preview} picked=${draft.picked[place]} />`}
    </div>
  `;
}

/** The field for an own answer, and those that were added to a multiple choice. @param {{ask: Ask, place: number, draft: drafts.Draft}} props */
function Own({ ask, place, draft }) {
  const question = ask.questions[place];
  const id = useId();
  const typed = draft.own[place];
  const isWrong = drafts.isWrong(question, typed);
  const input = (/** @type {Event & {currentTarget: HTMLInputElement}} */ event) => drafts.type(ask, place, event.currentTarget.value);
  const remove = (/** @type {string} */ text) => {
    drafts.change(ask, { added: drafts.replaced(draft.added, place, draft.added[place].filter((each) => each !== text)) });
    document.getElementById(id)?.focus();
  };
  const same = {
    id,
    'data-field': 'own',
    dir: 'auto',
    value: typed,
    placeholder: t('question.own.placeholder'),
    autocomplete: 'off',
    'aria-keyshortcuts': 'o',
    'aria-invalid': isWrong ? 'true' : undefined,
    'aria-describedby': isWrong ? `${id}-wrong` : undefined,
    onInput: input,
  };
  return html`<div class="own">
    ${draft.added[place].length > 0 &&
    html`<ul class="added">
      ${draft.added[place].map(
        (text) => html`<li key=${text}>
          <span dir="auto">${text}</span>
          <button type="button" class="quiet" aria-label=${t('question.own.remove', { text })} onClick=${() => remove(text)}>✕</button>
        </li>`,
      )}
    </ul>`}
    <label for=${id}>${t('question.own.label')}</label>
    ${question.kind === 'number'
      ? html`<input type="text" inputmode="decimal" ...${same} />`
      : html`<textarea rows="1" enterkeyhint="send" ...${same}></textarea>`}
    ${isWrong && html`<p class="wrong" id=${`${id}-wrong`}>${t('question.notNumber')}</p>`}
  </div>`;
}

/** @param {{ask: Ask, place: number, draft: drafts.Draft}} props */
function Note({ ask, place, draft }) {
  const id = useId();
  const input = (/** @type {Event & {currentTarget: HTMLTextAreaElement}} */ event) =>
    drafts.change(ask, { notes: drafts.replaced(drafts.draftFor(ask).notes, place, event.currentTarget.value) });
  return html`<div class="own">
    <label for=${id}>${t('question.note.label', { agent: inert(ask.origin.agent) })}</label>
    <textarea id=${id} rows="1" dir="auto" data-field="note" value=${draft.notes[place]} onInput=${input}></textarea>
  </div>`;
}

// Actions ----------------------------------------------------------------------------------------------------

/** @param {{ask: Ask, state: ReturnType<typeof drafts.progress>, isInert: boolean, isOffered: boolean, send: () => void}} props */
function SendButton({ ask, state, isInert, isOffered, send }) {
  const isSending = sendingOf(ask.id).value?.state === 'sending';
  if (!isOffered) return null;
  const isReady = state.done > 0 && !state.isBroken;
  // It stays within reach of the keyboard while nothing is picked, and says then what is missing.
  return html`<button
    type="button"
    class="primary"
    data-action="send"
    disabled=${isInert}
    aria-disabled=${isReady ? undefined : 'true'}
    aria-keyshortcuts="Control+Enter Meta+Enter"
    onClick=${send}
  >
    ${isSending ? t('state.sending') : state.isComplete || state.done === 0 ? t('action.send') : t('action.sendPartial', { done: state.done, total: state.total })}
  </button>`;
}

/** @param {{ask: Ask, step: number, draft: drafts.Draft, state: ReturnType<typeof drafts.progress>, isInert: boolean, next: () => void}} props */
function NextButton({ ask, step, draft, state, isInert, next }) {
  const isAnswered = drafts.isAnswered(ask, draft, step);
  if (!isAnswered) return html`<${SkipButton} ...${{ ask, step, isInert, next }} />`;
  return html`<button type="button" class=${state.isComplete ? undefined : 'primary'} data-action="next" disabled=${isInert} onClick=${next}>
    ${t('action.next')}
  </button>`;
}

/** Goes on without an answer, also to take one back. @param {{ask: Ask, step: number, isInert: boolean, next: () => void, class?: string}} props */
function SkipButton({ ask, step, isInert, next, class: name }) {
  const skip = () => (drafts.clear(ask, step), next());
  return html`<button type="button" class=${name} data-action="skip" disabled=${isInert} onClick=${skip}>${t('action.skip')}</button>`;
}

/** Where the agent can be talked to. @param {{ask: Ask}} props */
function Discuss({ ask }) {
  const { session } = ask.origin;
  const [page, id] = route.value;
  const isManaged = sessions.value.some((each) => each.id === session && each.managed);
  if (!isManaged || (page === 'sessions' && id === session)) return null;
  return html`<a class="like-button" href=${href('sessions', session)}>${t('question.discuss')}</a>`;
}

/** @param {{ask: Ask, draft: drafts.Draft, isInert: boolean, close: () => void}} props */
function Decline({ ask, draft, isInert, close }) {
  const id = useId();
  const input = (/** @type {Event & {currentTarget: HTMLInputElement}} */ event) => drafts.change(ask, { reason: event.currentTarget.value });
  return html`<fieldset class="declining" disabled=${isInert}>
    <legend class="unseen">${t('action.decline')}</legend>
    <label for=${id}>${t('action.decline.reason')}</label>
    <input type="text" id=${id} dir="auto" data-field="reason" autocomplete="off" value=${draft.reason} onInput=${input} />
    <button type="button" data-action="confirm-decline" onClick=${() => drafts.decline(ask)}>${t('action.decline')}</button>
    <button type="button" class="quiet" data-action="cancel-decline" onClick=${close}>${t('action.cancel')}</button>
  </fieldset>`;
}

/** The keys that work here, for whoever uses them. @param {{ask: Ask, question?: import('../types/api').Question}} props */
function Hints({ ask, question }) {
  const isSeen = useComputed(() => byKeyboard.value && inUse.value === ask.id);
  if (!isSeen.value) return null;
  const count = Math.min(question?.options.length ?? 0, 9);
  return html`<p class="hints" aria-hidden="true">
    ${count > 0 && html`<span><kbd>${count > 1 ? `1–${count}` : '1'}</kbd> ${t('hint.pick')}</span>`}
    ${question && drafts.takesOwn(question) && html`<span><kbd>o</kbd> ${t('hint.own')}</span>`}
    ${question && html`<span><kbd>n</kbd> ${t('hint.note')}</span>`}
    ${question && hasPreviews(question) && html`<span><kbd>p</kbd> ${t('hint.preview')}</span>`}
    <span><kbd>${isApple ? '⌘' : t('hint.control')}</kbd> <kbd>↵</kbd> ${t('hint.send')}</span>
    <span><kbd>x</kbd> ${t('hint.decline')}</span>
    <span><kbd>Esc</kbd> ${t('hint.leave')}</span>
    <span><kbd>?</kbd> ${t('hint.keys')}</span>
  </p>`;
}

const isApple = /Mac|iP(?:hone|ad|od)/u.test(navigator.platform);

