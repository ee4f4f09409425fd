// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { decodeBase64, decodeBlock, isStepped, parseTrace, shownRows, weightOf } from '../../src/trace';
import { synthesize } from '../mock/synthetic';

const bytes = (...values: number[]) => Uint8Array.from(values);
const header = () => synthesize('t', 'a b', 'x', ['a', 'b'], ['x', 'y', 'z'], { layers: 2, heads: 3 }).header as any;

describe('a block', () => {
  it('is little endian, row major, and 65535 means 1', () => {
    const block = decodeBlock(bytes(0xff, 0xff, 0x01, 0x00, 0x00, 0x80, 0x00, 0x00, 0x34, 0x12, 0xfe, 0xff), 2, 3);
    expect([...block.codes]).toEqual([65535, 1, 32768, 0, 0x1234, 65534]);
    expect(weightOf(65535)).toBe(1);
    expect(weightOf(0)).toBe(0);
  });
  it('of another size is refused with both sizes', () => {
    expect(() => decodeBlock(bytes(1, 2, 3), 2, 2)).toThrow('block: 2 x 2 weights take 8 bytes; 3 came');
  });
  it('may start at an odd byte', () => {
    const held = bytes(9, 1, 0, 2, 0);
    expect([...decodeBlock(held.subarray(1), 1, 2).codes]).toEqual([1, 2]);
  });
  it('comes as base64 with line ends around it', () => {
    expect([...decodeBase64('\nAAEC/w==\n')]).toEqual([0, 1, 2, 255]);
  });
});

describe('a header', () => {
  it('keeps what was sent', () => {
    const trace = parseTrace(header());
    expect(trace.axes[1].tokens).toEqual(['y', 'z', '</s>']);
    expect(trace.axes[2].tokens).toEqual(['x', 'y', 'z']);
    expect(trace.sections.map((one) => one.name)).toEqual(['encoder', 'decoder', 'cross']);
    expect(trace.sections[2].statistics[1][2].distance).toBeNull();
    expect(trace.sections[0].thumbnails.data.length).toBe(2 * 3 * 2 * 2);
  });
  it.each([
    ['another format', (h: any) => (h.format = 'x'), 'format must be "regard-trace"'],
    ['another version', (h: any) => (h.version = 2), 'this page reads version 1; version 2 came'],
    ['no sections', (h: any) => (h.sections = []), 'sections must not be empty'],
    [
      'an axis that is not there',
      (h: any) => (h.sections[0].keys = 3),
      'sections[0].keys must be a whole number from 0 to 2',
    ],
    [
      'thumbnails too short',
      (h: any) => (h.sections[1].thumbnails.data = 'AAAA'),
      'sections[1].thumbnails must hold 54 bytes; 3 came',
    ],
    ['tokens that are no list', (h: any) => (h.axes[0].tokens = 'abc'), 'axes[0].tokens must be a list'],
    ['a fraction of a layer', (h: any) => (h.sections[0].layers = 1.5), 'sections[0].layers must be a whole number'],
  ])('with %s is refused', (_, spoil, message) => {
    const spoilt = header();
    spoil(spoilt);
    expect(() => parseTrace(spoilt)).toThrow(message);
  });
  it('without statistics has none, rather than zeros', () => {
    const bare = header();
    delete bare.sections[0].statistics;
    expect(parseTrace(bare).sections[0].statistics[1][1].entropy).toBeNull();
  });
});

describe('steps', () => {
  const trace = parseTrace(header());
  it('move the target and never the source', () => {
    expect(isStepped(trace, 0)).toBe(false);
    expect(isStepped(trace, 1)).toBe(true);
    expect(isStepped(trace, 2)).toBe(true);
    expect(shownRows(trace, trace.sections[0], 1)).toBe(2);
    expect(shownRows(trace, trace.sections[1], 1)).toBe(1);
    expect(shownRows(trace, trace.sections[2], 2)).toBe(2);
    expect(shownRows(trace, trace.sections[2], 0)).toBe(3);
  });
});
