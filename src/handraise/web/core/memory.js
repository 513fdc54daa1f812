// What is kept on this device. A browser that keeps nothing (private windows, a full disk) works as well.

const PREFIX = 'handraise.';

/** @template T @param {string} name @param {T} otherwise @returns {T} */
export function recall(name, otherwise) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {unknown} value `undefined` and the empty text forget it */
export function keep(name, value) {
  try {
    if (value === undefined || value === '') localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // nothing is kept, then
  }
}

/** The names that begin so. @param {string} start @returns {string[]} */
export function kept(start) {
  try {
    return Object.keys(localStorage)
      .filter((name) => name.startsWith(PREFIX + start))
      .map((name) => name.slice(PREFIX.length));
  } catch {
    return [];
  }
}
