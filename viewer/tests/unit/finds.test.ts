// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { alignWords, inverse } from '../../src/align';
import { candidates, codeOf, findPronoun, isPronoun, rankFinds } from '../../src/finds';
import { eachAlone, showTokens } from '../../src/tokens';

describe('the words that a word may stand for', () => {
  const words = ['[CLS]', 'The', 'cat', ',', 'tired', ',', 'said', 'it', 'was', 'so', 'late', '.', '[SEP]'];
  const textsOf = (names: string[], groups = eachAlone(names.length)) => ({
    rows: groups,
    columns: groups,
    queries: names,
    keys: names,
  });
  const texts = textsOf(words);
  it('are before a pronoun, no neighbour, no punctuation and not special', () => {
    expect(candidates(texts, 7, false).map((k) => words[k])).toEqual(['The', 'cat', 'tired']);
  });
  it('are on both sides of any other word, unless a mask hides them', () => {
    const found = (causal: boolean) => candidates(texts, 6, causal).map((k) => words[k]);
    expect(found(false)).toEqual(['The', 'cat', 'tired', 'was', 'so', 'late']);
    expect(found(true)).toEqual(['The', 'cat', 'tired']);
  });
  it('are not the first token of a causal text, where heads rest', () => {
    const plain = words.slice(1, -1);
    expect(candidates(textsOf(plain), 6, true).map((k) => plain[k])).toEqual(['cat', 'tired']);
  });
  it('are as far from a word as its pieces let them be', () => {
    const pieces = [
      { from: 0, to: 2 },
      { from: 2, to: 3 },
      { from: 3, to: 5 },
    ];
    expect(candidates(textsOf(['a', 'b', 'it'], pieces), 2, false)).toEqual([0]);
  });
  it('belong to the first pronoun that has any', () => {
    const found = (text: string) => findPronoun(textsOf(text.split(' ')), false);
    expect(found('She gave the book to her sister')).toEqual({ q: 5, among: [0, 1, 2, 3] });
    expect(found('It was late , he said')).toEqual({ q: 4, among: [0, 1, 2] });
    expect(found('It was late')).toBeNull();
    expect(found('the cat')).toBeNull();
  });
  it('know pronouns of both languages, whatever their letters', () => {
    for (const word of ['it', 'It', 'THEY', 'her', '他', '她们', '它']) expect(isPronoun(word)).toBe(true);
    for (const word of ['item', 'the', 'I', 'you', '他人', '']) expect(isPronoun(word)).toBe(false);
  });
});

describe('the heads of a word', () => {
  const columns = [
    { from: 0, to: 1 },
    { from: 1, to: 3 },
    { from: 3, to: 4 },
  ];
  const rows = [[10, 20, 30, 40], [60, 5, 5, 0], null, [10, 25, 25, 0]];
  it('come by the largest weight, pieces added up', () => {
    expect(rankFinds(rows, 2, columns, [0, 1])).toEqual([
      { layer: 0, head: 1, k: 0, code: 60 },
      { layer: 0, head: 0, k: 1, code: 50 },
      { layer: 1, head: 1, k: 1, code: 50 },
    ]);
    expect(rankFinds(rows, 2, columns, [])).toEqual([]);
  });
  it('never have more than all of it', () => {
    expect(codeOf([60000, 6000], { from: 0, to: 2 })).toBe(65535);
  });
});

describe('two sentences', () => {
  const pair = (a: string, b: string) => alignWords(a.split(' '), b.split(' '));
  it('are paired word by word where one word was put for another', () => {
    expect(pair('it was too tired .', 'it was too wide .')).toEqual([0, 1, 2, 3, 4]);
  });
  it('leave out what only one of them has', () => {
    expect(pair('the old cat sleeps', 'the cat sleeps now')).toEqual([0, null, 1, 2]);
    expect(pair('a b c', 'a x y c')).toEqual([0, null, 3]);
    expect(pair('a', 'b c')).toEqual([null]);
  });
  it('go both ways', () => {
    expect(inverse([0, null, 1, 2], 4)).toEqual([0, 2, 3, null]);
  });
});

it('a word at the beginning of a line begins there', () => {
  expect(showTokens(['▁tired', '.', '\n', 'The', '▁ori', 'ginal'])).toEqual([
    'tired',
    '.',
    '↵',
    'The',
    'ori',
    '·ginal',
  ]);
});
