// SPDX-License-Identifier: Apache-2.0
// Why a query gives a key its weight: the products of their dimensions.
import { css, signedColor } from './color';
import { percent, type Theme } from './heat';
import type { Pen } from './pen';
import { shorten } from './tokens';
import { weightOf, type Block, type Vectors } from './trace';

// q_i * k_i * scale for each dimension: they add up to the score.
export function products(vectors: Vectors, q: number, k: number): Float32Array {
  const { dim, scale, queries, keys } = vectors;
  return Float32Array.from({ length: dim }, (_, i) => queries[q * dim + i] * keys[k * dim + i] * scale);
}

export const sum = (values: ArrayLike<number>): number =>
  Array.prototype.reduce.call(values, (a, b) => a + b, 0) as number;

// The dimensions that say most, largest first.
export function strongestDimensions(values: ArrayLike<number>, most: number): number[] {
  return Array.from({ length: values.length }, (_, i) => i)
    .sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]))
    .slice(0, most);
}

export const signed = (value: number): string => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(2)}`;

export interface QkPicture {
  vectors: Vectors;
  block: Block;
  tokens: { queries: string[]; keys: string[] }; // as shown
  rows: number[]; // the token of each key that is shown
  q: number; // who asks: its row, and its token
  query: number;
  k: number | null; // the chosen row
  end: number; // how many keys the query sees
  names: { query: string; key: string; product: string; score: string; weight: string };
}

export interface QkLayout {
  label: number; // where strips begin
  strip: number; // width of a strip
  second: number; // where the second one begins
  score: number; // right edge of the scores
  bar: number; // the weights' bars
  width: number;
  row: number;
  top: number;
  height: number;
}

const ROW = 24;

export function layoutQk(keys: number, width: number, label: number): QkLayout {
  const left = Math.min(label + 14, width * 0.22);
  const numbers = width < 560 ? 96 : 170;
  const strip = Math.max(40, (width - left - numbers - 16) / 2);
  return {
    label: left,
    strip,
    second: left + strip + 16,
    score: left + 2 * strip + 16 + 48,
    bar: left + 2 * strip + 16 + 56,
    width,
    row: ROW,
    top: 84,
    height: 84 + keys * ROW + 8,
  };
}

export function rowAt(layout: QkLayout, keys: number, y: number): number | null {
  const row = Math.floor((y - layout.top) / layout.row);
  return row >= 0 && row < keys ? row : null;
}

const largestOf = (values: Float32Array): number => values.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-9);

function paintStrip(pen: Pen, x: number, y: number, width: number, values: Float32Array, most: number, dark: boolean) {
  const cell = width / values.length;
  values.forEach((value, i) =>
    pen.rect(
      x + i * cell,
      y,
      Math.max(cell - (cell > 3 ? 0.5 : 0), 0.5),
      ROW - 6,
      css(signedColor(value / most, dark)),
    ),
  );
}

export function paintQk(pen: Pen, picture: QkPicture, layout: QkLayout, theme: Theme): void {
  const { vectors, block, tokens, names } = picture;
  const { dim, queries, keys } = vectors;
  const { label, strip, second, score, bar, top, row } = layout;
  const head = { fill: theme.soft, size: 12 };
  const longest = Math.max(3, Math.floor((label - 12) / 6));
  const query = queries.subarray(picture.query * dim, (picture.query + 1) * dim);
  // 1. The query, above its keys.
  pen.text(label, 10, names.query, head);
  pen.text(label - 8, 31, shorten(tokens.queries[picture.q], longest), {
    fill: theme.accent,
    size: 13,
    align: 'right',
    bold: true,
  });
  const [mostQ, mostK] = [largestOf(queries), largestOf(keys)];
  paintStrip(pen, label, 22, strip, query, mostQ, theme.dark);
  // 2. Each key, its products with the query, what they add up to, and the weight.
  pen.text(label, top - 16, names.key, head);
  pen.text(second, top - 16, names.product, head);
  pen.text(score, top - 16, names.score, { ...head, align: 'right' });
  pen.text(bar, top - 16, names.weight, head);
  const all = picture.rows.map((key) => products(vectors, picture.query, key));
  const most = Math.max(1e-9, ...all.slice(0, picture.end).map(largestOf));
  picture.rows.forEach((key, i) => {
    const y = top + i * row;
    const hidden = i >= picture.end;
    if (i === picture.k) pen.rect(0, y - 1, layout.width, row, theme.accent, 0.12, 4);
    pen.text(label - 8, y + row / 2 - 1, shorten(tokens.keys[i], longest), {
      fill: i === picture.k ? theme.accent : theme.ink,
      size: 13,
      align: 'right',
      bold: i === picture.k,
      opacity: hidden ? 0.35 : 1,
    });
    if (hidden) return; // the mask
    paintStrip(pen, label, y + 2, strip, keys.subarray(key * dim, (key + 1) * dim), mostK, theme.dark);
    paintStrip(pen, second, y + 2, strip, all[i], most, theme.dark);
    const weight = weightOf(block.codes[picture.q * block.columns + i]);
    const total = sum(all[i]);
    pen.text(score, y + row / 2 - 1, signed(total), {
      fill: total < 0 ? css(signedColor(-1, theme.dark)) : theme.ink,
      size: 12,
      align: 'right',
    });
    const room = Math.max(0, layout.width - bar - 50);
    pen.rect(bar, y + row / 2 - 4, Math.max(1, weight * room), 7, theme.accent, 0.85, 2);
    pen.text(layout.width, y + row / 2 - 1, percent(weight), { fill: theme.accent, size: 12, align: 'right' });
  });
}
