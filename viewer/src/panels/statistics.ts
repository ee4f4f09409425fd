// SPDX-License-Identifier: Apache-2.0
// The table of heads, and questions that order it.
import type { App, Changed } from '../app';
import { choose, h } from '../dom';
import type { Key } from '../i18n';
import { percent } from '../heat';
import {
  COLUMNS,
  hasColumn,
  QUESTIONS,
  questionsFor,
  rank,
  valueOf,
  type Column,
  type Order,
  type Question,
} from '../statistics';
import { shorten } from '../tokens';
import { weightOf } from '../trace';

const QUESTION_KEYS: Readonly<Record<Question, Key>> = {
  telling: 'tellingQuestion',
  sharp: 'sharp',
  diffuse: 'diffuse',
  near: 'near',
  far: 'far',
  first: 'firstQuestion',
  previous: 'previousQuestion',
  same: 'sameQuestion',
};

function figure(column: Column, value: number | null): string {
  if (value === null) return '–';
  if (column === 'entropy') return value.toFixed(2);
  return column === 'distance' ? value.toFixed(1) : `${Math.round(value * 100)} %`;
}

export class StatisticsPanel {
  private readonly title = h('h2', { id: 'statistics' });
  private readonly questions = h('div', { class: 'chips', role: 'group' });
  private readonly body = h('tbody');
  private readonly headings = h('tr');
  private readonly table = h('table', {}, h('thead', {}, this.headings), this.body);
  private readonly box = h('div', { class: 'table' }, this.table);
  readonly element = h(
    'aside',
    { class: 'statistics', 'aria-labelledby': 'statistics' },
    this.title,
    this.questions,
    this.box,
  );
  private rows = new Map<string, HTMLTableRowElement>();

  // `reveal` brings the chosen head onto the screen.
  constructor(
    private readonly app: App,
    private readonly reveal: () => void,
  ) {}

  update(changed: Changed): void {
    const { app } = this;
    const section = app.section;
    this.element.hidden = !section || section.layers * section.heads === 1;
    if (!section) return;
    const built = ['trace', 'section', 'order', 'language', 'link'].some((key) => changed.has(key as never));
    if (built) this.build();
    if (built || changed.has('layer') || changed.has('head')) this.mark(!changed.has('order'));
  }

  private build(): void {
    const { app } = this;
    const section = app.section!;
    const { order, link, focus } = app.state;
    this.title.replaceChildren(app.t('statistics'), h('span', { class: 'note' }, app.sectionName(section)));
    this.questions.setAttribute('aria-label', app.t('findHeads'));
    this.questions.replaceChildren(
      ...questionsFor(section).map((question) => {
        const wanted = QUESTIONS[question];
        const chip = h(
          'button',
          { type: 'button', class: 'chip plain', click: () => this.ask(question) },
          app.t(QUESTION_KEYS[question]),
        );
        choose(chip, order.column === wanted.column && order.descending === wanted.descending);
        return chip;
      }),
    );
    if (link && focus) {
      const names = { query: shorten(app.queries[focus.q!], 18), key: shorten(app.keys[focus.k!], 18) };
      const clear = () => app.set({ focus: null, pinned: false });
      const label = app.t('linkClear', names);
      const chip = h('button', { type: 'button', class: 'chip plain', 'aria-label': label, click: clear });
      chip.append(app.t('linkOf', names), h('span', { 'aria-hidden': 'true', class: 'arrow' }, '✕'));
      choose(chip, order.column === 'link');
      this.questions.prepend(chip);
    }
    const columns = COLUMNS.filter((column) => hasColumn(section, column));
    this.headings.replaceChildren(
      ...(['head', ...(link ? (['link'] as const) : []), ...columns] as const).map((column) => {
        const sorted = order.column === column;
        const name = column === 'head' ? app.t('columnHead') : app.t(column);
        const heading = h(
          'th',
          { scope: 'col', 'aria-sort': sorted ? (order.descending ? 'descending' : 'ascending') : 'none' },
          h(
            'button',
            { type: 'button', title: app.t(`${column}Hint`), click: () => this.sort(column) },
            name,
            h('span', { 'aria-hidden': 'true', class: 'arrow' }, sorted ? (order.descending ? '↓' : '↑') : ''),
          ),
        );
        return heading;
      }),
    );
    const most = new Map(
      columns.map((column) => [column, Math.max(1e-9, ...section.statistics.flat().map((one) => one[column] ?? 0))]),
    );
    this.rows.clear();
    this.body.replaceChildren(
      ...rank(section, order, link ?? []).map((place) => {
        const cells = columns.map((column) => {
          const value = valueOf(section, place, column);
          const cell = h('td', {}, h('span', {}, figure(column, value)));
          const full = column === 'entropy' || column === 'distance' ? most.get(column)! : 1; // the others are shares
          cell.style.setProperty('--share', `${Math.round(((value ?? 0) / full) * 100)}%`);
          return cell;
        });
        if (link) {
          const code = link[place.layer * section.heads + place.head] ?? null;
          const cell = h('td', { class: 'link' }, h('span', {}, code === null ? '–' : percent(weightOf(code))));
          cell.style.setProperty('--share', `${Math.round(weightOf(code ?? 0) * 100)}%`);
          cells.unshift(cell);
        }
        const name = h(
          'button',
          {
            type: 'button',
            'aria-label': app.t('placeOf', {
              section: app.sectionName(section),
              layer: place.layer,
              head: place.head,
            }),
          },
          `${place.layer}·${place.head}`,
        );
        const row = h(
          'tr',
          { click: () => this.go(place.layer, place.head) },
          h('th', { scope: 'row' }, name),
          ...cells,
        );
        this.rows.set(`${place.layer}/${place.head}`, row);
        return row;
      }),
    );
  }

  private mark(follow: boolean): void {
    const { layer, head } = this.app.state;
    for (const [place, row] of this.rows) {
      const chosen = place === `${layer}/${head}`;
      row.classList.toggle('chosen', chosen);
      if (chosen) row.setAttribute('aria-current', 'true');
      else row.removeAttribute('aria-current');
      // Inside its own box only: the page itself must not jump.
      if (chosen && follow) {
        const top = row.offsetTop - this.headings.offsetHeight;
        if (top < this.box.scrollTop || row.offsetTop + row.offsetHeight > this.box.scrollTop + this.box.clientHeight)
          this.box.scrollTop = top - this.box.clientHeight / 3;
      }
    }
    if (!follow) this.box.scrollTop = 0;
  }

  private sort(column: Order['column']): void {
    const { order } = this.app.state;
    const descending =
      order.column === column ? !order.descending : column !== 'head' && column !== 'entropy' && column !== 'distance';
    this.app.set({ order: { column, descending } });
  }

  // Orders the table and goes to the first head of the answer.
  private ask(question: Question): void {
    const { app } = this;
    const best = rank(app.section!, QUESTIONS[question])[0];
    app.set({ order: QUESTIONS[question] });
    this.go(best.layer, best.head);
  }

  private go(layer: number, head: number): void {
    this.app.go({ layer, head });
    this.reveal();
  }
}
