// Parts of the page that are read when they are first needed, or when there is nothing else to do.

import { html, useEffect, useState } from '../vendor/preact.js';

/** @type {(() => Promise<unknown>)[]} */
const later = [];

/**
 * A component out of a module that is not read yet.
 * @param {() => Promise<Record<string, any>>} load
 * @param {string} name of the component
 */
export function lazily(load, name) {
  /** @type {any} */
  let View = null;
  const ready = async () => (View ??= (await load())[name]);
  later.push(ready);
  return (/** @type {Record<string, any>} */ props) => {
    const [, draw] = useState(0);
    const [failure, fail] = useState(/** @type {unknown} */ (null));
    useEffect(() => {
      if (View === null) ready().then(() => draw(1), fail);
    }, []);
    if (failure) throw failure; // to whoever guards this part of the page
    return View === null ? null : html`<${View} ...${props} />`;
  };
}

/** Read the rest, so that it is there without the desk too. */
export const readTheRest = () => Promise.allSettled(later.map((ready) => ready()));
