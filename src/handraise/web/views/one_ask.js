// One card on its own, for links to it.

import { html, useEffect, useState } from '../vendor/preact.js';
import { call, pathOf, Refused } from '../core/api.js';
import { Card } from '../cards/card.js';
import { connection, find, put } from '../core/desk.js';
import { inert } from '../core/text.js';
import { t } from '../core/words.js';

/** @param {{id: string}} props */
export function OneAsk({ id }) {
  const [isMissing, setMissing] = useState(false);
  const [, draw] = useState(0);
  const ask = find(id)?.value;
  const isKnown = ask !== undefined;
  useEffect(() => {
    if (isKnown) return;
    let isGone = false;
    call(pathOf('asks', id)).then(
      (told) => isGone || (find(id) === undefined && put(told), draw((count) => count + 1)),
      // While the desk cannot be reached nothing is known; it is asked again when it is back.
      (error) => isGone || setMissing(error instanceof Refused && error.status === 404),
    );
    return () => {
      isGone = true;
    };
  }, [id, isKnown, connection.value]);
  return html`<section aria-labelledby="one-title">
    <header class="page-head">
      <h1 id="one-title" tabindex="-1">${ask ? t('link.asks', { agent: inert(ask.origin.agent) }) : t('one.title')}</h1>
      <a class="quiet" href="#/">${t('nav.inbox')}</a>
    </header>
    ${isKnown
      ? html`<div class="cards"><${Card} id=${id} /></div>`
      : html`<p class="quiet-text">${isMissing ? t('card.gone') : t('inbox.loading')}</p>`}
  </section>`;
}
