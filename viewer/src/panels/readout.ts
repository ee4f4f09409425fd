// SPDX-License-Identifier: Apache-2.0
// What the pointer is at, in words: the cell, and the strongest of its row.
import type { App, Changed } from '../app';
import { headColor } from '../color';
import { h } from '../dom';
import { percent } from '../heat';
import { linesOfKey, linesOfQuery, type Line } from '../lines';
import { weightOf } from '../trace';

const STRONGEST = 6;

export class Readout {
  private readonly sentence = h('p', { class: 'reading', 'aria-live': 'polite' });
  private readonly list = h('ol', { class: 'strongest' });
  readonly element = h('div', { class: 'readout' }, this.sentence, this.list);

  constructor(private readonly app: App) {}

  say(text: string): void {
    this.sentence.textContent = text;
  }

  update(changed: Changed): void {
    if (changed.size === 1 && changed.has('busy')) return;
    const { app } = this;
    const { focus, layer, head, view, trace } = app.state;
    this.element.hidden = !trace;
    if (!trace) return;
    const block = view === 'grid' || !focus ? null : app.block(layer, head);
    if (!focus || !block) {
      this.say(app.t(view === 'grid' ? 'pickThumbnail' : 'pickToken'));
      this.list.replaceChildren();
      return;
    }
    const section = app.section!;
    const name = (axis: number, i: number) => app.axis(axis)[i];
    const { q, k } = focus;
    if (q !== null && k !== null) {
      const hidden = q >= app.rowsShown;
      this.sentence.replaceChildren(
        h('b', {}, name(section.queries, q)), ' → ', h('b', {}, name(section.keys, k)), '  ',
        h('span', { class: 'weight' }, hidden ? '–' : percent(weightOf(block.codes[q * block.columns + k]))),
        h('span', { class: 'note' }, `${app.t('query')} ${q + 1} · ${app.t('key')} ${k + 1}`));
    } else if (q !== null) {
      this.say(app.t('strongest', { query: name(section.queries, q) }));
    } else if (k !== null) {
      this.say(app.t('strongestKey', { key: name(section.keys, k) }));
    }
    const byQuery = q !== null;
    const lines: Line[] = byQuery ? (q < app.rowsShown ? linesOfQuery(block, q) : []) : linesOfKey(block, k!, app.rowsShown);
    const best = lines.sort((a, b) => b.code - a.code).slice(0, STRONGEST);
    const color = view === 'lines' ? headColor(head, app.theme.dark) : '';
    this.list.replaceChildren(...best.map((line) => {
      const bar = h('i', { 'aria-hidden': 'true' });
      bar.style.width = `${Math.max(1, weightOf(line.code) * 100)}%`;
      if (color !== '') bar.style.background = color;
      return h('li', {}, h('span', { class: 'token' }, byQuery ? name(section.keys, line.k) : name(section.queries, line.q)),
        h('span', { class: 'bar' }, bar), h('span', { class: 'weight' }, percent(weightOf(line.code))));
    }));
  }
}
