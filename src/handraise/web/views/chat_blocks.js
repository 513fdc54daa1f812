// What a reply is made of: text that grows, what the model thought and used, what went wrong, what it asks. Nothing of it is
// trusted, and what this page does not know is a plain line.

import { html, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { inert, Plain, Prose } from '../core/text.js';
import { t } from '../core/words.js';
import { QuestionBlock, questionIn } from './chat_question.js';

/** @typedef {import('../types/api').ChatBlock} ChatBlock */
/** @typedef {import('../vendor/preact.js').ReadonlySignal<boolean>} Known */

const LONGEST_PART = 20_000; // characters of a paragraph, list or piece of code

/** @param {{block: ChatBlock, isNew: boolean, hasAsks: Known}} props `isNew`: it came while somebody looked */
export function Block({ block, isNew, hasAsks }) {
  const { type, tool_call: call } = block;
  const text = typeof block.content === 'string' ? block.content : '';
  if (type === 'content') return html`<${Growing} text=${text} />`;
  if (type === 'reasoning_content') return html`<${Reasoning} text=${text} />`;
  if (type === 'tool_call' && call) return html`<${Tool} call=${call} status=${block.status ?? ''} />`;
  if (type === 'error') return html`<${Failure} text=${violationIn(block) ?? text} isNew=${isNew} />`;
  const asked = type === 'action' ? questionIn(block) : null;
  if (asked) return html`<${QuestionBlock} asked=${asked} isNew=${isNew} hasAsks=${hasAsks} />`;
  return html`<div class="note action" data-action-type=${inert(String(block.action_type ?? type))}>
    <${Plain} as="p" class="lines" text=${text || t('chat.unshown', { type: String(block.action_type ?? type) })} limit=${4000} />
    ${block.status && html`<p class="quiet-text" dir="auto">${inert(String(block.status))}</p>`}
  </div>`;
}

/** Text as it is written. It waits where a person has selected some of it: what is drawn anew cannot stay selected. @param {{text: string}} props */
function Growing({ text }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const drawn = useRef(text);
  const [, draw] = useState(0);
  const isHeld = text !== drawn.current && isSelected(frame.current);
  if (!isHeld) drawn.current = text;
  useEffect(() => {
    if (!isHeld) return undefined;
    const look = () => isSelected(frame.current) || draw((count) => count + 1);
    document.addEventListener('selectionchange', look);
    return () => document.removeEventListener('selectionchange', look);
  }, [isHeld]);
  return html`<div class="prose" ref=${frame}>
    ${partsOf(drawn.current).map((part, place) => html`<${Part} key=${place} text=${part} />`)}
  </div>`;
}

/** One that stays the same is not drawn again. @param {{text: string}} props */
const Part = ({ text }) => useMemo(() => html`<${Prose} text=${text} limit=${LONGEST_PART} />`, [text]);

/** @param {HTMLElement | null} element */
function isSelected(element) {
  const selection = getSelection();
  return element !== null && selection !== null && !selection.isCollapsed && selection.containsNode(element, true);
}

/** What a text consists of, between blank lines; those within code belong to it. @param {string} text */
function partsOf(text) {
  /** @type {string[][]} */
  const parts = [[]];
  let fence = '';
  for (const line of text.split('\n')) {
    if (fence === '' && line.trim() === '') {
      parts.push([]);
      continue;
    }
    parts[parts.length - 1].push(line);
    if (fence === '') fence = /^\s*(```+|~~~+)/u.exec(line)?.[1] ?? '';
    else if (line.trim().startsWith(fence)) fence = '';
  }
  return parts.filter((lines) => lines.length > 0).map((lines) => lines.join('\n'));
}

/** @param {{text: string}} props */
function Reasoning({ text }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="workings" onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>${t('chat.reasoning')}</summary>
    ${isOpen && html`<${Plain} as="p" class="lines" text=${text} limit=${LONGEST_PART} />`}
  </details>`;
}

const MARKS = /** @type {Record<string, string>} */ ({ loading: '…', success: '✓', error: '✕' });

/** @param {{call: NonNullable<ChatBlock['tool_call']>, status: string}} props */
function Tool({ call, status }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="workings" data-status=${status} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>
      <span aria-hidden="true">⚙</span> <bdi>${inert(String(call.name)).slice(0, 120)}</bdi>${' '}
      <span aria-hidden="true">${MARKS[status] ?? ''}</span><span class="unseen">${toolState(status)}</span>
    </summary>
    ${isOpen &&
    html`<dl>
      <dt>${t('run.input')}</dt>
      <dd><${Plain} as="pre" text=${pretty(call.params)} limit=${2000} /></dd>
      ${call.response !== undefined &&
      html`<dt>${t('run.output')}</dt>
        <dd><${Plain} as="pre" text=${String(call.response)} limit=${4000} /></dd>`}
    </dl>`}
  </details>`;
}

/** @param {string} status */
function toolState(status) {
  if (status === 'loading') return t('run.state.running');
  return status === 'error' ? t('session.state.failed') : t('run.state.done');
}

/** @param {unknown} params */
function pretty(params) {
  try {
    return JSON.stringify(JSON.parse(String(params)), null, 2);
  } catch {
    return String(params);
  }
}

/** Why the model was not allowed to ask, in the reader's language. @param {ChatBlock} block */
function violationIn({ extra }) {
  const values = { tool: String(extra?.tool), other: String(extra?.other), times: String(extra?.times) };
  if (extra?.violation === 'chat.violation.several') return t('chat.violation.several', values);
  if (extra?.violation === 'chat.violation.after') return t('chat.violation.after', values);
  if (extra?.violation === 'chat.violation.beside') return t('chat.violation.beside', values);
  return undefined;
}

/** Said aloud only where it happens while somebody looks. @param {{text: string, isNew: boolean}} props */
function Failure({ text, isNew }) {
  const isLoud = useRef(isNew).current;
  return html`<div class="error" role=${isLoud ? 'alert' : undefined}><${Prose} text=${text} /></div>`;
}
