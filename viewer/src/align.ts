// SPDX-License-Identifier: Apache-2.0
// Which word of one sentence stands for which of another.

// For each of `a` its place in `b`, or null. Equal words are paired in order, as many
// as can be; where both sentences have equally many others between two such pairs,
// these are paired, too: "tired" and "wide".
export function alignWords(a: readonly string[], b: readonly string[]): (number | null)[] {
  const [n, m] = [a.length, b.length];
  // most[i][j]: the pairs of a[i..] and b[j..].
  const most = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; --i)
    for (let j = m - 1; j >= 0; --j)
      most[i][j] = a[i] === b[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  const places: (number | null)[] = new Array(n).fill(null);
  let [i, j] = [0, 0];
  let [left, right] = [0, 0]; // where the words without a pair begin
  const close = () => {
    if (i - left === j - right) for (let d = 0; d < i - left; ++d) places[left + d] = right + d;
  };
  while (i < n && j < m) {
    if (a[i] === b[j]) {
      close();
      places[i++] = j++;
      [left, right] = [i, j];
    } else if (most[i + 1][j] >= most[i][j + 1]) ++i;
    else ++j;
  }
  [i, j] = [n, m];
  close();
  return places;
}

// The same from the other side.
export function inverse(places: readonly (number | null)[], length: number): (number | null)[] {
  const back: (number | null)[] = new Array(length).fill(null);
  places.forEach((place, i) => place !== null && (back[place] = i));
  return back;
}
