// The choices of one question, one below the other, and the previews they carry.

import { html, signal, useId, useRef, useState } from '../vendor/preact.js';
import { byKeyboard } from '../core/keys.js';
import { hasHidden, inert, Prose, revealed } from '../core/text.js';
import { t } from '../core/words.js';
import { pick, toggle } from './question_draft.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../types/api').Option} Option */
/** @typedef {import('../types/api').Question} Asked */
/** @typedef {import('./question_draft.js').Draft} Draft */
/** @typedef {{at: number | null, isOpen: boolean}} Preview which choice's is shown, unless closed */
/**
 * @typedef {object} Props
 * @property {Ask} ask
 * @property {number} place of the question
 * @property {Draft} draft
 * @property {Preview} preview
 * @property {(preview: Preview) => void} show
 * @property {(value: string) => void} pointed a person pointed at the one choice, which may send it
 */

const MOST_SHOWN = 20;
const LONGEST_LABEL = 120;
const LONGEST_DESCRIPTION = 500;
const LONGEST_PREVIEW = 20_000;

const wide = matchMedia('(min-width: 60rem)');
const isWide = signal(wide.matches);
wide.addEventListener('change', () => (isWide.value = wide.matches));

/** @param {Asked} question */
export const hasPreviews = (question) => question.options.some((option) => option.preview);

/** Whether the pane has a place beside the choices. */
export const isBeside = () => isWide.value;

/** @param {Props} props */
export function Choices({ ask, place, draft, preview, show, pointed }) {
  const question = ask.questions[place];
  const { options } = question;
  const isPickedBelow = draft.picked[place].some((value) => options.findIndex((option) => option.value === value) >= MOST_SHOWN);
  const [isAll, setAll] = useState(isPickedBelow);
  const name = useId();
  const drawn = isAll ? options : options.slice(0, MOST_SHOWN);
  const ordinals = ordinalsOf(options);
  return html`<div class="choices">
    ${drawn.map(
      (option, number) =>
        html`<${Choice}
          key=${option.value}
          ...${{ ask, place, draft, preview, show, pointed, option, number, name, ordinal: ordinals[number] }}
        />`,
    )}
    ${drawn.length < options.length &&
    html`<button type="button" class="quiet" data-action="all-choices" onClick=${() => setAll(true)}>
      ${t('question.allChoices', { count: options.length })}
    </button>`}
  </div>`;
}

/** Which of several choices with one label each is, for the eye alone. @param {Option[]} options @returns {(number | null)[]} */
function ordinalsOf(options) {
  /** @type {Map<string, number>} */
  const totals = new Map();
  for (const { label } of options) totals.set(label, (totals.get(label) ?? 0) + 1);
  /** @type {Map<string, number>} */
  const seen = new Map();
  return options.map(({ label }) => {
    if (totals.get(label) === 1) return null;
    seen.set(label, (seen.get(label) ?? 0) + 1);
    return seen.get(label) ?? null;
  });
}

/** @param {Props & {option: Option, number: number, name: string, ordinal: number | null}} props */
function Choice({ ask, place, draft, preview, show, pointed, option, number, name, ordinal }) {
  const [isWhole, setWhole] = useState(false);
  const byPointer = useRef(false);
  const question = ask.questions[place];
  const isPicked = draft.picked[place].includes(option.value);
  const isCut = !isWhole && option.label.length > LONGEST_LABEL;
  const id = `${name}-${number}`;
  const badges = badgesOf(ask, place, option);
  const isShown = !!option.preview && preview.isOpen && preview.at === number;
  const described = [badges.length && `${id}-badges`, option.description && `${id}-more`].filter(Boolean);

  // A label hands a click on to its input, without saying that it came from a pointer.
  const clickLabel = (/** @type {MouseEvent} */ event) => (byPointer.current = event.detail > 0);
  const click = (/** @type {MouseEvent} */ event) => {
    const isPointer = event.detail > 0 || byPointer.current;
    byPointer.current = false;
    if (isPointer && !question.multiple) pointed(option.value);
  };
  const change = (/** @type {Event & {currentTarget: HTMLInputElement}} */ event) => {
    if (question.multiple) toggle(ask, place, option.value, event.currentTarget.checked);
    else pick(ask, place, option.value);
  };
  // Below the choices a pane must not move what the pointer is about to hit.
  const focus = () => (isWide.peek() || byKeyboard.peek()) && show({ ...preview, at: number });
  const hover = () => isWide.peek() && option.preview && show({ ...preview, at: number });

  return html`<div class="choice" data-picked=${isPicked || undefined} onMouseEnter=${hover}>
    <input
      type=${question.multiple ? 'checkbox' : 'radio'}
      id=${id}
      name=${name}
      value=${option.value}
      checked=${isPicked}
      data-choice=${number}
      aria-describedby=${described.join(' ') || undefined}
      aria-keyshortcuts=${number < 9 ? String(number + 1) : undefined}
      onClick=${click}
      onChange=${change}
      onFocus=${focus}
    />
    <div class="what">
      <p class="title">
        <label for=${id} dir="auto" onClick=${clickLabel}
          >${revealed(isCut ? option.label.slice(0, LONGEST_LABEL) : option.label)}${isCut && '…'}${ordinal !== null &&
          html` <span class="ordinal">(${ordinal})</span>`}</label
        >
        ${badges.length > 0 && html`<span id=${`${id}-badges`} class="badges">${badges.map((badge) => html`<span class="badge">${badge}</span> `)}</span>`}
      </p>
      ${isCut &&
      html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>
        ${t('text.showAll', { count: [...option.label].length })}
      </button>`}
      ${option.description &&
      html`<div id=${`${id}-more`} class="more-about"><${Prose} text=${option.description} limit=${LONGEST_DESCRIPTION} /></div>`}
      ${option.preview &&
      !isWide.value &&
      html`<button
        type="button"
        class="quiet"
        data-action="preview"
        aria-expanded=${isShown}
        onClick=${() => show({ at: number, isOpen: !isShown })}
      >
        ${isShown ? t('question.preview.hide') : t('question.preview.show')}
      </button>`}
    </div>
    ${number < 9 && html`<kbd aria-hidden="true">${number + 1}</kbd>`}
    ${isShown && !isWide.value && html`<${Pane} option=${option} />`}
  </div>`;
}

/** @param {Ask} ask @param {number} place @param {Option} option */
function badgesOf(ask, place, option) {
  const isDefault = ask.fallback?.answers?.[place]?.includes(option.value) ?? false;
  const saysSo = /\(recommended\)\s*$/iu.test(option.label);
  return [...(isDefault ? [t('question.default')] : []), ...(option.recommended && !saysSo ? [t('question.recommended')] : [])];
}

/** The preview of the choice that is looked at, beside the list. @param {{question: Asked, preview: Preview, picked: string[]}} props */
export function Beside({ question, preview, picked }) {
  const looked = preview.at === null ? undefined : question.options[preview.at];
  const option =
    (looked?.preview ? looked : undefined) ??
    question.options.find((each) => each.preview && picked.includes(each.value)) ??
    question.options.find((each) => each.preview);
  return html`<div class="beside">${option && html`<${Pane} key=${option.value} option=${option} />`}</div>`;
}

/** @param {{option: Option}} props */
function Pane({ option }) {
  const [isWhole, setWhole] = useState(false);
  const preview = option.preview ?? '';
  const isCut = !isWhole && preview.length > LONGEST_PREVIEW;
  // It scrolls, so whoever has no pointer must be able to get into it.
  return html`<div class="preview" role="group" tabindex="0" aria-label=${t('question.preview', { label: inert(option.label.slice(0, 120)) })}>
    ${hasHidden(preview) && html`<p class="hidden-note">${t('text.hidden')}</p>`}
    <pre dir="auto">${revealed(isCut ? preview.slice(0, LONGEST_PREVIEW) : preview)}</pre>
    ${isCut &&
    html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>
      ${t('text.showAll', { count: [...preview].length })}
    </button>`}
  </div>`;
}
