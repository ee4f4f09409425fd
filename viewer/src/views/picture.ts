// SPDX-License-Identifier: Apache-2.0
// Where words look in a picture, or a clip in its frames: lit, for each head and their mean.
import type { App, Changed, Focus } from '../app';
import { choose, fitCanvas, h } from '../dom';
import { percent } from '../heat';
import { areaOf, layoutStrip, lookOf, paintStrip, placeAt, type Lit, type Strip } from '../places';
import { CanvasPen, type Picture } from '../pen';
import type { Block, Pictures } from '../trace';
import { HeadChips } from './head_chips';
import type { View } from './view';

const SMALL = 96; // pixels; what has fewer is shown as pixels
const LARGEST = 400; // of one picture on the screen
const WORD = { least: 54, most: 84, room: 20 }; // of a picture over a word, and what stands beside it
const HEAD = { least: 64, most: 150, room: 20 }; // of a head's picture
const OF_WORDS = ['trace', 'section', 'layer', 'words', 'step', 'view', 'language'];

// So that as many stand in a line, if they are not too small for it.
const fitted = (width: number, count: number, { least, most, room }: typeof WORD): number =>
  Math.min(most, Math.max(least, Math.floor(width / count) - room));

export class PictureView implements View {
  private readonly chips: HeadChips;
  private readonly words = h('div', { class: 'caption-words', role: 'group' });
  private readonly canvas = h('canvas', { class: 'lit', role: 'img', tabindex: 0 });
  private readonly tip = h('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
  private readonly frame = h('div', { class: 'chart places' }, this.canvas, this.tip);
  private readonly eachTitle = h('p', { class: 'label' });
  private readonly each = h('div', { class: 'each-head' });
  private readonly eachBox = h('div', { class: 'each' }, this.eachTitle, this.each);
  private readonly remark = h('p', { class: 'remark' });
  readonly element: HTMLElement;
  private images: HTMLImageElement[] = [];
  private ready = false;
  private of: Pictures | null = null; // whose images those are
  private strip: Strip | null = null;

  constructor(private readonly app: App) {
    this.chips = new HeadChips(app);
    this.element = h(
      'div',
      { class: 'picture-view' },
      this.words,
      h('div', { class: 'look' }, this.frame, this.eachBox),
      this.remark,
      this.chips.element,
    );
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.listenToPointer();
    this.words.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.shiftKey) return;
      event.preventDefault();
      event.stopPropagation();
      this.walk(0, by);
    });
  }

  private get pictures(): Pictures | null {
    const { app } = this;
    return app.section ? app.state.trace!.axes[app.section.keys].pictures : null;
  }

  // The places ask, too: one looks at the others.
  private get self(): boolean {
    return this.app.section!.queries === this.app.section!.keys;
  }

  update(changed: Changed): void {
    const { pictures } = this;
    if (!pictures) return;
    if (pictures !== this.of) void this.load(pictures);
    if ([...OF_WORDS, 'head', 'heads', 'theme'].some((key) => changed.has(key as never))) this.chips.build();
    if (OF_WORDS.some((key) => changed.has(key as never))) {
      this.buildWords();
      this.buildEach();
    }
    this.draw();
  }

  private async load(pictures: Pictures): Promise<void> {
    this.of = pictures;
    this.ready = false;
    this.images = pictures.images.map((address) => h('img', { src: address }));
    await Promise.all(this.images.map((image) => image.decode().catch(() => undefined)));
    if (this.of !== pictures) return; // others came since
    this.ready = true;
    this.draw();
  }

  // The words that ask, each under what it looks at. Of a clip, its frames ask.
  private buildWords(): void {
    const { app } = this;
    this.words.hidden = this.self || app.queries.length < 2;
    this.words.setAttribute('aria-label', app.t('asks'));
    this.words.replaceChildren(
      ...(this.words.hidden ? [] : app.queries.slice(0, app.rowsShown)).map((word, q) =>
        h(
          'button',
          {
            type: 'button',
            class: 'word',
            click: () => this.choose({ q, k: null }),
            pointerenter: (event: PointerEvent) => event.pointerType === 'mouse' && this.point({ q, k: null }),
            pointerleave: () => this.point(null),
          },
          h('canvas', { 'aria-hidden': 'true' }),
          h('span', {}, word),
        ),
      ),
    );
  }

  private buildEach(): void {
    const { app } = this;
    const { layer } = app.state;
    const { heads } = app.section!;
    this.eachBox.hidden = layer === 'rollout' || heads === 1;
    this.eachTitle.textContent = app.t('eachHead');
    this.each.classList.toggle('film', this.pictures!.images.length > 1);
    this.each.replaceChildren(
      ...Array.from({ length: this.eachBox.hidden ? 0 : heads }, (_, head) =>
        h(
          'button',
          { type: 'button', class: 'one-head', click: () => app.go({ head, heads: [] }) },
          h('canvas', { 'aria-hidden': 'true' }),
          h('span', {}, app.t('headOf', { head })),
        ),
      ),
    );
  }

  private lit(block: Block, q: number | null): Lit {
    return {
      images: this.images,
      small: this.images[0].naturalWidth < SMALL,
      pictures: this.pictures!,
      weights: lookOf(block, q, this.app.rowsShown),
      curve: this.app.state.curve,
    };
  }

  private get aspect(): number {
    const { naturalWidth, naturalHeight } = this.images[0];
    return naturalWidth > 0 ? naturalWidth / naturalHeight : 1;
  }

  private get film(): boolean {
    return this.images.length > 1;
  }

  private draw(): void {
    const { app } = this;
    const width = this.element.clientWidth;
    if (!this.ready || !this.pictures || width === 0 || app.state.view !== 'picture') return;
    const block = app.shownBlock();
    this.frame.classList.toggle('waiting', block === null);
    if (!block) return;
    const q = app.state.focus?.q ?? null;
    const room = this.film ? width : Math.min(width, LARGEST);
    this.strip = layoutStrip(this.images.length, this.aspect, { width: room, most: LARGEST, lines: true });
    this.paint(this.canvas, this.lit(block, q), this.strip);
    this.mark();
    [...this.words.children].forEach((word, i) => {
      this.paint(word.querySelector('canvas')!, this.lit(block, i), this.row(fitted(width, app.rowsShown, WORD)));
      choose(word, q === i);
    });
    this.drawEach(q, width - room - 30);
    const query = this.asker(q);
    this.canvas.dataset.query = query;
    this.canvas.setAttribute(
      'aria-label',
      app.t('pictureLabel', { query, place: app.placeName(), columns: app.keys.length }),
    );
    this.remark.textContent = app.t(this.words.hidden ? 'placeRemark' : 'pictureRemark', { query });
  }

  private asker(q: number | null): string {
    const { queries } = this.app;
    return q === null && queries.length > 1 ? this.app.t('pictureMean') : queries[q ?? 0];
  }

  private row(width: number): Strip {
    return layoutStrip(this.images.length, this.aspect, { width, most: LARGEST, lines: false });
  }

  private drawEach(q: number | null, beside: number): void {
    const { app } = this;
    const { layer, head, heads } = app.state;
    const across = Math.ceil(Math.sqrt(this.each.children.length));
    const size = this.film ? this.each.clientWidth - 90 : fitted(beside, across, HEAD);
    [...this.each.children].forEach((one, i) => {
      const block = app.block(layer, i);
      const canvas = one.querySelector('canvas')!;
      choose(one, heads.length === 0 && i === head);
      if (block) this.paint(canvas, this.lit(block, q), this.row(size));
    });
  }

  private paint(canvas: HTMLCanvasElement, lit: Lit, strip: Strip): void {
    paintStrip(fitCanvas(canvas, strip.width, strip.height), lit, strip, this.app.theme);
  }

  // Who asks, and which place was chosen, outlined.
  private mark(): void {
    const { app, strip } = this;
    const context = this.canvas.getContext('2d')!;
    const { focus } = app.state;
    const outline = (place: number, color: string) => {
      const { x, y, width, height } = areaOf(strip!, this.pictures!, place);
      for (const [line, stroke] of [
        [4, '#0d141e'], // under it, where the picture is as bright
        [2, color],
      ] as const) {
        context.lineWidth = line;
        context.strokeStyle = stroke;
        context.strokeRect(x + 2, y + 2, width - 4, height - 4);
      }
    };
    if (focus?.q != null && this.self) outline(focus.q, '#ffffff');
    if (focus?.k != null) outline(focus.k, '#ffb454');
  }

  private place(event: MouseEvent): number | null {
    const box = this.canvas.getBoundingClientRect();
    if (!this.strip) return null;
    return placeAt(this.strip, this.pictures!, event.clientX - box.left, event.clientY - box.top);
  }

  // What the pointer is at, until it leaves or something is kept.
  private point(at: Focus | null): void {
    const { focus, pinned } = this.app.state;
    if (!pinned && (at?.q !== focus?.q || at?.k !== focus?.k)) this.app.point('main', at, false);
  }

  // A click keeps it; a second one lets go.
  private choose(at: Focus): void {
    const { focus, pinned } = this.app.state;
    const same = pinned && at.q === focus?.q && at.k === focus?.k;
    this.app.point('main', same ? null : at, !same);
  }

  private listenToPointer(): void {
    const { app, canvas } = this;
    const asks = (place: number): Focus => (this.self ? { q: place, k: null } : { q: null, k: place });
    canvas.addEventListener('pointermove', (event) => {
      const place = this.place(event);
      if (event.pointerType === 'mouse') this.point(place === null ? null : asks(place));
      this.showTip(place);
    });
    canvas.addEventListener('pointerleave', () => {
      this.point(null);
      this.showTip(null);
    });
    canvas.addEventListener('click', (event) => {
      const place = this.place(event);
      const { focus, pinned } = app.state;
      const held = pinned ? (focus?.q ?? null) : null;
      if (place === null) app.point('main', null, false);
      else if (held === null || (this.self && held === place)) this.choose(asks(place));
      else this.choose({ q: held, k: focus!.k === place ? null : place });
      this.showTip(place);
    });
  }

  // How much of the look falls there.
  private showTip(place: number | null): void {
    const { app, strip, tip } = this;
    const block = app.shownBlock();
    tip.hidden = place === null || !block || !strip;
    if (tip.hidden) return;
    const q = app.state.focus?.q ?? null;
    const weight = lookOf(block!, q, app.rowsShown)[place!];
    tip.replaceChildren(
      h('b', {}, this.asker(q)),
      ' → ',
      h('b', {}, app.keys[place!]),
      h('span', { class: 'weight' }, percent(weight)),
    );
    const { x, y, width, height } = areaOf(strip!, this.pictures!, place!);
    const below = y + height + 6;
    const most = this.element.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(x + width / 2 - tip.offsetWidth / 2, most))}px`;
    tip.style.top = `${below + tip.offsetHeight <= strip!.height ? below : y - tip.offsetHeight - 6}px`;
  }

  // The keyboard walks over the words, or over the places that ask.
  walk(down: number, right: number): void {
    const { app } = this;
    const { pictures } = this;
    const by = this.self ? right + down * pictures!.columns : right + down;
    const now = app.state.focus?.q ?? (by > 0 ? -by : app.rowsShown - by - 1);
    const q = Math.min(Math.max(now + by, 0), app.rowsShown - 1);
    app.set({ focus: { q, k: null }, pinned: true });
    const { activeElement } = document;
    if (this.words.contains(activeElement)) (this.words.children[q] as HTMLElement).focus();
  }

  picture(): Picture | null {
    const { app } = this;
    const block = app.shownBlock();
    if (!block || !this.ready) return null;
    const { theme } = app;
    const q = app.state.focus?.q ?? null;
    const strip = layoutStrip(this.images.length, this.aspect, { width: 900, most: LARGEST, lines: true });
    const words = this.words.hidden ? [] : app.queries.slice(0, app.rowsShown);
    const line = Math.floor(900 / (WORD.most + 12));
    const small = this.row(WORD.most);
    const step = small.height + 34;
    const top = words.length > 0 ? Math.ceil(words.length / line) * step : 0;
    const draw = (pen: { image: CanvasPen['image'] }, lit: Lit, at: Strip, x: number, y: number) => {
      const canvas = document.createElement('canvas');
      canvas.width = Math.round(2 * at.width);
      canvas.height = Math.round(2 * at.height);
      const context = canvas.getContext('2d')!;
      context.scale(2, 2);
      paintStrip(context, lit, at, theme);
      const whole = { x: 0, y: 0, width: canvas.width, height: canvas.height };
      pen.image(canvas, whole, { x, y, width: at.width, height: at.height });
    };
    return {
      width: words.length > 0 ? Math.max(strip.width, Math.min(words.length, line) * (WORD.most + 12)) : strip.width,
      height: top + strip.height,
      paint: (pen) => {
        words.forEach((word, i) => {
          const [x, y] = [(i % line) * (WORD.most + 12), Math.floor(i / line) * step];
          draw(pen, this.lit(block, i), small, x, y);
          const style = { fill: i === q ? theme.accent : theme.ink, size: 14, align: 'center', bold: i === q } as const;
          pen.text(x + WORD.most / 2, y + small.height + 14, word, style);
        });
        draw(pen, this.lit(block, q), strip, 0, top);
      },
    };
  }
}
