// SPDX-License-Identifier: Apache-2.0
// What of a head is looked at: words instead of their pieces, one sentence of a pair.
import { eachAlone, pairOf, wordsOf, type Group } from './tokens';
import type { Block } from './trace';

// Who asks and who is read, of the two sentences of a pair; empty: all.
export type Pair = '' | 'AA' | 'AB' | 'BA' | 'BB';
export const PAIRS: readonly Pair[] = ['', 'AA', 'AB', 'BA', 'BB'];

// The groups of one axis: words or pieces, of one sentence (A or B) or of both.
export function groupsOf(tokens: readonly string[], words: boolean, sentence: string): Group[] {
  const groups = words ? wordsOf(tokens) : eachAlone(tokens.length);
  const parts = sentence === '' ? null : pairOf(tokens);
  return parts ? groups.filter((group) => parts[group.from] === (sentence === 'A' ? 0 : 1)) : groups;
}

// The weight between two groups: summed over the pieces of the key, because they
// share what a query gives; averaged over the pieces of the query, so that a row
// still adds up to 1.
export function codeBetween(codeAt: (q: number, k: number) => number, query: Group, key: Group): number {
  let sum = 0;
  for (let q = query.from; q < query.to; ++q) for (let k = key.from; k < key.to; ++k) sum += codeAt(q, k);
  return Math.min(65535, Math.round(sum / (query.to - query.from)));
}

// A block between groups. Queries from `shown` on have not been written yet.
export function throughLens(block: Block, rows: readonly Group[], columns: readonly Group[], shown: number): Block {
  const codes = new Uint16Array(rows.length * columns.length);
  const codeAt = (q: number, k: number) => block.codes[q * block.columns + k];
  rows.forEach(({ from, to }, r) => {
    const query = { from, to: Math.max(from + 1, Math.min(to, shown)) };
    columns.forEach((key, c) => (codes[r * columns.length + c] = codeBetween(codeAt, query, key)));
  });
  return { rows: rows.length, columns: columns.length, codes };
}

// The mean of the weights of several heads.
export function meanBlock(blocks: readonly Block[]): Block {
  const { rows, columns } = blocks[0];
  const sums = new Float64Array(rows * columns);
  for (const { codes } of blocks) codes.forEach((code, i) => (sums[i] += code));
  return { rows, columns, codes: Uint16Array.from(sums, (sum) => Math.round(sum / blocks.length)) };
}

// The group that holds a token; null: none does.
export function groupAt(groups: readonly Group[], token: number): number | null {
  const found = groups.findIndex(({ from, to }) => from <= token && token < to);
  return found < 0 ? null : found;
}
