// SPDX-License-Identifier: Apache-2.0
// What the pointer is at, in words: the cell, and the strongest of its row.
import type { App, Changed } from '../app';
import { headColor } from '../color';
import { h } from '../dom';
import { percent } from '../heat';
import { linesOfKey, linesOfQuery, strongestLines, type Line } from '../lines';
import { weightOf, type Block } from '../trace';

const STRONGEST = 6;

export class Readout {
  private readonly sentence = h('p', { class: 'reading', 'aria-live': 'polite' });
  private readonly list = h('ol', { class: 'strongest' });
  readonly element = h('div', { class: 'readout' }, this.sentence, this.list);

  constructor(private readonly app: App) {}

  say(text: string): void {
    this.sentence.textContent = text;
  }

  // The heads that are spoken of: all that the lines show, otherwise one.
  private heads(): { head: number; block: Block }[] {
    const { app } = this;
    const { layer, head, heads, view } = app.state;
    const all = view === 'lines' && layer !== 'rollout' && heads.length > 0 ? heads : [head];
    return all.flatMap((one) => {
      const block = app.block(layer, one);
      return block ? [{ head: one, block }] : [];
    });
  }

  update(changed: Changed): void {
    if (changed.size === 1 && changed.has('busy')) return;
    const { app } = this;
    const { focus, view, trace } = app.state;
    this.element.hidden = !trace;
    this.element.classList.toggle('small', view === 'grid');
    if (!trace) return;
    const heads = view === 'grid' ? [] : this.heads();
    if (heads.length === 0) {
      this.say(app.t(view === 'grid' ? 'pickThumbnail' : 'pickToken'));
      this.list.replaceChildren();
      return;
    }
    const section = app.section!;
    const query = (q: number) => app.axis(section.queries)[q];
    const key = (k: number) => app.axis(section.keys)[k];
    const shown = app.rowsShown;
    const { q, k } = focus ?? { q: null, k: null };
    if (q !== null && k !== null) {
      const { block } = heads[0];
      const weight = q < shown ? percent(weightOf(block.codes[q * block.columns + k])) : '–';
      this.sentence.replaceChildren(
        h('b', {}, query(q)),
        ' → ',
        h('b', {}, key(k)),
        '  ',
        h('span', { class: 'weight' }, weight),
        h('span', { class: 'note' }, `${app.t('query')} ${q + 1} · ${app.t('key')} ${k + 1}`),
      );
    } else if (q !== null) {
      this.say(app.t('strongest', { query: query(q) }));
    } else if (k !== null) {
      this.say(app.t('strongestKey', { key: key(k) }));
    } else {
      this.say(app.t('strongestPairs'));
    }
    const lines = heads.flatMap(({ head, block }) => {
      if (q !== null) return (q < shown ? linesOfQuery(block, q) : []).map((line) => ({ ...line, head }));
      if (k !== null) return linesOfKey(block, k, shown).map((line) => ({ ...line, head }));
      return strongestLines(block, shown, STRONGEST).map((line) => ({ ...line, head }));
    });
    lines.sort((a, b) => b.code - a.code);
    const label = (line: Line) =>
      q !== null ? key(line.k) : k !== null ? query(line.q) : `${query(line.q)} → ${key(line.k)}`;
    this.list.replaceChildren(...lines.slice(0, STRONGEST).map((line) => this.entry(line, label(line))));
  }

  private entry(line: Line & { head: number }, label: string): HTMLElement {
    const { app } = this;
    const bar = h('i', { 'aria-hidden': 'true' });
    bar.style.width = `${Math.max(1, weightOf(line.code) * 100)}%`;
    if (app.state.view === 'lines') bar.style.background = headColor(line.head, app.theme.dark);
    return h(
      'li',
      {},
      h('span', { class: 'token' }, label),
      h('span', { class: 'bar' }, bar),
      h('span', { class: 'weight' }, percent(weightOf(line.code))),
    );
  }
}
