// Parts of the page that are read when they are first needed, or when there is nothing else to do.

import { html, signal, useEffect, useState } from '../vendor/preact.js';

/** @type {(() => Promise<unknown>)[]} */
const later = [];

/**
 * A component out of a module that is not read yet.
 * @param {() => Promise<Record<string, any>>} load
 * @param {string} name of the component
 * @param {string} [style] the file of its own style sheet
 */
export function lazily(load, name, style) {
  /** @type {any} */
  let View = null;
  const ready = async () => {
    const [module] = await Promise.all([load(), style && dress(style)]);
    return (View ??= module[name]);
  };
  // Its style is fetched and not put on yet: that would style the whole page anew while somebody uses it.
  later.push(() => Promise.all([load(), style && fetch(`/app/${style}`)]));
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

/**
 * A component that is drawn once there is nothing else to do, and its module has something to show, which it says by
 * `whenNeeded`: to draw anything on every card is a long task.
 * @param {() => Promise<Record<string, any>>} load
 * @param {string} name of the component
 */
export function idly(load, name) {
  const View = signal(/** @type {any} */ (null));
  later.push(async () => {
    const module = await load();
    module.whenNeeded(() => (View.value = module[name]));
  });
  return (/** @type {Record<string, any>} */ props) => View.value && html`<${View.value} ...${props} />`;
}

/** @type {Map<string, Promise<unknown>>} */
const dressed = new Map();

/** Resolves once a style sheet is there, or cannot be had: a view without one is better than none. @param {string} file */
function dress(file) {
  const coming = () =>
    new Promise((resolve) => {
      const link = document.createElement('link');
      link.rel = 'stylesheet';
      link.href = `/app/${file}`;
      link.onload = link.onerror = resolve;
      document.head.append(link);
    });
  if (!dressed.has(file)) dressed.set(file, coming());
  return dressed.get(file);
}

/** Read the rest, so that it is there without the desk too. */
export const readTheRest = () => Promise.allSettled(later.map((ready) => ready()));
