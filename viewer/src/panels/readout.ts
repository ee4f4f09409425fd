// SPDX-License-Identifier: Apache-2.0
// What the pointer is at, in words: the cell, and the strongest of its row.
import type { App, Changed } from '../app';
import { headColor } from '../color';
import { h } from '../dom';
import { percent } from '../heat';
import { linesOfKey, linesOfQuery, strongestLines, type Line } from '../lines';
import { products, signed, strongestDimensions, sum } from '../qk';
import { weightOf, type Block } from '../trace';

const STRONGEST = 6;

export class Readout {
  private readonly sentence = h('p', { class: 'reading', 'aria-live': 'polite' });
  private readonly list = h('ol', { class: 'strongest' });
  readonly element = h('div', { class: 'readout' }, this.sentence, this.list);

  // `pair`: whose dimensions the Q·K view shows.
  constructor(
    private readonly app: App,
    private readonly pair: () => { q: number; k: number | null } | null,
  ) {}

  say(text: string): void {
    this.sentence.textContent = text;
  }

  // The heads that are spoken of: all that the lines show, otherwise one, or a mean.
  private heads(): { head: number; block: Block }[] {
    const { app } = this;
    const { layer, head, view } = app.state;
    if (view === 'picture') {
      const block = app.shownBlock();
      return block ? [{ head, block }] : [];
    }
    return app.headsShown.flatMap((one) => {
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
    if (view === 'qk' && this.showDimensions(heads[0].block)) return;
    const query = (q: number) => app.queries[q];
    const key = (k: number) => app.keys[k];
    const shown = app.rowsShown;
    const { q, k } = focus ?? { q: null, k: null };
    if (q !== null && k !== null) {
      const { block } = heads[0];
      const weight = q < shown ? percent(weightOf(block.codes[q * block.columns + k])) : '–';
      this.sayPair(q, k, weight, `${app.t('query')} ${q + 1} · ${app.t('key')} ${k + 1}`);
    } else if (q !== null) {
      this.say(app.t('strongest', { query: query(q) }));
    } else if (k !== null) {
      this.say(app.t('strongestKey', { key: key(k) }));
    } else {
      this.say(app.t('strongestPairs'));
    }
    if (app.compares && q !== null && heads.length === 1 && this.showBoth(q, k, heads[0].block)) return;
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

  // The strongest of a word in both sentences; false: the other has no such word.
  private showBoth(q: number, k: number | null, block: Block): boolean {
    const { app } = this;
    const { layer, head } = app.state;
    const { rows, columns } = app.across('main');
    const other = app.lookOf('other')!;
    const beside = other.block(layer, head);
    const there = rows[q];
    if (!beside || there === null) return false;
    const weights = (at: number): [number, number | null] => [
      weightOf(block.codes[q * block.columns + at]),
      columns[at] === null ? null : weightOf(beside.codes[there * beside.columns + columns[at]]),
    ];
    const text = (at: number) => weights(at).map((weight) => (weight === null ? '–' : percent(weight)));
    if (k !== null) this.sayPair(q, k, text(k).join(' | '), `${app.t('query')} ${q + 1} · ${app.t('key')} ${k + 1}`);
    const order = app.keys.map((_, at) => at);
    const most = (at: number) => Math.max(...weights(at).map((weight) => weight ?? 0));
    order.sort((a, b) => most(b) - most(a));
    this.list.replaceChildren(
      ...order.slice(0, STRONGEST).map((at) => {
        const pair = columns[at] === null ? app.keys[at] : other.lens.keys[columns[at]];
        const bars = weights(at).map((weight, i) => {
          const bar = h('i', { 'aria-hidden': 'true', class: i === 1 ? 'minus' : '' });
          bar.style.width = `${Math.max(1, (weight ?? 0) * 100)}%`;
          return h('span', { class: 'bar' }, bar);
        });
        return h(
          'li',
          { class: 'both' },
          h('span', { class: 'token' }, pair === app.keys[at] ? pair : `${app.keys[at]} | ${pair}`),
          h('span', { class: 'bars' }, ...bars),
          h('span', { class: 'weight' }, text(at).join(' | ')),
        );
      }),
    );
    return true;
  }

  private sayPair(q: number, k: number, weight: string, note: string): void {
    this.sentence.replaceChildren(
      h('b', {}, this.app.queries[q]),
      ' → ',
      h('b', {}, this.app.keys[k]),
      '  ',
      h('span', { class: 'weight' }, weight),
      h('span', { class: 'note' }, note),
    );
  }

  // The dimensions that make the score of a pair; false: there is none.
  private showDimensions(block: Block): boolean {
    const { app } = this;
    const { layer, head } = app.state;
    const at = this.pair();
    const vectors = layer === 'rollout' ? null : app.vectors(layer, head);
    if (!vectors || !at || at.k === null || at.k >= app.ends[at.q]) return false;
    const { dim, queries, keys } = vectors;
    const [query, key] = [app.queryTokens[at.q], app.keyTokens[at.k]];
    const parts = products(vectors, query, key);
    const weight = percent(weightOf(block.codes[at.q * block.columns + at.k]));
    this.sayPair(at.q, at.k, weight, app.t('qkReading', { score: signed(sum(parts)), dim }));
    const best = strongestDimensions(parts, STRONGEST);
    const most = Math.abs(parts[best[0]]) || 1;
    this.list.replaceChildren(
      ...best.map((i) => {
        const bar = h('i', { 'aria-hidden': 'true', class: parts[i] < 0 ? 'minus' : '' });
        bar.style.width = `${(100 * Math.abs(parts[i])) / most}%`;
        const factors = `${queries[query * dim + i].toFixed(2)} × ${keys[key * dim + i].toFixed(2)}`;
        return h(
          'li',
          { title: factors },
          h('span', { class: 'token' }, app.t('dimension', { i })),
          h('span', { class: 'bar' }, bar),
          h('span', { class: 'weight' }, signed(parts[i])),
        );
      }),
    );
    return true;
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
