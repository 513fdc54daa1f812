// What agents wrote, on its way to the screen. Nothing of it is trusted: it becomes text and a few harmless elements,
// never markup, and whatever cannot be seen is shown as an escape.

import { html, useState } from '../vendor/preact.js';
import { t } from './words.js';

/** @typedef {any} Node a virtual node, a text, or a list of them */

// As `inert.py` has it: control, format (bidirectional, zero-width), surrogates, separators; letters and marks that are
// nothing to the eye; tags and variation selectors. Newline and tab stay.
const HIDDEN =
  /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2065\u2800\u3164\uffa0\ufe00-\ufe0d\ufff0-\ufff8\u{e0000}-\u{e0fff}]|(?<![\p{S}\p{N}\p{P}ℹ])[\ufe0e\ufe0f]/gu;

/** @param {string} character */
function escaped(character) {
  const point = character.codePointAt(0) ?? 0;
  if (character === '\r') return '\\r';
  if (point < 0x100) return `\\x${point.toString(16).padStart(2, '0')}`;
  if (point < 0x10000) return `\\u${point.toString(16).padStart(4, '0')}`;
  return `\\U${point.toString(16).padStart(8, '0')}`;
}

/** Whether something in it cannot be seen. @param {string} text */
export const hasHidden = (text) => text.search(HIDDEN) !== -1;

/** The text with every hidden character as an escape. @param {string} text */
export const inert = (text) => text.replace(HIDDEN, escaped);

/**
 * The same with the escapes in a warning colour.
 * @param {string} text
 * @returns {Node}
 */
export function revealed(text) {
  if (!hasHidden(text)) return text;
  /** @type {Node[]} */
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parts.push(text.slice(last, match.index), html`<span class="escape">${escaped(match[0])}</span>`);
    last = match.index + match[0].length;
  }
  return [...parts, text.slice(last)];
}

/**
 * A command, whole, with spaces at its ends, tabs and line ends visible too.
 * @param {string} text
 * @returns {Node}
 */
export function exact(text) {
  return text.split(/(^ +| +$|(?<=\n) +| +(?=\n)|\t|\n)/u).map((part) => {
    if (part === '\t') return html`<span class="blank">→\t</span>`;
    if (part === '\n') return html`<span class="blank">⏎</span>${'\n'}`;
    if (/^ +$/u.test(part)) return html`<span class="blank">${'·'.repeat(part.length)}</span>`;
    return revealed(part);
  });
}

/** A long text without its middle. @param {string} text @param {number} most */
export function middle(text, most) {
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

/** A count of characters as people see them. @param {string} text */
const characters = (text) => [...text].length;

/**
 * Plain text of an agent, in one direction of its own. What is longer than `limit` is cut with a mark and a button.
 * @param {{text: string, limit?: number, as?: string, class?: string}} props
 */
export function Plain({ text, limit = 500, as = 'span', class: name }) {
  const [all, setAll] = useState(false);
  const isCut = !all && text.length > limit;
  return html`<${as} dir="auto" class=${name}
    >${revealed(isCut ? text.slice(0, limit) : text)}${isCut && html`<${Cut} text=${text} show=${() => setAll(true)} />`}<//
  >`;
}

/** @param {{text: string, show: () => void}} props */
function Cut({ text, show }) {
  const more = (/** @type {Event} */ event) => (event.preventDefault(), event.stopPropagation(), show());
  return html`… <button type="button" class="quiet" onClick=${more}>${t('text.showAll', { count: characters(text) })}</button>`;
}

/**
 * Paragraphs, emphasis, code, lists and links; nothing else of Markdown, and no HTML.
 * @param {{text: string, limit?: number}} props
 */
export function Prose({ text, limit = 4000 }) {
  const [all, setAll] = useState(false);
  const isCut = !all && text.length > limit;
  return html`<div class="prose" dir="auto">
    ${blocks(isCut ? text.slice(0, limit) : text)}${isCut && html`<p><${Cut} text=${text} show=${() => setAll(true)} /></p>`}
  </div>`;
}

/** @param {string} text @returns {Node[]} */
function blocks(text) {
  /** @type {Node[]} */
  const made = [];
  const lines = text.split('\n');
  for (let at = 0; at < lines.length; ) {
    const fence = /^\s*(```+|~~~+)/u.exec(lines[at]);
    const end = fence ? lines.findIndex((line, place) => place > at && line.trim().startsWith(fence[1])) : -1;
    if (fence) {
      const stop = end === -1 ? lines.length : end;
      made.push(html`<pre><code>${revealed(lines.slice(at + 1, stop).join('\n'))}</code></pre>`);
      at = stop + 1;
      continue;
    }
    const item = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+/u.exec(lines[at]);
    if (item) {
      const isOrdered = item[1] !== undefined;
      const mark = isOrdered ? /^\s*\d{1,9}[.)]\s+/u : /^\s*[-*+]\s+/u;
      /** @type {string[]} */
      const items = [];
      for (; at < lines.length && mark.test(lines[at]); at += 1) items.push(lines[at].replace(mark, ''));
      const list = items.map((each) => html`<li>${inline(each)}</li>`);
      made.push(isOrdered ? html`<ol start=${Number(item[1])}>${list}</ol>` : html`<ul>${list}</ul>`);
      continue;
    }
    if (lines[at].trim() === '') {
      at += 1;
      continue;
    }
    const start = at;
    while (at < lines.length && lines[at].trim() !== '' && !/^\s*(```|~~~)/u.test(lines[at])) {
      if (at > start && /^\s*(?:[-*+]|\d{1,9}[.)])\s+/u.test(lines[at])) break;
      at += 1;
    }
    const paragraph = lines.slice(start, at).join('\n').replace(/^#{1,6}\s+/u, '');
    made.push(html`<p>${inline(paragraph)}</p>`);
  }
  return made;
}

// Code first, since nothing in it is markup; then links; then emphasis, which ends on its own line.
const INLINE =
  /(`+)(?<code>[^`](?:[^\n]*?[^`])?)\1(?!`)|\[(?<label>[^\]\n]{1,300})\]\((?<target>https?:\/\/[^\s)]{1,2000})\)|(?<bare>https?:\/\/[^\s<>"'`)\]]{1,2000})|\*\*(?<strong>\S(?:[^\n]*?\S)?)\*\*|(?<![\w*])[*_](?<em>[^\s*_](?:[^\n*_]*?[^\s*_])?)[*_](?![\w*])/gu;

/** @param {string} text @returns {Node[]} */
function inline(text) {
  /** @type {Node[]} */
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(revealed(text.slice(last, match.index)), element(match.groups ?? {}));
    last = match.index + match[0].length;
  }
  return [...parts, revealed(text.slice(last))];
}

/** @param {Record<string, string | undefined>} found @returns {Node} */
function element(found) {
  if (found.code !== undefined) return html`<code>${revealed(found.code)}</code>`;
  if (found.strong !== undefined) return html`<strong>${revealed(found.strong)}</strong>`;
  if (found.em !== undefined) return html`<em>${revealed(found.em)}</em>`;
  const target = found.target ?? found.bare ?? '';
  return html`<${Link} target=${target} label=${found.label} />`;
}

/** A link that shows where it goes. @param {{target: string, label?: string}} props */
export function Link({ target, label }) {
  let host;
  try {
    host = new URL(target).host;
  } catch {
    return revealed(label ?? target);
  }
  return html`<a href=${target} target="_blank" rel="noopener noreferrer nofollow"
    >${revealed(label ?? target)}${label !== undefined && html` <span class="host">(${host})</span>`}</a
  >`;
}
