// SPDX-License-Identifier: Apache-2.0
// Directions such as "en-zh".

const HAN = /\p{Script=Han}/u;
const LETTER = /\p{Script=Latin}/u;

// The direction that a text wants: the chosen one, unless the text is plainly
// written in the script of another one's source language.
export function directionFor(text: string, chosen: string, directions: readonly string[]): string {
  const fromChinese = chosen.startsWith('zh-');
  const wrong = fromChinese ? !HAN.test(text) && LETTER.test(text) : HAN.test(text) && !LETTER.test(text);
  if (chosen === '' || !wrong) return chosen;
  return directions.find((one) => one.startsWith('zh-') !== fromChinese) ?? chosen;
}
