// A checkpoint: a run waits until a person gives what its step wants. Beside the asks in the inbox, as a card like them.

import { html, useEffect, useId, useMemo, useRef, useState } from '../vendor/preact.js';
import { Refused, reasonOf } from '../core/api.js';
import { minute } from '../core/clock.js';
import { checkpoints } from '../core/desk.js';
import { draftOf, orphanDraft, saveDraft } from '../core/drafts.js';
import { isTyping, nameOf } from '../core/keys.js';
import { own } from '../core/live.js';
import { forgive, give, sendingOf } from '../core/outbox.js';
import { href } from '../core/route.js';
import { inert, middle, Plain, Prose } from '../core/text.js';
import { ago, t } from '../core/words.js';
import { focusAfter, focusCard, headingId } from './card.js';
import { choiceText, formOf, outputOf, valueOf } from './checkpoint_form.js';
import { Values } from './permission_object.js';
import { channelName } from './resolved.js';

/** @typedef {import('../core/api.js').Checkpoint} Checkpoint */
/** @typedef {import('./checkpoint_form.js').Field} Field */
/** @typedef {import('./checkpoint_form.js').Filled} Filled */

const LONGEST_INPUT = 4000; // characters that are shown at once

/** @param {{checkpoint: Checkpoint, level?: 2 | 3}} props */
export function CheckpointCard({ checkpoint, level = 2 }) {
  const { id, run, step, state, workflow, cwd } = checkpoint;
  useEffect(() => {
    if (state !== 'open' && !own.has(id)) orphanDraft(id);
  }, [state]);
  const seconds = Math.max(0, (minute.value - Date.parse(checkpoint.asked_at)) / 1000);
  return html`<article class="card" data-checkpoint=${id} data-state=${state === 'open' ? 'asked' : state} aria-labelledby=${headingId(id)}>
    <p class="origin">
      <span class="agent" dir="auto">${inert(workflow)}</span>
      <a href=${href('runs', run)} class="age"><bdi>${inert(run)}</bdi></a>
      <span><bdi>${inert(step)}</bdi></span>
      <span class="path" title=${inert(cwd)}><bdi>${middle(inert(cwd), 40)}</bdi></span>
      <span>${t('card.age', { time: ago(seconds) })}</span>
    </p>
    <${level === 3 ? 'h3' : 'h2'} id=${headingId(id)} tabindex="-1" dir="auto">${t('checkpoint.title', { workflow: inert(workflow), step: inert(step) })}<//>
    ${state === 'open' ? html`<${Open} checkpoint=${checkpoint} />` : html`<${Settled} checkpoint=${checkpoint} />`}
  </article>`;
}

/** What people are shown: prose, or names and values where it is JSON. @param {{text: string}} props */
function Input({ text }) {
  const value = useMemo(() => readable(text), [text]);
  if (text === '') return null;
  return value === undefined ? html`<${Prose} text=${text} limit=${LONGEST_INPUT} />` : html`<${Values} value=${value} />`;
}

/** @param {string} text @returns {unknown} undefined where it is no object or list */
function readable(text) {
  if (!/^\s*[[{]/u.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {{checkpoint: Checkpoint}} props */
function Open({ checkpoint }) {
  const { id } = checkpoint;
  const box = useRef(/** @type {HTMLFormElement | null} */ (null));
  const form = useMemo(() => formOf(checkpoint.schema), [checkpoint.id]);
  const [missing, setMissing] = useState(/** @type {Record<string, string>} */ ({}));
  const draft = draftOf(id).value;
  /** @type {Record<string, Filled>} */
  const filled = draft?.filled ?? {};
  const sending = sendingOf(id).value;
  const isInert = sending?.state === 'sending' || sending?.state === 'queued';
  const refused = sending?.state === 'failed' ? problemsOf(sending.error, form.fields) : { fields: {}, whole: [] };
  const problems = { ...refused.fields, ...missing };

  const toProblem = () =>
    requestAnimationFrame(() => {
      const wrong = box.current?.querySelector('[aria-invalid="true"], .error');
      if (wrong instanceof HTMLElement) wrong.focus();
    });
  const fill = (/** @type {Field} */ field, /** @type {Filled} */ value) => {
    if (sending?.state === 'failed') forgive(id);
    const { [field.name]: _, ...others } = missing;
    setMissing(others);
    saveDraft(id, { ...draftOf(id).peek(), filled: { ...draftOf(id).peek()?.filled, [field.name]: value } });
  };
  const send = async () => {
    if (isInert) return;
    const read = outputOf(form, filled);
    if ('problems' in read) {
      setMissing(read.problems);
      toProblem();
      return;
    }
    setMissing({});
    if (sending?.state === 'failed') forgive(id);
    own.add(id);
    if (await give(id, read.output)) focusNext(id);
    else if (sendingOf(id).peek()?.state === 'queued') focusCard(id);
    else {
      own.delete(id);
      toProblem();
    }
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    send();
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const name = nameOf(event);
    if (name === 'Mod+Enter') send();
    else if (name === 'Escape' && isTyping(event.target)) focusCard(id);
    else if (name === 'Escape') document.getElementById('main')?.focus();
    else return;
    event.preventDefault();
  };
  return html`
    <${Input} text=${checkpoint.input} />
    <form class="checkpoint-form" ref=${box} novalidate onSubmit=${submit} onKeyDown=${press}>
      ${form.fields.map(
        (field) => html`<${FormField}
          key=${field.name}
          field=${field}
          value=${field.name in filled ? filled[field.name] : field.preset}
          problem=${problems[field.name]}
          isInert=${isInert}
          fill=${(/** @type {Filled} */ value) => fill(field, value)}
        />`,
      )}
      ${sending?.state === 'failed' &&
      html`<div role="alert" class="error" tabindex="-1">
        <p>${troubleText(sending.error)}</p>
        ${refused.whole.map((problem) => html`<p dir="auto">${inert(problem)}</p>`)}
      </div>`}
      <div class="actions">
        <button type="submit" class="primary" data-action="send" disabled=${isInert}>${t('action.send')}</button>
      </div>
      ${sending?.state === 'sending' && html`<p class="status">${t('state.sending')}</p>`}
      ${sending?.state === 'queued' && html`<p class="status">${t('state.queued')}</p>`}
    </form>
  `;
}

/**
 * What the desk has against it, by field, and what is about none of them.
 * @param {unknown} error @param {Field[]} fields
 */
export function problemsOf(error, fields) {
  /** @type {{fields: Record<string, string>, whole: string[]}} */
  const found = { fields: {}, whole: [] };
  if (!(error instanceof Refused) || !error.code.endsWith('_does_not_fit')) return found;
  const problems = Array.isArray(error.fields.problems) ? error.fields.problems : [];
  for (const { at, problem } of problems) {
    const isAlone = fields.length === 1 && fields[0].name === '';
    const field = isAlone ? fields[0] : fields.find(({ name }) => at === name || String(at).startsWith(`${name}.`));
    if (field) found.fields[field.name] = [found.fields[field.name], String(problem)].filter(Boolean).join(' · ');
    else found.whole.push(String(problem));
  }
  return found;
}

/** @param {unknown} error */
function troubleText(error) {
  if (error instanceof Refused && error.code === 'output_does_not_fit') return t('checkpoint.wrong');
  if (error instanceof Refused && error.code === 'run_ended') {
    const { by, via, state } = error.fields;
    if (state !== 'given') return t('checkpoint.over');
    return t('checkpoint.elsewhere', { person: inert(String(by ?? '')), channel: channelName(String(via ?? '')) });
  }
  return t('error.sendFailed', { reason: inert(reasonOf(error)) });
}

/** The next checkpoint that waits, else the next ask, else this one. @param {string} id */
function focusNext(id) {
  const all = checkpoints.peek();
  const from = all.findIndex((each) => each.id === id);
  const next = [...all.slice(from + 1), ...all.slice(0, Math.max(0, from))].find((each) => each.state === 'open' && each.id !== id);
  if (next) requestAnimationFrame(() => focusCard(next.id) || focusAfter(id)); // it may be on another page
  else focusAfter(id);
}

// Fields -----------------------------------------------------------------------------------------------------

/**
 * @param {{field: Field, value: Filled, problem?: string, isInert: boolean, fill: (value: Filled) => void}} props
 */
export function FormField({ field, value, problem, isInert, fill }) {
  const id = useId();
  // What is typed as JSON is looked at while it is typed; the rest when it is sent.
  const typed = field.kind === 'json' && typeof value === 'string' && value.trim() !== '' ? valueOf(field, value).problem : undefined;
  const wrong = problem ?? typed;
  const about = [field.about && `${id}-about`, wrong && `${id}-problem`].filter(Boolean).join(' ') || undefined;
  const name = html`<span class="field-name" dir="auto">${field.label ? inert(field.label) : t('checkpoint.output')}</span>${!field.isRequired &&
    html` <span class="quiet-text">${t('checkpoint.optional')}</span>`}`;
  const notes = html`
    ${field.about && html`<p id=${`${id}-about`} class="quiet-text"><${Plain} as="bdi" text=${field.about} limit=${500} /></p>`}
    ${wrong && html`<p id=${`${id}-problem`} class="problem"><bdi>${inert(wrong)}</bdi></p>`}
  `;
  const common = { disabled: isInert, 'aria-invalid': wrong ? 'true' : undefined, 'aria-describedby': about };
  if (field.kind === 'boolean' || field.kind === 'choice' || field.kind === 'several')
    return html`<fieldset class="form-field">
      <legend>${name}</legend>
      <${Choices} id=${id} field=${field} value=${value} common=${common} fill=${fill} />
      ${notes}
    </fieldset>`;
  const type = (/** @type {Event} */ event) => fill(/** @type {HTMLInputElement} */ (event.currentTarget).value);
  const text = typeof value === 'string' ? value : '';
  return html`<div class="form-field">
    <label for=${id}>${name}</label>
    ${field.kind === 'number' || field.kind === 'integer'
      ? html`<input id=${id} name=${field.name} type="text" inputmode="decimal" autocomplete="off" value=${text} onInput=${type} ...${common} />`
      : field.kind === 'json'
        ? html`<textarea id=${id} name=${field.name} class="code" dir="ltr" spellcheck=${false} value=${text} onInput=${type} ...${common}></textarea>`
        : html`<textarea id=${id} name=${field.name} dir="auto" value=${text} onInput=${type} ...${common}></textarea>`}
    ${field.kind === 'json' && html`<p class="quiet-text"><${Plain} as="bdi" text=${t('checkpoint.json', { schema: JSON.stringify(field.schema) })} limit=${500} /></p>`}
    ${notes}
  </div>`;
}

/**
 * @param {{id: string, field: Field, value: Filled, common: Record<string, unknown>, fill: (value: Filled) => void}} props
 */
function Choices({ id, field, value, common, fill }) {
  if (field.kind === 'several') {
    const places = Array.isArray(value) ? value : [];
    const toggle = (/** @type {number} */ place) => fill(places.includes(place) ? places.filter((each) => each !== place) : [...places, place]);
    return field.choices.map(
      (choice, place) => html`<label class="form-option">
        <input type="checkbox" name=${id} checked=${places.includes(place)} onChange=${() => toggle(place)} ...${common} />
        <${Plain} text=${choiceText(choice)} limit=${120} />
      </label>`,
    );
  }
  /** @type {[string, any][]} */
  const options =
    field.kind === 'boolean'
      ? [
          ['true', t('checkpoint.yes')],
          ['false', t('checkpoint.no')],
        ]
      : field.choices.map((choice, place) => [String(place), html`<${Plain} text=${choiceText(choice)} limit=${120} />`]);
  if (!field.isRequired) options.push(['', t('checkpoint.leaveOut')]);
  return options.map(
    ([option, label]) => html`<label class="form-option">
      <input type="radio" name=${id} value=${option} checked=${(value ?? '') === option && (value !== null || !field.isRequired)} onChange=${() => fill(option)} ...${common} />
      <span>${label}</span>
    </label>`,
  );
}

// Settled ----------------------------------------------------------------------------------------------------

/** @param {{checkpoint: Checkpoint}} props */
function Settled({ checkpoint }) {
  const { id, state, by, via, output } = checkpoint;
  const draft = draftOf(id).value?.filled;
  const sending = sendingOf(id).value;
  const isGiven = state === 'given';
  return html`
    <p class="outcome" data-outcome=${isGiven ? 'answered' : 'withdrawn'}>
      <span aria-hidden="true" class="mark">${isGiven ? '✓' : '–'}</span>
      <span dir="auto">
        ${isGiven ? t('checkpoint.given', { person: inert(by ?? ''), channel: channelName(via ?? '') }) : t('checkpoint.over')}
      </span>
    </p>
    ${isGiven && html`<${Values} value=${output} />`}
    ${sending?.state === 'failed' && html`<p class="error" role="alert" tabindex="-1">${troubleText(sending.error)}</p>`}
    ${draft && !own.has(id) && html`<div class="orphan">
      <p>${t('deadline.draftNotSent')}</p>
      <blockquote dir="auto">${Object.values(draft).filter((each) => typeof each === 'string').join(' · ')}</blockquote>
    </div>`}
    ${checkpoint.input !== '' &&
    html`<details class="record">
      <summary>${t('checkpoint.shown')}</summary>
      <${Input} text=${checkpoint.input} />
    </details>`}
  `;
}
