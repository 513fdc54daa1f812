// A long list in groups, so that a change touches one group. What was put into a group stays there while the order of
// the others allows it: a card that changes its group would be made anew, with whatever is being typed in it.

const SIZE = 12;

export class Groups {
  constructor() {
    /** @type {Map<string, number>} */
    this._groupOf = new Map();
    this._last = 0;
  }

  /**
   * The list in order, as groups with a key each.
   * @param {string[]} order
   * @returns {{key: number, ids: string[]}[]}
   */
  of(order) {
    return this._grouped(order) ?? (this._groupOf.clear(), this._grouped(order)) ?? [];
  }

  /** Null where those of a group no longer stand together. @param {string[]} order */
  _grouped(order) {
    /** @type {{key: number, ids: string[]}[]} */
    const groups = [];
    const seen = new Set();
    order.forEach((id, place) => {
      let key = this._groupOf.get(id);
      if (key === undefined) {
        const last = groups.at(-1);
        const next = order.slice(place + 1).find((other) => this._groupOf.has(other));
        // In between it joins those before it; at the end a full group is followed by a new one.
        if (last && (next !== undefined || last.ids.length < SIZE)) key = last.key;
        else key = next === undefined ? ++this._last : this._groupOf.get(next) ?? ++this._last;
        this._groupOf.set(id, key);
      }
      if (groups.at(-1)?.key === key) groups.at(-1)?.ids.push(id);
      else if (!seen.has(key)) groups.push({ key, ids: [id] });
      else seen.add('broken');
      seen.add(key);
    });
    return seen.has('broken') ? null : groups;
  }
}
