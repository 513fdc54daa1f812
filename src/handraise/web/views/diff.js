// A change as a page of its own, for those that are too long for a card.

import { html, useEffect, useState } from '../vendor/preact.js';
import { call, pathOf } from '../core/api.js';
import { Diff } from '../cards/diff.js';
import { titleOf } from '../core/card.js';
import { find, put } from '../core/desk.js';
import { href } from '../core/route.js';
import { t } from '../core/words.js';

/** @param {{id: string}} props */
export function DiffPage({ id }) {
  const [isMissing, setMissing] = useState(false);
  const [, draw] = useState(0);
  const ask = find(id)?.value;
  useEffect(() => {
    if (ask === undefined) call(pathOf('asks', id)).then((told) => (put(told), draw(1)), () => setMissing(true));
  }, [id, ask === undefined]);
  const diff = ask?.permission?.diff;
  return html`<section class="diff-page">
    <p><a href=${href('ask', id)}>${t('diff.back')}</a></p>
    ${ask && html`<h1 dir="auto">${titleOf(ask)}</h1>`}
    ${ask === undefined
      ? html`<p>${isMissing ? t('card.gone') : t('inbox.loading')}</p>`
      : diff
        ? html`<${Diff} text=${diff} paths=${ask.permission?.paths} />`
        : html`<p>${t('perm.noDiff')}</p>`}
  </section>`;
}
