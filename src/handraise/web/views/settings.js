// What a person sets for this browser, and which projects they trust. Only the latter is kept at the desk.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { call, reasonOf } from '../core/api.js';
import { helpIsOpen } from '../core/keys.js';
import { keep, recall } from '../core/memory.js';
import { askToNotify, notifyState, stopNotifying } from '../core/notify.js';
import { trustHref } from '../core/route.js';
import { inert } from '../core/text.js';
import { chooseTheme, theme } from '../core/theme.js';
import { choose, LANGUAGES, t } from '../core/words.js';

/** @typedef {import('../core/theme.js').Theme} Theme */

export function Settings() {
  const [name, setName] = useState(() => recall('name', ''));
  const [colours, setColours] = useState(theme);
  const [chosen, setChosen] = useState(() => recall('language', ''));
  const [isGlobal, setGlobal] = useState(() => !recall('noGlobalKeys', false));
  const [version, setVersion] = useState('');
  useEffect(() => void call('/healthz').then((health) => setVersion(health.version), () => undefined), []);

  /** @param {string} wanted */
  const speak = (wanted) => {
    setChosen(wanted);
    choose(wanted);
  };
  /** @param {Theme} wanted */
  const colour = (wanted) => {
    chooseTheme(wanted);
    setColours(wanted);
  };
  /** @param {string} wanted */
  const answerAs = (wanted) => {
    setName(wanted);
    keep('name', wanted.trim());
  };
  /** @param {boolean} wanted */
  const listen = (wanted) => {
    setGlobal(wanted);
    keep('noGlobalKeys', wanted ? undefined : true);
  };
  return html`<section class="view settings" aria-labelledby="settings-title">
    <header class="page-head">
      <h1 id="settings-title" tabindex="-1">${t('settings.title')}</h1>
      <p class="quiet-text">${t('settings.kept')}</p>
    </header>
    <div class="panel field">
      <h2><label for="settings-name">${t('settings.name')}</label></h2>
      <p id="settings-name-hint" class="quiet-text">${t('settings.name.hint')}</p>
      <input
        id="settings-name"
        type="text"
        dir="auto"
        maxlength="100"
        autocomplete="name"
        aria-describedby="settings-name-hint"
        value=${name}
        onInput=${(/** @type {any} */ event) => answerAs(event.currentTarget.value)}
      />
    </div>
    <fieldset class="panel">
      <legend><h2>${t('settings.language')}</h2></legend>
      <${Choice} group="language" value="" chosen=${chosen} choose=${speak}>${t('settings.language.browser')}<//>
      ${Object.entries(LANGUAGES).map(
        ([tag, name]) => html`<${Choice} key=${tag} group="language" value=${tag} chosen=${chosen} choose=${speak}><span lang=${tag}>${name}</span><//>`,
      )}
    </fieldset>
    <fieldset class="panel">
      <legend><h2>${t('settings.theme')}</h2></legend>
      <${Choice} group="theme" value="" chosen=${colours} choose=${colour}>${t('settings.theme.system')}<//>
      <${Choice} group="theme" value="light" chosen=${colours} choose=${colour}>${t('settings.theme.light')}<//>
      <${Choice} group="theme" value="dark" chosen=${colours} choose=${colour}>${t('settings.theme.dark')}<//>
    </fieldset>
    <div class="panel">
      <h2>${t('settings.notify')}</h2>
      <p class="quiet-text">${t('settings.notify.hint')}</p>
      <${Notifications} />
    </div>
    <div class="panel">
      <h2>${t('settings.keys')}</h2>
      <label class="setting">
        <input
          type="checkbox"
          checked=${isGlobal}
          onChange=${(/** @type {any} */ event) => listen(event.currentTarget.checked)}
        />
        <span>${t('settings.keys.global')}</span>
      </label>
      <p><button type="button" onClick=${() => (helpIsOpen.value = true)}>${t('settings.keys.show')}</button></p>
    </div>
    <${TrustedProjects} />
    <div class="panel">
      <h2>${t('settings.about')}</h2>
      ${version && html`<p>${t('settings.version', { version })}</p>`}
      <p class="quiet-text">${t('settings.docs', { command: 'handraise --help' })}</p>
      <p><a class="reach" href="/openapi.json">${t('settings.api')}</a></p>
    </div>
  </section>`;
}

/** @param {{group: string, value: string, chosen: string, choose: (value: any) => void, children?: any}} props */
function Choice({ group, value, chosen, choose, children }) {
  return html`<label class="setting">
    <input type="radio" name=${group} value=${value} checked=${chosen === value} onChange=${() => choose(value)} />
    <span>${children}</span>
  </label>`;
}

function TrustedProjects() {
  const [projects, setProjects] = useState(/** @type {import('../types/api').TrustedProject[] | null} */ (null));
  const [problem, setProblem] = useState('');
  const title = useRef(/** @type {HTMLElement | null} */ (null));
  const look = () => call('/v1/trust').then((told) => setProjects(told.projects), (error) => setProblem(inert(reasonOf(error))));
  useEffect(() => void look(), []);
  /** @param {string} project */
  const forget = async (project) => {
    setProblem('');
    title.current?.focus(); // the button that was pressed goes
    await call(`/v1/trust?${new URLSearchParams({ cwd: project })}`, { method: 'DELETE' }).catch((error) => setProblem(inert(reasonOf(error))));
    await look();
  };
  return html`<div class="panel" data-panel="trust">
    <h2 tabindex="-1" ref=${title}>${t('settings.trust')}</h2>
    <p class="quiet-text">${t('settings.trust.hint')}</p>
    ${problem && html`<p class="error" role="alert"><bdi>${problem}</bdi></p>`}
    ${projects?.length === 0 && html`<p>${t('settings.trust.none')}</p>`}
    ${projects?.map(
      ({ project, parts }) => html`<p key=${project} data-project=${project}>
        <a class="reach" dir="ltr" href=${trustHref(project)}>${inert(project)}</a> <bdi class="quiet-text">${inert(parts.join(', '))}</bdi>
        ${' '}<button type="button" class="quiet" data-action="forget" aria-label=${t('settings.trust.forgetOne', { project: inert(project) })} onClick=${() => forget(project)}>${t('settings.trust.forget')}</button>
      </p>`,
    )}
    <p><a class="reach" href="#/trust">${t('settings.trust.look')}</a></p>
  </div>`;
}

function Notifications() {
  const state = notifyState.value;
  if (state === 'insecure') return html`<p>${t('settings.notify.insecure')}</p>`;
  if (state === 'impossible') return html`<p>${t('settings.notify.impossible')}</p>`;
  if (state === 'denied') return html`<p>${t('settings.notify.denied')}</p>`;
  if (state === 'on')
    return html`<p>${t('settings.notify.isOn')}</p>
      <p><button type="button" onClick=${stopNotifying}>${t('settings.notify.off')}</button></p>`;
  return html`<p><button type="button" onClick=${askToNotify}>${t('settings.notify.on')}</button></p>`;
}
