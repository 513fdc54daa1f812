// This browser's half of its session. The other half is a cookie, which every port of the machine is sent; this one is
// kept where only pages of this origin can read it, and goes along with every call.

import { keep, recall } from './memory.js';

const NAME = 'session';

/** Empty where this browser is not signed in, or has dropped what it kept. @returns {string} */
export const sessionSecret = () => recall(NAME, '');

/** Read for each call, since somebody may sign in again in another tab. @returns {Record<string, string>} */
export function sessionHeaders() {
  const secret = sessionSecret();
  return secret ? { 'x-handraise-session': secret } : {};
}

/** @param {string} secret @returns {boolean} whether this browser keeps it */
export function keepSession(secret) {
  keep(NAME, secret);
  return sessionSecret() === secret;
}
