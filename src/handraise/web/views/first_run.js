// The empty inbox: calm where there was something before, and otherwise how questions get here.

import { html, useEffect, useState } from '../vendor/preact.js';
import { call, post, reasonOf } from '../core/api.js';
import { onEvent } from '../core/desk.js';
import { href } from '../core/route.js';
import { inert } from '../core/text.js';
import { t } from '../core/words.js';
import { agents, readAgents } from './agents.js';

const PRACTICE = 'practice:'; // what its asks are called; whichever tab is open takes the answer

/** Whether there was an ask before; `null` until it is known. @type {boolean | null} */
let hadSome = null;

export function FirstRun() {
  const [isOld, setOld] = useState(hadSome);
  useEffect(() => {
    if (isOld === true) return;
    call('/v1/asks?limit=1').then(
      (page) => setOld((hadSome = page.asks.length > 0)),
      () => undefined,
    );
  }, []);
  return html`<div class="empty">
    <p class="calm"><span aria-hidden="true">✓</span> ${t('inbox.empty')}</p>
    ${isOld === true &&
    html`<details class="how">
      <summary>${t('first.how')}</summary>
      <${Ways} />
    </details>`}
    ${isOld === false &&
    html`<h2>${t('first.title')}</h2>
      <${Ways} />`}
  </div>`;
}

function Ways() {
  const [problem, setProblem] = useState('');
  useEffect(() => void readAgents(), []);
  const installed = (agents.value ?? []).filter((agent) => agent.installed && agent.attach);
  const practise = () =>
    post('/v1/asks', practice()).then(
      () => setProblem(''),
      (error) => setProblem(t('first.try.failed', { reason: inert(reasonOf(error)) })),
    );
  return html`<ol class="ways">
    <li class="panel">
      <h3>${t('first.attach.title')}</h3>
      <p>${t('first.attach.text')}</p>
      ${installed.length > 0
        ? installed.map((agent) => html`<${Line} key=${agent.agent} text=${`handraise install ${agent.agent}`} />`)
        : agents.value !== null &&
          html`<p class="quiet-text">${t('first.attach.none')}</p>
            <${Line} text="handraise install --list" />`}
      <p class="quiet-text">${t('first.start.text')} <a class="reach" href=${href('sessions')}>${t('sessions.start')}</a></p>
    </li>
    <li class="panel">
      <h3>${t('first.try.title')}</h3>
      <p>${t('first.try.text')}</p>
      <p><button type="button" class="primary" data-action="practise" onClick=${practise}>${t('first.try.button')}</button></p>
      ${problem && html`<p class="error" role="alert">${problem}</p>`}
      <p class="quiet-text">${t('first.try.demo')}</p>
      <${Line} text="handraise demo" />
    </li>
    <li class="panel">
      <h3>${t('first.script.title')}</h3>
      <p>${t('first.script.text')}</p>
      <${Line} text=${'handraise ask "Deploy now?" Yes No'} />
    </li>
  </ol>`;
}

/** A command to be typed elsewhere. @param {{text: string}} props */
function Line({ text }) {
  const [isDone, setDone] = useState(false);
  // Browsers have a clipboard only at an address that they trust.
  const copy = () => navigator.clipboard?.writeText(text).then(() => setDone(true), () => undefined);
  return html`<p class="command">
    <code dir="ltr">${text}</code>
    ${navigator.clipboard && html`<button type="button" class="quiet" onClick=${copy} aria-label=${`${t('action.copy')}: ${text}`}>${isDone ? t('action.copied') : t('action.copy')}</button>`}
  </p>`;
}

// A question of our own --------------------------------------------------------------------------------------

const practice = () => ({
  id: `${PRACTICE}${crypto.getRandomValues(new Uint32Array(2)).join('-')}`,
  questions: [
    {
      header: t('first.try.header'),
      question: t('first.try.question'),
      options: [{ label: 'Early Bird' }, { label: 'Morning Star' }, { label: '1.0', description: t('first.try.own') }],
    },
  ],
  origin: { agent: 'handraise', session: 'practice' },
});

// The page is the agent that asked, so it says that it has the answer.
onEvent((type, ask) => {
  if ((type === 'answered' || type === 'rejected') && ask.id.startsWith(PRACTICE) && !ask.delivered_at)
    post('/v1/deliveries', { deliveries: [{ id: ask.id }] }).catch(() => undefined);
});
