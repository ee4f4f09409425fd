// SPDX-License-Identifier: Apache-2.0
// The page in a browser. REGARD_VIEW_URL=http://... runs what can be run against
// a real `regard view` with a translator instead of the stand-in.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Browser, BrowserContextOptions, Download, Page } from 'playwright-core';
import { PAGE, startMock, type Mock } from '../mock/server';
import { DIM, exported, longTrace, row, synthesize, tokenize, translate, vectorAt } from '../mock/synthetic';
import { findChromium, launch, open, type Opened } from './browser';

const REAL = process.env.REGARD_VIEW_URL ?? '';
const CAT = 'The cat sat on the mat because it was tired.';
const phone: BrowserContextOptions = {
  viewport: { width: 390, height: 844 },
  hasTouch: true,
  isMobile: true,
  deviceScaleFactor: 2,
};

if (!findChromium()) console.log('skipped: there is no Chromium (apt-get install chromium)');

describe.skipIf(!findChromium())('the page', () => {
  let browser: Browser;
  let mock: Mock;
  let base: string;
  let folder: string;
  let opened: Opened[] = [];
  let shared: Opened | null = null; // one page for all visits without wishes: a new one costs a process

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'regard-viewer-'));
    browser = await launch();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });
  beforeEach(async () => {
    mock = await startMock();
    base = REAL || mock.url;
  });
  afterEach(async () => {
    const problems = opened.flatMap((one) => one.problems.splice(0));
    await Promise.all(opened.map((one) => one !== shared && one.close()));
    opened = [];
    await mock.close();
    expect(problems).toEqual([]);
  });

  async function visit(url: string, options: BrowserContextOptions = {}): Promise<Page> {
    const plain = Object.keys(options).length === 0;
    if (plain && shared) {
      await shared.page.mouse.move(0, 0);
      await shared.page.evaluate(() => localStorage.clear()).catch(() => undefined);
      await shared.page.goto('about:blank');
      shared.requests.length = 0;
      await shared.page.goto(url);
      await shared.page.waitForSelector('body.loaded');
    }
    const one = plain && shared ? shared : await open(browser, url, options);
    if (plain) shared = one;
    opened.push(one);
    return one.page;
  }
  const link = (rest: string, text = CAT, direction = 'en-zh') =>
    `${base}#text=${encodeURIComponent(text)}&direction=${direction}&${rest}`;
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
  async function pointAt(page: Page, x: number, y: number): Promise<void> {
    const box = (await page.locator('.heat .overlay').boundingBox())!;
    await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
  }
  async function save(page: Page, item: string): Promise<Download> {
    await page.locator('.save summary').click();
    const [download] = await Promise.all([page.waitForEvent('download'), button(page, item).click()]);
    return download;
  }

  it('takes a sentence and shows its translation and all heads', async () => {
    const page = await visit(base);
    await page.getByLabel('Sentence').fill(CAT);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.heat');
    await page.keyboard.press('Escape');
    await page.keyboard.press('1');
    await page.waitForSelector('.thumb');
    const header = await page.evaluate(() => document.querySelectorAll('.grid-view section').length);
    expect(header).toBe(3);
    expect((await page.locator('.translation').textContent())!.length).toBeGreaterThan(0);
    if (!REAL) {
      expect(await page.locator('.translation').textContent()).toBe('那只猫坐在垫子上，因为它累了。');
      expect(await page.locator('.thumb').count()).toBe(48);
    }
    expect(decodeURIComponent(page.url())).toContain(`text=${CAT}`);
    await page.getByLabel('Sentence').fill('我喜欢在下雨天读书。');
    await page.keyboard.press('Enter');
    await page.waitForFunction(
      () => location.hash.includes('direction=zh-en') && document.body.classList.contains('loaded'),
    );
    expect(await page.locator('.translation').textContent()).toMatch(/[a-z]/i);
  });

  it('has examples for the direction that is chosen', async () => {
    const page = await visit(base);
    await button(page, '中文 → English').click();
    await page.locator('.welcome li button').first().click();
    await page.waitForSelector('.heat');
    expect(page.url()).toContain('direction=zh-en');
    expect(await page.locator('.translation').textContent()).toMatch(/[a-z]/i);
  });

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

  it('walks over cells, heads, layers and views by keyboard', async () => {
    const page = await visit(link('view=head&section=0&layer=0&head=0'));
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    expect(page.url()).toContain('layer=1&head=1');
    await page.keyboard.press('Shift+ArrowDown');
    await page.keyboard.press('Shift+ArrowRight');
    await page.waitForFunction(() => /query 1 · key 2/.test(document.querySelector('.reading')!.textContent!));
    await page.keyboard.press('3');
    expect(page.url()).toContain('view=lines');
    await page.keyboard.press('1');
    expect(page.url()).toContain('view=grid');
    await page.keyboard.press('s');
    expect(page.url()).toContain('section=1');
    await page.keyboard.press('?');
    expect(await page.locator('dialog.help').isVisible()).toBe(true);
    await page.keyboard.press('Escape');
    expect(await page.locator('dialog.help').isVisible()).toBe(false);
    await page.keyboard.press('/');
    await page.keyboard.type('3');
    expect(page.url()).toContain('view=grid');
  });

  it('draws lines for several heads and only those of a token that is pointed at', async () => {
    const page = await visit(link('view=lines&section=0&layer=1&head=0'));
    await button(page, 'Head 2').click();
    expect(page.url()).toContain(`heads=${encodeURIComponent('0,2')}`);
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
    expect(page.url()).toContain('layer=rollout');
    expect(await page.locator('h2.figure-title').textContent()).toBe('Encoder · rollout over layers');
    await page.waitForFunction(() => document.querySelectorAll('.strongest li').length > 0);
  });

  it('comes back from the rollout to where it was', async () => {
    const page = await visit(link('view=head&section=0&layer=2&head=1'));
    await page.keyboard.press('r');
    expect(page.url()).toContain('layer=rollout');
    await page.keyboard.press('r');
    expect(page.url()).toContain('layer=2&head=1&view=head');
    await page.keyboard.press('1');
    await page.keyboard.press('r');
    expect(page.url()).toContain('layer=rollout&head=1&view=head');
    await page.keyboard.press('r');
    expect(page.url()).toContain('layer=2&head=1&view=grid');
    await page.keyboard.press('r');
    await page.keyboard.press('ArrowRight');
    expect(page.url()).toContain('layer=2&head=2');
  });

  it('opens on the most telling head, with its words', async () => {
    const page = await visit(link(''));
    expect(page.url()).toContain('view=head');
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
      expect(page.url()).toContain(best.at);
    }
    // A sentence that follows keeps the reader's place.
    await page.keyboard.press('ArrowRight');
    const place = /section=\d&layer=\d&head=\d/.exec(page.url())![0];
    await page.getByLabel('Sentence').fill('I have never seen the sea.');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /never/.test(location.hash));
    expect(page.url()).toContain(place);
  });

  it.skipIf(REAL !== '')('opens at the head that a trace names', async () => {
    const trace = synthesize('', 'a b c', '', ['a', 'b', 'c'], [], { layers: 3, heads: 3 });
    trace.header.start = { layer: 2, head: 0 };
    const file = join(folder, 'start.html');
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
    expect(page.url()).toContain('words=1');
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
    expect(page.url()).toContain(`at=${encodeURIComponent(`${+said[1] - 1},${+said[2] - 1}`)}`);
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
    expect(page.url()).toContain(`at=${encodeURIComponent('2,3')}`);
    await page.keyboard.press('Shift+ArrowUp');
    expect(page.url()).toContain(`at=${encodeURIComponent('2,2')}`);
    const svg = readFileSync((await (await save(page, 'Drawing (SVG)')).path())!, 'utf8');
    expect(svg).toContain('<rect');
    // Not of a product of layers.
    await button(page, 'Encoder').click();
    await page.keyboard.press('r');
    expect(page.url()).toContain('view=head');
  });

  it('looks at one sentence of a pair', async () => {
    const tokens = ['[CLS]', 'a', 'cat', '[SEP]', 'it', 'sleep', '##s', '[SEP]'];
    const trace = synthesize('', 'a cat', '', tokens, [], { layers: 1, heads: 2 });
    delete trace.header.sections[0].vectors;
    const file = join(folder, 'pair.html');
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace));
    const page = await visit(pathToFileURL(file).href + '#view=head&section=0&layer=0&head=1');
    const numbers = async () => {
      const path = await (await save(page, 'Numbers (JSON)')).path();
      return JSON.parse(readFileSync(path!, 'utf8'));
    };
    await button(page, 'A → B').click();
    expect(page.url()).toContain('pair=AB');
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

  it('refuses a text that is too long by name, and cuts nothing', async () => {
    const page = await visit(base);
    const long = 'word '.repeat(1000).trim(); // 4,999 characters
    await page.getByLabel('Sentence').fill(long);
    expect(await page.getByLabel('Sentence').inputValue()).toBe(long);
    expect(await page.locator('.count').textContent()).toBe('4,999 of 2,000 characters');
    await page.keyboard.press('Enter');
    const notice = page.locator('.notice');
    expect(await notice.textContent()).toContain('has 4,999 characters; at most 2,000 can be read');
    expect(await notice.textContent()).toContain('shorten it by 2,999');
    expect(await page.getByLabel('Sentence').inputValue()).toBe(long);
    await page.locator('header .quiet').click();
    expect(await notice.textContent()).toContain('这段文字有 4,999 个字符，最多能读 2,000 个');
    expect(await notice.textContent()).not.toMatch(/[A-Za-z]/);
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

  it('names no direction on two lines, on any phone', async () => {
    for (const width of [320, 360, 390]) {
      for (const locale of ['en-US', 'zh-CN']) {
        const page = await visit(base, { ...phone, viewport: { width, height: 800 }, locale });
        const heights = await page
          .locator('.composer .segments button')
          .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().height));
        expect(heights.length).toBe(2);
        for (const height of heights) expect(height).toBeLessThan(46);
        expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      }
    }
  });

  it('says what the model is worth in the language of the reader', async () => {
    const page = await visit(base);
    const note = page.locator('.model .note');
    if (!REAL) expect(await note.textContent()).toBe('made by formula, for tests');
    await page.locator('header .quiet').click();
    if (!REAL) expect(await note.textContent()).toBe('由公式生成，仅供测试');
    expect((await note.textContent())!.length).toBeGreaterThan(0);
  });

  it('follows the slider of steps', async () => {
    const page = await visit(link('view=head&section=2&layer=0&head=0&step=2'));
    expect(await page.locator('.steps output').textContent()).toMatch(/^step 2 of/);
    await page.keyboard.press('.');
    expect(page.url()).toContain('step=3');
    await page.locator('#step').fill('1');
    expect(page.url()).toContain('step=1');
    const strongest = await page.waitForFunction(() =>
      [...document.querySelectorAll('.strongest .token')].map((one) => one.textContent!.split(' → ')[0]),
    );
    expect(new Set(await strongest.jsonValue()).size).toBe(1);
  });

  it('opens at the place of a permalink, and follows a changed address', async () => {
    const page = await visit(link('section=2&layer=1&head=3&view=lines'));
    expect(await page.locator('h2.figure-title').textContent()).toBe('Cross · layer 1 · head 3');
    await page.evaluate(
      () => (location.hash = location.hash.replace('view=lines', 'view=head').replace('head=3', 'head=0')),
    );
    await page.waitForFunction(
      () => document.querySelector('h2.figure-title')!.textContent === 'Cross · layer 1 · head 0',
    );
  });

  it('saves a picture, a drawing and the numbers', async () => {
    const page = await visit(link('view=head&section=0&layer=1&head=1'));
    const png = readFileSync((await (await save(page, 'Picture (PNG)')).path())!);
    expect(png.subarray(1, 4).toString()).toBe('PNG');
    expect(png.readUInt32BE(16)).toBeGreaterThan(600);
    const drawing = await save(page, 'Drawing (SVG)');
    expect(drawing.suggestedFilename()).toBe('regard-encoder-layer1-head1.svg');
    const svg = readFileSync((await drawing.path())!, 'utf8');
    expect(svg).toMatch(/^<svg xmlns/);
    expect(svg).toContain('>cat</text>');
    const numbers = JSON.parse(readFileSync((await (await save(page, 'Numbers (JSON)')).path())!, 'utf8'));
    expect(numbers).toMatchObject({ format: 'regard-head', section: 'encoder', layer: 1, head: 1 });
    expect(numbers.weights.length).toBe(numbers.queries.length);
    for (const weights of numbers.weights) expect(weights.reduce((a: number, b: number) => a + b, 0)).toBeCloseTo(1, 2);
    await page.keyboard.press('3');
    expect(readFileSync((await (await save(page, 'Drawing (SVG)')).path())!, 'utf8')).toContain('<path');
    await page.keyboard.press('1');
    expect((await save(page, 'Picture (PNG)')).suggestedFilename()).toBe('regard-heads.png');
  });

  it('speaks Chinese where the reader does, and changes on the way', async () => {
    const page = await visit(link('view=grid'), { locale: 'zh-CN' });
    expect(await page.evaluate(() => document.documentElement.lang)).toBe('zh-CN');
    expect(await button(page, '总览').getAttribute('aria-pressed')).toBe('true');
    await page.locator('header .quiet').click();
    expect(await button(page, 'Grid').getAttribute('aria-pressed')).toBe('true');
    await page.reload();
    await page.waitForSelector('body.loaded');
    expect(await page.evaluate(() => document.documentElement.lang)).toBe('en');
  });

  it('is dark where the system is, and by its button', async () => {
    const page = await visit(link('view=head'), { colorScheme: 'dark' });
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect(await paper()).toBe('rgb(20, 24, 29)');
    await button(page, 'Dark or light').click();
    expect(await paper()).toBe('rgb(251, 250, 247)');
  });

  it('fits a phone, and a finger reads a cell', async () => {
    const page = await visit(link('view=head&section=0&layer=0&head=0'), phone);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await page.waitForFunction(() => !document.querySelector('.heat.waiting'));
    await page.locator('.heat .overlay').scrollIntoViewIfNeeded();
    const box = (await page.locator('.heat .overlay').boundingBox())!;
    await page.touchscreen.tap(box.x + box.width / 2, box.y + box.height / 2);
    await page.waitForFunction(() => /query \d+ · key \d+/.test(document.querySelector('.reading')!.textContent!));
    for (const view of ['Grid', 'Lines']) {
      await button(page, view).click();
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    }
  });

  it('names every control', async () => {
    const page = await visit(link('view=lines'));
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll('button, select, input, textarea, canvas[tabindex]')]
        .filter(
          (one) =>
            !(
              one.getAttribute('aria-label') ||
              one.textContent!.trim() ||
              (one.id && document.querySelector(`label[for=${one.id}]`))
            ),
        )
        .map((one) => one.outerHTML),
    );
    expect(nameless).toEqual([]);
  });

  it('says kindly what went wrong, in both languages', async () => {
    const page = await visit(base);
    await page.keyboard.press('/');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.notice:not([hidden])');
    expect(await page.locator('.notice').textContent()).toContain('There is no sentence yet');
    await page.locator('header .quiet').click();
    expect(await page.locator('.notice').textContent()).toContain('请先输入一句');
    expect(await page.locator('.notice').textContent()).not.toMatch(/[A-Za-z]/);
  });

  it.skipIf(REAL !== '')('has words for each refusal, and markup in them stays text', async () => {
    const page = await visit(base);
    const ask = async (text: string) => {
      await page.getByLabel('Sentence').fill(text);
      await page.keyboard.press('Enter');
      await page.waitForSelector('.notice:not([hidden])');
      return (await page.locator('.notice').textContent())!;
    };
    expect(await ask('word '.repeat(80))).toContain('the model reads at most 60 tokens; it has 81');
    await button(page, 'Close').click();
    expect(await ask('be busy')).toContain('busy with other sentences');
    await button(page, 'Close').click();
    expect(await ask('break')).toContain('something <b>unheard</b> of');
    expect(await page.locator('.notice b').count()).toBe(0);
    await mock.close();
    await button(page, 'Try again').click();
    await page.waitForFunction(() => /does not answer/.test(document.querySelector('.notice')!.textContent!));
  });

  it.skipIf(REAL !== '')('asks again, once, for a trace that the server let go', async () => {
    const page = await visit(link('view=head&section=0&layer=0&head=0'));
    await page.waitForFunction(() => !document.querySelector('.heat.waiting'));
    mock.forget();
    mock.log.length = 0;
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => !document.querySelector('.heat.waiting'));
    expect(mock.log).toEqual(['GET /api/weights', 'POST /api/trace', 'GET /api/weights']);
    expect(await page.locator('.notice').isVisible()).toBe(false);
  });

  it('asks nobody but its own server', async () => {
    await visit(link('view=head'));
    expect(opened[0].requests.filter((url) => !url.startsWith(base) && !url.startsWith('data:'))).toEqual([]);
  });

  it('from a file makes no request at all', async () => {
    const target = translate(CAT);
    const hostile = tokenize(CAT);
    hostile[1] = '</script><img src=x onerror=alert(1)>';
    const trace = synthesize('', CAT, target.text, hostile, target.tokens, { layers: 2, heads: 2 });
    const file = join(folder, 'page.html');
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace));
    const page = await visit(pathToFileURL(file).href + '#view=head&section=2&layer=1&head=1');
    await page.waitForFunction(() => document.querySelectorAll('.strongest li').length > 0);
    for (const key of ['ArrowLeft', '3', '1', 's', 'r']) await page.keyboard.press(key);
    expect(await page.locator('.composer').isVisible()).toBe(false);
    expect(await page.locator('.translation').textContent()).toBe(target.text);
    expect(await page.locator('main img').count()).toBe(0);
    expect(opened[0].requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
    await page.locator('.save summary').click();
    await Promise.all([page.waitForEvent('download'), button(page, 'Numbers (JSON)').click()]);
  });

  it('works in the frame of a notebook, which has no address and no storage', async () => {
    const trace = synthesize('', 'a b c', '', ['a', 'b', 'c'], [], { layers: 2, heads: 2 });
    const page = await visit(base);
    await page.evaluate(
      (html) => {
        const frame = document.createElement('iframe');
        frame.setAttribute('sandbox', 'allow-scripts');
        frame.width = '900';
        frame.height = '700';
        frame.srcdoc = html;
        document.body.replaceChildren(frame);
      },
      exported(readFileSync(PAGE, 'utf8'), trace),
    );
    const inside = page.frameLocator('iframe');
    await inside.locator('[data-view=grid]').click();
    await inside.locator('.thumb').nth(3).click();
    await inside.locator('.strongest li').first().waitFor();
    expect(await inside.locator('h2.figure-title').textContent()).toBe('Encoder · layer 1 · head 1');
  });

  it('from a file without all heads says which it has not, and goes on', async () => {
    const trace = synthesize('', 'a b', '', ['a', 'b'], [], { layers: 1, heads: 2 });
    const file = join(folder, 'part.html');
    writeFileSync(
      file,
      exported(readFileSync(PAGE, 'utf8'), trace).replace(
        /<script type="text\/plain" id="regard-block-0-0-1">.*?<\/script>/,
        '',
      ),
    );
    const page = await visit(pathToFileURL(file).href + '#view=head&section=0&layer=0&head=1');
    await page.waitForSelector('.notice:not([hidden])');
    expect(await page.locator('.notice').textContent()).toContain('does not hold the weights of this head');
    await page.keyboard.press('ArrowRight');
    expect(await page.locator('.notice').isVisible()).toBe(false);
    await page.waitForFunction(() => document.querySelectorAll('.strongest li').length > 0);
  });

  it('stays smooth with 1,000 tokens, 12 layers and 12 heads (reports, never asserts)', async () => {
    const large = await startMock({ trace: longTrace(1000, 12, 12) });
    try {
      const page = await visit(`${large.url}#view=grid`);
      const shown = await page.evaluate(() => ({
        paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN,
        grid: performance.getEntriesByName('regard-shown')[0]?.startTime ?? NaN,
      }));
      const report = [
        `first paint ${shown.paint.toFixed(0)} ms, all 144 heads on screen ${shown.grid.toFixed(0)} ms after navigation`,
      ];
      for (const [view, canvas] of [
        ['head', '.heat .overlay'],
        ['lines', '.scroll canvas'],
      ]) {
        await page.evaluate((name) => (location.hash = `#view=${name}&layer=3&head=4`), view);
        await page.waitForFunction(() => document.querySelectorAll('.strongest li').length > 0);
        await page.waitForTimeout(500);
        const idle = await page.evaluate(hover, 'body');
        const times = await page.evaluate(hover, canvas);
        report.push(
          `hover in the ${view} view: script ${times.script}; until its frame is done ${times.frame} (an idle frame: ${idle.frame})`,
        );
      }
      console.log(report.map((line) => `measured: ${line}`).join('\n'));
    } finally {
      await large.close();
    }
  });
});

// Runs in the page: sixty pointer moves, each timed until its handlers are
// done and until the frame that shows it is done. Median and largest.
async function hover(selector: string): Promise<{ script: string; frame: string }> {
  const canvas = document.querySelector(selector)!;
  const box = canvas.getBoundingClientRect();
  const script: number[] = [];
  const frame: number[] = [];
  for (let i = 0; i < 60; ++i) {
    await new Promise(requestAnimationFrame);
    const x = selector.includes('overlay') ? box.left + box.width * (0.2 + 0.005 * i) : box.left + 60;
    // Each move meets another cell or another token.
    const y = selector.includes('overlay') ? box.top + box.height * (0.15 + 0.007 * i) : box.top + 11 + 22 * (i % 24);
    const begin = performance.now();
    if (selector !== 'body')
      canvas.dispatchEvent(
        new PointerEvent('pointermove', { clientX: x, clientY: y, pointerType: 'mouse', bubbles: true }),
      );
    script.push(performance.now() - begin);
    await new Promise<void>((done) =>
      requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => done();
        channel.port2.postMessage(0);
      }),
    );
    frame.push(performance.now() - begin);
  }
  const tell = (times: number[]) => {
    times.sort((a, b) => a - b);
    return `median ${times[times.length >> 1].toFixed(1)} ms, largest ${times[times.length - 1].toFixed(1)} ms`;
  };
  return { script: tell(script), frame: tell(frame) };
}
