// What an agent wants to do, whole and exactly as it wrote it: command, files, address, change, plan or arguments.

import { html } from '../vendor/preact.js';
import { href } from '../core/route.js';
import { Plain, Prose, exact, hasHidden, inert, revealed } from '../core/text.js';
import { t } from '../core/words.js';
import { Diff, filesOf } from './diff.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../types/api').Permission} PermissionWanted */

const LONGEST_PLAN = 20_000; // characters that are shown at once
const LONGEST_VALUE = 4000;
const FETCHES = ['fetch', 'webfetch', 'web_fetch', 'read_web_page'];
const READS = ['read', 'read_file', 'read_many_files', 'view', 'list', 'ls', 'list_directory', 'glob', 'grep', 'search'];

/** A plan and nothing else. One that also names a command, files or an address wants to do something.
 * @param {PermissionWanted} permission */
export const isPlan = ({ kind, command, paths, url, diff }) =>
  kind === 'plan' && command === undefined && paths.length === 0 && url === undefined && diff === undefined;

/** Whether it is about changing files. Agents name their tools as they like. @param {PermissionWanted} permission */
export function changesFiles(permission) {
  const { command, tool, diff, paths } = permission;
  if (command !== undefined || isPlan(permission)) return false;
  return diff !== undefined || (/edit|write|patch/iu.test(tool) && paths.length > 0);
}

/** @type {WeakMap<PermissionWanted, string[]>} */
const named = new WeakMap();

/** The files that a diff names; read once, it may be long. @param {PermissionWanted} permission */
function namedFiles(permission) {
  const { diff, paths } = permission;
  const found = named.get(permission) ?? (diff === undefined ? [] : filesOf(diff, paths));
  named.set(permission, found);
  return found;
}

/** @param {string} path */
function normal(path) {
  /** @type {string[]} */
  const parts = [];
  for (const part of path.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
}

/** Where a file really lies, if a link leads elsewhere than its path says; as `shown_paths` of the desk has it.
 * @param {PermissionWanted} permission @param {string} path */
function leadsTo({ paths, resolved, cwd, resolved_cwd: realCwd }, path) {
  const real = resolved?.length === paths.length ? resolved[paths.indexOf(path)] : undefined;
  if (real === undefined) return null;
  const isWhole = path.startsWith('/');
  const written = normal(isWhole ? path : `${cwd ?? ''}/${path}`);
  const said = [written, ...(realCwd === undefined || isWhole ? [] : [normal(`${realCwd}/${path}`)])];
  const here = normal(cwd ?? '');
  if (realCwd !== undefined && cwd !== undefined && written.startsWith(`${here}/`)) said.push(realCwd + written.slice(here.length));
  return said.includes(real) ? null : real;
}

/** The files it is about that no diff shows. @param {PermissionWanted} permission */
function unshown(permission) {
  const files = namedFiles(permission);
  return permission.paths.filter((path) => !files.some((file) => file === inert(path) || inert(path).endsWith(`/${file}`)));
}

/** How many files it is about, by what the agent says and by what its diff changes. @param {PermissionWanted} permission */
export const countOfFiles = (permission) => Math.max(1, new Set(namedFiles(permission)).size + unshown(permission).length);

/** The host of an address as a browser would read it, `null` where it is none. @param {string | undefined} url */
export function hostOf(url) {
  try {
    return new URL(url ?? '').host || null;
  } catch {
    return null;
  }
}

/** @param {PermissionWanted} permission */
export const isRead = ({ tool, paths }) => READS.includes(tool.toLowerCase()) && paths.length > 0;

/** @param {PermissionWanted} permission */
export const isFetch = ({ tool, url }) => FETCHES.includes(tool.toLowerCase()) && hostOf(url) !== null;

/** The text of a plan, where the agent gave one. @param {PermissionWanted} permission */
function planOf({ kind, input, summary }) {
  if (kind !== 'plan') return null;
  return typeof input?.plan === 'string' ? input.plan : summary;
}

/** @param {{ask: Ask}} props */
export function Wanted({ ask }) {
  const permission = /** @type {PermissionWanted} */ (ask.permission);
  const { command, paths, diff, url, input } = permission;
  const parts = ask.commands ?? [];
  const plan = planOf(permission);
  const hidden = unshown(permission);
  const others = paths.filter((path) => hidden.includes(path) || leadsTo(permission, path) !== null);
  const isBare = command === undefined && paths.length === 0 && diff === undefined && url === undefined && plan === null;
  const host = hostOf(url);
  const rest = restOf(permission);
  return html`
    ${plan !== null && html`<div class="plan"><${Prose} text=${plan} limit=${LONGEST_PLAN} /></div>`}
    ${command !== undefined && html`<pre class="object" dir="ltr" data-object="command">${exact(command)}</pre>`}
    ${parts.length > 1 &&
    html`<div class="parts">
      <p class="quiet-text">${t('link.parts')}</p>
      <ol>
        ${parts.map((part) => html`<li><code dir="ltr">${exact(part)}</code></li>`)}
      </ol>
    </div>`}
    ${url !== undefined &&
    html`<div class="object" dir="ltr" data-object="url">
      ${host && html`<strong>${revealed(host)}</strong><br />`}<code>${exact(url)}</code>
    </div>`}
    ${others.length > 0 &&
    html`<ul class="object paths" data-object="paths">
      ${others.map((path) => {
        const real = leadsTo(permission, path);
        return html`<li><code dir="ltr">${exact(path)}</code>${real !== null && html` → <code dir="ltr" data-real>${exact(real)}</code>`}</li>`;
      })}
    </ul>`}
    ${diff !== undefined && html`<${Diff} text=${diff} paths=${paths} link=${href('diff', ask.id)} />`}
    ${changesFiles(permission) && diff === undefined && html`<p class="quiet-text">${t('perm.noDiff')}</p>`}
    ${isBare && input && html`<${Values} value=${input} />`}
    ${rest !== null &&
    !isBare &&
    html`<details class="arguments">
      <summary>${t('perm.arguments')}</summary>
      <${Values} value=${rest} />
    </details>`}
    ${hides(permission) && html`<p class="warning" data-hidden><span aria-hidden="true">⚠ </span>${t('text.hidden')}</p>`}
  `;
}

/** Arguments that are not shown by themselves. @param {PermissionWanted} permission */
function restOf({ input, command, url, paths, kind }) {
  const shown = new Set(/** @type {unknown[]} */ ([command, url, ...paths]));
  const entries = Object.entries(input ?? {}).filter(
    ([name, value]) => !shown.has(value) && !(kind === 'plan' && name === 'plan'),
  );
  return entries.length > 0 ? Object.fromEntries(entries) : null;
}

/** Whether anything of it cannot be seen. @param {PermissionWanted} permission */
function hides({ command, paths, url, diff, cwd, tool, summary, input }) {
  const texts = [command, url, diff, cwd, tool, summary, ...paths, ...textsIn(input)];
  return texts.some((text) => text !== undefined && hasHidden(text));
}

/** @param {unknown} value @returns {string[]} */
function textsIn(value) {
  if (typeof value === 'string') return [value];
  if (value === null || typeof value !== 'object') return [];
  return Object.entries(value).flatMap(([name, inner]) => [name, ...textsIn(inner)]);
}

/** Anything as names and values, or as indented JSON where it goes deeper. @param {{value: unknown}} props */
export function Values({ value }) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return html`<${Value} value=${value} />`;
  return html`<dl class="values">
    ${Object.entries(value).map(
      ([name, inner]) => html`<div>
        <dt><${Plain} text=${name} limit=${120} /></dt>
        <dd><${Value} value=${inner} /></dd>
      </div>`,
    )}
  </dl>`;
}

/** @param {{value: unknown}} props */
function Value({ value }) {
  if (typeof value === 'string') {
    if (value.includes('\n')) return html`<${Plain} as="pre" text=${value} limit=${LONGEST_VALUE} />`;
    return html`<${Plain} text=${value} limit=${LONGEST_VALUE} />`;
  }
  if (value === null || typeof value !== 'object') return html`<code dir="ltr">${JSON.stringify(value) ?? ''}</code>`;
  if (Array.isArray(value) && value.every((each) => typeof each === 'string' && !each.includes('\n')))
    return html`<ul>
      ${value.map((each) => html`<li><${Plain} text=${each} limit=${LONGEST_VALUE} /></li>`)}
    </ul>`;
  return html`<${Plain} as="pre" text=${JSON.stringify(value, null, 2)} limit=${LONGEST_VALUE} />`;
}
