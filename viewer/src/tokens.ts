// SPDX-License-Identifier: Apache-2.0
// How tokens are written on an axis, and how many of them.

// SentencePiece marks a space by "▁", byte-level BPE by "Ġ"; WordPiece marks the
// inside of a word by "##" before it, subword-nmt by "@@" behind what it goes on.
// A reader wants the words: a piece that begins one stands as it is, a Latin piece
// that goes on gets a leading middle dot.
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
    // A mark that stands alone begins the word that follows, and so does the end of a line.
    const before = tokens[i - 1] ?? '';
    const begins = i === 0 || isSpecial(before) || /^[\u2581\u0120]$|\n$|\u010a$/.test(before);
    const inside = pieces && !begins && LATIN.test(text);
    return (inside ? '·' : '') + text;
  });
}

// The tokens [from, to) that stand as one on an axis: a word, or a piece alone.
export interface Group {
  from: number;
  to: number;
}

export const eachAlone = (count: number): Group[] => Array.from({ length: count }, (_, i) => ({ from: i, to: i + 1 }));

// What may stand inside a word where only spaces are marked. Han and kana have no
// spaces between words, so their pieces stay apart; punctuation too.
const INSIDE = "[\\p{Script=Latin}\\p{Script=Cyrillic}\\p{Script=Greek}\\p{M}\\p{N}'’-]";
const BEGINS_INSIDE = new RegExp(`^${INSIDE}`, 'u');
const ENDS_INSIDE = new RegExp(`${INSIDE}$`, 'u');

// The pieces of each word.
export function wordsOf(tokens: readonly string[]): Group[] {
  const marked = tokens.some((token) => SPACE.test(token));
  const goesOn = (before: string, token: string): boolean => {
    if (isSpecial(before) || isSpecial(token)) return false;
    if (before.endsWith('@@') && before !== '@@') return true;
    if (token.startsWith('##') && token.length > 2) return true;
    if (!marked || SPACE.test(token)) return false;
    return /^[\u2581\u0120]$/.test(before) || (ENDS_INSIDE.test(before) && BEGINS_INSIDE.test(token));
  };
  const groups: Group[] = [];
  tokens.forEach((token, i) => {
    if (i > 0 && goesOn(tokens[i - 1], token)) groups[groups.length - 1].to = i + 1;
    else groups.push({ from: i, to: i + 1 });
  });
  return groups;
}

// How groups are written: a token alone as showTokens has it, several as one word.
export function showGroups(tokens: readonly string[], groups: readonly Group[]): string[] {
  const shown = showTokens(tokens);
  const bare = (token: string) =>
    visible(
      token
        .replace(SPACE, '')
        .replace(/^##(?=.)/, '')
        .replace(/(.)@@$/, '$1'),
    );
  return groups.map(({ from, to }) => (to - from === 1 ? shown[from] : tokens.slice(from, to).map(bare).join('')));
}

// Which of a pair of sentences each token belongs to, 0 or 1, where a separator
// stands between them: [CLS] a [SEP] b [SEP], <s> a </s></s> b </s>. A separator
// belongs to what it ends. Null where there are not two.
export function pairOf(tokens: readonly string[]): number[] | null {
  const ends = (token: string) => /^(\[SEP\]|<\/s>|<sep>)$/.test(token);
  let part = 0;
  const parts = tokens.map((token, i) => (i > 0 && ends(tokens[i - 1]) && !ends(token) ? ++part : part));
  return part === 1 ? parts : null;
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
