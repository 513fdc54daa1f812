// A change to files, read from whatever an agent calls a diff: unified, git's, or a patch without line numbers. Every
// line of it is shown; what is not understood is shown as it is. Large ones are drawn as they are looked at.

import { html, signal, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { Plain, inert, revealed } from '../core/text.js';
import { t } from '../core/words.js';

/** @typedef {'add' | 'del' | 'same' | 'hunk' | 'note'} Kind */
/** @typedef {{kind: Kind, text: string, old?: number, new?: number}} Row */
/** @typedef {{path: string, before: string, added: number, removed: number, isBinary: boolean, rows: Row[]}} File */

const FOLD = 200; // changed lines from which files start folded
const OPEN_ON_A_PAGE = 1000; // lines that a page of its own draws before files are folded there
const CHUNK = 100; // lines that are drawn at a time
const LONGEST_LINE = 2000; // characters of a line that are shown at once

const wide = matchMedia('(min-width: 75rem)');
/** Whether there is room for two columns. */
const isWide = signal(wide.matches);
wide.addEventListener('change', () => (isWide.value = wide.matches));

// Reading ----------------------------------------------------------------------------------------------------

const HUNK = /^@@+ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/u;
const GIT = /^diff --git (?:"?a\/)?.*? "?b\/(.*?)"?$/u;
const NAMED = /^(?:Index: |\*\*\* (?:Update|Add|Delete) File: )(.+)$/u;
const BINARY = /^(?:Binary files? .*differ|GIT binary patch)/u;

/**
 * @param {string} text
 * @param {string[]} [paths] what the agent says it changes, for a diff that does not name its file
 * @returns {File[]}
 */
export function parse(text, paths = []) {
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  /** @type {File[]} */
  const files = [];
  /** @type {File | undefined} */
  let file;
  let [oldLeft, newLeft, oldAt, newAt] = [0, 0, 0, 0]; // of a hunk that says how long it is
  let isLoose = false; // in a hunk that does not

  const begin = (/** @type {string} */ path) => {
    file = { path, before: path, added: 0, removed: 0, isBinary: false, rows: [] };
    files.push(file);
    [oldLeft, newLeft, isLoose] = [0, 0, false];
    return file;
  };
  const current = () => file ?? begin(paths[0] ?? '');

  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const isCounted = oldLeft > 0 || newLeft > 0;
    const sign = line[0] ?? ' ';
    if (isCounted || isLoose) {
      const isNewFile = isLoose && (GIT.test(line) || NAMED.test(line) || line.startsWith('@@'));
      if ('+- \\'.includes(sign) && !isNewFile) {
        const numbered = isCounted;
        if (sign === '+') {
          current().rows.push({ kind: 'add', text: line.slice(1), new: numbered ? newAt++ : undefined });
          current().added += 1;
          newLeft -= 1;
        } else if (sign === '-') {
          current().rows.push({ kind: 'del', text: line.slice(1), old: numbered ? oldAt++ : undefined });
          current().removed += 1;
          oldLeft -= 1;
        } else if (sign === '\\') {
          current().rows.push({ kind: 'note', text: line });
        } else {
          const numbers = numbered ? { old: oldAt++, new: newAt++ } : {};
          current().rows.push({ kind: 'same', text: line.slice(1), ...numbers });
          oldLeft -= 1;
          newLeft -= 1;
        }
        continue;
      }
    }
    const hunk = HUNK.exec(line);
    if (hunk) {
      [oldAt, newAt] = [Number(hunk[1]), Number(hunk[3])];
      [oldLeft, newLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
      isLoose = false;
      current().rows.push({ kind: 'hunk', text: line });
      continue;
    }
    [oldLeft, newLeft] = [0, 0];
    if (line.startsWith('@@')) {
      isLoose = true;
      current().rows.push({ kind: 'hunk', text: line });
      continue;
    }
    const named = GIT.exec(line) ?? NAMED.exec(line);
    if (named) {
      begin(named[1]);
      if (line.startsWith('***')) {
        current().rows.push({ kind: 'note', text: line });
        isLoose = true;
      }
      continue;
    }
    if (line.startsWith('--- ') && lines[at + 1]?.startsWith('+++ ')) {
      const [before, after] = [nameIn(line), nameIn(lines[at + 1])];
      const isFresh = file !== undefined && file.rows.every((row) => row.kind === 'note');
      const named = isFresh ? current() : begin('');
      named.path = after === '/dev/null' ? before : after;
      named.before = before;
      at += 1;
      continue;
    }
    if (/^=+$/u.test(line) && file !== undefined && file.rows.length === 0) continue; // the line under `Index:`
    if (BINARY.test(line)) current().isBinary = true;
    if (file === undefined && '+- '.includes(sign) && line !== '') {
      isLoose = true; // a patch that has neither heads nor hunks
      at -= 1;
      continue;
    }
    if ((sign === '+' || sign === '-') && !current().isBinary) {
      // Behind the end that its hunk announced: shown as what it would do.
      isLoose = true;
      at -= 1;
      continue;
    }
    current().rows.push({ kind: 'note', text: line });
  }
  return files;
}

/** Without git's `a/` and `b/`, and without a time behind it. @param {string} line */
function nameIn(line) {
  const name = line.slice(4).split('\t')[0];
  return /^[ab]\//u.test(name) ? name.slice(2) : name;
}

/** What is known of a file whose content cannot be read. @param {File} file */
function binaryFacts(file) {
  const said = file.rows.map((row) => row.text);
  const size = said.map((line) => /^(?:literal|delta) (\d+)$/u.exec(line)?.[1]).find(Boolean);
  const hash = said.map((line) => /^index [0-9a-f]+\.\.([0-9a-f]+)/u.exec(line)?.[1]).find(Boolean);
  return [t('diff.binary'), size && t('diff.bytes', { size }), hash].filter(Boolean).join(' · ');
}

// Drawing ----------------------------------------------------------------------------------------------------

/** @param {{text: string, paths?: string[], link?: string}} props `link` leads to the whole of it; without one this is it */
export function Diff({ text, paths = [], link }) {
  const files = useMemo(() => parse(text, paths), [text]);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const added = files.reduce((sum, file) => sum + file.added, 0);
  const removed = files.reduce((sum, file) => sum + file.removed, 0);
  const isFolded = link !== undefined && added + removed > FOLD;
  const jump = (/** @type {number} */ place) => {
    const head = box.current?.querySelectorAll('summary')[place];
    if (head?.parentElement instanceof HTMLDetailsElement) head.parentElement.open = true;
    head?.focus();
    head?.scrollIntoView({ block: 'start' });
  };
  let before = 0;
  const drawn = files.map((file, place) => {
    const isOpen = !isFolded && before < OPEN_ON_A_PAGE;
    before += file.rows.length;
    return html`<${OneFile} key=${place} file=${file} startsOpen=${isOpen} />`;
  });
  return html`<div class="diff" ref=${box}>
    <p class="diff-head">
      <span>${t('diff.files', { count: files.length })} <${Counts} added=${added} removed=${removed} /></span>
      ${link && html`<a href=${link}>${t('diff.open')}</a>`}
    </p>
    ${files.length > 1 &&
    !isFolded &&
    html`<ul class="diff-list">
      ${files.map(
        (file, place) => html`<li>
          <button type="button" class="quiet" onClick=${() => jump(place)}>
            <${Name} file=${file} /> <${Counts} added=${file.added} removed=${file.removed} />
          </button>
        </li>`,
      )}
    </ul>`}
    ${drawn}
  </div>`;
}

/** @param {{added: number, removed: number}} props */
function Counts({ added, removed }) {
  return html`<span class="diff-counts"
    ><span aria-hidden="true"><span class="plus">+${added}</span> <span class="minus">−${removed}</span></span
    ><span class="unseen">${t('diff.counts', { added, removed })}</span></span
  >`;
}

/** @param {{file: File}} props */
function Name({ file: { path, before } }) {
  const isMoved = before !== path && before !== '/dev/null';
  return html`<bdi class="path" dir="ltr">${isMoved && html`${revealed(before)} → `}${path ? revealed(path) : t('diff.unnamed')}</bdi>`;
}

/** @param {{file: File, startsOpen: boolean}} props */
function OneFile({ file, startsOpen }) {
  const [isOpen, setOpen] = useState(startsOpen);
  const toggle = (/** @type {Event} */ event) => setOpen(/** @type {HTMLDetailsElement} */ (event.currentTarget).open);
  return html`<details class="diff-file" open=${isOpen} onToggle=${toggle}>
    <summary><${Name} file=${file} /> <${Counts} added=${file.added} removed=${file.removed} /></summary>
    ${file.isBinary && html`<p class="diff-binary">${binaryFacts(file)}</p>`} ${isOpen && html`<${Rows} rows=${file.rows} />`}
  </details>`;
}

/** @param {{rows: Row[]}} props */
function Rows({ rows }) {
  const isSplit = isWide.value;
  const lines = useMemo(() => (isSplit ? pairs(rows) : rows.map((row) => [row])), [rows, isSplit]);
  const [drawn, setDrawn] = useState(CHUNK);
  const chunks = useMemo(
    () => Array.from({ length: Math.ceil(lines.length / CHUNK) }, (_, place) => lines.slice(place * CHUNK, (place + 1) * CHUNK)),
    [lines],
  );
  return html`<div class="diff-rows" data-split=${isSplit || undefined} dir="ltr">
    ${chunks.slice(0, Math.ceil(drawn / CHUNK)).map((chunk, place) => html`<${Chunk} key=${place} lines=${chunk} isSplit=${isSplit} />`)}
    ${lines.length > drawn && html`<${More} left=${lines.length - drawn} draw=${() => setDrawn(drawn + CHUNK)} />`}
  </div>`;
}

/** Draws more before its end is reached; a button for those who do not scroll. @param {{left: number, draw: () => void}} props */
function More({ left, draw }) {
  const end = useRef(/** @type {HTMLButtonElement | null} */ (null));
  useEffect(() => {
    const observer = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && requestAnimationFrame(draw),
      { rootMargin: '600px' },
    );
    if (end.current) observer.observe(end.current);
    return () => observer.disconnect();
  }, [draw]);
  return html`<button type="button" class="quiet more" ref=${end} onClick=${draw}>${t('diff.more', { count: left })}</button>`;
}

/** Lines that went and lines that came beside each other. @param {Row[]} rows @returns {(Row | null)[][]} */
function pairs(rows) {
  /** @type {(Row | null)[][]} */
  const made = [];
  for (let at = 0; at < rows.length; ) {
    const { kind } = rows[at];
    if (kind !== 'del' && kind !== 'add') {
      made.push([rows[at]]);
      at += 1;
      continue;
    }
    const gone = run(rows, at, 'del');
    const come = run(rows, at + gone.length, 'add');
    for (let place = 0; place < Math.max(gone.length, come.length); place += 1)
      made.push([gone[place] ?? null, come[place] ?? null]);
    at += gone.length + come.length;
  }
  return made;
}

/** @param {Row[]} rows @param {number} from @param {Kind} kind */
function run(rows, from, kind) {
  let to = from;
  while (rows[to]?.kind === kind) to += 1;
  return rows.slice(from, to);
}

/** @param {{lines: (Row | null)[][], isSplit: boolean}} props */
function Chunk({ lines, isSplit }) {
  // Drawn once: what a diff says does not change.
  const drawn = useMemo(() => lines.map((line) => (isSplit ? split(line) : unified(line[0]))), [lines, isSplit]);
  return html`<div class="diff-chunk">${drawn}</div>`;
}

/** @param {Row | null} row */
function unified(row) {
  if (row === null) return null;
  if (row.kind === 'hunk' || row.kind === 'note') return whole(row);
  return html`<div class="diff-line" data-kind=${row.kind}>
    <span class="no">${row.old}</span><span class="no">${row.new}</span><${Code} row=${row} />
  </div>`;
}

/** @param {Row} row */
const whole = (row) => html`<div class="diff-line" data-kind=${row.kind}><code>${revealed(row.text)}</code></div>`;

/** @param {(Row | null)[]} line */
function split([left, right]) {
  if (left && (left.kind === 'hunk' || left.kind === 'note')) return whole(left);
  const isSame = left?.kind === 'same';
  const after = isSame ? left : right;
  return html`<div class="diff-line">
    ${half(left ?? null, left?.old)} ${half(after ?? null, after?.new)}
  </div>`;
}

/** @param {Row | null} row @param {number | undefined} number */
function half(row, number) {
  return html`<span class="half" data-kind=${row?.kind ?? 'none'}>
    <span class="no">${number}</span>${row ? html`<${Code} row=${row} />` : html`<code></code>`}
  </span>`;
}

const SIGNS = { add: '+', del: '−', same: ' ', hunk: '', note: '' };

/** @param {{row: Row}} props */
function Code({ row }) {
  const { kind, text } = row;
  const sign = html`<span class="sign">${SIGNS[kind]}</span>`;
  if (text.length > LONGEST_LINE) return html`<code>${sign}<${Plain} text=${text} limit=${LONGEST_LINE} /></code>`;
  const blank = kind === 'same' ? null : /[ \t]+$/u.exec(text);
  if (!blank) return html`<code>${sign}${revealed(text)}</code>`;
  const shown = blank[0].replaceAll(' ', '·').replaceAll('\t', '→\t');
  return html`<code>${sign}${revealed(text.slice(0, blank.index))}<span class="blank">${shown}</span></code>`;
}

/** Which files it names. @param {string} text @param {string[]} paths */
export const filesOf = (text, paths) => parse(text, paths).map((file) => inert(file.path));
