// SPDX-License-Identifier: Apache-2.0
// Colours: scales whose lightness grows evenly, so that they can be read with any
// kind of colour vision and in print.
import { interpolateCividis, interpolateViridis } from 'd3-scale-chromatic';

export type PaletteName = 'cividis' | 'viridis' | 'ink';
export const PALETTES: readonly PaletteName[] = ['ink', 'cividis', 'viridis'];

export type Curve = 'stretch' | 'root' | 'linear';
export const CURVES: readonly Curve[] = ['stretch', 'root', 'linear'];

export type Rgb = readonly [number, number, number];

const INK_LIGHT: readonly Rgb[] = [
  [243, 241, 235],
  [196, 213, 220],
  [118, 168, 190],
  [44, 108, 148],
  [13, 40, 76],
];
const INK_DARK: readonly Rgb[] = [
  [30, 34, 41],
  [34, 68, 96],
  [47, 118, 148],
  [132, 186, 186],
  [250, 240, 205],
];

function between(stops: readonly Rgb[], t: number): Rgb {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  const f = at - i;
  const mix = (c: number) => Math.round(stops[i][c] * (1 - f) + stops[i + 1][c] * f);
  return [mix(0), mix(1), mix(2)];
}

function parseRgb(text: string): Rgb {
  const hex = /^#(..)(..)(..)$/.exec(text);
  if (hex) return [parseInt(hex[1], 16), parseInt(hex[2], 16), parseInt(hex[3], 16)];
  const [r, g, b] = (text.match(/\d+/g) ?? ['0', '0', '0']).map(Number);
  return [r, g, b];
}

// t from 0 (no weight) to 1.
export function paletteColor(name: PaletteName, dark: boolean, t: number): Rgb {
  if (name === 'ink') return between(dark ? INK_DARK : INK_LIGHT, t);
  return parseRgb(name === 'cividis' ? interpolateCividis(t) : interpolateViridis(t));
}

export const css = ([r, g, b]: Rgb): string => `rgb(${r},${g},${b})`;

// Relative luminance as WCAG defines it.
export function luminance(color: Rgb): number {
  const [r, g, b] = color.map((c) => {
    const s = c / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Where a weight stands on the scale, from 0 to 1.
export function position(weight: number, curve: Curve, max: number): number {
  if (curve === 'linear') return Math.min(weight, 1);
  if (curve === 'root') return Math.sqrt(Math.min(weight, 1));
  return max > 0 ? Math.sqrt(Math.min(weight / max, 1)) : 0;
}

// The weight at a place of the scale: what the legend writes there.
export function weightAt(t: number, curve: Curve, max: number): number {
  if (curve === 'linear') return t;
  return curve === 'root' ? t * t : t * t * max;
}

// A colour for each of `count` codes (65536 for blocks, 256 for thumbnails), as
// ImageData wants them on a little-endian machine.
export function colorTable(count: number, palette: PaletteName, dark: boolean, curve: Curve, max: number): Uint32Array {
  const steps = new Uint32Array(512);
  for (let i = 0; i < steps.length; ++i) {
    const [r, g, b] = paletteColor(palette, dark, i / (steps.length - 1));
    steps[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  const table = new Uint32Array(count);
  for (let code = 0; code < count; ++code) {
    table[code] = steps[Math.round(position(code / (count - 1), curve, max) * (steps.length - 1))];
  }
  return table;
}

// From -1 (orange) over nothing to 1 (blue), for products that may be negative.
const MINUS: Rgb = [200, 80, 10];
const PLUS: Rgb = [29, 95, 138];
const MINUS_DARK: Rgb = [240, 147, 90];
const PLUS_DARK: Rgb = [108, 182, 240];
export function signedColor(t: number, dark: boolean): Rgb {
  const zero = dark ? INK_DARK[0] : INK_LIGHT[0];
  const end = t < 0 ? (dark ? MINUS_DARK : MINUS) : dark ? PLUS_DARK : PLUS;
  return between([zero, end], Math.sqrt(Math.abs(t)));
}

// One colour a head. Twelve are told apart with any colour vision, and from the
// paper (a test holds that); with more heads they come again, and the number tells.
const HEADS_LIGHT = [
  ...['#056db5', '#ff2d74', '#3ba302', '#942f78', '#7d6603', '#199cab'],
  ...['#a871ff', '#804d3e', '#0300e0', '#074449', '#8e8884', '#1a4703'],
];
const HEADS_DARK = [
  ...['#109abd', '#fd8609', '#24fc7f', '#fe0099', '#f1e9d8', '#5f5ef7'],
  ...['#e61819', '#aeb7ff', '#357e66', '#e0a0a0', '#9e9163', '#71f9f9'],
];

export function headColor(head: number, dark: boolean): string {
  return (dark ? HEADS_DARK : HEADS_LIGHT)[head % HEADS_LIGHT.length];
}
