// What people must see of a permission, as the desk says it with the ask. Here it is only put into words; the cards lay
// it out.

import { inert, middle } from './text.js';
import { t } from './words.js';

/** @typedef {import('./api.js').Ask} Ask */
/** @typedef {NonNullable<Ask['card']>} Card */

const LONGEST_NAME = 60; // characters of a name inside a sentence

/** @param {string} text */
export const short = (text) => middle(inert(text.replace(/\s+/gu, ' ')), LONGEST_NAME);

/** @param {Ask} ask @returns {Card} */
export const cardOf = (ask) => ask.card ?? older(ask);

/** For what was asked before desks kept cards: all that it has. @param {Ask} ask @returns {Card} */
function older({ permission, commands }) {
  const { command, paths, url, diff, input } = permission ?? { paths: [] };
  /** @type {[Card['parts'][number], unknown][]} */
  const has = [['command', command], ['commands', commands], ['paths', paths[0]], ['url', url], ['diff', diff], ['arguments', input]];
  const parts = has.filter(([, value]) => value !== undefined).map(([part]) => part);
  return { heading: { key: 'perm.title.tool' }, parts, claim: true };
}

/** What the agent wants, in a sentence. @param {Ask} ask */
export function titleOf(ask) {
  const agent = short(ask.origin.agent);
  if (!ask.permission) return agent;
  const { heading: { key, count }, host } = cardOf(ask);
  const { tool, paths, url } = ask.permission;
  const values = { agent, tool: short(tool), path: short(paths[0] ?? ''), host: short(host ?? url ?? '') };
  return t(key, count === undefined ? values : { ...values, count });
}

/** What it can do that people should think twice about. @param {string} risk */
export function effectOf(risk) {
  if (risk === 'delete') return t('risk.delete');
  if (risk === 'push') return t('risk.push');
  if (risk === 'spend') return t('risk.spend');
  if (risk === 'sandbox') return t('risk.sandbox');
  if (risk === 'secrets') return t('risk.secrets');
  if (risk === 'privileges') return t('risk.privileges');
  if (risk === 'later') return t('risk.later');
  if (risk === 'unreadable') return t('risk.unreadable');
  return inert(risk);
}

/** Each risk, and the doubt. @param {Ask} ask @returns {{risk?: string, says: string}[]} */
export function warningsOf({ risks = [], doubt }) {
  const told = risks.map((risk) => ({ risk, says: t('perm.risky', { effect: effectOf(risk) }) }));
  return doubt ? [...told, { says: t('perm.doubt', { why: inert(doubt) }) }] : told;
}

/** The arguments that a card names, whole. @param {Record<string, unknown> | null | undefined} from @param {string[] | undefined} names */
export function valuesOf(from, names) {
  const values = Object.entries(from ?? {});
  return Object.fromEntries(names === undefined ? values : values.filter(([name]) => names.includes(name)));
}
