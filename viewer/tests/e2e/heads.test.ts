// SPDX-License-Identifier: Apache-2.0
// Looking at heads, in a browser.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { PAGE, startMock } from '../mock/server';
import { DIM, exported, longTrace, row, synthesize, tokenize, translate, vectorAt } from '../mock/synthetic';
import { patient } from './browser';
import {
  button,
  CAT,
  expectAddress,
  expectAttribute,
  expectCount,
  expectText,
  expectTexts,
  expectVisible,
  Harness,
  hasBrowser,
  isRanked,
  overlay,
  placeIn,
  pointAt,
  readText,
  REAL,
  save,
  settled,
} from './harness';

describe.skipIf(!hasBrowser)('the heads', patient, () => {
  const harness = new Harness();
  const { link, visit } = harness;

  it('opens a head from the grid, and says what is under the pointer', async () => {
    const page = await visit(link('view=grid'));
    await page.locator('.thumb').nth(1).click();
    await expectText(page.locator('h2.figure-title')).toBe('Encoder · layer 0 · head 1');
    await pointAt(page, 0.3, 0.5);
    const [, shown, q, k] = (await readText(page.locator('.reading'), /→ .*?([\d.]+) %.*query (\d+) · key (\d+)/)).map(
      Number,
    );
    if (!REAL) {
      const tokens = tokenize(CAT).length;
      const weight = row(0, 0, 1, q - 1, tokens, tokens, false)[k - 1];
      expect(Math.abs(shown - 100 * weight)).toBeLessThan(0.06);
    }
    await page.mouse.move(5, 5);
    await expectText(page.locator('.reading')).toContain('strongest links');
  });

  it('draws lines for several heads and only those of a token that is pointed at', async () => {
    const page = await visit(link('view=lines&section=0&layer=1&head=0'));
    await button(page, 'Head 2').click();
    await expectAddress(page, `heads=${encodeURIComponent('0,2')}`);
    await expectCount(page.locator('.heads .chip[aria-pressed=true]')).toBe(2);
    const canvas = page.locator('.scroll canvas');
    const drawn = async () => Number(await canvas.getAttribute('data-lines'));
    const { width } = await settled(canvas); // the lines of both heads
    await expect.poll(drawn).toBeGreaterThan(0);
    const all = await drawn();
    await canvas.hover({ position: { x: 40, y: 45 } });
    await expectText(page.locator('.reading')).toContain('reads most from');
    await expect.poll(drawn).toBeLessThan(all);
    await canvas.hover({ position: { x: width - 40, y: 45 } });
    await expectText(page.locator('.reading')).toContain('is read most by');
  });

  it('finds the heads that are asked for', async () => {
    const page = await visit(link('view=grid&section=0'));
    await button(page, 'token before').click();
    await expectAddress(page, 'view=grid');
    await expectText(page.locator('th[aria-sort=descending]')).toContain('before');
    await expectTexts(page.locator('tbody tr td:nth-child(6)')).toSatisfy(isRanked);
    await expectAttribute(page.locator('.thumb[data-place="1"]'), 'class').toContain('chosen');
    await page.locator('thead button', { hasText: 'entropy' }).click();
    await expectText(page.locator('th[aria-sort=ascending]')).toContain('entropy');
    await page.locator('tbody tr').nth(2).click();
    await expectAttribute(page.locator('tbody tr').nth(2), 'aria-current').toBe('true');
  });

  it('shows the rollout over layers', async () => {
    const page = await visit(link('view=head&section=0'));
    await button(page, 'Rollout').click();
    await expectAddress(page, 'layer=rollout');
    await expectText(page.locator('h2.figure-title')).toBe('Encoder · rollout over layers');
    await expectCount(page.locator('.strongest li')).toBeGreaterThan(0);
  });

  it('comes back from the rollout to where it was', async () => {
    const page = await visit(link('view=head&section=0&layer=2&head=1'));
    await page.keyboard.press('r');
    await expectAddress(page, 'layer=rollout');
    await page.keyboard.press('r');
    await expectAddress(page, 'layer=2&head=1&view=head');
    await page.keyboard.press('1');
    await page.keyboard.press('r');
    await expectAddress(page, 'layer=rollout&head=1&view=head');
    await page.keyboard.press('r');
    await expectAddress(page, 'layer=2&head=1&view=grid');
    await page.keyboard.press('r');
    await page.keyboard.press('ArrowRight');
    await expectAddress(page, 'layer=2&head=2');
  });

  it('opens on the most telling head, with its words', async () => {
    const page = await visit(link(''));
    await expectAddress(page, 'view=head');
    await expectAttribute(page.locator('tbody tr').first(), 'aria-current').toBe('true');
    await expectText(page.locator('th[aria-sort=descending]')).toContain('telling');
    await expectTexts(page.locator('tbody tr td:nth-child(2)')).toSatisfy(isRanked);
    if (!REAL) {
      // The best of all three kinds, by the formula of the stand-in.
      const target = translate(CAT);
      const made = synthesize('', CAT, target.text, tokenize(CAT), target.tokens, { layers: 4, heads: 4 });
      const all = made.header.sections.flatMap((section: any, s: number) =>
        section.statistics.flatMap((row: any[], layer: number) =>
          row.map((one, head) => ({ at: `section=${s}&layer=${layer}&head=${head}&`, telling: one.telling })),
        ),
      );
      const best = all.reduce((a: any, b: any) => (b.telling > a.telling ? b : a));
      await expectAddress(page, best.at);
    }
    // A sentence that follows keeps the reader's place.
    const place = () => /section=\d&layer=\d&head=\d/.exec(page.url())?.[0];
    const first = place();
    await page.keyboard.press('ArrowRight');
    await expect.poll(place).not.toBe(first);
    const next = place()!;
    await page.getByLabel('Sentence').fill('I have never seen the sea.');
    await page.keyboard.press('Enter');
    await expectAddress(page, 'never');
    await page.waitForSelector('body.loaded');
    await expectAddress(page, next);
  });

  it.skipIf(REAL !== '')('opens at the head that a trace names', async () => {
    const trace = synthesize('', 'a b c', '', ['a', 'b', 'c'], [], { layers: 3, heads: 3 });
    trace.header.start = { layer: 2, head: 0 };
    const file = join(harness.folder, 'start.html');
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace));
    const page = await visit(pathToFileURL(file).href);
    await expectText(page.locator('h2.figure-title')).toBe('Encoder · layer 2 · head 0');
  });

  it('says what is under the pointer beside it, on the first screen', async () => {
    const page = await visit(link('view=head&section=2&layer=1&head=0'), { viewport: { width: 1440, height: 900 } });
    await settled(overlay(page));
    await expectVisible(page.locator('.tip')).toBe(false);
    await pointAt(page, 0.3, 0.5);
    // The weight of both is the same, and so are the two words before it.
    const texts = () =>
      page.evaluate(() => ['.tip', '.reading'].map((one) => document.querySelector(one)!.textContent!));
    const parts = (text: string) => /^(.*?)\s*([\d.]+ %)/.exec(text)?.slice(1);
    await expect
      .poll(async () => (await texts()).map(parts))
      .toSatisfy(([tip, said]) => tip && said && tip.join() === said.join());
    for (const part of ['.heat .base', '.reading', '.strongest', '.tip']) {
      const box = await settled(page.locator(part));
      expect(box.y + box.height, part).toBeLessThanOrEqual(900);
    }
    // The tip stands at the cell, which the pointer is in.
    const heat = await settled(overlay(page));
    const box = await settled(page.locator('.tip'));
    expect(Math.abs(box.x + box.width / 2 - (heat.x + heat.width * 0.3))).toBeLessThan(60);
    expect(Math.abs(box.y - (heat.y + heat.height * 0.5))).toBeLessThan(70);
    await page.mouse.move(5, 5);
    await expectVisible(page.locator('.tip')).toBe(false);
  });

  it.skipIf(REAL !== '')('merges pieces into words', async () => {
    const text = 'Wonderful elephants dance.';
    const pieces = tokenize(text); // Wonde|rful eleph|ants dance . </s>
    const page = await visit(link('view=head&section=0&layer=0&head=1', text));
    const names = async () => {
      const file = await (await save(page, 'Numbers (JSON)')).path();
      return JSON.parse(readFileSync(file!, 'utf8'));
    };
    expect((await names()).keys).toEqual(pieces);
    await page.keyboard.press('w');
    await expectAddress(page, 'words=1');
    await expectAttribute(button(page, 'Words'), 'aria-pressed').toBe('true');
    const merged = await names();
    expect(merged.keys).toEqual(['Wonderful', 'elephants', 'dance', '.', '</s>']);
    const n = pieces.length;
    const [first, second] = [0, 1].map((q) => row(0, 0, 1, q, n, n, false));
    // Summed over the keys' pieces, averaged over the query's.
    expect(merged.weights[0][1]).toBeCloseTo((first[2] + first[3] + second[2] + second[3]) / 2, 4);
    for (const weights of merged.weights) expect(weights.reduce((a: number, b: number) => a + b, 0)).toBeCloseTo(1, 3);
    // What is chosen stays chosen: the word, then its first piece.
    await page.keyboard.press('Shift+ArrowDown');
    await page.keyboard.press('Shift+ArrowRight');
    await expectText(page.locator('.reading')).toMatch(/query 1 · key 2/);
    await button(page, 'Words').click();
    await expectText(page.locator('.reading')).toMatch(/query 1 · key 3/);
    await expectVisible(button(page, 'Words')).toBe(true);
    await page.getByLabel('Sentence').fill(CAT);
    await page.keyboard.press('Enter');
    await expectText(page.locator('.translation')).toBe(translate(CAT).text);
    await expectVisible(button(page, 'Words')).toBe(false); // nothing to merge
  });

  it('ranks the heads by the link between two words', async () => {
    const page = await visit(link('view=head&section=2&layer=0&head=0'));
    await overlay(page).click(await placeIn(overlay(page), 0.3, 0.5));
    const said = await readText(page.locator('.reading'), /query (\d+) · key (\d+)/);
    await expectAddress(page, `at=${encodeURIComponent(`${+said[1] - 1},${+said[2] - 1}`)}`);
    const links = page.locator('td.link');
    await expectCount(links).toBeGreaterThan(0);
    await expectTexts(links).toSatisfy(isRanked);
    if (!REAL) {
      const [rows, columns] = [translate(CAT).tokens.length, tokenize(CAT).length];
      const truth = [0, 1, 2, 3].flatMap((layer) =>
        [0, 1, 2, 3].map((head) => row(2, layer, head, +said[1] - 1, rows, columns, false)[+said[2] - 1]),
      );
      const first = async () => parseFloat((await links.first().textContent())!);
      await expect.poll(first).toBeCloseTo(100 * Math.max(...truth), 0);
    }
    // The first head of the answer, with the link still chosen.
    await page.locator('tbody tr').first().click();
    await expectText(page.locator('.reading')).toContain(said[0]);
    await page.keyboard.press('1');
    await expectAttribute(page.locator('.thumb[data-place="1"]'), 'class').toContain('chosen');
    await page.keyboard.press('Escape');
    await expectCount(page.locator('td.link')).toBe(0);
    // In the lines: one word on each side.
    await page.keyboard.press('3');
    const lines = page.locator('.scroll canvas');
    const { width } = await settled(lines);
    await lines.click({ position: { x: 60, y: 45 } });
    await expectText(page.locator('.reading')).toContain('reads most from');
    await expectCount(links).toBe(0);
    await settled(lines);
    await lines.click({ position: { x: width - 60, y: 75 } });
    await expectCount(links).toBeGreaterThan(0);
    await expectAttribute(lines, 'data-lines').toBe('1');
  });

  it('shows which dimensions of query and key make a weight', async () => {
    const page = await visit(link('view=qk&section=2&layer=1&head=0&at=1,0'));
    const said = await readText(page.locator('.reading'), /score ([+−][\d.]+).*sum of \d+ products/);
    const score = Number(said[1].replace('−', '-'));
    await expectCount(page.locator('.strongest .weight')).toBe(6);
    const parts = await page.locator('.strongest .weight').allTextContents();
    if (!REAL) {
      const product = (i: number) => (vectorAt(2, 1, 0, 0, 1, i) * vectorAt(2, 1, 0, 1, 0, i)) / Math.sqrt(DIM);
      const all = Array.from({ length: DIM }, (_, i) => product(i));
      expect(score).toBeCloseTo(
        all.reduce((a, b) => a + b, 0),
        1,
      );
      const most = all.reduce((best, value) => (Math.abs(value) > Math.abs(best) ? value : best));
      expect(Number(parts[0].replace('−', '-'))).toBeCloseTo(most, 2);
    }
    // Another key by a click, another query by its name.
    const canvas = page.locator('.qk canvas');
    const { width } = await settled(canvas);
    await canvas.click({ position: { x: width / 2, y: 84 + 24 * 3 + 12 } });
    await expectAddress(page, `at=${encodeURIComponent('1,3')}`);
    await page.locator('.qk-view .ribbon button').nth(2).click();
    await expectAddress(page, `at=${encodeURIComponent('2,3')}`);
    await page.keyboard.press('Shift+ArrowUp');
    await expectAddress(page, `at=${encodeURIComponent('2,2')}`);
    const svg = readFileSync((await (await save(page, 'Drawing (SVG)')).path())!, 'utf8');
    expect(svg).toContain('<rect');
    // Not of a product of layers.
    await button(page, 'Encoder').click();
    await expectAddress(page, 'section=0');
    await page.keyboard.press('r');
    await expectAddress(page, 'view=head');
  });

  it('looks at one sentence of a pair', async () => {
    const tokens = ['[CLS]', 'a', 'cat', '[SEP]', 'it', 'sleep', '##s', '[SEP]'];
    const trace = synthesize('', 'a cat', '', tokens, [], { layers: 1, heads: 2 });
    delete trace.header.sections[0].vectors;
    const file = join(harness.folder, 'pair.html');
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace));
    const page = await visit(pathToFileURL(file).href + '#view=head&section=0&layer=0&head=1');
    const numbers = async () => {
      const path = await (await save(page, 'Numbers (JSON)')).path();
      return JSON.parse(readFileSync(path!, 'utf8'));
    };
    await button(page, 'A → B').click();
    await expectAddress(page, 'pair=AB');
    const shown = await numbers();
    expect([shown.queries, shown.keys]).toEqual([
      ['[CLS]', 'a', 'cat', '[SEP]'],
      ['it', 'sleep', '·s', '[SEP]'],
    ]);
    expect(shown.weights[1][2]).toBeCloseTo(row(0, 0, 1, 1, 8, 8, false)[6], 4);
    await button(page, 'Words').click();
    expect((await numbers()).keys).toEqual(['it', 'sleeps', '[SEP]']);
    await button(page, 'A, B').click();
    expect((await numbers()).queries.length).toBe(7);
    await expectVisible(button(page, 'Q·K')).toBe(false); // weights alone were given
  });

  it('brings the head that is asked for onto the screen', async () => {
    const large = await startMock({ trace: longTrace(60, 24, 12) });
    try {
      const inside = (page: Page) =>
        page.evaluate(() => {
          const box = document.querySelector('.thumb.chosen')!.getBoundingClientRect();
          return box.top >= 0 && box.bottom <= window.innerHeight;
        });
      const page = await visit(`${large.url}#view=grid&layer=23&head=0`);
      await settled(page.locator('.thumb').last());
      await page.evaluate(() => window.scrollTo(0, 1e6));
      await expect.poll(() => inside(page)).toBe(true);
      await button(page, 'first token').evaluate((chip: HTMLElement) => chip.click());
      await expect.poll(() => page.url()).not.toContain('layer=23');
      await expect.poll(() => inside(page)).toBe(true);
    } finally {
      await large.close();
    }
  });

  it('follows the slider of steps', async () => {
    const page = await visit(link('view=head&section=2&layer=0&head=0&step=2'));
    await expectText(page.locator('.steps output')).toMatch(/^step 2 of/);
    await page.keyboard.press('.');
    await expectAddress(page, 'step=3');
    await page.locator('#step').fill('1');
    await expectAddress(page, 'step=1');
    const queries = async () =>
      (await page.locator('.strongest .token').allTextContents()).map((text) => text.split(' → ')[0]);
    await expect.poll(async () => new Set(await queries()).size).toBe(1);
  });
});
