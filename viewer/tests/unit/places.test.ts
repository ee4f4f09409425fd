// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { meanBlock } from '../../src/lens';
import { areaOf, cornerOf, layoutStrip, lights, lookOf, placeAt, shares } from '../../src/places';
import { openingPlace } from '../../src/statistics';
import { parseTrace, type Block, type Pictures } from '../../src/trace';
import { DOT, pictured } from '../mock/pictured';

const pictures = (rows: number, columns: number, count: number): Pictures => ({
  rows,
  columns,
  images: Array.from({ length: count }, () => ''),
});

describe('where a query looks', () => {
  const block: Block = { rows: 2, columns: 2, codes: Uint16Array.from([65535, 0, 0, 65535]) };
  it('is its row, or the mean of the rows that are shown', () => {
    expect([...lookOf(block, 1, 2)]).toEqual([0, 1]);
    expect([...lookOf(block, null, 2)]).toEqual([0.5, 0.5]);
    expect([...lookOf(block, null, 1)]).toEqual([1, 0]);
  });
  it('of several heads is their mean', () => {
    const other: Block = { rows: 2, columns: 2, codes: Uint16Array.from([0, 65535, 1, 65534]) };
    expect([...meanBlock([block, other]).codes]).toEqual([32768, 32768, 1, 65535]);
  });
  it('falls on the frames of a clip by shares', () => {
    const weights = Float64Array.from([0.1, 0.2, 0.3, 0.4]);
    const found = shares(weights, pictures(1, 2, 2));
    expect(found[0]).toBeCloseTo(0.3, 12);
    expect(found[1]).toBeCloseTo(0.7, 12);
  });
  it('is lit by the scale: all of it at the largest weight', () => {
    const weights = Float64Array.from([0, 0.125, 0.5]);
    expect([...lights(weights, 'stretch')]).toEqual([0, 0.5, 1]);
    expect([...lights(weights, 'linear')]).toEqual([0, 0.125, 0.5]);
    expect([...lights(new Float64Array(2), 'stretch')]).toEqual([0, 0]); // nobody looked
  });
});

describe('pictures in lines', () => {
  it('one is as large as it may be', () => {
    const strip = layoutStrip(1, 2, { width: 900, most: 400, lines: true });
    expect(strip).toMatchObject({ across: 1, cell: 400, tall: 200, width: 400, height: 200 });
  });
  it.each([1, 2, 6, 7, 12, 32, 100])('%i find every place again', (count) => {
    for (const lines of [true, false]) {
      const of = pictures(2, 3, count);
      const strip = layoutStrip(count, 1.5, { width: 700, most: 400, lines });
      expect(strip.width).toBeLessThanOrEqual(700.001);
      for (let place = 0; place < 6 * count; ++place) {
        const { x, y, width, height } = areaOf(strip, of, place);
        expect(placeAt(strip, of, x + width / 2, y + height / 2)).toBe(place);
        expect(y + height).toBeLessThanOrEqual(strip.height + 1e-6);
      }
    }
  });
  it('there is none between them, nor behind the last', () => {
    const of = pictures(1, 1, 7);
    const strip = layoutStrip(7, 1, { width: 600, most: 400, lines: true });
    const last = cornerOf(strip, 6);
    expect(placeAt(strip, of, last.x + strip.cell + strip.gap + 5, last.y + 5)).toBeNull();
    expect(placeAt(strip, of, strip.cell + strip.gap / 2, 5)).toBeNull();
    expect(placeAt(strip, of, 5, strip.tall + 3)).toBeNull();
    expect(placeAt(strip, of, -1, 5)).toBeNull();
  });
});

describe('a trace with a picture', () => {
  const header = () => structuredClone(pictured().header);
  it('has the places of an axis, and opens with all heads', () => {
    const trace = parseTrace(header());
    expect(trace.axes[0].pictures).toMatchObject({ rows: 2, columns: 3 });
    expect(trace.axes[0].pictures!.images).toEqual([`data:image/png;base64,${DOT}`]);
    expect(trace.sections.map((section) => section.pictured)).toEqual([true, false, true]);
    expect(openingPlace(trace)).toMatchObject({ section: 2, heads: [0, 1, 2, 3] });
    expect(openingPlace({ ...trace, start: { section: 2, head: 1 } })).toMatchObject({ head: 1, heads: [] });
  });
  it('is refused where places are missing, or what should be a picture is an address', () => {
    const few = header();
    few.axes[0].pictures.rows = 1;
    expect(() => parseTrace(few)).toThrow('axes[0].pictures must have 6 places; there are 3');
    const address = header();
    address.axes[0].pictures.images = ['https://example.org/x.png'];
    expect(() => parseTrace(address)).toThrow('images must be in base64');
  });
});
