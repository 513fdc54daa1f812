// Which page is shown, by the hash: paths belong to the API.

import { computed, signal } from '../vendor/preact.js';

const hash = signal(location.hash);
addEventListener('hashchange', () => (hash.value = location.hash));

/** The parts of the hash: `#/sessions/a%2Fb` is `['sessions', 'a/b']`. */
export const route = computed(() =>
  hash.value
    .replace(/^#\/?/u, '')
    .split('?')[0]
    .split('/')
    .filter((part) => part !== '')
    .map(decoded),
);

/** What follows a question mark in the hash. */
export const asked = computed(() => new URLSearchParams(hash.value.split('?')[1] ?? ''));

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {...string} parts */
export const href = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

/** Where the project around a folder is looked at, to be trusted. @param {string} cwd */
export const trustHref = (cwd) => `#/trust?${new URLSearchParams({ cwd })}`;

/** @param {...string} parts */
export const go = (...parts) => (location.hash = href(...parts));
