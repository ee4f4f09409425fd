// SPDX-License-Identifier: Apache-2.0
// Looking at heads, in a browser.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { PAGE, startMock } from '../mock/server';
import { DIM, exported, longTrace, row, synthesize, tokenize, translate, vectorAt } from '../mock/synthetic';
import { button, CAT, expectAddress, Harness, hasBrowser, pointAt, REAL, save } from './harness';

describe.skipIf(!hasBrowser)('the heads', () => {
  const harness = new Harness();
  const { link, visit } = harness;

  it('opens a head from the grid, and says what is under the pointer', async () => {
    const page = await visit(link('view=grid'));
    await page.locator('.thumb').nth(1).click();
    expect(await page.locator('h2.figure-title').textContent()).toBe('Encoder · layer 0 · head 1');
    await page.waitForFunction(() => !document.querySelector('.heat.waiting'));
    await pointAt(page, 0.3, 0.5);
    const said = await page.locator('.reading').textContent();
    expect(said).toMatch(/→ .*%.*query \d+ · key \d+/);
    if (!REAL) {
      const [, q, k] = /query (\d+) · key (\d+)/.exec(said!)!.map(Number);
      const tokens = tokenize(CAT).length;
      const weight = row(0, 0, 1, q - 1, tokens, tokens, false)[k - 1];
      const shown = Number(/([\d.]+) %/.exec(said!)![1]);
      expect(Math.abs(shown - 100 * weight)).toBeLessThan(0.06);
    }
    await page.mouse.move(5, 5);
    expect(await page.locator('.reading').textContent()).toContain('strongest links');
  });

  it('draws lines for several heads and only those of a token that is pointed at', async () => {
    const page = await visit(link('view=lines&section=0&layer=1&head=0'));
    await button(page, 'Head 2').click();
    await expectAddress(page, `heads=${encodeURIComponent('0,2')}`);
    expect(await page.locator('.heads .chip[aria-pressed=true]').count()).toBe(2);
    const canvas = page.locator('.scroll canvas');
    const box = (await canvas.boundingBox())!;
    const drawn = async () => Number(await canvas.getAttribute('data-lines'));
    await page.waitForFunction(
      () => Number(document.querySelector<HTMLCanvasElement>('.scroll canvas')!.dataset.lines) > 0,
    );
    const all = await drawn();
    await page.mouse.move(box.x + 40, box.y + 45);
    expect(await page.locator('.reading').textContent()).toContain('reads most from');
    expect(await drawn()).toBeLessThan(all);
    await page.mouse.move(box.x + box.width - 40, box.y + 45);
    expect(await page.locator('.reading').textContent()).toContain('is read most by');
  });

  it('finds the heads that are asked for', async () => {
    const page = await visit(link('view=grid&section=0'));
    await button(page, 'token before').click();
    const cells = await page.locator('tbody tr td:nth-child(6)').allTextContents();
    const shares = cells.map((text) => parseInt(text, 10));
    expect(shares).toEqual([...shares].sort((a, b) => b - a));
    expect(await page.locator('.thumb[data-place="1"]').getAttribute('class')).toContain('chosen');
    await page.locator('thead button', { hasText: 'entropy' }).click();
    expect(await page.locator('th[aria-sort=ascending]').textContent()).toContain('entropy');
    await page.locator('tbody tr').nth(2).click();
    expect(await page.locator('tbody tr').nth(2).getAttribute('aria-current')).toBe('true');
  });

  it('shows the rollout over layers', async () => {
    const page = await visit(link('view=head&section=0'));
    await button(page, 'Rollout').click();
    await expectAddress(page, 'layer=rollout');
    expect(await page.locator('h2.figure-title').textContent()).toBe('Encoder · rollout over layers');
    await page.waitForFunction(() => document.querySelectorAll('.strongest li').length > 0);
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
    expect(await page.locator('tbody tr').first().getAttribute('aria-current')).toBe('true');
    expect(await page.locator('th[aria-sort=descending]').textContent()).toContain('telling');
    const shares = (await page.locator('tbody tr td:nth-child(2)').allTextContents()).map((text) => parseInt(text, 10));
    expect(shares[0]).toBe(Math.max(...shares));
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
    await page.keyboard.press('ArrowRight');
    const place = /section=\d&layer=\d&head=\d/.exec(await page.evaluate(() => location.hash))![0];
    await page.getByLabel('Sentence').fill('I have never seen the sea.');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /never/.test(location.hash));
    await expectAddress(page, place);
  });

  it.skipIf(REAL !== '')('opens at the head that a trace names', async () => {
    const trace = synthesize('', 'a b c', '', ['a', 'b', 'c'], [], { layers: 3, heads: 3 });
    trace.header.start = { layer: 2, head: 0 };
    const file = join(harness.folder, 'start.html');
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace));
    const page = await visit(pathToFileURL(file).href);
    expect(await page.locator('h2.figure-title').textContent()).toBe('Encoder · layer 2 · head 0');
  });

  it('says what is under the pointer beside it, on the first screen', async () => {
    const page = await visit(link('view=head&section=2&layer=1&head=0'), { viewport: { width: 1440, height: 900 } });
    await page.waitForFunction(() => !document.querySelector('.heat.waiting'));
    expect(await page.locator('.tip').isVisible()).toBe(false);
    await pointAt(page, 0.3, 0.5);
    const tip = (await page.locator('.tip').textContent())!;
    const said = (await page.locator('.reading').textContent())!;
    const percent = /[\d.]+ %/.exec(said)![0];
    expect(tip.endsWith(percent)).toBe(true);
    expect(said.startsWith(tip.slice(0, -percent.length).trim())).toBe(true);
    for (const part of ['.heat .base', '.reading', '.strongest', '.tip']) {
      const box = (await page.locator(part).boundingBox())!;
      expect(box.y + box.height, part).toBeLessThanOrEqual(900);
    }
    // The tip stands at the cell, which the pointer is in.
    const heat = (await page.locator('.heat .overlay').boundingBox())!;
    const box = (await page.locator('.tip').boundingBox())!;
    expect(Math.abs(box.x + box.width / 2 - (heat.x + heat.width * 0.3))).toBeLessThan(60);
    expect(Math.abs(box.y - (heat.y + heat.height * 0.5))).toBeLessThan(70);
    await page.mouse.move(5, 5);
    expect(await page.locator('.tip').isVisible()).toBe(false);
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
    expect(await button(page, 'Words').getAttribute('aria-pressed')).toBe('true');
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
    await page.waitForFunction(() => /query 1 · key 2/.test(document.querySelector('.reading')!.textContent!));
    await button(page, 'Words').click();
    await page.waitForFunction(() => /query 1 · key 3/.test(document.querySelector('.reading')!.textContent!));
    expect(await button(page, 'Words').isVisible()).toBe(true);
    await page.getByLabel('Sentence').fill(CAT);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /cat/.test(location.hash));
    expect(await button(page, 'Words').isVisible()).toBe(false); // nothing to merge
  });

  it('ranks the heads by the link between two words', async () => {
    const page = await visit(link('view=head&section=2&layer=0&head=0'));
    await page.waitForFunction(() => !document.querySelector('.heat.waiting'));
    const box = (await page.locator('.heat .overlay').boundingBox())!;
    await page.mouse.click(box.x + box.width * 0.3, box.y + box.height * 0.5);
    await page.waitForSelector('td.link');
    const said = /query (\d+) · key (\d+)/.exec((await page.locator('.reading').textContent())!)!;
    await expectAddress(page, `at=${encodeURIComponent(`${+said[1] - 1},${+said[2] - 1}`)}`);
    const shown = (await page.locator('td.link').allTextContents()).map(parseFloat);
    expect(shown).toEqual([...shown].sort((a, b) => b - a));
    if (!REAL) {
      const [rows, columns] = [translate(CAT).tokens.length, tokenize(CAT).length];
      const truth = [0, 1, 2, 3].flatMap((layer) =>
        [0, 1, 2, 3].map((head) => row(2, layer, head, +said[1] - 1, rows, columns, false)[+said[2] - 1]),
      );
      expect(shown[0]).toBeCloseTo(100 * Math.max(...truth), 0);
    }
    // The first head of the answer, with the link still chosen.
    await page.locator('tbody tr').first().click();
    expect(await page.locator('.reading').textContent()).toContain(said[0]);
    await page.keyboard.press('1');
    expect(await page.locator('.thumb[data-place="1"]').getAttribute('class')).toContain('chosen');
    await page.keyboard.press('Escape');
    expect(await page.locator('td.link').count()).toBe(0);
    // In the lines: one word on each side.
    await page.keyboard.press('3');
    const lines = (await page.locator('.scroll canvas').boundingBox())!;
    await page.mouse.click(lines.x + 60, lines.y + 45);
    expect(await page.locator('td.link').count()).toBe(0);
    await page.mouse.click(lines.x + lines.width - 60, lines.y + 75);
    await page.waitForSelector('td.link');
    expect(await page.locator('.scroll canvas').getAttribute('data-lines')).toBe('1');
  });

  it('shows which dimensions of query and key make a weight', async () => {
    const page = await visit(link('view=qk&section=2&layer=1&head=0&at=1,0'));
    await page.waitForFunction(() => /sum of \d+ products/.test(document.querySelector('.reading')!.textContent!));
    const said = (await page.locator('.reading').textContent())!;
    const score = Number(/score ([+−][\d.]+)/.exec(said)![1].replace('−', '-'));
    const parts = await page.locator('.strongest .weight').allTextContents();
    expect(parts.length).toBe(6);
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
    const box = (await page.locator('.qk canvas').boundingBox())!;
    await page.mouse.click(box.x + box.width / 2, box.y + 84 + 24 * 3 + 12);
    await page.waitForFunction(() => location.hash.includes(`at=${encodeURIComponent('1,3')}`));
    await page.locator('.qk-view .ribbon button').nth(2).click();
    await expectAddress(page, `at=${encodeURIComponent('2,3')}`);
    await page.keyboard.press('Shift+ArrowUp');
    await expectAddress(page, `at=${encodeURIComponent('2,2')}`);
    const svg = readFileSync((await (await save(page, 'Drawing (SVG)')).path())!, 'utf8');
    expect(svg).toContain('<rect');
    // Not of a product of layers.
    await button(page, 'Encoder').click();
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
    expect(await button(page, 'Q·K').isVisible()).toBe(false); // weights alone were given
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
      await page.evaluate(() => window.scrollTo(0, 1e6));
      expect(await inside(page)).toBe(true);
      await button(page, 'first token').evaluate((chip: HTMLElement) => chip.click());
      await page.waitForFunction(() => !/layer=23/.test(location.hash));
      expect(await inside(page)).toBe(true);
    } finally {
      await large.close();
    }
  });

  it('follows the slider of steps', async () => {
    const page = await visit(link('view=head&section=2&layer=0&head=0&step=2'));
    expect(await page.locator('.steps output').textContent()).toMatch(/^step 2 of/);
    await page.keyboard.press('.');
    await expectAddress(page, 'step=3');
    await page.locator('#step').fill('1');
    await expectAddress(page, 'step=1');
    const strongest = await page.waitForFunction(() =>
      [...document.querySelectorAll('.strongest .token')].map((one) => one.textContent!.split(' → ')[0]),
    );
    expect(new Set(await strongest.jsonValue()).size).toBe(1);
  });
});
