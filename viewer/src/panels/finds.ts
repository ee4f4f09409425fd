// SPDX-License-Identifier: Apache-2.0
// The heads in which a word looks at another one far from it, strongest first.
import type { App, Changed } from '../app';
import { choose, h } from '../dom';
import { codeOf, rankFinds, type Find } from '../finds';
import { shorten } from '../tokens';
import { weightOf } from '../trace';

const MOST = 5;
const NEWS = ['trace', 'otherTrace', 'section', 'layer', 'head', 'words', 'pair', 'view', 'rows', 'language', 'pinned'];

export class Finds {
  private readonly label = h('span', { class: 'label' });
  private readonly list = h('div', { class: 'chips', role: 'group' });
  readonly element = h('div', { class: 'finds' }, this.label, this.list);

  // `reveal` brings the chosen head onto the screen.
  constructor(
    private readonly app: App,
    private readonly reveal: () => void,
  ) {}

  update(changed: Changed): void {
    if (!NEWS.some((key) => changed.has(key as never)) && !this.app.state.pinned) return;
    const { app } = this;
    const { trace, rows, view } = app.state;
    const asker = trace ? app.asker() : null;
    const main = app.lookOf('main');
    const query = asker && main!.lens.rows[asker.q];
    // While another word's are on their way, the old ones would be wrong.
    const ready = query && rows && rows.query.from === query.from && rows.query.to === query.to;
    const finds =
      ready && view !== 'qk' ? rankFinds(rows.codes, app.section!.heads, main!.lens.columns, asker.among) : [];
    this.element.hidden = finds.length === 0;
    if (finds.length === 0) return;
    const word = main!.lens.queries[asker!.q];
    this.label.textContent = app.t('findsOf', { query: shorten(word, 18) });
    this.label.title = app.t('findsHint');
    this.list.setAttribute('aria-label', this.label.textContent);
    this.list.replaceChildren(...finds.slice(0, MOST).map((find) => this.chip(asker!.q, word, find)));
  }

  private chip(q: number, word: string, find: Find): HTMLElement {
    const { app } = this;
    const { layer, head, focus, rows } = app.state;
    const key = app.lookOf('main')!.lens.keys[find.k];
    const weights = [weightOf(find.code).toFixed(2)];
    const other = this.beside(find, rows!.other);
    if (other !== null) weights.push(weightOf(other).toFixed(2));
    const place = app.t('findPlace', { layer: find.layer, head: find.head });
    const chip = h(
      'button',
      { type: 'button', class: 'chip plain find', click: () => this.open(q, find) },
      `${shorten(word, 18)} → ${shorten(key, 18)} `,
      h('b', { class: 'weight' }, weights.join(' | ')),
      h('span', {}, place),
    );
    choose(chip, layer === find.layer && head === find.head && focus?.q === q && focus.k === find.k);
    return chip;
  }

  // The same link of the sentence beside, where it has both words.
  private beside(find: Find, rows: NonNullable<App['state']['rows']>['other']): number | null {
    const { app } = this;
    const other = app.lookOf('other');
    const row = rows?.[find.layer * app.section!.heads + find.head];
    const k = other && row ? app.across('main').columns[find.k] : null;
    return row && k !== null ? codeOf(row, other!.lens.columns[k]) : null;
  }

  private open(q: number, { layer, head, k }: Find): void {
    const { app } = this;
    app.go({ layer, head, view: app.state.view === 'grid' ? 'head' : app.state.view });
    app.set({ focus: { q, k }, pinned: true });
    this.reveal();
  }
}
