// SPDX-License-Identifier: Apache-2.0
// Where the words of a caption look in a picture, and a clip in its frames.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { clip, pictured } from '../mock/pictured';
import { row } from '../mock/synthetic';
import { patient } from './browser';
import {
  button,
  expectAddress,
  expectAttribute,
  expectCount,
  expectText,
  expectTexts,
  expectVisible,
  expectWidth,
  Harness,
  hasBrowser,
  phone,
  placeIn,
  readText,
  save,
  settled,
} from './harness';

// Of a word that is one piece, the mean of some heads of layer `layer`, in per cent.
const looks = (layer: number, heads: number[], q: number, k: number) =>
  heads.reduce((sum, head) => sum + (100 * row(2, layer, head, q, 5, 6, false)[k]) / heads.length, 0);

describe.skipIf(!hasBrowser)('a picture', patient, () => {
  const harness = new Harness();
  const { visit } = harness;
  const lit = (page: Page) => page.locator('.places .lit');
  const word = (page: Page, q: number) => page.locator('.caption-words .word').nth(q);
  const asks = (page: Page) => expectAttribute(lit(page), 'data-query');

  // How bright a place is that is white in the picture, from 0 to 255.
  const brightness = (page: Page, x: number, y: number) =>
    lit(page).evaluate(
      (canvas, [x, y]) => {
        const { width, height } = canvas as HTMLCanvasElement;
        const context = (canvas as HTMLCanvasElement).getContext('2d')!;
        return context.getImageData(Math.floor(width * x), Math.floor(height * y), 1, 1).data[0];
      },
      [x, y] as const,
    );

  it('opens with the caption, a small picture over each word, and the mean of all heads', async () => {
    const url = harness.written('caption', pictured());
    const page = await visit(url);
    await expectAddress(page, 'view=picture');
    await expectText(page.locator('h2.figure-title')).toMatch(/^Cross · layer \d · mean of 4 heads$/);
    await expectTexts(page.locator('.caption-words .word')).toEqual(['a', 'red', 'circle', '</s>']);
    await expectCount(page.locator('.one-head canvas')).toBe(4);
    await asks(page).toBe('all, on average');
    await expectText(page.locator('.translation')).toBe('a red circle');
    expect(harness.opened[0].requests.filter((one) => !one.startsWith('data:'))).toEqual([url]);
  });

  it('is lit where the word under the pointer looks, in every head', async () => {
    const place = 'section=2&layer=0&head=1&heads=0,1,2,3&view=picture';
    const page = await visit(`${harness.written('word', pictured())}#${place}`);
    await settled(lit(page));
    await word(page, 1).hover();
    await asks(page).toBe('red');
    const all = Array.from({ length: 6 }, (_, k) => looks(0, [0, 1, 2, 3], 1, k));
    const best = all.indexOf(Math.max(...all));
    const shown = await readText(page.locator('.strongest li').first(), /(\d,\d).*?([\d.]+) %/);
    expect(shown[1]).toBe(`${Math.floor(best / 3) + 1},${(best % 3) + 1}`);
    expect(Math.abs(Number(shown[2]) - all[best])).toBeLessThan(0.06);
    // The strongest place is white as the picture is; the weakest is under the veil.
    const least = all.indexOf(Math.min(...all));
    const at = (k: number) => [((k % 3) + 0.5) / 3, (Math.floor(k / 3) + 0.5) / 2] as const;
    await expect.poll(() => brightness(page, ...at(best))).toBe(255);
    const dim = 255 - 0.78 * (1 - Math.sqrt(all[least] / all[best])) * (255 - 13);
    await expect.poll(async () => Math.abs((await brightness(page, ...at(least))) - dim)).toBeLessThan(4);
    // Without the pointer, the mean again; a click keeps the word, and another lets go.
    await page.mouse.move(2, 2);
    await asks(page).toBe('all, on average');
    await word(page, 1).click();
    await expectAddress(page, `at=${encodeURIComponent('1,')}`);
    await page.mouse.move(2, 2);
    await asks(page).toBe('red');
    await word(page, 1).click();
    await expect.poll(() => page.url()).not.toContain('at=');
  });

  it('is walked over by keyboard, and shows one head or several', async () => {
    const page = await visit(`${harness.written('walk', pictured())}#section=2&layer=0&head=1&view=picture&words=1`);
    await page.keyboard.press('Shift+ArrowRight');
    await asks(page).toBe('a');
    await page.keyboard.press('Shift+ArrowRight');
    await asks(page).toBe('red');
    await word(page, 2).click();
    await asks(page).toBe('circle');
    await page.keyboard.press('ArrowLeft');
    await asks(page).toBe('red');
    await page.locator('.one-head').nth(2).click();
    await expectAddress(page, 'head=2');
    await expectText(page.locator('h2.figure-title')).toBe('Cross · layer 0 · head 2');
    await button(page, 'all').click();
    await expectAddress(page, `heads=${encodeURIComponent('0,1,2,3')}`);
    await page.keyboard.press('2');
    await expectAddress(page, 'view=head');
    await page.keyboard.press('5');
    await expectAddress(page, 'view=picture');
    await button(page, 'Decoder').click(); // which reads words
    await expectAddress(page, 'view=head');
    await expectVisible(button(page, 'Picture')).toBe(false);
  });

  it('says who looks at a place, and ranks the heads by a word and a place', async () => {
    const page = await visit(`${harness.written('place', pictured())}#section=2&layer=1&head=0&heads=0,1&view=picture`);
    await lit(page).hover(await placeIn(lit(page), 0.9, 0.8));
    await expectText(page.locator('.reading')).toBe('2,3 is read most by');
    await expectText(page.locator('.places .tip')).toContain('→ 2,3');
    await word(page, 1).click();
    await lit(page).click(await placeIn(lit(page), 0.9, 0.8));
    const said = await readText(page.locator('.reading'), /red → 2,3\s+([\d.]+) %/);
    expect(Math.abs(Number(said[1]) - looks(1, [0, 1], 1, 5))).toBeLessThan(0.06);
    await expectCount(page.locator('td.link')).toBe(8);
  });

  it('asks its own places in the encoder, and is saved', async () => {
    const page = await visit(`${harness.written('self', pictured())}#section=0&layer=0&head=0&view=picture`);
    await lit(page).click(await placeIn(lit(page), 0.5, 0.2));
    await asks(page).toBe('1,2');
    const download = await save(page, 'Picture (PNG)');
    expect(
      readFileSync((await download.path())!)
        .subarray(1, 4)
        .toString(),
    ).toBe('PNG');
    await button(page, 'all').click();
    const numbers = JSON.parse(readFileSync((await (await save(page, 'Numbers (JSON)')).path())!, 'utf8'));
    expect(numbers).toMatchObject({ section: 'encoder', head: null, mean_of_heads: [0, 1, 2, 3] });
    expect(numbers.weights.length).toBe(6);
  });

  it('is a film strip where there are frames', async () => {
    const page = await visit(`${harness.written('clip', clip())}#section=0&layer=1&head=0&heads=0,1&view=picture`);
    const { width, height } = await settled(lit(page));
    expect(width / height).toBeGreaterThan(3); // four frames in a line
    await expectCount(page.locator('.film .one-head')).toBe(2);
    await expectVisible(page.locator('.caption-words')).toBe(false);
    await lit(page).hover(await placeIn(lit(page), 0.3, 0.3));
    await asks(page).toMatch(/^2: 1,[12]$/);
  });

  it('fits a phone, in Chinese', async () => {
    const page = await visit(harness.written('phone', pictured()), { ...phone, locale: 'zh-CN' });
    await expectCount(page.locator('.caption-words .word')).toBe(4);
    await settled(lit(page));
    await expectWidth(page).toBeLessThanOrEqual(390);
    await word(page, 1).tap();
    await asks(page).toBe('red');
    await expectText(page.locator('.picture-view .remark')).toContain('亮处是“red”在看的地方');
  });
});
