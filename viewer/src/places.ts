// SPDX-License-Identifier: Apache-2.0
// Pictures, lit where a query looks: one picture large, or the frames of a clip.
import { position, type Curve } from './color';
import type { Theme } from './heat';
import type { Block, Pictures } from './trace';
import { weightOf } from './trace';

// Where one query looks; null: the mean of the rows that are shown.
export function lookOf(block: Block, q: number | null, shown: number): Float64Array {
  const { columns, codes } = block;
  const weights = new Float64Array(columns);
  const [from, to] = q === null ? [0, shown] : [q, q + 1];
  for (let row = from; row < to; ++row)
    for (let k = 0; k < columns; ++k) weights[k] += weightOf(codes[row * columns + k]) / (to - from);
  return weights;
}

export const placesOf = ({ rows, columns }: Pictures): number => rows * columns;

// How much of a look falls on each picture.
export function shares(weights: Float64Array, pictures: Pictures): number[] {
  const places = placesOf(pictures);
  return pictures.images.map((_, i) => weights.subarray(i * places, (i + 1) * places).reduce((a, b) => a + b, 0));
}

// Pictures one after the other, in lines.
export interface Strip {
  across: number; // pictures in a line
  cell: number; // width of a picture
  tall: number; // height of a picture
  gap: number;
  foot: number; // room under each, for its number and its share
  width: number;
  height: number;
}

// `most`: how wide a picture may be.
export function layoutStrip(
  count: number,
  aspect: number,
  { width, most, lines }: { width: number; most: number; lines: boolean },
): Strip {
  const gap = count === 1 ? 0 : lines ? 8 : 2;
  const across = lines ? Math.min(count, Math.max(6, Math.ceil(Math.sqrt(count * 2.2)))) : count;
  const cell = Math.max(1, Math.min(most, (width - gap * (across - 1)) / across));
  const tall = cell / aspect;
  const foot = lines && count > 1 ? 22 : 0;
  const rows = Math.ceil(count / across);
  return {
    ...{ across, cell, tall, gap, foot },
    width: across * cell + (across - 1) * gap,
    height: rows * (tall + foot) + (rows - 1) * gap,
  };
}

export interface Corner {
  x: number;
  y: number;
}

export const cornerOf = ({ across, cell, tall, gap, foot }: Strip, i: number): Corner => ({
  x: (i % across) * (cell + gap),
  y: Math.floor(i / across) * (tall + foot + gap),
});

// The place under a point; null: between pictures.
export function placeAt(strip: Strip, { rows, columns, images }: Pictures, x: number, y: number): number | null {
  const i = Math.floor(x / (strip.cell + strip.gap));
  const line = Math.floor(y / (strip.tall + strip.foot + strip.gap));
  const picture = line * strip.across + i;
  if (x < 0 || y < 0 || i >= strip.across || picture >= images.length) return null;
  const corner = cornerOf(strip, picture);
  const column = Math.floor(((x - corner.x) / strip.cell) * columns);
  const row = Math.floor(((y - corner.y) / strip.tall) * rows);
  return column < columns && row < rows ? (picture * rows + row) * columns + column : null;
}

export interface Area extends Corner {
  width: number;
  height: number;
}

// Where a place stands.
export function areaOf(strip: Strip, pictures: Pictures, place: number): Area {
  const { rows, columns } = pictures;
  const corner = cornerOf(strip, Math.floor(place / (rows * columns)));
  const [width, height] = [strip.cell / columns, strip.tall / rows];
  const row = Math.floor(place / columns) % rows;
  return { x: corner.x + (place % columns) * width, y: corner.y + row * height, width, height };
}

// How far the veil over a place lets the picture through: 1 where the look is strongest.
export function lights(weights: Float64Array, curve: Curve): Float64Array {
  const max = weights.reduce((a, b) => Math.max(a, b), 0);
  return weights.map((weight) => position(weight, curve, max));
}

const VEIL = [13, 20, 30] as const; // dark in every theme: what is lit is what stands out
const DARKEST = 0.78;

function veilOf(light: Float64Array, { rows, columns }: Pictures): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(columns, rows);
  light.forEach((t, i) => image.data.set([...VEIL, Math.round(255 * DARKEST * (1 - t))], 4 * i));
  context.putImageData(image, 0, 0);
  return canvas;
}

export interface Lit {
  images: readonly CanvasImageSource[]; // one for each picture
  small: boolean; // of so few pixels that they should be seen
  pictures: Pictures;
  weights: Float64Array;
  curve: Curve;
}

export function paintStrip(context: CanvasRenderingContext2D, lit: Lit, strip: Strip, theme: Theme): void {
  const { images, pictures, weights, curve } = lit;
  const places = placesOf(pictures);
  const light = lights(weights, curve);
  const share = shares(weights, pictures);
  const most = Math.max(...share, 1e-9);
  images.forEach((image, i) => {
    const { x, y } = cornerOf(strip, i);
    context.imageSmoothingEnabled = !lit.small;
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, x, y, strip.cell, strip.tall);
    context.imageSmoothingEnabled = false; // a place is a place, not a slope
    const veil = veilOf(light.subarray(i * places, (i + 1) * places), pictures);
    context.drawImage(veil, x, y, strip.cell, strip.tall);
    if (strip.foot === 0) return;
    context.fillStyle = theme.rule;
    context.fillRect(x, y + strip.tall + 3, strip.cell, 3);
    context.fillStyle = theme.accent;
    context.fillRect(x, y + strip.tall + 3, (strip.cell * share[i]) / most, 3);
    context.fillStyle = theme.soft;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    context.fillText(String(i + 1), x, y + strip.tall + 15);
    context.textAlign = 'right';
    context.fillText(`${Math.round(100 * share[i])} %`, x + strip.cell, y + strip.tall + 15);
  });
}
