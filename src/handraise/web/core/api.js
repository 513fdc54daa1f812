// Calls to the desk's public API, as in /openapi.json, and what can go wrong with them.

import { sessionHeaders } from './session.js';

/** @typedef {import('../types/api').Ask} Ask */
/** @typedef {import('../types/api').Session} Session */
/** @typedef {import('../types/api').Checkpoint} Checkpoint */
/** @typedef {Record<string, unknown>} Fields */

/** The desk understood, and said no. */
export class Refused extends Error {
  /** @param {number} status @param {Fields} body */
  constructor(status, body) {
    super(typeof body.message === 'string' ? body.message : `HTTP ${status}`);
    this.status = status;
    this.code = typeof body.error === 'string' ? body.error : '';
    this.fields = body;
  }
}

/** Nobody answered. */
export class Unreachable extends Error {}

/** @param {unknown} error @returns {string} */
export const reasonOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * @param {string} path
 * @param {{method?: string, body?: unknown, signal?: AbortSignal}} [options]
 * @returns {Promise<any>} what the desk told, `null` for an empty reply
 */
export async function call(path, { method = 'GET', body, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: { ...sessionHeaders(), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      credentials: 'same-origin',
      cache: 'no-store',
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new Unreachable(reasonOf(cause), { cause });
  }
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : null;
  if (response.status === 502 || response.status === 504) throw new Unreachable(`HTTP ${response.status}`); // a proxy
  throw new Refused(response.status, parsed(text));
}

/** @param {string} text @returns {Fields} */
function parsed(text) {
  try {
    const found = JSON.parse(text);
    return found && typeof found === 'object' ? found : {};
  } catch {
    return {};
  }
}

/** @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export const post = (path, body = {}) => call(path, { method: 'POST', body });

/** The path of an ask or session: its id may hold any character. @param {string} kind @param {string} id @param {string[]} rest */
export const pathOf = (kind, id, ...rest) => ['/v1', kind, encodeURIComponent(id), ...rest].join('/');

/**
 * Every page of a list, one after the other.
 * @param {Record<string, string>} query
 * @returns {AsyncGenerator<Ask[]>}
 */
export async function* pagesOfAsks(query) {
  let after = '';
  for (;;) {
    const page = await call(`/v1/asks?${new URLSearchParams({ ...query, ...(after ? { after } : {}) })}`);
    yield page.asks;
    if (page.next === undefined || page.next === null) return;
    after = String(page.next);
  }
}

/** All of a list of checkpoints. @param {Record<string, string>} query @returns {Promise<Checkpoint[]>} */
export async function allCheckpoints(query) {
  /** @type {Checkpoint[]} */
  const found = [];
  let after = '';
  for (;;) {
    const page = await call(`/v1/checkpoints?${new URLSearchParams({ ...query, ...(after ? { after } : {}) })}`);
    found.push(...page.checkpoints);
    if (page.next === undefined || page.next === null) return found;
    after = String(page.next);
  }
}
