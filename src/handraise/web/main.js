// The page: signs of life at the top, one view below, one live region for all of it.

import { effect, html, render, useErrorBoundary } from './vendor/preact.js';
import { asOf, checkpoints, connection, countOfAll, find, isLoaded, start } from './core/desk.js';
import { sweepDrafts, writeDrafts } from './core/drafts.js';
import { idly, lazily, readTheRest } from './core/lazy.js';
import { helpIsOpen } from './core/keys.js';
import { announce, said } from './core/live.js';
import { route } from './core/route.js';
import { clockTime, learn, signedOut, t } from './core/words.js';
import { applyTheme } from './core/theme.js';
import './core/outbox.js';
import { startNotifying } from './core/notify.js';
import { Inbox } from './views/inbox.js';
import { OneAsk } from './views/one_ask.js';

const Chat = lazily(() => import('./views/chat.js'), 'Chat', 'chat.css');
const Chats = lazily(() => import('./views/chats.js'), 'Chats', 'chat.css');
const DiffPage = lazily(() => import('./views/diff.js'), 'DiffPage');
const History = lazily(() => import('./views/history.js'), 'History');
const Inspector = lazily(() => import('./views/inspector.js'), 'Inspector', 'inspector.css');
const KeyHelp = lazily(() => import('./views/key_help.js'), 'KeyHelp');
const Run = lazily(() => import('./views/run.js'), 'Run', 'runs.css');
const Runs = lazily(() => import('./views/runs.js'), 'Runs', 'runs.css');
const Session = lazily(() => import('./views/session.js'), 'Session', 'talk.css');
const Sessions = lazily(() => import('./views/sessions.js'), 'Sessions');
const Settings = lazily(() => import('./views/settings.js'), 'Settings');
const Trust = lazily(() => import('./views/trust.js'), 'Trust', 'trust.css');
const Unseen = idly(() => import('./cards/showings.js'), 'Unseen');

const QUIET = 3000; // milliseconds after which what is not needed yet is read

function App() {
  const [page, id] = route.value;
  return html`
    <a class="skip" href="#main" onClick=${skip}>${t('app.skip')}</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/app/icons/icon.svg" alt="" width="24" height="24" /> handraise</a>
      <nav aria-label=${t('nav.label')}>
        <${Tab} to="" page=${page} count=${countOfAll.value}>${t('nav.inbox')}<//>
        <${Tab} to="chats" page=${page}>${t('nav.chats')}<//>
        <${Tab} to="sessions" page=${page}>${t('nav.sessions')}<//>
        <${Tab} to="runs" page=${page}>${t('nav.runs')}<//>
        <${Tab} to="history" page=${page}>${t('nav.history')}<//>
        <${Tab} to="settings" page=${page}>${t('nav.settings')}<//>
      </nav>
    </header>
    <${Banner} /><${Unseen} />
    <main id="main" tabindex="-1"><${Guarded} key=${route.value.join('/')} page=${page} id=${id} /></main>
    <p role="status" class="unseen">${said.value}</p>
    ${helpIsOpen.value && html`<${KeyHelp} />`}
  `;
}

/** @param {{page?: string, id?: string}} props */
function Guarded({ page, id }) {
  const [broken, mend] = useErrorBoundary();
  if (broken)
    return html`<p role="alert" class="error">
      ${t('app.broken', { reason: String(broken) })} <button type="button" onClick=${mend}>${t('action.retry')}</button>
    </p>`;
  if (page === 'ask' && id) return html`<${OneAsk} id=${id} />`;
  if (page === 'chats') return id ? html`<${Chat} id=${id} />` : html`<${Chats} />`;
  if (page === 'diff' && id) return html`<${DiffPage} id=${id} />`;
  if (page === 'history') return html`<${History} />`;
  if (page === 'inspect' && id) return html`<${Inspector} id=${id} />`;
  if (page === 'runs') return id ? html`<${Run} id=${id} />` : html`<${Runs} />`;
  if (page === 'sessions') return id ? html`<${Session} id=${id} />` : html`<${Sessions} />`;
  if (page === 'settings') return html`<${Settings} />`;
  if (page === 'trust') return html`<${Trust} />`;
  return html`<${Inbox} />`;
}

/** @param {{to: string, page?: string, count?: number, children?: any}} props */
function Tab({ to, page = '', count = 0, children }) {
  const isHere = page === to || (to === '' && (page === 'ask' || page === 'diff')) || (to === 'sessions' && page === 'inspect') || (to === 'settings' && page === 'trust');
  return html`<a href=${`#/${to}`} aria-current=${isHere ? 'page' : undefined}
    >${children}${count > 0 && html` <span class="count">${count}</span>`}</a
  >`;
}

function Banner() {
  const state = connection.value;
  if (state === 'signed-out')
    return html`<p class="banner" role="alert">${signedOut()}</p>`;
  if (asOf.value !== null)
    return html`<p class="banner" role="status">${t('app.asOf', { time: clockTime(new Date(asOf.value)) })}</p>`;
  if (state === 'lost' && isLoaded.value) return html`<p class="banner" role="status">${t('app.offline')}</p>`;
  return null;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

applyTheme();
await learn();
effect(() => {
  const count = countOfAll.value;
  document.title = `${count > 0 ? t('inbox.titleCount', { count }) : t('inbox.title')} · handraise`;
});
// The banner that goes away is seen; for those who listen it is said.
let wasLost = false;
effect(() => {
  const state = connection.value;
  if (wasLost && state === 'live') announce(t('app.back'));
  wasLost = state === 'lost' || (wasLost && state !== 'live');
});
effect(() => {
  if (connection.value === 'signed-out') writeDrafts(); // before the person leaves this page to sign in
});
// Another page begins at its top; one that wants to be read from the end goes there itself.
effect(() => {
  void route.value;
  scrollTo(0, 0);
});
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
await start();
if (isLoaded.peek()) sweepDrafts((id) => find(id)?.peek().state === 'asked' || checkpoints.peek().some((each) => each.id === id));
startNotifying();
setTimeout(readTheRest, QUIET);
