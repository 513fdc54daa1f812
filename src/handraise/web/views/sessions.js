// What each agent is doing: who waits for a person, who works, who is idle, who has ended; and a form to start one.

import { html, useEffect, useId, useState } from '../vendor/preact.js';
import { post, reasonOf } from '../core/api.js';
import { minute } from '../core/clock.js';
import { isLoaded, sessions } from '../core/desk.js';
import { headerOf } from '../core/live.js';
import { go, href } from '../core/route.js';
import { inert, middle, Prose } from '../core/text.js';
import { ago, t } from '../core/words.js';
import { agents, readAgents } from './agents.js';
import { openAsks, standing, StandingMark } from './states.js';

/** @typedef {import('../core/api.js').Session} Session */
/** @typedef {import('./states.js').Standing} Standing */

const PAGE = 20; // sessions of a group that are drawn at a time
const MODES = ['default', 'accept-edits', 'bypass', 'plan', 'read-only', 'workspace-write', 'full-access'];

/** @type {Record<Standing, 'waiting' | 'running' | 'idle' | 'done'>} */
const GROUPS = { waiting: 'waiting', running: 'running', idle: 'idle', failed: 'idle', foreign: 'idle', done: 'done' };

export function Sessions() {
  const [wanted, setWanted] = useState('');
  const [isStarting, setStarting] = useState(false);
  const all = sessions.value.filter((session) => session.agent !== 'chat'); // those have a page of their own
  const fits = all.filter((session) => matches(session, wanted));
  /** @param {string} group */
  const those = (group) => fits.filter((session) => GROUPS[standing(session)] === group);
  return html`<section aria-labelledby="sessions-title" class="view">
    <header class="page-head">
      <h1 id="sessions-title" tabindex="-1">${t('sessions.title')}</h1>
      <button type="button" class="aside" aria-expanded=${isStarting} onClick=${() => setStarting(!isStarting)}>
        ${t('sessions.start')}
      </button>
    </header>
    ${isStarting && html`<${Form} />`}
    ${all.length > 0 &&
    html`<div class="filters">
      <label class="field wide">
        <span>${t('sessions.filter')}</span>
        <input
          type="search"
          value=${wanted}
          placeholder=${t('sessions.filter.placeholder')}
          onInput=${(/** @type {any} */ event) => setWanted(event.currentTarget.value)}
        />
      </label>
    </div>`}
    ${!isLoaded.value && html`<p class="quiet-text">${t('app.loading')}</p>`}
    ${isLoaded.value && all.length === 0 && html`<p class="quiet-text">${t('sessions.none')}</p>`}
    ${all.length > 0 && fits.length === 0 && html`<p class="quiet-text">${t('sessions.noneFit')}</p>`}
    <${Group} name="waiting" title=${t('sessions.group.waiting')} members=${those('waiting')} />
    <${Group} name="running" title=${t('sessions.group.running')} members=${those('running')} />
    <${Group} name="idle" title=${t('sessions.group.idle')} members=${those('idle')} />
    <${Group} name="done" title=${t('sessions.group.done')} members=${those('done')} />
  </section>`;
}

/** @param {Session} session @param {string} wanted every word of it has to be found somewhere */
function matches(session, wanted) {
  const text = [session.agent, session.cwd, session.machine, session.mode, session.run, session.step, session.id]
    .join(' ')
    .toLowerCase();
  return wanted
    .toLowerCase()
    .split(/\s+/u)
    .every((word) => text.includes(word));
}

/** @param {{name: string, title: string, members: Session[]}} props */
function Group({ name, title, members }) {
  const [drawn, setDrawn] = useState(PAGE);
  if (members.length === 0) return null;
  const left = members.length - drawn;
  return html`<section class="group" data-group=${name} aria-labelledby=${`group-${name}`}>
    <h2 id=${`group-${name}`}>${title} <span class="quiet-text">${members.length}</span></h2>
    <ul class="rows">
      ${members.slice(0, drawn).map((session) => html`<${Row} key=${session.id} session=${session} />`)}
    </ul>
    ${left > 0 &&
    html`<button type="button" class="quiet more" onClick=${() => setDrawn(drawn + PAGE)}>
      ${t('inbox.more', { count: Math.min(left, PAGE) })}
    </button>`}
  </section>`;
}

/** @param {{session: Session}} props */
function Row({ session }) {
  const state = standing(session);
  const open = openAsks.value.get(session.id) ?? [];
  return html`<li class="row" data-session=${session.id}>
    <a class="row-head" href=${href('sessions', session.id)}>
      <${StandingMark} state=${state} />
      <strong dir="auto">${inert(session.agent)}</strong>
      ${open.length > 0 && html`<span class="row-title"><bdi>${inert(headerOf(open[0])).slice(0, 120)}</bdi></span>`}
    </a>
    <${Facts} session=${session} open=${open.length} />
    ${state === 'failed' && session.error && html`<p class="row-error"><bdi>${inert(session.error).slice(0, 300)}</bdi></p>`}
  </li>`;
}

/** Where it runs, as what, for whom, and since when it is silent. @param {{session: Session, open?: number}} props */
export function Facts({ session, open = 0 }) {
  const { cwd, machine, mode, parent, updated_at } = session;
  const asking = openAsks.value.get(session.id)?.[0]?.origin;
  const run = session.run ?? asking?.run;
  const step = session.step ?? asking?.step;
  const seconds = Math.max(0, (minute.value - Date.parse(updated_at)) / 1000);
  return html`<p class="facts">
    ${open > 1 && html`<span>${t('sessions.asks', { count: open })}</span>`}
    ${parent && html`<a href=${href('sessions', parent)} title=${t('session.parent')}>${t('card.subagent')}</a>`}
    ${cwd && html`<span class="path" dir="ltr" title=${inert(cwd)}>${middle(inert(cwd), 48)}</span>`}
    ${machine && html`<span dir="auto">${inert(machine)}</span>`}
    ${mode && html`<span>${t('session.mode', { mode })}</span>`}
    ${run && (session.run ? html`<a class="reach" href=${href('runs', run)} dir="auto">${runText(run)}</a>` : html`<span dir="auto">${runText(run)}</span>`)}
    ${step && html`<span dir="auto">${t('session.step', { step: inert(step) })}</span>`}
    <time datetime=${updated_at}>${t('session.active', { time: ago(seconds) })}</time>
  </p>`;
}

/** @param {string} run */
const runText = (run) => t('session.run', { run: inert(run) });

/** What an agent can do, as its adapter says. @param {{agent: import('./agents.js').Capabilities}} props */
function Can({ agent }) {
  const can = [
    agent.questions && t('agent.can.questions'),
    agent.permissions && t('agent.can.permissions'),
    agent.several_questions && t('agent.can.several'),
    agent.multi_select && t('agent.can.multiple'),
    agent.free_text && t('agent.can.text'),
    agent.notes && t('agent.can.notes'),
    agent.edits && t('agent.can.edits'),
    agent.plans && t('agent.can.plans'),
    agent.subagents && t('agent.can.subagents'),
    agent.resume && t('agent.can.resume'),
    agent.attach && t('agent.can.attach'),
  ].filter(Boolean);
  return html`<details class="wide quiet-text" data-agent=${agent.agent}>
    <summary>${t('agent.can.title', { agent: inert(agent.agent) })}</summary>
    <ul>
      ${can.map((each) => html`<li>${each}</li>`)}
    </ul>
  </details>`;
}

// Starting one -----------------------------------------------------------------------------------------------

function Form() {
  const [agent, setAgent] = useState('');
  const [isSending, setSending] = useState(false);
  const [problem, setProblem] = useState('');
  const id = useId();
  useEffect(() => void readAgents(), []);
  const known = agents.value ?? [];
  const installed = known.filter((each) => each.installed);
  const missing = known.filter((each) => !each.installed);
  const picked = agent || installed[0]?.agent || missing[0]?.agent || '';
  const chosen = known.find((each) => each.agent === picked);
  const modes = chosen?.modes.length ? chosen.modes : MODES;

  /** @param {SubmitEvent & {currentTarget: HTMLFormElement}} event */
  async function start(event) {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    /** @param {string} name */
    const text = (name) => String(fields.get(name) ?? '').trim();
    const wanted = { agent: text('agent'), prompt: text('prompt'), cwd: text('cwd') || null, mode: text('mode') || null };
    setSending(true);
    setProblem('');
    try {
      const session = await post('/v1/sessions', wanted);
      sessions.value = [session, ...sessions.peek().filter((each) => each.id !== session.id)];
      go('sessions', session.id);
    } catch (error) {
      setProblem(t('sessions.form.failed', { reason: inert(reasonOf(error)) }));
      setSending(false);
    }
  }

  /** @param {string} label @param {typeof known} those */
  const group = (label, those) =>
    those.length > 0 &&
    html`<optgroup label=${label}>
      ${those.map((each) => html`<option value=${each.agent} selected=${each.agent === picked}>${inert(each.agent)}</option>`)}
    </optgroup>`;

  return html`<form class="panel form" aria-label=${t('sessions.start')} onSubmit=${start}>
    <div class="field">
      <label for=${`${id}-agent`}>${t('sessions.form.agent')}</label>
      ${known.length > 0
        ? html`<select id=${`${id}-agent`} name="agent" onChange=${(/** @type {any} */ event) => setAgent(event.currentTarget.value)}>
            ${group(t('sessions.form.installed'), installed)} ${group(t('sessions.form.missing'), missing)}
          </select>`
        : html`<input id=${`${id}-agent`} type="text" name="agent" required />`}
    </div>
    <div class="field">
      <label for=${`${id}-mode`}>${t('sessions.form.mode')}</label>
      <select id=${`${id}-mode`} name="mode">
        <option value="">${t('sessions.form.mode.own')}</option>
        ${modes.map((mode) => html`<option value=${mode}>${mode}</option>`)}
      </select>
    </div>
    ${chosen?.installed && html`<${Can} agent=${chosen} />`}
    ${chosen?.problem && html`<div class="quiet-text wide"><${Prose} text=${chosen.problem} /></div>`}
    <div class="field wide">
      <label for=${`${id}-prompt`}>${t('sessions.form.prompt')}</label>
      <textarea id=${`${id}-prompt`} name="prompt" rows="3" required dir="auto"></textarea>
    </div>
    <div class="field wide">
      <label for=${`${id}-cwd`}>${t('sessions.form.cwd')}</label>
      <input id=${`${id}-cwd`} type="text" name="cwd" dir="ltr" spellcheck=${false} autocomplete="off" />
    </div>
    ${problem && html`<p class="error wide" role="alert">${problem}</p>`}
    <div class="actions wide">
      <button class="primary" disabled=${isSending}>${t('sessions.form.go')}</button>
    </div>
  </form>`;
}
