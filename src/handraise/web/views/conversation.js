// A list of what was said. It follows its end unless the person has scrolled away or is at something in it, and shows more
// of its beginning on demand. Its style is in talk.css.

import { html, useEffect, useId, useLayoutEffect, useRef, useState } from '../vendor/preact.js';
import { t } from '../core/words.js';

/**
 * @typedef {object} Row
 * @property {string} key
 * @property {any} row an `li` with that key; one that stays the same is not drawn again
 * @property {boolean} [isKept] it is drawn however old it is
 */

const PAGE = 200; // rows that are drawn at a time
const MOST = 1000; // rows that stay drawn while the end is looked at
const NEAR = 120; // pixels from the end that still count as there

/**
 * @param {object} props
 * @param {Row[]} props.rows the oldest first
 * @param {string} props.label for those who listen
 * @param {string | number} [props.grown] anything that changes when the last row grows
 * @param {(() => Promise<unknown>) | null} [props.older] reads what lies before the first row, where there is more
 */
export function Conversation({ rows, label, grown = '', older = null }) {
  const id = useId();
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const [isBelow, setBelow] = useState(false);
  const [isReading, setReading] = useState(false);
  /** Which rows are drawn: so many before this one and all after it; without it the newest. */
  const [anchor, setAnchor] = useState(/** @type {{key: string, more: number} | null} */ (null));
  const isAtEnd = useRef(true);
  const wantsMore = useRef(false);
  const at = anchor === null ? -1 : rows.findIndex(({ key }) => key === anchor.key);
  const start = Math.max(0, anchor === null || at === -1 ? rows.length - PAGE : at - anchor.more);
  const drawn = rows.filter((row, place) => place >= start || row.isKept);
  const isCut = drawn.length < rows.length;
  const hasOlder = isCut || older !== null;

  useEffect(() => {
    const look = () => {
      isAtEnd.current = distance() < NEAR;
      if (isAtEnd.current) setBelow(false);
    };
    addEventListener('scroll', look, { passive: true });
    return () => removeEventListener('scroll', look);
  }, []);
  // What is read must not fall off at the beginning while more comes at the end.
  useEffect(() => {
    if (!isAtEnd.current && anchor === null && start > 0) setAnchor({ key: rows[start].key, more: 0 });
    else if (isAtEnd.current && drawn.length > MOST) setAnchor(null);
  }, [rows, anchor]);
  const end = `${rows.at(-1)?.key} ${grown}`;
  useLayoutEffect(() => {
    if (isAtEnd.current && !isUsed(list.current)) toEnd();
    else if (distance() >= NEAR) setBelow(true);
  }, [end]);
  // What was read stays where it was when more comes above it.
  const top = drawn.find((row) => !row.isKept)?.key;
  const fromEnd = wantsMore.current ? document.documentElement.scrollHeight - scrollY : 0;
  useLayoutEffect(() => {
    if (!wantsMore.current) return;
    wantsMore.current = false;
    scrollTo({ top: document.documentElement.scrollHeight - fromEnd, behavior: 'instant' });
    if (!hasOlder) list.current?.focus({ preventScroll: true }); // the button had the focus, and is gone
  }, [top, hasOlder]);

  const showOlder = async () => {
    if (isReading) return;
    wantsMore.current = true;
    isAtEnd.current = false;
    if (rows.length > 0) setAnchor({ key: rows[start].key, more: PAGE });
    if (isCut || older === null) return;
    setReading(true);
    await older().catch(() => (wantsMore.current = false)); // the banner says what is wrong
    setReading(false);
  };

  return html`
    <h2 id=${id} class="unseen">${label}</h2>
    ${hasOlder &&
    html`<button type="button" class="quiet more" data-action="older" aria-disabled=${isReading || undefined} onClick=${showOlder}>
      ${isReading ? t('app.loading') : t('chat.older')}
    </button>`}
    <ol class="talk" aria-labelledby=${id} tabindex="-1" ref=${list}>
      ${drawn.map(({ row }) => row)}
    </ol>
    ${isBelow && html`<button type="button" class="pill below" onClick=${toEnd}>${t('chat.below')}</button>`}
  `;
}

/** How far the end is from what is seen. */
const distance = () => document.documentElement.scrollHeight - innerHeight - scrollY;

/** Whether the person is at something in it that can be used. @param {HTMLElement | null} list */
function isUsed(list) {
  const focused = document.activeElement;
  return focused instanceof HTMLElement && focused !== list && focused.tabIndex >= 0 && (list?.contains(focused) ?? false);
}

function toEnd() {
  const jump = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' });
  jump();
  requestAnimationFrame(jump); // what came into sight may be taller than it was thought
}
