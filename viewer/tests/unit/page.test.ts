// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import {
  colorTable,
  headColor,
  luminance,
  paletteColor,
  PALETTES,
  position,
  signedColor,
  weightAt,
} from '../../src/color';
import { directionFor } from '../../src/direction';
import { fill, languageOf, STRINGS } from '../../src/i18n';
import { cellAt, layoutHeat, layoutLines, zoomAt } from '../../src/layout';
import { fitPlace, readPlace, writePlace, type Place } from '../../src/permalink';
import { openingPlace, QUESTIONS, questionsFor, rank } from '../../src/statistics';
import { labelStride, shorten, showTokens } from '../../src/tokens';
import type { HeadStatistics, Section, Trace } from '../../src/trace';

const START: Place = {
  text: '',
  beside: '',
  direction: '',
  section: 0,
  layer: 0,
  head: 0,
  heads: [],
  view: 'head',
  step: 0,
  words: false,
  pair: '',
  at: null,
  chosen: false,
};

describe('the address', () => {
  const place = {
    ...START,
    text: 'Wie & was = 100 % #1? 你好',
    beside: 'a=b&c',
    direction: 'de-en',
    section: 2,
    layer: 3,
    head: 1,
    view: 'lines' as const,
    step: 4,
    heads: [0, 1],
    words: true,
    pair: 'AB' as const,
    at: { q: 3, k: null },
    chosen: true,
  };
  it('comes back as it was written, whatever the sentence holds', () => {
    expect(readPlace(writePlace(place))).toEqual(place);
    expect(readPlace(writePlace({ ...place, layer: 'rollout' })).layer).toBe('rollout');
  });
  it('is the one that the documents show', () => {
    expect(writePlace({ ...START, text: 'a b', direction: 'en-zh', layer: 1, head: 2, view: 'head', step: 3 })).toBe(
      '#text=a%20b&direction=en-zh&section=0&layer=1&head=2&view=head&step=3',
    );
  });
  it('may be anything at all', () => {
    expect(readPlace('#text=%E4%zz&layer=-1&head=1e9&view=<b>&step=x&heads=a,,2,2&at=,&pair=CC&words=2&=&x')).toEqual({
      ...START,
      heads: [2],
      chosen: true,
    });
  });
  it('is kept inside a smaller trace', () => {
    const fitted = fitPlace(
      { ...place, layer: 'rollout', heads: [0, 7] },
      [{ layers: 2, heads: 2, rollout: false, vectors: null, pictured: false }],
      3,
    );
    expect(fitted).toMatchObject({ section: 0, layer: 0, head: 1, heads: [0], step: 0 });
  });
  it('shows queries and keys only where there are some', () => {
    const wanted: Place = { ...place, section: 0, view: 'qk', layer: 0 };
    const sections = (vectors: unknown) => [{ layers: 2, heads: 2, rollout: true, vectors, pictured: false }];
    expect(fitPlace(wanted, sections({}), 9).view).toBe('qk');
    expect(fitPlace(wanted, sections(null), 9).view).toBe('head');
    expect(fitPlace({ ...wanted, layer: 'rollout' }, sections({}), 9).view).toBe('head');
  });
  it('shows pictures only where there are some', () => {
    const sections = (pictured: boolean) => [{ layers: 2, heads: 2, rollout: false, vectors: null, pictured }];
    expect(fitPlace({ ...place, view: 'picture' }, sections(true), 9).view).toBe('picture');
    expect(fitPlace({ ...place, view: 'picture' }, sections(false), 9).view).toBe('head');
  });
});

describe('the direction', () => {
  const both = ['en-zh', 'zh-en'];
  it('follows the script of a sentence that plainly belongs to the other', () => {
    expect(directionFor('我喜欢读书。', 'en-zh', both)).toBe('zh-en');
    expect(directionFor('I like books.', 'zh-en', both)).toBe('en-zh');
  });
  it('is otherwise the chosen one', () => {
    expect(directionFor('I like 北京.', 'en-zh', both)).toBe('en-zh');
    expect(directionFor('42', 'zh-en', both)).toBe('zh-en');
    expect(directionFor('我喜欢', 'en-de', ['en-de', 'de-en'])).toBe('en-de');
    expect(directionFor('我喜欢', '', [])).toBe('');
  });
});

describe('both languages', () => {
  const keys = Object.keys(STRINGS.en) as (keyof typeof STRINGS.en)[];
  it('have the same keys', () => expect(Object.keys(STRINGS.zh).sort()).toEqual([...keys].sort()));
  it.each(keys)('%s: is written, with the same places to fill', (key) => {
    const places = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();
    expect(STRINGS.en[key].trim()).not.toBe('');
    expect(places(STRINGS.zh[key])).toEqual(places(STRINGS.en[key]));
  });
  it('are chosen by the reader', () => {
    expect(languageOf(['de', 'zh-TW', 'en'])).toBe('zh');
    expect(languageOf(['en-GB', 'zh'])).toBe('en');
    expect(languageOf(['fr'])).toBe('en');
  });
  it('fill only what is given', () => expect(fill('{a} and {b}', { a: '{b}' })).toBe('{b} and {b}'));
});

describe('statistics', () => {
  const one = (entropy: number | null, same: number | null): HeadStatistics => ({
    telling: null,
    entropy,
    distance: null,
    first: 0,
    previous: null,
    same,
  });
  const section = {
    name: 'encoder',
    queries: 0,
    keys: 0,
    layers: 2,
    heads: 2,
    causal: false,
    rollout: true,
    vectors: null,
    pictured: false,
    thumbnails: { rows: 0, columns: 0, data: new Uint8Array() },
    statistics: [
      [one(2, 0.1), one(null, 0.5)],
      [one(1, 0.5), one(2, 0.9)],
    ],
  } satisfies Section;
  const order = (places: { layer: number; head: number }[]) =>
    places.map(({ layer, head }) => `${layer}.${head}`).join(' ');
  it('are sorted, equals in the order of heads, none last', () => {
    expect(order(rank(section, QUESTIONS.sharp))).toBe('1.0 0.0 1.1 0.1');
    expect(order(rank(section, QUESTIONS.diffuse))).toBe('0.0 1.1 1.0 0.1');
    expect(order(rank(section, QUESTIONS.same))).toBe('1.1 0.1 1.0 0.0');
    expect(order(rank(section, { column: 'head', descending: false }))).toBe('0.0 0.1 1.0 1.1');
    expect(order(rank(section, { column: 'head', descending: true }))).toBe('1.1 1.0 0.1 0.0');
  });
  it('are sorted by a link, heads that do not hold it last', () => {
    const link = [7, null, 900, 7];
    expect(order(rank(section, { column: 'link', descending: true }, link))).toBe('1.0 0.0 1.1 0.1');
    expect(order(rank(section, { column: 'link', descending: false }, link))).toBe('0.0 1.1 1.0 0.1');
  });
  it('say where the page opens', () => {
    const told = (...values: (number | null)[]): Section => ({
      ...section,
      statistics: [0, 2].map((at) => values.slice(at, at + 2).map((telling) => ({ ...one(0, 0), telling }))),
    });
    const trace = (start: object, ...sections: Section[]) => ({ sections, start }) as unknown as Trace;
    const two = [told(0.1, 0.2, 0.3, 0.2), told(0.1, 0.9, 0.3, 0.4)];
    expect(openingPlace(trace({}, ...two))).toMatchObject({ section: 1, layer: 0, head: 1 });
    expect(openingPlace(trace({ section: 0 }, ...two))).toMatchObject({ section: 0, layer: 1, head: 0 });
    expect(openingPlace(trace({ layer: 1 }, ...two))).toMatchObject({ section: 1, layer: 1, head: 1 });
    expect(openingPlace(trace({ layer: 1, head: 0, section: 0 }, ...two))).toMatchObject({
      section: 0,
      layer: 1,
      head: 0,
    });
    // A trace from before there was such a number.
    expect(openingPlace(trace({}, told(null, null, null, null)))).toMatchObject({ section: 0, layer: 0, head: 0 });
  });
  it('ask only what can be answered', () =>
    expect(questionsFor(section)).toEqual(['sharp', 'diffuse', 'first', 'same']));
});

describe('tokens', () => {
  it('of SentencePiece are words, and the inside of a word has a dot', () => {
    expect(showTokens(['▁The', '▁un', 'known', '▁', '.', '</s>'])).toEqual(['The', 'un', '·known', '␣', '.', '</s>']);
    expect(showTokens(['<2zh>', '▁', 'T', 'he'])).toEqual(['<2zh>', '␣', 'T', '·he']);
  });
  it('in Chinese stay as they are', () =>
    expect(showTokens(['<s>', '▁那只', '猫', '。'])).toEqual(['<s>', '那只', '猫', '。']));
  it('of byte-level BPE and WordPiece are understood', () => {
    expect(showTokens(['Hello', 'Ġworld', 'Ċ'])).toEqual(['Hello', 'world', '↵']);
    expect(showTokens(['[CLS]', 'play', '##ing'])).toEqual(['[CLS]', 'play', '·ing']);
    expect(showTokens(['a', 'bi@@', 'cy@@', 'cle', '@@', 'x'])).toEqual(['a', 'bi', '·cy', '·cle', '@@', 'x']);
  });
  it('of plain words get no marks', () => expect(showTokens(['the', 'cat'])).toEqual(['the', 'cat']));
  it('cannot turn the direction of the page, and nothing is invisible', () => {
    expect(showTokens(['a\u202eb', '', '\n', ' '])).toEqual(['a\ufffdb', '∅', '↵', '␣']);
  });
  it('are cut between characters', () => {
    expect(shorten('abcdef', 4)).toBe('abc…');
    expect(shorten('😀😀😀', 3)).toBe('😀😀😀');
  });
  it('are thinned by 1, 2 and 5', () => {
    expect([20, 14, 8, 4, 1, 0.7, 0.1].map((cell) => labelStride(cell, 14))).toEqual([1, 1, 2, 5, 20, 20, 200]);
  });
});

describe('the layout', () => {
  const size = { rows: 10, columns: 12, width: 800, height: 600, queryLabel: 60, keyLabel: 90 };
  it('fits the room with square cells', () => {
    for (const columns of [1, 2, 12, 100, 1000]) {
      for (const rows of [1, 7, 1000]) {
        const it = layoutHeat({ ...size, rows, columns });
        expect(it.left + it.plotWidth).toBeLessThanOrEqual(800);
        expect(it.height).toBeLessThanOrEqual(610);
        expect(it.plotWidth / columns).toBeCloseTo(it.plotHeight / rows, 9);
      }
    }
  });
  it('tilts labels only where they need it', () => {
    expect(layoutHeat(size).tilted).toBe(true);
    expect(layoutHeat({ ...size, keyLabel: 20 }).tilted).toBe(false);
  });
  it('finds the cell under a point, also when zoomed', () => {
    const flat = layoutHeat(size);
    const middle = (i: number) => (i + 0.5) * flat.cell;
    expect(cellAt(flat, 10, 12, flat.left + middle(3), flat.top + middle(7))).toEqual({ q: 7, k: 3 });
    expect(cellAt(flat, 10, 12, flat.left - 1, flat.top + 5)).toBeNull();
    expect(cellAt(flat, 10, 12, flat.left + flat.plotWidth, flat.top + 5)).toBeNull();
  });
  it('zooms around the pointer and stays inside', () => {
    const large = { ...size, rows: 1000, columns: 1000 };
    const flat = layoutHeat(large);
    const [x, y] = [flat.left + 200, flat.top + 100];
    const before = cellAt(flat, 1000, 1000, x, y)!;
    const zoom = zoomAt(flat, { factor: 1, x0: 0, y0: 0 }, 8, x, y);
    const near = layoutHeat(large, zoom);
    const after = cellAt(near, 1000, 1000, x, y)!;
    expect(Math.abs(after.q - before.q) + Math.abs(after.k - before.k)).toBeLessThanOrEqual(2);
    expect(layoutHeat(large, { factor: 8, x0: -50, y0: 5000 })).toMatchObject({ x0: 0 });
    expect(layoutHeat(large, { factor: 8, x0: 0, y0: 5000 }).y0).toBeCloseTo(1000 - near.plotHeight / near.cell, 6);
    expect(zoomAt(near, zoom, 1e9, x, y).factor * flat.cell).toBeLessThanOrEqual(48.001);
    expect(zoomAt(near, zoom, 1e-9, x, y).factor).toBe(1);
  });
  it('keeps both lists of tokens on a phone', () => {
    const lines = layoutLines(10, 20, 360, 300, 300);
    expect(lines.leftX).toBeGreaterThan(100);
    expect(lines.rightX).toBeLessThan(260);
    expect(lines.rightX - lines.leftX).toBeGreaterThan(60);
    expect(lines.leftOffset).toBe(5 * lines.row);
  });
});

describe('colours', () => {
  it.each(
    PALETTES.flatMap(
      (name) =>
        [
          [name, false],
          [name, true],
        ] as const,
    ),
  )('%s (dark: %s) change in one direction of lightness', (name, dark) => {
    const light = Array.from({ length: 65 }, (_, i) => luminance(paletteColor(name, dark, i / 64)));
    const sign = Math.sign(light[64] - light[0]);
    for (let i = 1; i < light.length; ++i) expect(sign * (light[i] - light[i - 1])).toBeGreaterThanOrEqual(-1e-4);
    expect(Math.abs(light[64] - light[0])).toBeGreaterThan(0.5);
  });
  it('of the legend mean what the map means', () => {
    for (const curve of ['linear', 'root', 'stretch'] as const) {
      for (const t of [0, 0.25, 0.5, 1]) expect(position(weightAt(t, curve, 0.4), curve, 0.4)).toBeCloseTo(t, 12);
    }
    expect(position(0.1, 'stretch', 0)).toBe(0);
  });
  it('of a table run from the first to the last', () => {
    const table = colorTable(256, 'ink', false, 'linear', 1);
    const [r, g, b] = paletteColor('ink', false, 1);
    expect(table[255]).toBe(((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
    expect(new Set(table).size).toBeGreaterThan(128);
  });
  // As protan and deutan eyes see them (Machado, Oliveira and Fernandes, 2009), and
  // how far they are apart in CIELAB.
  const EYES = {
    common: [1, 0, 0, 0, 1, 0, 0, 0, 1],
    protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
    deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  };
  const rgbOf = (hex: string) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)) as [number, number, number];
  const mixed = (m: number[], v: number[]) => [0, 3, 6].map((r) => m[r] * v[0] + m[r + 1] * v[1] + m[r + 2] * v[2]);
  function lab(hex: string, eye: number[]): number[] {
    const linear = rgbOf(hex).map((c) => (c <= 10.31 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    const seen = mixed(eye, linear).map((c) => Math.min(Math.max(c, 0), 1));
    const xyz = mixed([0.4339, 0.3762, 0.1899, 0.2127, 0.7152, 0.0722, 0.0178, 0.1095, 0.8727], seen);
    const [x, y, z] = xyz.map((t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116));
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
  }
  it.each(Object.entries(EYES))('of twelve heads are told apart by %s eyes, and from the paper', (_, eye) => {
    for (const dark of [false, true]) {
      const colors = Array.from({ length: 12 }, (_, i) => headColor(i, dark));
      const paper = luminance(rgbOf(dark ? '#14181d' : '#fbfaf7'));
      colors.forEach((color, i) => {
        const light = luminance(rgbOf(color));
        expect((Math.max(light, paper) + 0.05) / (Math.min(light, paper) + 0.05)).toBeGreaterThan(3);
        for (const other of colors.slice(0, i)) {
          const apart = Math.hypot(...lab(color, eye).map((c, n) => c - lab(other, eye)[n]));
          expect(apart, `${color} and ${other}`).toBeGreaterThan(12);
        }
      });
    }
  });
  it('of products tell the sign, and nothing is no colour', () => {
    for (const dark of [false, true]) {
      expect(signedColor(0, dark)).toEqual(paletteColor('ink', dark, 0));
      const [minus, plus] = [signedColor(-1, dark), signedColor(1, dark)];
      expect(minus[0] - minus[2]).toBeGreaterThan(100);
      expect(plus[2] - plus[0]).toBeGreaterThan(100);
    }
  });
});
