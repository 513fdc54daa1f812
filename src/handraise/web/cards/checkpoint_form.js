// What a checkpoint wants, as fields: its JSON Schema read as a form, and what was filled in as its output. Anything that
// is no plain form is given as JSON.

import { reasonOf } from '../core/api.js';
import { t } from '../core/words.js';

/** @typedef {Record<string, any>} Schema */
/** @typedef {'boolean' | 'choice' | 'several' | 'text' | 'number' | 'integer' | 'json'} Kind */
/**
 * @typedef {{
 *   name: string, label: string, about: string, kind: Kind, isRequired: boolean, isNullable: boolean,
 *   choices: unknown[], schema: Schema, preset: string | number[] | null,
 * }} Field
 */
/** @typedef {{fields: Field[], isAlone: boolean}} Form alone: the output itself, and no object of fields */
/** @typedef {string | number[] | null} Filled what a field holds: a text, the place of a choice as a text, places, or nothing */

const MOST_FIELDS = 50;
const ALONE = '';

/** @param {Schema | boolean} given @returns {Form} */
export function formOf(given) {
  const root = given !== null && typeof given === 'object' ? given : {};
  const top = resolved(root, root);
  const fields = top.type === 'object' && top.properties !== null && typeof top.properties === 'object' ? Object.entries(top.properties) : [];
  if (fields.length === 0 || fields.length > MOST_FIELDS || top.additionalProperties)
    return { isAlone: true, fields: [fieldOf(ALONE, top, root, true)] };
  const required = Array.isArray(top.required) ? top.required : [];
  return { isAlone: false, fields: fields.map(([name, field]) => fieldOf(name, field, root, required.includes(name))) };
}

/** @param {string} name @param {unknown} given @param {Schema} root @param {boolean} isRequired @returns {Field} */
function fieldOf(name, given, root, isRequired) {
  const { schema, isNullable } = withoutNull(resolved(isObject(given) ? given : {}, root), root);
  const items = isObject(schema.items) ? resolved(schema.items, root) : {};
  const kind = kindOf(schema, items);
  const choices = 'const' in schema ? [schema.const] : kind === 'several' ? items.enum : kind === 'choice' ? schema.enum : [];
  const field = {
    name,
    label: typeof schema.title === 'string' && name === ALONE ? '' : name,
    about: typeof schema.description === 'string' ? schema.description : '',
    kind,
    isRequired,
    isNullable,
    choices,
    schema,
    preset: null,
  };
  return { ...field, preset: presetOf(field) };
}

/** @param {unknown} value @returns {value is Schema} */
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** @param {Schema} schema @param {Schema} items @returns {Kind} */
function kindOf(schema, items) {
  if ('const' in schema || (Array.isArray(schema.enum) && schema.enum.length > 0)) return 'choice';
  if (schema.type === 'boolean') return 'boolean';
  if (schema.type === 'string') return 'text';
  if (schema.type === 'number' || schema.type === 'integer') return schema.type;
  if (schema.type === 'array' && Array.isArray(items.enum) && items.enum.length > 0) return 'several';
  return 'json';
}

/** The schema with what its reference stands for, where it is one. @param {Schema} schema @param {Schema} root @returns {Schema} */
function resolved(schema, root) {
  let found = { ...schema };
  // A chain of references that is longer leads nowhere.
  for (let step = 0; step < 10 && typeof found.$ref === 'string'; step += 1) {
    const { $ref, ...rest } = found;
    const target = $ref.startsWith('#/$defs/') ? root.$defs?.[$ref.slice('#/$defs/'.length)] : undefined;
    found = { ...(isObject(target) ? target : {}), ...rest };
  }
  delete found.$defs;
  return found;
}

/** An optional one: itself, or null. @param {Schema} schema @param {Schema} root */
function withoutNull(schema, root) {
  const either = Array.isArray(schema.anyOf) ? schema.anyOf : [];
  const rest = either.filter((each) => isObject(each) && each.type !== 'null');
  if (either.length !== 2 || rest.length !== 1) return { schema, isNullable: false };
  const { anyOf: _, ...around } = schema;
  return { schema: { ...around, ...resolved(rest[0], root) }, isNullable: true };
}

/** What stands in the field at first. @param {Field} field @returns {Filled} */
function presetOf({ schema, kind, choices, isRequired }) {
  if (!('default' in schema) || isRequired) return null;
  const { default: value } = schema;
  if (value === null) return null;
  if (kind === 'boolean') return value === true ? 'true' : value === false ? 'false' : null;
  if (kind === 'choice') return choices.includes(value) ? String(choices.indexOf(value)) : null;
  if (kind === 'several') return Array.isArray(value) ? value.map((each) => choices.indexOf(each)).filter((place) => place >= 0) : null;
  if (kind === 'text') return typeof value === 'string' ? value : null;
  if (kind === 'json') return JSON.stringify(value, null, 2);
  return typeof value === 'number' ? String(value) : null;
}

/** A choice for people. @param {unknown} choice */
export const choiceText = (choice) => (typeof choice === 'string' ? choice : JSON.stringify(choice));

const LEFT_OUT = Symbol('left out');

/**
 * What was filled in, as JSON has it, or what is wrong by the name of the field.
 * @param {Form} form @param {Record<string, Filled>} filled
 * @returns {{output: unknown} | {problems: Record<string, string>}}
 */
export function outputOf(form, filled) {
  /** @type {Record<string, string>} */
  const problems = {};
  /** @type {[string, unknown][]} */
  const values = [];
  for (const field of form.fields) {
    const read = valueOf(field, field.name in filled ? filled[field.name] : field.preset);
    if (read.problem !== undefined) problems[field.name] = read.problem;
    else if (read.value !== LEFT_OUT) values.push([field.name, read.value]);
  }
  if (Object.keys(problems).length > 0) return { problems };
  return { output: form.isAlone ? values[0]?.[1] : Object.fromEntries(values) };
}

/** @param {Field} field @param {Filled} filled @returns {{value?: unknown, problem?: string}} */
export function valueOf(field, filled) {
  const { kind, choices, isRequired, isNullable } = field;
  if (kind === 'several') {
    const places = Array.isArray(filled) ? filled : [];
    return { value: places.length > 0 || isRequired ? choices.filter((_, place) => places.includes(place)) : LEFT_OUT };
  }
  const text = typeof filled === 'string' ? filled : '';
  if (text.trim() === '') {
    if (!isRequired) return { value: LEFT_OUT };
    return isNullable ? { value: null } : { problem: t('checkpoint.missing') };
  }
  if (kind === 'boolean') return { value: text === 'true' };
  if (kind === 'choice') return { value: choices[Number(text)] };
  if (kind === 'text') return { value: text };
  if (kind === 'json') return jsonOf(text);
  const number = Number(text.trim());
  if (!Number.isFinite(number)) return { problem: t('checkpoint.notNumber') };
  if (kind === 'integer' && !Number.isInteger(number)) return { problem: t('checkpoint.notWhole') };
  return { value: number };
}

/** @param {string} text @returns {{value?: unknown, problem?: string}} */
function jsonOf(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { problem: t('json.problem', { reason: reasonOf(error) }) };
  }
}
