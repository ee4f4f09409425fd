// SPDX-License-Identifier: Apache-2.0
// One query against all keys, dimension by dimension.
import type { App, Changed } from '../app';
import { choose, fitCanvas, h } from '../dom';
import { strongestLines } from '../lines';
import { CanvasPen, SANS, type Picture } from '../pen';
import { layoutQk, paintQk, rowAt, type QkLayout, type QkPicture } from '../qk';
import { isSpecial } from '../tokens';
import { widest, type View } from './view';

export class QkView implements View {
  private readonly label = h('span', { class: 'label' });
  private readonly queries = h('div', { class: 'ribbon', role: 'group' });
  private readonly canvas = h('canvas', { role: 'img', tabindex: 0 });
  private readonly frame = h('div', { class: 'chart qk' }, this.canvas);
  private readonly remark = h('p', { class: 'remark' });
  readonly element = h('div', { class: 'qk-view' }, this.label, this.queries, this.frame, this.remark);
  private layout: QkLayout | null = null;

  constructor(private readonly app: App) {
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.canvas.addEventListener('click', (event) => {
      if (!this.layout) return;
      const k = rowAt(this.layout, app.keys.length, event.clientY - this.canvas.getBoundingClientRect().top);
      const q = this.place()?.q;
      if (k !== null && q !== undefined) app.set({ focus: { q, k }, pinned: true });
    });
  }

  update(changed: Changed): void {
    const { app } = this;
    if (!app.state.trace || !app.section?.vectors) return;
    if (['trace', 'section', 'pair', 'view', 'language', 'step'].some((key) => changed.has(key as never))) {
      this.label.textContent = app.t('qkQueries');
      this.remark.textContent = app.t('qkRemark', { scale: `√${app.section.vectors.dim}` });
      this.queries.replaceChildren(
        ...app.queries
          .slice(0, app.rowsShown)
          .map((token, q) => h('button', { type: 'button', click: () => this.choose(q) }, token)),
      );
    }
    this.draw();
  }

  private choose(q: number): void {
    const { app } = this;
    const k = app.state.focus?.k ?? this.place()?.k ?? null;
    app.set({ focus: { q, k: k !== null && k < app.ends[q] ? k : null }, pinned: true });
  }

  // The chosen pair; otherwise the strongest of the head, between words if it can be:
  // an end and a full stop are often the strongest, and say least.
  place(): { q: number; k: number | null } | null {
    const { app } = this;
    const { focus, layer, head } = app.state;
    if (focus && focus.q !== null) return { q: focus.q, k: focus.k };
    const block = app.block(layer, head);
    if (!block) return null;
    const isWord = (token: string) => !isSpecial(token) && /[\p{L}\p{N}]/u.test(token);
    const [rows, columns] = [app.queries.map(isWord), app.keys.map(isWord)];
    const lines = strongestLines(block, app.rowsShown, block.codes.length).reverse();
    const best = lines.find(({ q, k }) => rows[q] && columns[k]) ?? lines[0] ?? { q: 0, k: 0 };
    return { q: best.q, k: focus?.k ?? best.k };
  }

  private compose(): QkPicture | null {
    const { app } = this;
    const { layer, head } = app.state;
    if (layer === 'rollout') return null;
    const vectors = app.vectors(layer, head);
    const block = app.block(layer, head);
    const place = this.place();
    if (!vectors || !block || !place) return null;
    return {
      vectors,
      block,
      tokens: { queries: app.queries, keys: app.keys },
      rows: app.keyTokens,
      q: place.q,
      query: app.queryTokens[place.q],
      k: place.k,
      end: app.ends[place.q],
      names: {
        query: app.t('qkQuery'),
        key: app.t('qkKey'),
        product: app.t('qkProduct'),
        score: app.t('score'),
        weight: app.t('weight'),
      },
    };
  }

  private draw(): void {
    const { app } = this;
    const width = this.element.clientWidth;
    if (!app.state.trace || width === 0 || app.state.view !== 'qk') return;
    const picture = this.compose();
    this.frame.classList.toggle('waiting', picture === null);
    this.layout = layoutQk(app.keys.length, width, widest([...app.queries, ...app.keys], 13, SANS));
    const context = fitCanvas(this.canvas, width, this.layout.height);
    if (!picture) return;
    paintQk(new CanvasPen(context), picture, this.layout, app.theme);
    [...this.queries.children].forEach((token, q) => {
      token.classList.toggle('now', q === picture.q);
      choose(token, q === picture.q);
    });
    this.canvas.setAttribute(
      'aria-label',
      app.t('qkLabel', { place: app.placeName(), query: app.queries[picture.q], columns: app.keys.length }),
    );
  }

  // The keyboard walks over queries (left, right) and keys (up, down).
  walk(dk: number, dq: number): void {
    const { app } = this;
    const now = this.place();
    if (!now) return;
    const q = Math.min(Math.max(now.q + dq, 0), app.rowsShown - 1);
    const k = Math.min(Math.max((now.k ?? -dk) + dk, 0), app.ends[q] - 1);
    app.set({ focus: { q, k }, pinned: true });
  }

  picture(): Picture | null {
    const picture = this.compose();
    if (!picture) return null;
    const { app } = this;
    const layout = layoutQk(app.keys.length, 900, widest([...app.queries, ...app.keys], 13, SANS));
    return { width: layout.width, height: layout.height, paint: (pen) => paintQk(pen, picture, layout, app.theme) };
  }
}
