// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { cellText, percent, pooledCodes, visibleKeys } from '../../src/heat';
import { linesOfKey, linesOfQuery, strongestLines } from '../../src/lines';
import { SvgPen } from '../../src/pen';
import { asSourceError, BlockCache, PageSource, ServerSource, SourceError } from '../../src/source';
import { products, signed, strongestDimensions, sum } from '../../src/qk';
import { decodeVectors, halfOf, parseTrace, TraceError, type Block } from '../../src/trace';
import { synthesize } from '../mock/synthetic';

const block = (rows: number, columns: number, ...codes: number[]): Block => ({
  rows,
  columns,
  codes: Uint16Array.from(codes),
});
const empty = (bytes: number): Block => ({ rows: 1, columns: bytes / 2, codes: new Uint16Array(bytes / 2) });

describe('the store of blocks', () => {
  it('lets go of what was used longest ago', () => {
    const cache = new BlockCache(30);
    cache.put('a', empty(10));
    cache.put('b', empty(10));
    cache.put('c', empty(10));
    cache.get('a');
    cache.put('d', empty(10));
    expect(['a', 'b', 'c', 'd'].filter((key) => cache.get(key))).toEqual(['a', 'c', 'd']);
  });
  it('keeps the newest, however large, and counts a second put once', () => {
    const cache = new BlockCache(30);
    cache.put('a', empty(20));
    cache.put('a', empty(20));
    expect(cache.size).toBe(1);
    cache.put('huge', empty(100));
    expect(cache.get('huge')).toBeDefined();
    expect(cache.get('a')).toBeUndefined();
  });
});

describe('the strongest lines', () => {
  const matrix = block(2, 3, 60000, 100, 5000, 40000, 60000, 700);
  it('come strongest last', () => {
    expect(strongestLines(matrix, 2, 3).map((line) => [line.q, line.k])).toEqual([
      [1, 0],
      [0, 0],
      [1, 1],
    ]);
  });
  it('leave out what cannot be seen, and rows after the step', () => {
    expect(strongestLines(matrix, 2, 100).length).toBe(5);
    expect(strongestLines(matrix, 1, 100).map((line) => line.k)).toEqual([2, 0]);
  });
  it('take the first among equals', () => {
    const flat = block(10, 10, ...new Array<number>(100).fill(655));
    expect(strongestLines(flat, 10, 7).map((line) => line.q * 10 + line.k)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(strongestLines(block(2, 2, 0, 0, 0, 0), 2, 5)).toEqual([]);
  });
  it('of one token are its row or its column', () => {
    expect(linesOfQuery(matrix, 1).map((line) => line.code)).toEqual([40000, 60000, 700]);
    expect(linesOfKey(matrix, 2, 2).map((line) => line.code)).toEqual([5000, 700]);
    expect(linesOfKey(matrix, 2, 1).map((line) => line.code)).toEqual([5000]);
  });
});

describe('a heat map smaller than its cells', () => {
  it('loses no strong cell', () => {
    const codes = new Uint16Array(1000 * 1000);
    codes[777 * 1000 + 333] = 50000;
    const small = pooledCodes({ rows: 1000, columns: 1000, codes }, 0, 0, 0.35, 350, 350);
    expect(Math.max(...small)).toBe(50000);
    expect(small[Math.floor(777.5 * 0.35) * 350 + Math.floor(333.5 * 0.35)]).toBe(50000);
  });
});

it('a causal row ends at its own key', () => {
  expect([0, 1, 2].map((q) => visibleKeys({ causal: true }, 3, 3, q))).toEqual([1, 2, 3]);
  expect([0, 1].map((q) => visibleKeys({ causal: true }, 2, 5, q))).toEqual([4, 5]);
  expect(visibleKeys({ causal: false }, 3, 3, 0)).toBe(3);
});

it('percentages have as many digits as they need', () => {
  expect([0, 0.00012, 0.0123, 0.456, 1].map(percent)).toEqual(['0 %', '0.012 %', '1.23 %', '45.6 %', '100.0 %']);
});

it('no cell is without a number', () => {
  expect([0, 0.0001, 0.003, 0.0096, 0.014, 0.5, 1].map(cellText)).toEqual(['0', '<0.1', '0.3', '1', '1', '50', '100']);
});

describe('queries and keys', () => {
  const vectors = {
    dim: 2,
    scale: 0.5,
    queries: Float32Array.from([1, 2, 3, -4]),
    keys: Float32Array.from([5, 6, -1, 0.5]),
  };
  it('make the score by their products', () => {
    expect([...products(vectors, 1, 0)]).toEqual([7.5, -12]);
    expect(sum(products(vectors, 1, 0))).toBe((0.5 * (3 * 5 - 4 * 6)) as number);
    expect(strongestDimensions(products(vectors, 1, 0), 5)).toEqual([1, 0]);
    expect([1.234, -0.5].map(signed)).toEqual(['+1.23', '−0.50']);
  });
  it('come in half precision', () => {
    // 1, -2, 0.1 (rounded), 2^-24, infinity, 0
    const bits = [0x3c00, 0xc000, 0x2e66, 0x0001, 0x7c00, 0x8000];
    expect(bits.map(halfOf)).toEqual([1, -2, 0.0999755859375, 2 ** -24, Infinity, -0]);
    const bytes = Uint8Array.from([0x00, 0x3c, 0x00, 0xc0, 0x00, 0x3c]);
    const read = decodeVectors(bytes, { dim: 1, scale: 1 }, 2, 1);
    expect([...read.queries, ...read.keys]).toEqual([1, -2, 1]);
    expect(() => decodeVectors(bytes, { dim: 2, scale: 1 }, 1, 1)).toThrow('vectors: 1 + 1 of 2 take 8 bytes; 6 came');
  });
});

it('a drawing cannot be broken by a token', () => {
  const pen = new SvgPen(10, 10);
  pen.text(1, 2, '</text><script>"&', { fill: '#000', size: 9 });
  expect(pen.toString()).toContain('&lt;/text&gt;&lt;script&gt;&quot;&amp;</text>');
});

describe('the server', () => {
  const made = synthesize('one', 'a', 'b', ['a', 'b'], [], { layers: 1, heads: 1 });
  const answer = (value: unknown, status = 200) =>
    new Response(value instanceof Uint16Array ? (value.buffer as ArrayBuffer) : JSON.stringify(value), { status });
  it('that let go of a trace is asked for it again, once', async () => {
    const asked: string[] = [];
    const source = new ServerSource(async (url) => {
      asked.push(url);
      if (url === '/api/trace') return answer({ ...made.header, id: `id ${asked.length}` });
      if (url.includes('id%201')) return answer({ error: { code: 'gone' } }, 404);
      return answer(made.block(0, 0, 0));
    });
    const trace = await source.trace('a', '');
    const got = await source.block(trace, 0, 0, 0);
    expect(got.codes).toEqual(made.block(0, 0, 0));
    expect(asked.map((url) => url.split('?')[0])).toEqual(['/api/trace', '/api/weights', '/api/trace', '/api/weights']);
    expect(trace.id).toBe('id 3');
  });
  it('that lets go of it again is not asked for ever', async () => {
    let asked = 0;
    const source = new ServerSource(
      async (url) => (++asked, url === '/api/trace' ? answer(made.header) : answer({ error: { code: 'gone' } }, 404)),
    );
    const trace = await source.trace('a', '');
    await expect(source.block(trace, 0, 'rollout', 0)).rejects.toMatchObject({ code: 'gone' });
    expect(asked).toBe(4);
  });
  it('that is away, or speaks no JSON, gives an error that has words', async () => {
    const away = new ServerSource(async () => Promise.reject(new TypeError('failed')));
    await expect(away.info()).rejects.toMatchObject({ code: 'network' });
    const strange = new ServerSource(async () => new Response('<html>', { status: 502 }));
    await expect(strange.trace('a', '')).rejects.toMatchObject({ code: 'other', message: 'HTTP 502' });
  });
  it('may send limits', async () => {
    const error = { code: 'too_long', message: 'm', limit: 200, count: 312 };
    const source = new ServerSource(async () => answer({ error }, 413));
    await expect(source.trace('a', '')).rejects.toMatchObject({ code: 'too_long', limit: 200, count: 312 });
  });
});

describe('a page with its trace inside', () => {
  const made = synthesize('one', 'a', 'b', ['a', 'b'], [], { layers: 1, heads: 2 });
  const base64 = (codes: Uint16Array) => Buffer.from(codes.buffer).toString('base64');
  const source = new PageSource(JSON.stringify(made.header), (id) =>
    id === 'regard-block-0-0-1' ? base64(made.block(0, 0, 1)) : null,
  );
  it('has its blocks, and says which are missing', async () => {
    const { trace } = await source.info();
    expect((await source.block(trace!, 0, 0, 1)).codes).toEqual(made.block(0, 0, 1));
    await expect(source.block(trace!, 0, 0, 0)).rejects.toMatchObject({ code: 'missing_block' });
  });
  it('gives the rows of those heads that it holds', async () => {
    const { trace } = await source.info();
    const codes = made.block(0, 0, 1);
    for (const q of [0, 1]) {
      const rows = await source.rows(trace!, 0, { from: q, to: q + 1 });
      expect(rows).toEqual([null, codes.slice(2 * q, 2 * q + 2)]);
    }
    const mean = [0, 1].map((k) => Math.round((codes[k] + codes[2 + k]) / 2));
    expect(await source.rows(trace!, 0, { from: 0, to: 2 })).toEqual([null, Uint16Array.from(mean)]);
  });
  it('may have a second one, with blocks of its own', async () => {
    const other = synthesize('two', 'c', 'd', ['c', 'd', 'e'], [], { layers: 1, heads: 2 });
    const held: Record<string, string> = {
      'regard-block-0-0-1': base64(made.block(0, 0, 1)),
      'regard-beside-trace': JSON.stringify(other.header),
      'regard-beside-block-0-0-0': base64(other.block(0, 0, 0)),
    };
    const both = new PageSource(JSON.stringify(made.header), (id) => held[id] ?? null);
    const { trace, beside } = await both.info();
    expect((await both.block(trace!, 0, 0, 1)).codes).toEqual(made.block(0, 0, 1));
    expect((await both.block(beside!, 0, 0, 0)).codes).toEqual(other.block(0, 0, 0));
    await expect(both.block(beside!, 0, 0, 1)).rejects.toMatchObject({ code: 'missing_block' });
    const rows = await both.rows(beside!, 0, { from: 2, to: 3 });
    expect(rows).toEqual([other.block(0, 0, 0).slice(6), null]);
  });
});

it('every failure becomes an error with a code', () => {
  expect(asSourceError(new TraceError('t'))).toMatchObject({ code: 'trace', message: 't' });
  expect(asSourceError(new SourceError('busy', 'b'))).toMatchObject({ code: 'busy' });
  expect(asSourceError('odd')).toMatchObject({ code: 'other', message: 'odd' });
  expect(() => parseTrace(null)).toThrow('header must be an object');
});
