// Every key, in a dialog over whatever is shown.

import { html, useEffect, useRef } from '../vendor/preact.js';
import { helpIsOpen } from '../core/keys.js';
import { t } from '../core/words.js';

/** @type {() => [string, [string[], string][]][]} groups of keys: what is pressed, one of them or one after the other, and why */
const groups = () => [
  [
    t('keys.group.everywhere'),
    [
      [['j'], t('keys.nextCard')],
      [['k'], t('keys.previousCard')],
      [['g', 'i'], t('keys.inbox')],
      [['?'], t('keys.help')],
    ],
  ],
  [
    t('keys.group.card'),
    [
      [['w'], t('keys.wait')],
      [['x'], t('keys.decline')],
      [['Esc'], t('keys.leave')],
    ],
  ],
  [
    t('keys.group.question'),
    [
      [['1', '…', '9'], t('keys.pick')],
      [['↑', '↓'], t('keys.move')],
      [['Home', 'End'], t('keys.ends')],
      [['Space'], t('keys.toggle')],
      [['Enter'], t('keys.enter')],
      [['Ctrl/⌘ Enter'], t('keys.send')],
      [['o'], t('keys.own')],
      [['n'], t('keys.note')],
      [['p'], t('keys.preview')],
    ],
  ],
  [
    t('keys.group.permission'),
    [
      [['y'], t('keys.allow')],
      [['d'], t('keys.deny')],
      [['Shift A'], t('keys.allowMore')],
    ],
  ],
  [
    t('keys.group.text'),
    [
      [['Enter'], t('keys.textEnter')],
      [['Shift Enter'], t('keys.newLine')],
      [['Ctrl/⌘ Enter'], t('keys.send')],
    ],
  ],
];

/** @returns {any} */
export function KeyHelp() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const isOpen = helpIsOpen.value;
  useEffect(() => {
    if (isOpen) dialog.current?.showModal(); // which gives the focus back by itself when it is closed
  }, [isOpen]);
  if (!isOpen) return null;
  const close = () => dialog.current?.close();
  const shut = () => (helpIsOpen.value = false);
  /** A press beside it. @param {MouseEvent} event */
  const press = (event) => event.target === dialog.current && close();
  return html`<dialog ref=${dialog} class="key-help" aria-labelledby="keys-title" onClose=${shut} onClick=${press}>
    <div class="inside">
      <header class="page-head">
        <h2 id="keys-title">${t('keys.title')}</h2>
        <button type="button" class="aside" autofocus onClick=${close}>${t('keys.close')}</button>
      </header>
      <p class="quiet-text">${t('keys.hint')}</p>
      ${groups().map(
        ([title, keys]) => html`<table>
          <caption>${title}</caption>
          <thead class="unseen"><tr><th scope="col">${t('keys.key')}</th><th scope="col">${t('keys.what')}</th></tr></thead>
          <tbody>
            ${keys.map(
              ([pressed, what]) => html`<tr>
                <th scope="row">${pressed.map((key) => (key === '…' ? ' … ' : html`<kbd>${key}</kbd> `))}</th>
                <td>${what}</td>
              </tr>`,
            )}
          </tbody>
        </table>`,
      )}
    </div>
  </dialog>`;
}
