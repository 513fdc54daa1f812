// "Allow more…": how far, exactly which patterns are saved, what they match, where they are kept. Patterns may be taken
// out and nothing else: the desk takes none that was not offered, since agents know only those they made.

import { html, useId } from '../vendor/preact.js';
import { Plain, exact, inert } from '../core/text.js';
import { t } from '../core/words.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('../types/api').Scope} Scope */
/** @typedef {{scope?: string, dropped?: Record<string, string[]>}} Picked what a person changed in the panel */

// The files that Claude Code keeps its rules in, by the name it gives them.
const FILES = new Map([
  ['localSettings', '.claude/settings.local.json'],
  ['projectSettings', '.claude/settings.json'],
  ['userSettings', '~/.claude/settings.json'],
]);

/** @param {Ask} ask @param {Picked} picked @returns {Scope | undefined} */
export function scopeOf(ask, picked) {
  const offered = ask.permission?.scopes ?? [];
  return offered.find((scope) => scope.id === picked.scope) ?? offered[0];
}

/** The patterns that are saved. @param {Scope} scope @param {Picked} picked */
export function patternsOf(scope, picked) {
  const dropped = picked.dropped?.[scope.id] ?? [];
  return scope.patterns.filter((pattern) => !dropped.includes(pattern));
}

/** What is sent. @param {Ask} ask @param {Picked} picked */
export function always(ask, picked) {
  const scope = scopeOf(ask, picked);
  if (scope === undefined) return { reply: 'always' };
  const patterns = scope.patterns.length > 0 ? { patterns: patternsOf(scope, picked) } : {};
  return { reply: 'always', scope: scope.id, ...patterns };
}

/** How far it reaches: the agent's words, ours where it has none. @param {Scope} scope */
function nameOf(scope) {
  if (scope.label) return html`<${Plain} text=${scope.label} limit=${120} />`;
  if (scope.id === 'session') return t('perm.scope.session');
  if (scope.id === 'run') return t('perm.scope.run');
  if (scope.id === 'project') return t('perm.scope.project');
  return inert(scope.id);
}

/** Where the rule lives. @param {Scope} scope @param {string} agent */
function placeOf(scope, agent) {
  if (scope.by_desk) return t('perm.place.desk');
  return FILES.get(scope.id) ?? t('perm.place.agent', { agent });
}

/** How to get rid of it. @param {Scope} scope @param {string} agent */
function removalOf(scope, agent) {
  if (scope.by_desk) return t('perm.remove.desk');
  const file = FILES.get(scope.id);
  if (file) return t('perm.remove.file', { file });
  if (scope.id === 'session' || scope.id.startsWith('mode:')) return t('perm.remove.session', { agent });
  return t('perm.remove.agent', { agent });
}

/**
 * What a pattern matches, in a sentence.
 * @param {string} pattern
 * @param {{isCommand: boolean, isPrefix: boolean}} about
 */
function meaning(pattern, { isCommand, isPrefix }) {
  // Claude Code writes `Bash(git status:*)`, or the tool alone.
  const call = /^\w+\((.*)\)$/su.exec(pattern);
  const text = call ? call[1].replace(/:\*$/u, ' *') : pattern;
  if (text === '*') return t('perm.match.all');
  const start = text.endsWith(' *') ? text.slice(0, -2) : isPrefix ? text : null;
  if (start !== null && !start.includes('*'))
    return isCommand ? t('perm.match.start', { start: inert(start) }) : t('perm.match.startAny', { start: inert(start) });
  if (text.includes('*')) return t('perm.match.pattern', { pattern: inert(text) });
  return isCommand ? t('perm.match.exact', { text: inert(text) }) : t('perm.match.exactAny', { text: inert(text) });
}

/**
 * @param {{ask: Ask, picked: Picked, isInert: boolean, change: (changes: Picked) => void, allow: () => void, close: () => void}} props
 */
export function More({ ask, picked, isInert, change, allow, close }) {
  const scopes = ask.permission?.scopes ?? [];
  const scope = scopeOf(ask, picked);
  const agent = inert(ask.origin.agent);
  const kept = scope ? patternsOf(scope, picked) : [];
  const isEmpty = scope !== undefined && scope.patterns.length > 0 && kept.length === 0;
  const id = useId();
  return html`<section class="perm-panel" data-panel="more" aria-labelledby=${id}>
    <p class="panel-title" id=${id} tabindex="-1" data-first>${t('perm.more.title')}</p>
    ${scopes.length > 1 &&
    html`<fieldset class="scopes">
      <legend>${t('link.scope')}</legend>
      ${scopes.map(
        (each) => html`<label>
          <input
            type="radio"
            name=${`${id}-scope`}
            value=${each.id}
            checked=${each === scope}
            disabled=${isInert}
            onChange=${() => change({ scope: each.id })}
          />
          <span>${nameOf(each)}</span>
        </label>`,
      )}
    </fieldset>`}
    ${scopes.length === 1 && scope && html`<p>${nameOf(scope)}</p>`}
    ${scope === undefined
      ? html`<p>${t('perm.more.unsaid', { agent })}</p>`
      : scope.patterns.length === 0
        ? html`<p>${t('perm.more.noPatterns', { agent })}</p>`
        : html`<fieldset class="patterns">
            <legend>${t('perm.scope.explain', { place: placeOf(scope, agent) })}</legend>
            ${scope.patterns.map(
              (pattern, place) => html`<${Pattern}
                key=${`${scope.id} ${place}`}
                id=${`${id}-${place}`}
                pattern=${pattern}
                sentence=${meaning(pattern, { isCommand: ask.permission?.command !== undefined, isPrefix: scope.id === 'rules' })}
                isKept=${kept.includes(pattern)}
                isInert=${isInert}
                keep=${(/** @type {boolean} */ isKept) => change({ dropped: dropped(picked, scope, pattern, isKept) })}
              />`,
            )}
          </fieldset>`}
    ${scope && html`<p class="quiet-text">${removalOf(scope, agent)}</p>`}
    ${isEmpty && html`<p class="warning" role="status">${t('perm.more.empty')}</p>`}
    <div class="actions">
      <button type="button" data-action="save" disabled=${isInert || isEmpty} onClick=${allow}>${t('perm.more.confirm')}</button>
      <button type="button" class="quiet" data-action="close" disabled=${isInert} onClick=${close}>${t('action.cancel')}</button>
    </div>
  </section>`;
}

/**
 * @param {{id: string, pattern: string, sentence: string, isKept: boolean, isInert: boolean, keep: (isKept: boolean) => void}} props
 */
function Pattern({ id, pattern, sentence, isKept, isInert, keep }) {
  const toggle = (/** @type {Event} */ event) => keep(/** @type {HTMLInputElement} */ (event.currentTarget).checked);
  return html`<div class="pattern">
    <label>
      <input type="checkbox" checked=${isKept} disabled=${isInert} aria-describedby=${id} onChange=${toggle} />
      <code dir="ltr">${exact(pattern)}</code>
    </label>
    <p id=${id} class="quiet-text">${sentence}</p>
  </div>`;
}

/** @param {Picked} picked @param {Scope} scope @param {string} pattern @param {boolean} isKept */
function dropped(picked, scope, pattern, isKept) {
  const before = (picked.dropped?.[scope.id] ?? []).filter((each) => each !== pattern);
  return { ...picked.dropped, [scope.id]: isKept ? before : [...before, pattern] };
}
