// SPDX-License-Identifier: Apache-2.0
// Draws the heat map of one head.
import { css, luminance, paletteColor, position, type Curve, type PaletteName } from './color';
import { TILT, type HeatLayout } from './layout';
import type { Pen } from './pen';
import { labelStride, shorten } from './tokens';
import { weightOf, type Block } from './trace';

export interface Theme {
  dark: boolean;
  ink: string;
  soft: string;
  faint: string;
  paper: string;
  rule: string;
  accent: string;
}

export interface Heat {
  block: Block;
  queries: string[]; // as shown
  keys: string[];
  shown: number; // rows up to the chosen step
  ends: number[]; // how many keys each row sees
  dark: boolean;
  palette: PaletteName;
  curve: Curve;
  max: number;
  table: Uint32Array; // a colour for each code
}

export function largest(codes: ArrayLike<number>): number {
  let max = 0;
  for (let i = 0; i < codes.length; ++i) if (codes[i] > max) max = codes[i];
  return max;
}

// The last visible key of a row, plus one.
export function visibleKeys(heat: { causal: boolean }, rows: number, columns: number, q: number): number {
  return heat.causal ? Math.max(0, Math.min(columns, q + 1 + columns - rows)) : columns;
}

function toCanvas(pixels: Uint32Array, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer, pixels.byteOffset, pixels.byteLength);
  canvas.getContext('2d')!.putImageData(new ImageData(bytes, width, height), 0, 0);
  return canvas;
}

// A pixel a cell. What a mask or the chosen step hides stays transparent.
export function heatImage(heat: Heat): HTMLCanvasElement {
  const { rows, columns, codes } = heat.block;
  const pixels = new Uint32Array(rows * columns);
  for (let q = 0; q < heat.shown; ++q) {
    const end = q * columns + heat.ends[q];
    for (let i = q * columns; i < end; ++i) pixels[i] = heat.table[codes[i]];
  }
  return toCanvas(pixels, columns, rows);
}

// For cells smaller than a pixel: each pixel shows the largest weight in it, so
// that a single strong cell is never lost. The part is given in cells.
export function pooledCodes(
  block: Block,
  x0: number,
  y0: number,
  cell: number,
  width: number,
  height: number,
): Uint16Array {
  const { rows, columns, codes } = block;
  const pooled = new Uint16Array(width * height);
  const target = new Int32Array(columns).fill(-1);
  for (let k = 0; k < columns; ++k) {
    const x = Math.floor((k + 0.5 - x0) * cell);
    if (x >= 0 && x < width) target[k] = x;
  }
  for (let q = 0; q < rows; ++q) {
    const y = Math.floor((q + 0.5 - y0) * cell);
    if (y < 0 || y >= height) continue;
    for (let k = 0; k < columns; ++k) {
      if (target[k] < 0) continue;
      const code = codes[q * columns + k];
      const at = y * width + target[k];
      if (code > pooled[at]) pooled[at] = code;
    }
  }
  return pooled;
}

function pooledImage(heat: Heat, layout: HeatLayout, ratio: number): HTMLCanvasElement {
  const { rows } = heat.block;
  const cell = layout.cell * ratio;
  const width = Math.max(1, Math.floor(layout.plotWidth * ratio));
  const height = Math.max(1, Math.floor(layout.plotHeight * ratio));
  const pooled = pooledCodes(heat.block, layout.x0, layout.y0, cell, width, height);
  const pixels = new Uint32Array(width * height);
  for (let y = 0; y < height; ++y) {
    const q = Math.floor(layout.y0 + (y + 0.999) / cell);
    if (Math.floor(layout.y0 + y / cell) >= heat.shown) break;
    const end = Math.min(width, Math.ceil((heat.ends[Math.min(q, rows - 1)] - layout.x0) * cell));
    for (let x = 0; x < end; ++x) pixels[y * width + x] = heat.table[pooled[y * width + x]];
  }
  return toCanvas(pixels, width, height);
}

export function percent(weight: number): string {
  const p = weight * 100;
  return `${p >= 10 ? p.toFixed(1) : p >= 0.1 || p === 0 ? p.toFixed(p === 0 ? 0 : 2) : p.toFixed(3)} %`;
}

// The number in a cell, in hundredths: none is left empty.
export function cellText(weight: number): string {
  const p = weight * 100;
  if (p >= 0.95) return String(Math.round(p));
  return p >= 0.05 ? p.toFixed(1) : p > 0 ? '<0.1' : '0';
}

interface Range {
  from: number;
  to: number;
}
function visibleRange(start: number, room: number, cell: number, count: number): Range {
  return { from: Math.max(0, Math.floor(start)), to: Math.min(count, Math.ceil(start + room / cell - 1e-9)) };
}

function paintLabels(pen: Pen, heat: Heat, layout: HeatLayout, theme: Theme): void {
  const size = layout.cell >= 18 ? 13 : 11;
  const { rows, columns } = heat.block;
  const longest = Math.max(4, Math.floor((layout.left - 14) / (size * 0.5)));
  const down = labelStride(layout.cell, size + 3);
  const q = visibleRange(layout.y0, layout.plotHeight, layout.cell, rows);
  for (let i = Math.ceil(q.from / down) * down; i < q.to; i += down) {
    const y = layout.top + (i + 0.5 - layout.y0) * layout.cell;
    if (y < layout.top || y > layout.top + layout.plotHeight) continue;
    const fill = i < heat.shown ? theme.ink : theme.faint;
    pen.text(layout.left - 8, y, shorten(heat.queries[i], longest), { fill, size, align: 'right' });
  }
  const across = labelStride(layout.cell, layout.tilted ? size + 6 : 1);
  const k = visibleRange(layout.x0, layout.plotWidth, layout.cell, columns);
  for (let i = Math.ceil(k.from / across) * across; i < k.to; i += across) {
    const x = layout.left + (i + 0.5 - layout.x0) * layout.cell;
    if (x < layout.left || x > layout.left + layout.plotWidth) continue;
    const style = { fill: theme.ink, size };
    if (layout.tilted) pen.text(x, layout.top - 8, shorten(heat.keys[i], 16), { ...style, rotate: -TILT });
    else pen.text(x, layout.top - 13, heat.keys[i], { ...style, align: 'center' });
  }
}

// Few and large cells stand apart and carry their number; many are one picture.
const MOST_SEPARATE_CELLS = 4096;

function paintCells(pen: Pen, heat: Heat, layout: HeatLayout): void {
  const { rows, columns, codes } = heat.block;
  const { left, top, cell } = layout;
  const right = left + layout.plotWidth;
  const bottom = top + layout.plotHeight;
  const q = visibleRange(layout.y0, layout.plotHeight, cell, Math.min(rows, heat.shown));
  const k = visibleRange(layout.x0, layout.plotWidth, cell, columns);
  const gap = cell >= 14 ? 1.5 : 0;
  for (let i = q.from; i < q.to; ++i) {
    const end = Math.min(k.to, heat.ends[i]);
    for (let j = k.from; j < end; ++j) {
      const weight = weightOf(codes[i * columns + j]);
      const color = paletteColor(heat.palette, heat.dark, position(weight, heat.curve, heat.max));
      const x = left + (j - layout.x0) * cell;
      const y = top + (i - layout.y0) * cell;
      const x1 = Math.max(x, left);
      const y1 = Math.max(y, top);
      const x2 = Math.min(x + cell - gap, right);
      const y2 = Math.min(y + cell - gap, bottom);
      if (x2 <= x1 || y2 <= y1) continue;
      pen.rect(x1, y1, x2 - x1, y2 - y1, css(color), 1, gap > 0 ? Math.min(3, cell / 8) : 0);
      if (cell >= 28 && x1 === x && y1 === y) {
        const fill = luminance(color) > 0.28 ? '#10202e' : '#f5f7f7';
        // What is next to nothing is written, but does not shout.
        const faint = weight < 0.0095;
        pen.text(x + (cell - gap) / 2, y + (cell - gap) / 2, cellText(weight), {
          fill,
          size: faint ? 10 : 11,
          align: 'center',
          opacity: faint ? 0.5 : 0.85,
        });
      }
    }
  }
}

export function paintHeat(
  pen: Pen,
  heat: Heat,
  layout: HeatLayout,
  theme: Theme,
  image: () => HTMLCanvasElement,
  ratio: number,
): void {
  const { left, top, cell, plotWidth, plotHeight } = layout;
  const plot = { x: left, y: top, width: plotWidth, height: plotHeight };
  paintLabels(pen, heat, layout, theme);
  if (cell >= 6 && (plotWidth / cell) * (plotHeight / cell) <= MOST_SEPARATE_CELLS) {
    paintCells(pen, heat, layout);
  } else if (cell * ratio < 1) {
    const pooled = pooledImage(heat, layout, ratio);
    pen.image(pooled, { x: 0, y: 0, width: pooled.width, height: pooled.height }, plot);
  } else {
    const shown = { x: layout.x0, y: layout.y0, width: plotWidth / cell, height: plotHeight / cell };
    pen.image(image(), shown, plot);
  }
}

// What pointing at a cell adds: its row and column, and both names.
export function paintFocus(
  pen: Pen,
  heat: Heat,
  layout: HeatLayout,
  theme: Theme,
  at: { q: number; k: number },
  measure: (text: string, size: number) => number,
): void {
  const { left, top, cell, plotWidth, plotHeight } = layout;
  const x = left + (at.k - layout.x0) * cell;
  const y = top + (at.q - layout.y0) * cell;
  const wide = Math.max(cell, 2);
  const size = 13;
  const rowSeen = y > top - cell && y < top + plotHeight;
  const columnSeen = x > left - cell && x < left + plotWidth;
  if (rowSeen) {
    const y1 = Math.max(y, top);
    const y2 = Math.min(y + wide, top + plotHeight);
    pen.rect(left, y1, plotWidth, y2 - y1, theme.accent, cell < 6 ? 0.35 : 0.14);
    const label = shorten(heat.queries[at.q], Math.max(4, Math.floor((left - 12) / 6.5)));
    const w = Math.min(measure(label, size) + 10, left);
    pen.rect(Math.max(0, left - w - 3), y + wide / 2 - 10, w, 20, theme.accent, 1, 4);
    pen.text(left - 8, y + wide / 2, label, { fill: theme.paper, size, align: 'right', bold: true });
  }
  if (columnSeen) {
    const x1 = Math.max(x, left);
    const x2 = Math.min(x + wide, left + plotWidth);
    pen.rect(x1, top, x2 - x1, plotHeight, theme.accent, cell < 6 ? 0.35 : 0.14);
    const label = shorten(heat.keys[at.k], 16);
    const w = measure(label, size) + 10;
    const from = Math.min(Math.max(x + wide / 2 - w / 2, 0), layout.width - w);
    pen.rect(from, top - 24, w, 20, theme.accent, 1, 4);
    pen.text(from + 5, top - 14, label, { fill: theme.paper, size, bold: true });
  }
  if (rowSeen && columnSeen && cell >= 5) {
    const c = Math.max(cell - (cell >= 14 ? 1.5 : 0), 3);
    for (const [x1, y1, x2, y2] of [
      [x, y, x + c, y],
      [x + c, y, x + c, y + c],
      [x + c, y + c, x, y + c],
      [x, y + c, x, y],
    ]) {
      pen.line(x1, y1, x2, y2, theme.accent, 2);
    }
  }
}
