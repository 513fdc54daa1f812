// The agents that the desk's machine has, read once a page.

import { signal } from '../vendor/preact.js';
import { call } from '../core/api.js';

/** @typedef {import('../types/api').Capabilities} Capabilities */

/** `null` until they were read. A desk without a worker has none. */
export const agents = signal(/** @type {Capabilities[] | null} */ (null));

let isRead = false;

/** Look which there are, unless somebody did. */
export async function readAgents() {
  if (isRead) return;
  isRead = true;
  try {
    agents.value = (await call('/v1/agents')).agents;
  } catch {
    isRead = false; // the page that needs them next tries again
  }
}
