// SPDX-License-Identifier: Apache-2.0
// The heads in which a word looks at another one far from it: where "it" finds what
// it stands for. docs/viewer.md states the rule.
import { isSpecial, type Group } from './tokens';

// A word whose meaning is elsewhere in the text.
const PRONOUN =
  /^(it|its|itself|he|him|his|himself|she|her|hers|herself|they|them|their|theirs|themselves|[他她它牠祂](们|們)?)$/i;

export const isPronoun = (word: string): boolean => PRONOUN.test(word);

export interface Find {
  layer: number;
  head: number;
  k: number; // the column that is looked at
  code: number; // its weight
}

// One row for each head, [columns]; null where it is not there.
export type Rows = readonly (ArrayLike<number> | null)[];

// The weight of all pieces of a word.
export function codeOf(row: ArrayLike<number>, key: Group): number {
  let sum = 0;
  for (let k = key.from; k < key.to; ++k) sum += row[k];
  return Math.min(65535, sum);
}

// What stands on the two axes, as words or pieces.
interface Texts {
  rows: readonly Group[];
  columns: readonly Group[];
  queries: readonly string[];
  keys: readonly string[];
}

// Columns that a word can stand for: neither itself nor a neighbour, neither
// punctuation nor special. A pronoun looks back. Under a causal mask the first token
// is left out, on which heads rest that have nothing to do.
export function candidates({ rows, columns, queries, keys }: Texts, q: number, causal: boolean): number[] {
  const query = rows[q];
  const back = causal || isPronoun(queries[q]);
  const found: number[] = [];
  columns.forEach(({ from, to }, k) => {
    const apart = to < query.from || (!back && from > query.to);
    const first = causal && from === 0;
    if (apart && !first && !isSpecial(keys[k]) && /[\p{L}\p{N}]/u.test(keys[k])) found.push(k);
  });
  return found;
}

// The first pronoun with words before it that it may stand for.
export function findPronoun(texts: Texts, causal: boolean): { q: number; among: number[] } | null {
  for (const [q, word] of texts.queries.entries()) {
    const among = isPronoun(word) ? candidates(texts, q, causal) : [];
    if (among.length > 0) return { q, among };
  }
  return null;
}

// Of each head its strongest candidate, the strongest head first; equal ones in the
// order of layers and heads.
export function rankFinds(rows: Rows, heads: number, columns: readonly Group[], among: readonly number[]): Find[] {
  const finds: Find[] = [];
  rows.forEach((row, i) => {
    if (!row) return;
    let best: Find | null = null;
    for (const k of among) {
      const code = codeOf(row, columns[k]);
      if (!best || code > best.code) best = { layer: Math.floor(i / heads), head: i % heads, k, code };
    }
    if (best) finds.push(best);
  });
  return finds.sort((a, b) => b.code - a.code);
}
