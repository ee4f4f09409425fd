// SPDX-License-Identifier: Apache-2.0
// Two sentences, each above its picture, with the words in which they differ.
import { alignWords, inverse } from '../align';
import { h } from '../dom';

const wordsOf = (text: string): string[] => text.match(/[\p{L}\p{N}\p{M}]+|\s+|./gsu) ?? [];

export function showDifference(captions: readonly HTMLElement[], a: string, b: string): void {
  const texts = [wordsOf(a), wordsOf(b)];
  const places = alignWords(texts[0], texts[1]);
  [places, inverse(places, texts[1].length)].forEach((pairs, i) => {
    const parts = texts[i].map((word, at) => {
      const pair = pairs[at];
      return pair !== null && texts[1 - i][pair] === word ? word : h('mark', {}, word);
    });
    captions[i].replaceChildren(...parts);
  });
}
