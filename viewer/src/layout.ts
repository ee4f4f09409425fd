// SPDX-License-Identifier: Apache-2.0
// Where things stand in the drawings: numbers only.

export interface HeatLayout {
  left: number; // the plot's corner
  top: number;
  plotWidth: number;
  plotHeight: number;
  width: number; // all of it, with labels
  height: number;
  cell: number; // pixels a cell, after zooming
  x0: number; // the first column shown, in cells; may be a fraction
  y0: number;
  tilted: boolean; // labels of keys stand askew
}

export interface HeatSize {
  rows: number;
  columns: number;
  width: number; // room on the page
  height: number;
  queryLabel: number; // the widest label of each axis
  keyLabel: number;
}

export interface Zoom {
  factor: number; // 1: all is shown
  x0: number;
  y0: number;
}

const LARGEST_CELL = 52;
export const TILT = 50; // degrees
const SIN = Math.sin((TILT * Math.PI) / 180);
const COS = Math.cos((TILT * Math.PI) / 180);

export function layoutHeat(size: HeatSize, zoom: Zoom = { factor: 1, x0: 0, y0: 0 }): HeatLayout {
  const { rows, columns } = size;
  const left = Math.ceil(Math.min(size.queryLabel * 1.08 + 18, Math.max(40, size.width * 0.3)));
  const fit = (right: number, top: number) =>
    Math.min(LARGEST_CELL, Math.max(40, size.width - left - right) / columns, Math.max(40, size.height - top) / rows);
  let tilted = false;
  let top = 30;
  let cell = fit(6, top);
  if (size.keyLabel > cell - 4) {
    tilted = true;
    const label = Math.min(size.keyLabel, 110);
    top = Math.ceil(label * SIN + 16);
    cell = fit(Math.min(label * COS, size.width * 0.14), top);
  }
  const plotWidth = cell * columns;
  const plotHeight = cell * rows;
  const big = cell * Math.max(1, zoom.factor);
  const clamp = (at: number, cells: number, room: number) => Math.max(0, Math.min(at, cells - room / big));
  return {
    left,
    top,
    plotWidth,
    plotHeight,
    width: size.width,
    height: Math.ceil(top + plotHeight + 4),
    cell: big,
    x0: clamp(zoom.x0, columns, plotWidth),
    y0: clamp(zoom.y0, rows, plotHeight),
    tilted,
  };
}

// The zoom after `factor` more around a point of the drawing.
export function zoomAt(layout: HeatLayout, zoom: Zoom, factor: number, x: number, y: number): Zoom {
  const fit = layout.cell / Math.max(1, zoom.factor);
  // A cell need never be larger than a fingertip.
  const most = Math.max(1, 48 / fit);
  const next = Math.min(Math.max(zoom.factor * factor, 1), most);
  const px = Math.min(Math.max(x - layout.left, 0), layout.plotWidth);
  const py = Math.min(Math.max(y - layout.top, 0), layout.plotHeight);
  const column = layout.x0 + px / layout.cell;
  const row = layout.y0 + py / layout.cell;
  return { factor: next, x0: column - px / (fit * next), y0: row - py / (fit * next) };
}

export function cellAt(
  layout: HeatLayout,
  rows: number,
  columns: number,
  x: number,
  y: number,
): { q: number; k: number } | null {
  if (x < layout.left || y < layout.top || x >= layout.left + layout.plotWidth || y >= layout.top + layout.plotHeight)
    return null;
  const k = Math.floor(layout.x0 + (x - layout.left) / layout.cell);
  const q = Math.floor(layout.y0 + (y - layout.top) / layout.cell);
  return q < rows && k < columns ? { q, k } : null;
}

export interface LinesLayout {
  leftX: number; // where lines start and end
  rightX: number;
  row: number; // pixels a token
  leftOffset: number; // the shorter list stands in the middle
  rightOffset: number;
  height: number;
}

export function layoutLines(
  rows: number,
  columns: number,
  width: number,
  queryLabel: number,
  keyLabel: number,
): LinesLayout {
  const longest = Math.max(rows, columns);
  const row = longest <= 24 ? 30 : longest <= 60 ? 25 : 22;
  const [left, right] = [queryLabel, keyLabel].map((label) => Math.min(label + 24, width * 0.36));
  // Tokens and lines stay together on a wide page.
  const between = Math.min(width - left - right, 520);
  const leftX = Math.max(0, (width - left - between - right) / 2) + left;
  return {
    leftX,
    rightX: leftX + between,
    row,
    leftOffset: ((longest - rows) * row) / 2,
    rightOffset: ((longest - columns) * row) / 2,
    height: longest * row,
  };
}
