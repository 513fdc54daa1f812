// Light, dark, or as the system has it.

import { keep, recall } from './memory.js';

/** @typedef {'' | 'light' | 'dark'} Theme */

export const theme = () => recall('theme', /** @type {Theme} */ (''));

export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

/** @param {Theme} wanted */
export function chooseTheme(wanted) {
  keep('theme', wanted);
  applyTheme();
}
