// What the files of a project would make happen, and a person's yes to exactly that.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { call, post, Refused, reasonOf } from '../core/api.js';
import { announce } from '../core/live.js';
import { asked, trustHref } from '../core/route.js';
import { inert, Plain } from '../core/text.js';
import { t } from '../core/words.js';

/** @typedef {import('../types/api').Trust} Told */
/** @typedef {import('../types/api').Part} Part */

const PAUSE = 700; // milliseconds in which the button does nothing: a click that was meant for what stood there before

export function Trust() {
  const cwd = asked.value.get('cwd') ?? '';
  const [typed, setTyped] = useState(cwd);
  const [seen, setSeen] = useState(/** @type {Told | null} */ (null));
  const [problem, setProblem] = useState('');
  const newest = useRef(0);
  const look = async () => {
    const turn = (newest.current += 1);
    try {
      const told = await call(`/v1/trust?${new URLSearchParams({ cwd })}`);
      if (turn === newest.current) setSeen(told);
    } catch (error) {
      if (turn !== newest.current) return; // another folder is looked at by now
      setSeen(null);
      setProblem(inert(reasonOf(error)));
    }
  };
  useEffect(() => {
    setTyped(cwd);
    setSeen(null);
    setProblem('');
    if (cwd) look();
  }, [cwd]);
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    setProblem('');
    if (typed.trim() === cwd) look();
    else location.hash = trustHref(typed.trim());
  };
  return html`<section class="view trust" aria-labelledby="trust-title">
    <header class="page-head">
      <h1 id="trust-title" tabindex="-1">${t('trust.title')}</h1>
      <p class="quiet-text">${t('trust.lead')}</p>
    </header>
    <form class="line" onSubmit=${submit}>
      <label class="field">
        <span>${t('trust.folder')}</span>
        <input type="text" name="cwd" dir="ltr" spellcheck=${false} autocomplete="off" required value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} />
      </label>
      <button>${t('trust.look')}</button>
    </form>
    ${problem && html`<p class="error" role="alert"><bdi>${problem}</bdi></p>`}
    ${cwd && seen === null && !problem && html`<p class="quiet-text">${t('app.loading')}</p>`}
    ${seen && html`<${Parts} seen=${seen} show=${setSeen} look=${look} setProblem=${setProblem} />`}
  </section>`;
}

/** @param {{seen: Told, show: (told: Told) => void, look: () => Promise<void>, setProblem: (problem: string) => void}} props */
function Parts({ seen, show, look, setProblem }) {
  const [isReady, setReady] = useState(false);
  const [isSending, setSending] = useState(false);
  useEffect(() => {
    setReady(false);
    const wait = setTimeout(() => setReady(true), PAUSE);
    return () => clearTimeout(wait);
  }, [seen]);
  const wanted = seen.parts.filter((part) => part.state !== 'trusted' && part.fingerprint !== null);
  const trust = async () => {
    setSending(true);
    setProblem('');
    try {
      const parts = wanted.map(({ name, fingerprint }) => ({ name, fingerprint }));
      show(await post('/v1/trust', { cwd: seen.cwd, parts }));
      announce(t('trust.done'));
      document.getElementById('trust-title')?.focus();
    } catch (error) {
      const isChanged = error instanceof Refused && error.code === 'part_changed';
      setProblem(isChanged ? t('trust.partChanged') : inert(reasonOf(error)));
      if (isChanged) await look();
    }
    setSending(false);
  };
  // A key that is held and the second half of a double click are no yes.
  const hold = (/** @type {KeyboardEvent} */ event) => event.repeat && event.preventDefault();
  const press = (/** @type {MouseEvent} */ event) => event.detail < 2 && trust();
  const isAll = seen.parts.length > 0 && seen.parts.every((part) => part.state === 'trusted');
  return html`${seen.problems.length > 0 &&
    html`<div class="panel">
      <h2>${t('trust.unread')}</h2>
      <ul>${seen.problems.map((each) => html`<li><bdi>${inert(each)}</bdi></li>`)}</ul>
    </div>`}
    ${seen.parts.map((part) => html`<${OnePart} key=${part.name} part=${part} />`)}
    ${seen.parts.length === 0 && seen.problems.length === 0 && html`<p>${t('trust.none')}</p>`}
    ${isAll && html`<p role="status">${t('trust.all')}</p>`}
    ${seen.parts.some(({ kind }) => kind === 'agents' || kind === 'policy') && html`<p class="quiet-text">${t('trust.restart')}</p>`}
    ${wanted.length > 0 &&
    html`<div class="actions">
      <button type="button" class="danger" data-action="trust" disabled=${!isReady || isSending} onKeyDown=${hold} onClick=${press}>${t('trust.yes')}</button>
    </div>`}`;
}

/** @param {Part} part */
function titleOf({ kind, name }) {
  if (kind === 'agents') return t('trust.agents');
  if (kind === 'policy') return t('trust.policy');
  if (kind === 'rules') return t('trust.rules');
  return t('trust.workflow', { file: inert(name.replace(/^workflow /u, '')) });
}

/** @param {Part['state']} state */
function stateText(state) {
  if (state === 'trusted') return t('trust.trusted');
  return state === 'changed' ? t('trust.changed') : t('trust.new');
}

/** @param {{part: Part}} props */
function OnePart({ part }) {
  const { project, state, lines, problems, owners } = part;
  const mark = state === 'trusted' ? '✓' : '!';
  // All of it is shown: what is folded away is trusted unread.
  return html`<section class="panel" data-part=${part.name} data-state=${state}>
    <h2><bdi>${titleOf(part)}</bdi></h2>
    <p class="facts">
      <span class="standing" data-standing=${state === 'trusted' ? 'done' : 'waiting'}><span aria-hidden="true" class="mark">${mark}</span> ${stateText(state)}</span>
      <span class="path" dir="ltr">${inert(project)}</span>
    </p>
    ${lines.length > 0 && html`<${Plain} as="pre" class="object" text=${lines.join('\n')} limit=${Infinity} />`}
    ${problems.length > 0 &&
    html`<div class="warning">
      <p><span aria-hidden="true">⚠ </span>${t('trust.problem')}</p>
      <ul>${problems.map((each) => html`<li><bdi>${inert(each)}</bdi></li>`)}</ul>
    </div>`}
    ${owners.length > 0 &&
    html`<div class="warning">
      <p><span aria-hidden="true">⚠ </span>${t('trust.owner')}</p>
      <ul>${owners.map((each) => html`<li><bdi>${inert(each)}</bdi></li>`)}</ul>
    </div>`}
  </section>`;
}
