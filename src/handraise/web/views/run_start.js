// Starting a run: a workflow of a folder, and what it takes as the same form that a checkpoint is given with.

import { html, useEffect, useMemo, useState } from '../vendor/preact.js';
import { call, post } from '../core/api.js';
import { FormField, problemsOf } from '../cards/checkpoint.js';
import { formOf, outputOf } from '../cards/checkpoint_form.js';
import { go } from '../core/route.js';
import { inert, Plain } from '../core/text.js';
import { t } from '../core/words.js';
import { isUntrusted, refusal, TrustLink } from './run_words.js';

/** @typedef {import('../types/api').Workflow} Workflow */
/** @typedef {import('../cards/checkpoint_form.js').Filled} Filled */

/** @param {{last: string}} props the folder of the newest run */
export function StartForm({ last }) {
  const [cwd, setCwd] = useState(last);
  const [found, setFound] = useState(/** @type {{cwd: string, workflows: Workflow[]} | null} */ (null));
  const [name, setName] = useState('');
  const [problem, setProblem] = useState('');
  const look = async () => {
    setProblem('');
    try {
      const query = new URLSearchParams(cwd.trim() ? { cwd: cwd.trim() } : {});
      setFound({ cwd: cwd.trim(), ...(await call(`/v1/workflows?${query}`)) });
    } catch (error) {
      setFound(null);
      setProblem(refusal(error));
    }
  };
  useEffect(() => void look(), []);
  const workflows = found?.workflows ?? [];
  const chosen = workflows.find((each) => each.name === name) ?? workflows.find((each) => !each.problem) ?? workflows[0];
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    look();
  };
  return html`<section class="panel start" aria-label=${t('runs.start')}>
    <form class="line" onSubmit=${submit}>
      <label class="field">
        <span>${t('sessions.form.cwd')}</span>
        <input type="text" name="cwd" dir="ltr" spellcheck=${false} autocomplete="off" value=${cwd} onInput=${(/** @type {any} */ event) => setCwd(event.currentTarget.value)} />
      </label>
      <button>${t('runs.look')}</button>
    </form>
    ${problem && html`<p class="error" role="alert"><bdi>${problem}</bdi></p>`}
    ${found && workflows.length === 0 && html`<p class="quiet-text">${t('runs.noWorkflow')}</p>`}
    ${found &&
    chosen &&
    html`<label class="field">
        <span>${t('runs.workflow')}</span>
        <select name="workflow" value=${chosen.name} onChange=${(/** @type {any} */ event) => setName(event.currentTarget.value)}>
          ${workflows.map((each) => html`<option value=${each.name} selected=${each === chosen}>${each.problem ? '✕ ' : ''}${inert(each.name)}</option>`)}
        </select>
      </label>
      <${Chosen} key=${`${found.cwd} ${chosen.name}`} workflow=${chosen} cwd=${found.cwd} />`}
  </section>`;
}

/** @param {string} file */
const folderOf = (file) => file.slice(0, file.lastIndexOf('/')) || '/';

/** @param {{workflow: Workflow, cwd: string}} props */
function Chosen({ workflow, cwd }) {
  const form = useMemo(() => formOf(workflow.input ?? {}), [workflow]);
  // One that takes anything takes an empty object too.
  const [filled, setFilled] = useState(/** @type {Record<string, Filled>} */ (form.isAlone && form.fields[0].kind === 'json' ? { '': '{}' } : {}));
  const [missing, setMissing] = useState(/** @type {Record<string, string>} */ ({}));
  const [failure, setFailure] = useState(/** @type {unknown} */ (null));
  const [isSending, setSending] = useState(false);
  const refused = problemsOf(failure, form.fields);
  const problems = { ...refused.fields, ...missing };
  /** @param {SubmitEvent & {currentTarget: HTMLFormElement}} event */
  const start = async (event) => {
    event.preventDefault();
    const box = event.currentTarget;
    const toProblem = () =>
      requestAnimationFrame(() => {
        const wrong = box.querySelector('[aria-invalid="true"], .error');
        if (wrong instanceof HTMLElement) wrong.focus();
      });
    const read = outputOf(form, filled);
    setFailure(null);
    setMissing('problems' in read ? read.problems : {});
    if ('problems' in read) return void toProblem();
    setSending(true);
    try {
      const run = await post('/v1/runs', { workflow: workflow.name, input: read.output, ...(cwd ? { cwd } : {}) });
      go('runs', run.id);
    } catch (error) {
      setFailure(error);
      setSending(false);
      toProblem();
    }
  };
  if (workflow.problem)
    return html`<${Plain} as="p" class="error lines" text=${workflow.problem} limit=${4000} />
      ${workflow.untrusted && html`<${TrustLink} cwd=${cwd || folderOf(workflow.file)} />`}`;
  return html`<form class="checkpoint-form" novalidate onSubmit=${start} aria-label=${inert(workflow.name)}>
    ${workflow.description && html`<${Plain} as="p" text=${workflow.description} />`}
    <p class="facts">
      <span>${workflow.steps.map((step, place) => html`${place > 0 && ' · '}<bdi>${inert(step.id)}</bdi>`)}</span>
    </p>
    ${form.fields.map(
      (field) => html`<${FormField}
        key=${field.name}
        field=${form.isAlone ? { ...field, label: t('run.input') } : field}
        value=${field.name in filled ? filled[field.name] : field.preset}
        problem=${problems[field.name]}
        isInert=${isSending}
        fill=${(/** @type {Filled} */ value) => {
          setMissing(({ [field.name]: _, ...others }) => others);
          setFilled((before) => ({ ...before, [field.name]: value }));
        }}
      />`,
    )}
    ${failure !== null && html`<div class="error" role="alert" tabindex="-1"><p><bdi>${t('sessions.form.failed', { reason: refusal(failure) })}</bdi></p>${isUntrusted(failure) && html`<${TrustLink} cwd=${cwd || folderOf(workflow.file)} />`}</div>`}
    <div class="actions"><button class="primary" data-action="start" disabled=${isSending}>${t('sessions.form.go')}</button></div>
  </form>`;
}
