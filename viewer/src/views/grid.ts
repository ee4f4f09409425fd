// SPDX-License-Identifier: Apache-2.0
// All heads at once: one small heat map each.
import type { App, Changed } from '../app';
import { colorTable } from '../color';
import { h } from '../dom';
import { largest, visibleKeys } from '../heat';
import { isKey } from '../i18n';
import type { Picture } from '../pen';
import { rank } from '../statistics';
import { keysOf, queriesOf, shownRows, type Section } from '../trace';
import type { View } from './view';

interface Thumbnail {
  section: number;
  layer: number;
  head: number;
  button: HTMLButtonElement;
  canvas: HTMLCanvasElement;
}

const GAP = 6;

export class GridView implements View {
  readonly element = h('div', { class: 'grid-view' });
  private thumbnails: Thumbnail[] = [];

  constructor(
    private readonly app: App,
    private readonly say: (text: string) => void,
  ) {}

  update(changed: Changed): void {
    if (changed.has('trace') || changed.has('language') || changed.has('view')) this.build();
    else if (changed.has('palette') || changed.has('curve') || changed.has('theme') || changed.has('step'))
      this.paintAll();
    if (
      ['trace', 'language', 'view', 'section', 'layer', 'head', 'order', 'link'].some((key) =>
        changed.has(key as never),
      )
    )
      this.mark();
  }

  private build(): void {
    const { app } = this;
    const { trace } = app.state;
    this.element.replaceChildren();
    this.thumbnails = [];
    if (!trace) return;
    const most = Math.max(...trace.sections.map((section) => section.heads));
    // Side by side where there is room.
    const least = trace.sections.length === 1 ? 2000 : Math.max(210, most * 52);
    this.element.style.gridTemplateColumns = `repeat(auto-fit, minmax(min(100%, ${least}px), 1fr))`;
    trace.sections.forEach((section, index) => this.element.append(this.buildSection(section, index)));
    this.paintAll();
  }

  private buildSection(section: Section, index: number): HTMLElement {
    const { app } = this;
    const { axes, sections } = app.state.trace!;
    const alone = section.name === 'decoder' && sections.length === 1;
    const kind = alone ? 'Only' : axes.some((axis) => axis.pictures) ? 'Picture' : '';
    const note = `${section.name}${kind}Note`;
    const heading = h('h3', { class: 'figure-title' }, app.sectionName(section));
    if (section.rollout) {
      heading.append(
        h(
          'button',
          {
            type: 'button',
            class: 'quiet',
            title: app.t('rolloutHint'),
            click: () => app.toggleRollout(index),
          },
          app.t('rollout'),
        ),
      );
    }
    const grid = h('div', { class: 'thumbs', role: 'group' });
    grid.setAttribute(
      'aria-label',
      app.t('gridLabel', { section: app.sectionName(section), layers: section.layers, heads: section.heads }),
    );
    grid.style.gridTemplateColumns = `1.6em repeat(${section.heads}, minmax(0, ${section.heads <= 4 ? 132 : section.heads <= 8 ? 104 : 84}px))`;
    grid.style.gap = section.heads > 8 ? '4px' : `${GAP}px`;
    grid.append(h('span', { class: 'corner', 'aria-hidden': 'true' }));
    for (let head = 0; head < section.heads; ++head)
      grid.append(h('span', { class: 'tick', 'aria-hidden': 'true' }, String(head)));
    for (let layer = 0; layer < section.layers; ++layer) {
      grid.append(h('span', { class: 'tick', 'aria-hidden': 'true' }, String(layer)));
      for (let head = 0; head < section.heads; ++head) grid.append(this.buildThumbnail(section, index, layer, head));
    }
    return h('section', {}, heading, isKey(note) && h('p', { class: 'under' }, app.t(note)), grid);
  }

  private buildThumbnail(section: Section, index: number, layer: number, head: number): HTMLElement {
    const { app } = this;
    const trace = app.state.trace!;
    const canvas = h('canvas', { width: section.thumbnails.columns, height: section.thumbnails.rows });
    const rows = queriesOf(trace, section).length;
    const columns = keysOf(trace, section).length;
    canvas.style.aspectRatio = String(Math.min(Math.max(columns / rows, 0.6), 1.7));
    const label = app.t('placeOf', { section: app.sectionName(section), layer, head });
    const { entropy } = section.statistics[layer][head];
    const full = entropy === null ? label : `${label} · ${app.t('entropy')} ${entropy.toFixed(2)}`;
    const button = h(
      'button',
      {
        type: 'button',
        class: 'thumb',
        'aria-label': full,
        click: () => app.go({ section: index, layer, head, view: 'head' }),
        pointerenter: () => this.say(full),
        focus: () => this.say(full),
      },
      canvas,
    );
    this.thumbnails.push({ section: index, layer, head, button, canvas });
    return button;
  }

  private paintAll(): void {
    const { app } = this;
    const { trace, palette, curve, step } = app.state;
    if (!trace) return;
    const { dark } = app.theme;
    trace.sections.forEach((section, index) => {
      const { rows: r, columns: c, data } = section.thumbnails;
      const table = colorTable(256, palette, dark, curve, largest(data) / 255);
      const rows = queriesOf(trace, section).length;
      const columns = keysOf(trace, section).length;
      const shown = shownRows(trace, section, step);
      const pixels = new Uint32Array(r * c);
      const image = new ImageData(new Uint8ClampedArray(pixels.buffer), c, r);
      for (const one of this.thumbnails) {
        if (one.section !== index) continue;
        const from = (one.layer * section.heads + one.head) * r * c;
        pixels.fill(0);
        for (let y = 0; y < r; ++y) {
          if ((y * rows) / r >= shown) break;
          const lastQuery = Math.min(rows - 1, Math.ceil(((y + 1) * rows) / r) - 1);
          const end = Math.min(c, Math.ceil((visibleKeys(section, rows, columns, lastQuery) * c) / columns));
          for (let x = 0; x < end; ++x) pixels[y * c + x] = table[data[from + y * c + x]];
        }
        one.canvas.getContext('2d')!.putImageData(image, 0, 0);
      }
    });
  }

  // The chosen head, and the first three in the order of the table.
  private mark(): void {
    const { app } = this;
    const { trace, section, layer, head, order, link } = app.state;
    if (!trace) return;
    const best = order.column === 'head' ? [] : rank(trace.sections[section], order, link ?? []).slice(0, 3);
    for (const one of this.thumbnails) {
      const chosen = one.section === section && one.layer === layer && one.head === head;
      one.button.classList.toggle('chosen', chosen);
      one.button.tabIndex = chosen ? 0 : -1;
      const place = one.section === section ? best.findIndex((b) => b.layer === one.layer && b.head === one.head) : -1;
      if (place >= 0) one.button.dataset.place = String(place + 1);
      else delete one.button.dataset.place;
    }
    if (!this.thumbnails.some((one) => one.button.tabIndex === 0) && this.thumbnails.length > 0)
      this.thumbnails[0].button.tabIndex = 0;
  }

  private get chosen(): HTMLButtonElement | undefined {
    return this.thumbnails.find((one) => one.button.classList.contains('chosen'))?.button;
  }

  // Keeps the keyboard's focus on the chosen head when arrows move it.
  follow(): void {
    if (this.element.contains(document.activeElement)) this.chosen?.focus();
  }

  scrollToChosen(): void {
    this.chosen?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }

  picture(): Picture | null {
    const { trace } = this.app.state;
    if (!trace) return null;
    const { theme } = this.app;
    const side = 72;
    const most = Math.max(...trace.sections.map((section) => section.heads));
    const height = trace.sections.reduce((sum, section) => sum + 56 + section.layers * (side + GAP), 16);
    return {
      width: Math.max(40 + most * (side + GAP), 260),
      height,
      paint: (pen) => {
        let y = 16;
        trace.sections.forEach((section, index) => {
          pen.text(24, y + 10, this.app.sectionName(section), { fill: theme.ink, size: 15, bold: true });
          for (let head = 0; head < section.heads; ++head) {
            pen.text(24 + head * (side + GAP) + side / 2, y + 34, String(head), {
              fill: theme.soft,
              size: 11,
              align: 'center',
            });
          }
          y += 46;
          for (let layer = 0; layer < section.layers; ++layer) {
            pen.text(18, y + side / 2, String(layer), { fill: theme.soft, size: 11, align: 'right' });
            for (const one of this.thumbnails) {
              if (one.section !== index || one.layer !== layer) continue;
              pen.image(
                one.canvas,
                { x: 0, y: 0, width: one.canvas.width, height: one.canvas.height },
                { x: 24 + one.head * (side + GAP), y, width: side, height: side },
              );
            }
            y += side + GAP;
          }
          y += 10;
        });
      },
    };
  }
}
