// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { groupAt, groupsOf, throughLens } from '../../src/lens';
import { pairOf, showGroups, wordsOf } from '../../src/tokens';
import type { Block } from '../../src/trace';

const words = (tokens: string[]) => showGroups(tokens, wordsOf(tokens));

describe('pieces become words', () => {
  it('of SentencePiece', () => {
    expect(words(['<2zh>', '▁The', '▁un', 'know', 'n', '▁', 'do', 'g', '.', '</s>'])).toEqual([
      '<2zh>',
      'The',
      'unknown',
      'dog',
      '.',
      '</s>',
    ]);
    expect(words(['▁don', "'", 't', '▁20', '24', '!'])).toEqual(["don't", '2024', '!']);
  });
  it('but Chinese, which has no spaces, stays in pieces', () =>
    expect(words(['▁', '我们', 'T', 'om', '的', '猫', '。'])).toEqual(['我们', 'Tom', '的', '猫', '。']));
  it('of byte-level BPE, WordPiece and subword-nmt', () => {
    expect(words(['Hel', 'lo', 'Ġwor', 'ld', ','])).toEqual(['Hello', 'world', ',']);
    expect(words(['[CLS]', 'play', '##ing', '[SEP]'])).toEqual(['[CLS]', 'playing', '[SEP]']);
    expect(words(['a', 'bi@@', 'cy@@', 'cle'])).toEqual(['a', 'bicycle']);
  });
  it('and words stay what they are', () => expect(words(['the', 'cat'])).toEqual(['the', 'cat']));
});

describe('a lens', () => {
  const block: Block = {
    rows: 3,
    columns: 3,
    codes: Uint16Array.from([10000, 20000, 35535, 50000, 5000, 10535, 0, 65535, 0]),
  };
  const pieces = [0, 1, 2].map((from) => ({ from, to: from + 1 }));
  it('sums over the pieces of a key and averages over those of a query', () => {
    const merged = throughLens(block, [{ from: 0, to: 2 }, pieces[2]], [pieces[0], { from: 1, to: 3 }], 3);
    expect([...merged.codes]).toEqual([30000, 35535, 0, 65535]);
    expect([merged.rows, merged.columns]).toEqual([2, 2]);
  });
  it('averages over what has been written, where a word is not whole yet', () => {
    expect([...throughLens(block, [{ from: 0, to: 2 }], pieces, 1).codes]).toEqual([10000, 20000, 35535]);
  });
  it('leaves pieces alone as they are', () => {
    expect([...throughLens(block, pieces, pieces, 3).codes]).toEqual([...block.codes]);
  });
  it('finds the group of a token', () => {
    expect(groupAt([{ from: 0, to: 2 }, pieces[2]], 1)).toBe(0);
    expect(groupAt([pieces[2]], 0)).toBeNull();
  });
});

describe('a pair of sentences', () => {
  const bert = ['[CLS]', 'a', '[SEP]', 'b', '##c', '[SEP]'];
  it('is told by its separators', () => {
    expect(pairOf(bert)).toEqual([0, 0, 0, 1, 1, 1]);
    expect(pairOf(['<s>', 'a', '</s>', '</s>', 'b', '</s>'])).toEqual([0, 0, 0, 0, 1, 1]);
  });
  it('is not there where one sentence ends, or three do', () => {
    expect(pairOf(['a', '</s>'])).toBeNull();
    expect(pairOf(['a', '[SEP]', 'b', '[SEP]', 'c', '[SEP]'])).toBeNull();
    expect(pairOf([])).toBeNull();
  });
  it('can be looked at one by one', () => {
    expect(groupsOf(bert, true, 'B')).toEqual([
      { from: 3, to: 5 },
      { from: 5, to: 6 },
    ]);
    expect(groupsOf(bert, false, 'A').map((one) => one.from)).toEqual([0, 1, 2]);
    expect(groupsOf(bert, false, '').length).toBe(6);
  });
});
