// SPDX-License-Identifier: Apache-2.0
// Tokens on two sides and lines between them, for one head or several.
import type { App, Changed, Side } from '../app';
import { headColor } from '../color';
import { fitCanvas, h } from '../dom';
import { largest } from '../heat';
import { layoutLines, type LinesLayout } from '../layout';
import { linesOfKey, linesOfQuery, paintLines, strongestLines, type Line, type LinesPicture } from '../lines';
import type { Look } from '../look';
import { CanvasPen, SANS, type Picture } from '../pen';
import type { Block } from '../trace';
import { HeadChips } from './head_chips';
import { widest, type View } from './view';

const MOST_LINES = 2400;

export class LinesView implements View {
  private readonly chips: HeadChips;
  private readonly canvas = h('canvas', { role: 'img', tabindex: 0 });
  private readonly paper = h('div', { class: 'paper' }, this.canvas);
  private readonly scroller = h('div', { class: 'chart scroll' }, this.paper);
  private readonly remark = h('p', { class: 'remark' });
  readonly element: HTMLElement;
  private layout: LinesLayout | null = null;
  private readonly strongest = new WeakMap<Block, { rows: number; limit: number; lines: Line[]; max: number }>();
  private waiting = 0;

  constructor(
    private readonly app: App,
    private readonly side: Side = 'main',
  ) {
    this.chips = new HeadChips(app);
    this.element = h('div', { class: 'lines-view' }, this.chips.element, this.scroller, this.remark);
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.scroller.addEventListener('scroll', () => this.redrawSoon(), { passive: true });
    this.listenToPointer();
  }

  private get look(): Look {
    return this.app.lookOf(this.side)!;
  }

  update(changed: Changed): void {
    if (!this.app.lookOf(this.side)) return;
    if (
      ['trace', 'otherTrace', 'section', 'layer', 'head', 'heads', 'theme', 'language', 'view', 'words', 'pair'].some(
        (key) => changed.has(key as never),
      )
    )
      this.chips.build();
    if (changed.has('trace') || changed.has('otherTrace') || changed.has('section')) this.scroller.scrollTop = 0;
    this.draw();
  }

  private get heads(): number[] {
    return this.app.headsShown;
  }

  private focus(): LinesPicture['focus'] {
    const focus = this.app.focusOf(this.side);
    if (!focus) return null;
    if (focus.q !== null) return { side: 'query', index: focus.q, other: focus.k };
    return focus.k === null ? null : { side: 'key', index: focus.k, other: null };
  }

  private compose(focus: LinesPicture['focus']): LinesPicture {
    const { app } = this;
    const { dark } = app.theme;
    const shown = this.look.rowsShown;
    const limit = Math.floor(MOST_LINES / this.heads.length);
    const heads: LinesPicture['heads'] = [];
    for (const head of this.heads) {
      const block = this.look.block(app.state.layer, head);
      if (!block) continue;
      let held = this.strongest.get(block);
      if (!held || held.rows !== shown || held.limit !== limit) {
        held = { rows: shown, limit, lines: strongestLines(block, shown, limit), max: largest(block.codes) / 65535 };
        this.strongest.set(block, held);
      }
      let lines = held.lines;
      if (focus?.side === 'query') lines = focus.index < shown ? linesOfQuery(block, focus.index) : [];
      if (focus?.side === 'key') lines = linesOfKey(block, focus.index, shown);
      if (focus && focus.other !== null) lines = lines.filter((line) => line.k === focus.other);
      heads.push({ color: headColor(head, dark), block, lines, max: held.max });
    }
    return {
      queries: this.look.lens.queries,
      keys: this.look.lens.keys,
      shown,
      focus,
      heads,
      curve: app.state.curve,
    };
  }

  private measureLayout(width: number): LinesLayout {
    const { rows, columns } = this.look.matrix;
    const { queries, keys } = this.look.lens;
    const size = Math.max(rows, columns) <= 24 ? 15 : 13;
    return layoutLines(rows, columns, width, widest(queries, size, SANS), widest(keys, size, SANS));
  }

  private lastSize = '';
  private draw(): void {
    const { app } = this;
    const width = this.scroller.clientWidth;
    if (!app.lookOf(this.side) || width === 0 || app.state.view !== 'lines') return;
    const { section, words, pair } = app.state;
    const { trace } = this.look;
    const size = `${width}/${section}/${words}/${pair}/${trace.id}/${window.innerHeight}`;
    if (!this.layout || size !== this.lastSize) {
      this.lastSize = size;
      this.layout = this.measureLayout(width);
      this.paper.style.height = `${this.layout.height}px`;
      this.scroller.style.maxHeight = `${Math.max(320, window.innerHeight * 0.75)}px`;
    }
    const height = Math.min(this.layout.height, this.scroller.clientHeight);
    const picture = this.compose(this.focus());
    const context = fitCanvas(this.canvas, width, height);
    paintLines(new CanvasPen(context), picture, this.layout, app.theme, this.scroller.scrollTop, height);
    this.canvas.dataset.lines = String(picture.heads.reduce((sum, head) => sum + head.lines.length, 0));
    const { rows, columns } = this.look.matrix;
    this.canvas.setAttribute('aria-label', app.t('linesLabel', { place: app.placeName(), rows, columns }));
    const many = picture.heads.some((head) => head.lines.length >= Math.floor(MOST_LINES / this.heads.length) - 1);
    this.remark.textContent = !picture.focus && many ? app.t('strongestShown', { count: MOST_LINES }) : '';
  }

  private redrawSoon(): void {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  private tokenAt(event: MouseEvent): LinesPicture['focus'] {
    if (!this.layout) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top + this.scroller.scrollTop;
    const { leftX, rightX, row, leftOffset, rightOffset } = this.layout;
    const { rows, columns } = this.look.matrix;
    if (x <= leftX + 10) {
      const q = Math.floor((y - leftOffset) / row);
      return q >= 0 && q < rows ? { side: 'query', index: q, other: null } : null;
    }
    if (x >= rightX - 10) {
      const k = Math.floor((y - rightOffset) / row);
      return k >= 0 && k < columns ? { side: 'key', index: k, other: null } : null;
    }
    return null;
  }

  private listenToPointer(): void {
    const { app, canvas } = this;
    const toFocus = (at: LinesPicture['focus']) =>
      at && (at.side === 'query' ? { q: at.index, k: null } : { q: null, k: at.index });
    canvas.addEventListener('pointermove', (event) => {
      if (app.state.pinned) return;
      const at = toFocus(this.tokenAt(event));
      const focus = app.focusOf(this.side);
      if (at?.q !== focus?.q || at?.k !== focus?.k) app.point(this.side, at, false);
    });
    canvas.addEventListener('pointerleave', () => {
      if (!app.state.pinned) app.point(this.side, null, false);
    });
    // A second click on the other side chooses the link between both.
    canvas.addEventListener('click', (event) => {
      const at = toFocus(this.tokenAt(event));
      const held = app.state.pinned ? app.focusOf(this.side) : null;
      const same = at && held && (at.q === null ? at.k === held.k : at.q === held.q);
      const next = same ? null : at && { q: at.q ?? held?.q ?? null, k: at.k ?? held?.k ?? null };
      app.point(this.side, next, next !== null);
    });
  }

  // The keyboard walks down the queries.
  walk(by: number): void {
    const { app } = this;
    const { rows } = app.matrix;
    const q = Math.min(Math.max((app.state.focus?.q ?? (by > 0 ? -1 : rows)) + by, 0), rows - 1);
    const y = (this.layout?.leftOffset ?? 0) + q * (this.layout?.row ?? 0);
    if (y < this.scroller.scrollTop || y > this.scroller.scrollTop + this.scroller.clientHeight - 30)
      this.scroller.scrollTop = y - this.scroller.clientHeight / 2;
    app.set({ focus: { q, k: null }, pinned: true });
  }

  picture(): Picture | null {
    const picture = this.compose(this.app.state.pinned ? this.focus() : null);
    if (picture.heads.length < this.heads.length) return null;
    const width = 760;
    const layout = this.measureLayout(width);
    return {
      width,
      height: layout.height,
      paint: (pen) => paintLines(pen, picture, layout, this.app.theme, 0, layout.height),
    };
  }
}
