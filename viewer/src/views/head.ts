// SPDX-License-Identifier: Apache-2.0
// One head, large: a heat map with the tokens on both axes.
import type { App, Changed, Focus, Side } from '../app';
import { colorTable } from '../color';
import { fitCanvas, h } from '../dom';
import { heatImage, largest, paintFocus, paintHeat, percent, type Heat } from '../heat';
import { cellAt, layoutHeat, zoomAt, type HeatLayout, type Zoom } from '../layout';
import type { Look } from '../look';
import { CanvasPen, SANS, type Picture } from '../pen';
import { keysOf, queriesOf, weightOf, type Block } from '../trace';
import { measure, widest, type View } from './view';

const PLACE = ['trace', 'otherTrace', 'section', 'layer', 'head', 'words', 'pair'];
const ALL: Zoom = { factor: 1, x0: 0, y0: 0 };

export class HeadView implements View {
  private readonly base = h('canvas', { class: 'base', 'aria-hidden': 'true' });
  private readonly overlay = h('canvas', { class: 'overlay', tabindex: 0, role: 'img' });
  private readonly tip = h('div', { class: 'tip', 'aria-hidden': 'true' }); // the words beside it are read aloud
  private readonly frame = h('div', { class: 'chart heat' }, this.base, this.overlay, this.tip);
  readonly element = h('div', { class: 'head-view' }, this.frame);
  private zoom: Zoom = ALL;
  private heat: Heat | null = null;
  private layout: HeatLayout | null = null;
  private picture_: HTMLCanvasElement | null = null; // a pixel a cell
  private labelWidths: [number, number] = [0, 0];
  private waiting = 0;
  private readonly fingers = new Map<number, { x: number; y: number }>();
  private dragged = false;

  constructor(
    private readonly app: App,
    private readonly side: Side = 'main',
  ) {
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.listenToPointer();
  }

  private get look(): Look {
    return this.app.lookOf(this.side)!;
  }

  private get focus(): Focus | null {
    return this.app.focusOf(this.side);
  }

  update(changed: Changed): void {
    const { app } = this;
    if (!app.lookOf(this.side)) return;
    if (['trace', 'otherTrace', 'section', 'words', 'pair'].some((key) => changed.has(key as never))) this.zoom = ALL;
    if (
      [...PLACE, 'blocks', 'palette', 'curve', 'theme', 'step', 'view', 'language'].some((key) =>
        changed.has(key as never),
      )
    ) {
      this.prepare();
      this.draw();
    } else if (changed.has('focus') || changed.has('otherFocus')) {
      this.drawFocus();
    }
  }

  private prepare(): void {
    const { app } = this;
    const { layer, head, palette, curve } = app.state;
    const { queries, keys, ends } = this.look.lens;
    const block = this.look.block(layer, head);
    this.frame.classList.toggle('waiting', block === null);
    this.picture_ = null;
    const codes: Block = block ?? this.standIn(queries.length, keys.length);
    const max = largest(codes.codes) / 65535;
    const { dark } = app.theme;
    this.heat = {
      block: codes,
      queries,
      keys,
      shown: this.look.rowsShown,
      ends,
      dark,
      palette,
      curve,
      max,
      table: colorTable(65536, palette, dark, curve, max),
    };
    this.labelWidths = [widest(queries, 13, SANS), widest(keys, 13, SANS)];
    this.overlay.setAttribute(
      'aria-label',
      app.t('heatLabel', { place: app.placeName(), rows: queries.length, columns: keys.length }),
    );
  }

  // The thumbnail, enlarged, until the numbers come. It knows tokens only.
  private standIn(rows: number, columns: number): Block {
    const { layer, head } = this.app.state;
    const { trace, section } = this.look;
    const codes = new Uint16Array(rows * columns);
    const all = rows === queriesOf(trace, section).length && columns === keysOf(trace, section).length;
    if (layer === 'rollout' || !all) return { rows, columns, codes };
    const { rows: r, columns: c, data } = section.thumbnails;
    const from = (layer * section.heads + head) * r * c;
    for (let q = 0; q < rows; ++q) {
      const y = Math.floor((q * r) / rows);
      for (let k = 0; k < columns; ++k)
        codes[q * columns + k] = data[from + y * c + Math.floor((k * c) / columns)] * 257;
    }
    return { rows, columns, codes };
  }

  private image = (): HTMLCanvasElement => (this.picture_ ??= heatImage(this.heat!));

  private draw(): void {
    const width = this.element.clientWidth;
    if (!this.heat || width === 0) return;
    // All of it stands on the first screen, where that leaves cells that can be read.
    const above = this.frame.getBoundingClientRect().top + window.scrollY;
    const height = Math.max(340, Math.min(window.innerHeight - above - 24, 900));
    const { rows, columns } = this.heat.block;
    const [queryLabel, keyLabel] = this.labelWidths;
    this.layout = layoutHeat({ rows, columns, width, height, queryLabel, keyLabel }, this.zoom);
    this.zoom = { factor: this.zoom.factor, x0: this.layout.x0, y0: this.layout.y0 };
    const context = fitCanvas(this.base, this.layout.width, this.layout.height);
    paintHeat(new CanvasPen(context), this.heat, this.layout, this.app.theme, this.image, window.devicePixelRatio || 1);
    this.frame.classList.toggle('zoomed', this.zoom.factor > 1);
    this.drawFocus();
  }

  private drawFocus(): void {
    if (!this.heat || !this.layout) return;
    const context = fitCanvas(this.overlay, this.layout.width, this.layout.height);
    const { focus } = this;
    this.tip.hidden = true;
    if (!focus || focus.q === null || focus.k === null) return;
    if (focus.q >= this.heat.block.rows || focus.k >= this.heat.block.columns) return;
    this.showTip(focus.q, focus.k);
    paintFocus(
      new CanvasPen(context),
      this.heat,
      this.layout,
      this.app.theme,
      { q: focus.q, k: focus.k },
      (text, size) => measure(text, size, SANS) * 1.06,
    );
  }

  // Who reads whom, and how much, at the cell itself.
  private showTip(q: number, k: number): void {
    const { heat, layout, tip } = this;
    if (!heat || !layout || this.frame.classList.contains('waiting')) return;
    const x = layout.left + (k + 0.5 - layout.x0) * layout.cell;
    const y = layout.top + (q - layout.y0) * layout.cell;
    if (y + layout.cell < layout.top || y > layout.top + layout.plotHeight) return;
    if (x < layout.left || x > layout.left + layout.plotWidth) return;
    const seen = q < heat.shown && k < heat.ends[q];
    tip.hidden = false;
    tip.replaceChildren(
      h('b', {}, heat.queries[q]),
      ' → ',
      h('b', {}, heat.keys[k]),
      h('span', { class: 'weight' }, seen ? percent(weightOf(heat.block.codes[q * heat.block.columns + k])) : '–'),
    );
    // Under the cell, so that the names above stay free; above it at the lower end.
    const below = y + layout.cell + 8;
    const room = layout.height - tip.offsetHeight;
    tip.style.left = `${Math.min(Math.max(x - tip.offsetWidth / 2, 0), layout.width - tip.offsetWidth)}px`;
    tip.style.top = `${below <= room ? below : y - tip.offsetHeight - 8}px`;
  }

  private redrawSoon(): void {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  private point(event: PointerEvent | WheelEvent): { x: number; y: number } {
    const box = this.overlay.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private listenToPointer(): void {
    const { app, overlay } = this;
    overlay.addEventListener('pointerdown', (event) => {
      this.fingers.set(event.pointerId, this.point(event));
      this.dragged = false;
      overlay.setPointerCapture(event.pointerId);
    });
    overlay.addEventListener('pointermove', (event) => {
      const now = this.point(event);
      const before = this.fingers.get(event.pointerId);
      if (before && this.fingers.size === 2) this.pinch(event.pointerId, before, now);
      else if (
        before &&
        this.zoom.factor > 1 &&
        Math.hypot(now.x - before.x, now.y - before.y) > (this.dragged ? 0 : 4)
      )
        this.pan(before, now);
      else if (!before || event.pointerType !== 'mouse') this.pointAt(now);
      if (before && (this.dragged || this.fingers.size === 2)) this.fingers.set(event.pointerId, now);
    });
    const end = (event: PointerEvent) => {
      const was = this.fingers.delete(event.pointerId);
      if (event.type !== 'pointerup' || !was || this.dragged) return;
      const cell = this.cell(this.point(event));
      const { focus } = this;
      const same = app.state.pinned && cell && focus && cell.q === focus.q && cell.k === focus.k;
      app.point(this.side, same ? null : cell, !same && cell !== null);
    };
    overlay.addEventListener('pointerup', end);
    overlay.addEventListener('pointercancel', end);
    overlay.addEventListener('pointerleave', () => {
      if (!app.state.pinned) app.point(this.side, null, false);
    });
    overlay.addEventListener(
      'wheel',
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const { x, y } = this.point(event);
        this.zoomBy(Math.exp(-event.deltaY / 200), x, y);
      },
      { passive: false },
    );
    overlay.addEventListener('dblclick', (event) => {
      const { x, y } = this.point(event as unknown as PointerEvent);
      if (this.zoom.factor > 1) this.resetZoom();
      else this.zoomBy(4, x, y);
    });
  }

  private cell(at: { x: number; y: number }): { q: number; k: number } | null {
    if (!this.layout || !this.heat) return null;
    return cellAt(this.layout, this.heat.block.rows, this.heat.block.columns, at.x, at.y);
  }

  private pointAt(at: { x: number; y: number }): void {
    if (this.app.state.pinned) return;
    const cell = this.cell(at);
    const { focus } = this;
    if (cell?.q === focus?.q && cell?.k === focus?.k) return;
    this.app.point(this.side, cell, false);
  }

  private pan(before: { x: number; y: number }, now: { x: number; y: number }): void {
    if (!this.layout) return;
    this.dragged = true;
    this.zoom = {
      ...this.zoom,
      x0: this.zoom.x0 - (now.x - before.x) / this.layout.cell,
      y0: this.zoom.y0 - (now.y - before.y) / this.layout.cell,
    };
    this.redrawSoon();
  }

  private pinch(id: number, before: { x: number; y: number }, now: { x: number; y: number }): void {
    const other = [...this.fingers].find(([one]) => one !== id)![1];
    const spread = (p: { x: number; y: number }) => Math.max(20, Math.hypot(p.x - other.x, p.y - other.y));
    this.dragged = true;
    this.zoomBy(spread(now) / spread(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
  }

  zoomBy(factor: number, x?: number, y?: number): void {
    if (!this.layout) return;
    const { left, top, plotWidth, plotHeight } = this.layout;
    this.zoom = zoomAt(this.layout, this.zoom, factor, x ?? left + plotWidth / 2, y ?? top + plotHeight / 2);
    this.redrawSoon();
  }

  resetZoom(): void {
    this.zoom = ALL;
    this.redrawSoon();
  }

  // The keyboard walks over the cells.
  walk(dq: number, dk: number): void {
    const { app } = this;
    const { rows, columns } = app.matrix;
    const { focus } = app.state;
    const q = Math.min(Math.max((focus?.q ?? -dq) + dq, 0), rows - 1);
    const k = Math.min(Math.max((focus?.k ?? -dk) + dk, 0), columns - 1);
    const layout = this.layout;
    if (layout && this.zoom.factor > 1) {
      // The cell comes into sight.
      const across = layout.plotWidth / layout.cell;
      const down = layout.plotHeight / layout.cell;
      if (k < layout.x0 || k + 1 > layout.x0 + across) this.zoom = { ...this.zoom, x0: k + 0.5 - across / 2 };
      if (q < layout.y0 || q + 1 > layout.y0 + down) this.zoom = { ...this.zoom, y0: q + 0.5 - down / 2 };
      this.redrawSoon();
    }
    app.set({ focus: { q, k }, pinned: true });
  }

  picture(): Picture | null {
    const { app, heat } = this;
    if (!heat || !this.look.block(app.state.layer, app.state.head)) return null;
    const { rows, columns } = heat.block;
    const [queryLabel, keyLabel] = this.labelWidths;
    const room = Math.min(1400, Math.max(480, columns * 40 + queryLabel + 100));
    const layout = layoutHeat({
      rows,
      columns,
      width: room,
      height: Math.min(1400, rows * 46 + 200),
      queryLabel,
      keyLabel,
    });
    return {
      width: layout.width,
      height: layout.height,
      paint: (pen) => paintHeat(pen, heat, layout, app.theme, this.image, 2),
    };
  }
}
