// SPDX-License-Identifier: Apache-2.0
// How tokens are written on an axis, and how many of them.

// SentencePiece marks a space by "▁", byte-level BPE by "Ġ"; WordPiece marks the
// inside of a word by "##" before it, subword-nmt by "@@" behind what it goes on. A reader wants the words: a piece that begins one
// stands as it is, a Latin piece that goes on gets a leading middle dot.
const SPACE = /^[\u2581\u0120]/;
const SPECIAL = /^(<[^<>]*>|\[[A-Z]+\])$/;
const LATIN = /^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}]/u;

export const isSpecial = (token: string): boolean => SPECIAL.test(token);

function visible(text: string): string {
  return text
    .replace(/[\u2581\u0120]/g, ' ')
    .replace(/\u010a|\n/g, '↵')
    .replace(/\t/g, '⇥')
    .replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

export function showTokens(tokens: readonly string[]): string[] {
  const pieces = tokens.some((token) => SPACE.test(token));
  return tokens.map((token, i) => {
    if (token === '') return '∅';
    if (isSpecial(token)) return token;
    const goesOn = i > 0 && tokens[i - 1].endsWith('@@') && tokens[i - 1] !== '@@';
    if (goesOn || (token.endsWith('@@') && token.length > 2))
      return (goesOn ? '·' : '') + visible(token.replace(/(.)@@$/, '$1'));
    if (token.startsWith('##') && token.length > 2) return '·' + visible(token.slice(2));
    if (SPACE.test(token)) return token.length === 1 ? '␣' : visible(token.slice(1));
    const text = visible(token);
    if (text.trim() === '') return '␣';
    // A mark that stands alone begins the word that follows.
    const begins = i === 0 || isSpecial(tokens[i - 1]) || (SPACE.test(tokens[i - 1]) && tokens[i - 1].length === 1);
    const inside = pieces && !begins && LATIN.test(text);
    return (inside ? '·' : '') + text;
  });
}

// At most `length` characters as a reader counts them.
export function shorten(text: string, length: number): string {
  const characters = Array.from(text);
  return characters.length <= length ? text : characters.slice(0, length - 1).join('') + '…';
}

// The labels drawn on an axis: every n-th, so that they stand `space` pixels apart.
export function labelStride(cell: number, space: number): number {
  if (cell >= space) return 1;
  const wanted = space / cell;
  for (let decade = 1; ; decade *= 10) {
    for (const step of [1, 2, 5]) if (step * decade >= wanted) return step * decade;
  }
}
