// What an agent wants to do, whole and exactly as it wrote it: command, files, address, change, plan or arguments.

import { html } from '../vendor/preact.js';
import { cardOf, valuesOf, warningsOf } from '../core/card.js';
import { href } from '../core/route.js';
import { Plain, Prose, exact, hasHidden, inert, revealed } from '../core/text.js';
import { t } from '../core/words.js';
import { Diff, filesOf } from './diff.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../core/card.js').Card} Card */
/** @typedef {import('../types/api').Permission} PermissionWanted */

const LONGEST_PLAN = 20_000; // characters that are shown at once
const LONGEST_VALUE = 4000;

/** @type {WeakMap<PermissionWanted, string[]>} */
const named = new WeakMap();

/** The files that a diff names; read once, it may be long. @param {PermissionWanted} permission */
function namedFiles(permission) {
  const { diff, paths } = permission;
  const found = named.get(permission) ?? (diff === undefined ? [] : filesOf(diff, paths));
  named.set(permission, found);
  return found;
}

/** Whether the head of a diff names it already. @param {PermissionWanted} permission @param {string} path */
const isInDiff = (permission, path) =>
  namedFiles(permission).some((file) => file === inert(path) || inert(path).endsWith(`/${file}`));

/** What it is about, part by part, as its card says. @param {{ask: Ask}} props */
export function Wanted({ ask }) {
  const card = cardOf(ask);
  const permission = /** @type {PermissionWanted} */ (ask.permission);
  return html`
    ${card.parts.map((part) => html`<${OnePart} key=${part} part=${part} ask=${ask} card=${card} />`)}
    ${card.lacks_diff && html`<p class="quiet-text">${t('perm.noDiff')}</p>`}
    ${hides(permission) && html`<p class="warning" data-hidden><span aria-hidden="true">⚠ </span>${t('text.hidden')}</p>`}
  `;
}

/** @param {{part: Card['parts'][number], ask: Ask, card: Card}} props */
function OnePart({ part, ask, card }) {
  const permission = /** @type {PermissionWanted} */ (ask.permission);
  const { command = '', paths, url = '', diff = '', input, extra, summary } = permission;
  if (part === 'plan') {
    const plan = typeof input?.plan === 'string' ? input.plan : summary;
    return html`<div class="plan"><${Prose} text=${plan} limit=${LONGEST_PLAN} /></div>`;
  }
  if (part === 'command') return html`<pre class="object" dir="ltr" data-object="command">${exact(command)}</pre>`;
  if (part === 'commands')
    return html`<div class="parts">
      <p class="quiet-text">${t('link.parts')}</p>
      <ol>
        ${ask.commands?.map((each) => html`<li><code dir="ltr">${exact(each)}</code></li>`)}
      </ol>
    </div>`;
  if (part === 'paths') return html`<${Paths} permission=${permission} elsewhere=${card.elsewhere ?? []} />`;
  if (part === 'url')
    return html`<div class="object" dir="ltr" data-object="url">
      ${card.host && html`<strong>${revealed(card.host)}</strong><br />`}<code>${exact(url)}</code>
    </div>`;
  if (part === 'diff') return html`<${Diff} text=${diff} paths=${paths} link=${href('diff', ask.id)} />`;
  if (part === 'approved') {
    const more = /** @type {Record<string, unknown>} */ (extra?.input ?? {});
    return html`<div data-object="approved"><p class="quiet-text">${t('perm.approved')}</p><${Values} value=${valuesOf(more, card.approved)} /></div>`;
  }
  const values = html`<${Values} value=${valuesOf(input, card.arguments)} />`;
  if (card.parts.length === 1) return values;
  // What makes people think twice is in sight.
  return html`<details class="arguments" open=${warningsOf(ask).length > 0}>
    <summary>${t('perm.arguments')}</summary>
    ${values}
  </details>`;
}

/** The files that no diff shows, and those that lie elsewhere than they say. @param {{permission: PermissionWanted, elsewhere: number[]}} props */
function Paths({ permission, elsewhere }) {
  const told = permission.paths.map((path, place) => ({ path, real: elsewhere.includes(place) ? permission.resolved?.[place] : undefined }));
  const others = told.filter(({ path, real }) => real !== undefined || !isInDiff(permission, path));
  if (others.length === 0) return null;
  return html`<ul class="object paths" data-object="paths">
    ${others.map(
      ({ path, real }) =>
        html`<li><code dir="ltr">${exact(path)}</code>${real !== undefined && html` → <code dir="ltr" data-real>${exact(real)}</code>`}</li>`,
    )}
  </ul>`;
}

/** Whether anything of it cannot be seen. @param {PermissionWanted} permission */
function hides({ command, paths, url, diff, cwd, tool, summary, input, extra }) {
  const texts = [command, url, diff, cwd, tool, summary, ...paths, ...textsIn(input), ...textsIn(extra?.input)];
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
