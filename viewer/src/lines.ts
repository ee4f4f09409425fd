// SPDX-License-Identifier: Apache-2.0
// Draws tokens on two sides and a line for each weight between them.
import { position, type Curve } from './color';
import { cellText, type Theme } from './heat';
import type { LinesLayout } from './layout';
import type { Pen } from './pen';
import { isSpecial, shorten } from './tokens';
import { weightOf, type Block } from './trace';

export interface Line {
  q: number;
  k: number;
  code: number;
}

// The strongest lines of the first `rows` rows, at most `limit`, strongest last
// (they are drawn on top), without those under a hundredth of the strongest.
// Two passes: count the codes, then take; among equals the first ones.
export function strongestLines(block: Block, rows: number, limit: number): Line[] {
  const { columns, codes } = block;
  const counts = new Uint32Array(65536);
  const end = rows * columns;
  for (let i = 0; i < end; ++i) counts[codes[i]]++;
  let top = 65535;
  while (top > 0 && counts[top] === 0) --top;
  const floor = Math.max(1, Math.ceil(top / 100));
  let least = top;
  let above = 0; // lines stronger than `least`
  while (least > floor && above + counts[least] < limit) above += counts[least--];
  let equals = limit - above;
  const lines: Line[] = [];
  for (let i = 0; i < end; ++i) {
    if (codes[i] < least || codes[i] < floor || (codes[i] === least && equals-- <= 0)) continue;
    lines.push({ q: Math.floor(i / columns), k: i % columns, code: codes[i] });
  }
  return lines.sort((a, b) => a.code - b.code);
}

export function linesOfQuery(block: Block, q: number): Line[] {
  const lines: Line[] = [];
  for (let k = 0; k < block.columns; ++k) {
    const code = block.codes[q * block.columns + k];
    if (code > 0) lines.push({ q, k, code });
  }
  return lines;
}

export function linesOfKey(block: Block, k: number, rows: number): Line[] {
  const lines: Line[] = [];
  for (let q = 0; q < rows; ++q) {
    const code = block.codes[q * block.columns + k];
    if (code > 0) lines.push({ q, k, code });
  }
  return lines;
}

export interface LinesPicture {
  queries: string[];
  keys: string[];
  shown: number;
  focus: { side: 'query' | 'key'; index: number; other: number | null } | null; // other: the end of one link
  heads: { color: string; block: Block; lines: Line[]; max: number }[];
  curve: Curve;
}

export function paintLines(
  pen: Pen,
  picture: LinesPicture,
  layout: LinesLayout,
  theme: Theme,
  scroll: number,
  height: number,
): void {
  const { leftX, rightX, row } = layout;
  const left = (q: number) => layout.leftOffset + (q + 0.5) * row - scroll;
  const right = (k: number) => layout.rightOffset + (k + 0.5) * row - scroll;
  const focus = picture.focus;
  // Where there are many, the weak ones fade, so that they do not make one dark area.
  const many = picture.heads.reduce((sum, one) => sum + one.lines.length, 0);
  // Darkness adds up with the neighbours', so it grows faster than the scale's root.
  const power = focus ? 1.7 : 1.7 + 1.6 * Math.min(1, many / 2000);
  for (const head of picture.heads) {
    for (const { q, k, code } of head.lines) {
      const y1 = left(q);
      const y2 = right(k);
      if ((y1 < -row && y2 < -row) || (y1 > height + row && y2 > height + row)) continue;
      const t = position(weightOf(code), picture.curve, head.max) ** power;
      if (t < 0.01) continue;
      // Of a line that leaves the picture only one end can be read.
      const whole = y1 > -row && y1 < height + row && y2 > -row && y2 < height + row ? 1 : 0.35;
      pen.curve(leftX + 6, y1, rightX - 6, y2, head.color, 0.6 + 2.4 * t, t * whole * 0.9);
    }
  }
  paintSide(pen, picture, layout, theme, height, 'query', left);
  paintSide(pen, picture, layout, theme, height, 'key', right);
}

function paintSide(
  pen: Pen,
  picture: LinesPicture,
  layout: LinesLayout,
  theme: Theme,
  height: number,
  side: 'query' | 'key',
  place: (i: number) => number,
): void {
  const tokens = side === 'query' ? picture.queries : picture.keys;
  const focus = picture.focus;
  const size = layout.row >= 28 ? 15 : 13;
  const room = side === 'query' ? layout.leftX : layout.leftX + 40;
  const longest = Math.max(4, Math.floor((room - 20) / (size * 0.55)));
  for (let i = 0; i < tokens.length; ++i) {
    const y = place(i);
    if (y < -layout.row || y > height + layout.row) continue;
    const x = side === 'query' ? layout.leftX : layout.rightX;
    const align = side === 'query' ? 'right' : 'left';
    const chosen = focus !== null && i === (focus.side === side ? focus.index : focus.other);
    let strength = 0;
    if (focus && focus.side !== side) {
      // One small bar a head, as long as its weight.
      picture.heads.forEach((head, nth) => {
        const { codes, columns } = head.block;
        const code = side === 'key' ? codes[focus.index * columns + i] : codes[i * columns + focus.index];
        const weight = side === 'query' && i >= picture.shown ? 0 : weightOf(code);
        strength = Math.max(strength, weight);
        const length = weight * 56;
        if (length < 1.5) return;
        pen.rect(side === 'key' ? x + 2 : x - 2 - length, y + size * 0.58 + nth * 2.5, length, 2, head.color, 0.95);
      });
    }
    const quiet = (side === 'query' && i >= picture.shown) || (focus && !chosen && focus.side === side);
    const opacity = quiet
      ? 0.35
      : !chosen && focus && focus.side !== side
        ? 0.35 + 0.65 * Math.min(1, Math.sqrt(strength) * 1.3)
        : 1;
    // One head alone has room for its numbers.
    const number = picture.heads.length === 1 && strength >= 0.1 ? cellText(strength) : '';
    const label = shorten(tokens[i], longest);
    const parts = side === 'query' ? [number, label] : [label, number];
    pen.text(side === 'query' ? x - 2 : x + 2, y, parts.filter(Boolean).join('  '), {
      fill: chosen ? theme.accent : isSpecial(tokens[i]) ? theme.soft : theme.ink,
      size,
      align,
      bold: chosen,
      opacity,
    });
  }
}
