// SPDX-License-Identifier: Apache-2.0
// The page around the heads, in a browser.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { PAGE, startMock } from '../mock/server';
import { exported, longTrace, synthesize, tokenize, translate } from '../mock/synthetic';
import { patient } from './browser';
import {
  button,
  CAT,
  expectAddress,
  expectAttribute,
  expectCount,
  expectText,
  expectVisible,
  expectWidth,
  Harness,
  hasBrowser,
  overlay,
  phone,
  placeIn,
  REAL,
  save,
  settled,
} from './harness';

describe.skipIf(!hasBrowser)('the page', patient, () => {
  const harness = new Harness();
  const { link, visit } = harness;

  it('takes a sentence and shows its translation and all heads', async () => {
    const page = await visit(harness.base);
    await page.getByLabel('Sentence').fill(CAT);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.heat');
    await page.keyboard.press('Escape');
    await page.keyboard.press('1');
    await page.waitForSelector('.thumb');
    await expectCount(page.locator('.grid-view section')).toBe(3);
    await expectText(page.locator('.translation')).toMatch(/./);
    if (!REAL) {
      await expectText(page.locator('.translation')).toBe('那只猫坐在垫子上，因为它累了。');
      await expectCount(page.locator('.thumb')).toBe(48);
    }
    await expectAddress(page, `text=${encodeURIComponent(CAT)}`);
    await page.getByLabel('Sentence').fill('我喜欢在下雨天读书。');
    await page.keyboard.press('Enter');
    await expectAddress(page, 'direction=zh-en');
    await expectText(page.locator('.translation')).toMatch(/[a-z]/i);
  });

  it('has examples for the direction that is chosen', async () => {
    const page = await visit(harness.base);
    await button(page, '中文 → English').click();
    await page.locator('.welcome li button').first().click();
    await page.waitForSelector('.heat');
    await expectAddress(page, 'direction=zh-en');
    await expectText(page.locator('.translation')).toMatch(/[a-z]/i);
  });

  it('walks over cells, heads, layers and views by keyboard', async () => {
    const page = await visit(link('view=head&section=0&layer=0&head=0'));
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    await expectAddress(page, 'layer=1&head=1');
    await page.keyboard.press('Shift+ArrowDown');
    await page.keyboard.press('Shift+ArrowRight');
    await expectText(page.locator('.reading')).toMatch(/query 1 · key 2/);
    await page.keyboard.press('3');
    await expectAddress(page, 'view=lines');
    await page.keyboard.press('1');
    await expectAddress(page, 'view=grid');
    await page.keyboard.press('s');
    await expectAddress(page, 'section=1');
    await page.keyboard.press('?');
    await expectVisible(page.locator('dialog.help')).toBe(true);
    await page.keyboard.press('Escape');
    await expectVisible(page.locator('dialog.help')).toBe(false);
    await page.keyboard.press('/');
    await page.keyboard.type('3');
    await expect.poll(() => page.getByLabel('Sentence').inputValue()).toBe('3');
    await expectAddress(page, 'view=grid');
  });

  it('refuses a text that is too long by name, and cuts nothing', async () => {
    const page = await visit(harness.base);
    const long = 'word '.repeat(1000).trim(); // 4,999 characters
    await page.getByLabel('Sentence').fill(long);
    await expect.poll(() => page.getByLabel('Sentence').inputValue()).toBe(long);
    await expectText(page.locator('.count')).toBe('4,999 of 2,000 characters');
    await page.keyboard.press('Enter');
    const notice = page.locator('.notice');
    await expectText(notice).toContain('has 4,999 characters; at most 2,000 can be read');
    await expectText(notice).toContain('shorten it by 2,999');
    await expect.poll(() => page.getByLabel('Sentence').inputValue()).toBe(long);
    await page.locator('header .quiet').click();
    await expectText(notice).toContain('这段文字有 4,999 个字符，最多能读 2,000 个');
    await expectText(notice).not.toMatch(/[A-Za-z]/);
  });

  it('names no direction on two lines, on any phone', async () => {
    for (const width of [320, 360, 390]) {
      for (const locale of ['en-US', 'zh-CN']) {
        const page = await visit(harness.base, { ...phone, viewport: { width, height: 800 }, locale });
        const names = page.locator('.composer .segments button');
        await expectCount(names).toBe(2);
        for (const name of await names.all()) expect((await settled(name)).height).toBeLessThan(46);
        await expectWidth(page).toBeLessThanOrEqual(width);
      }
    }
  });

  it('says what the model is worth in the language of the reader', async () => {
    const page = await visit(harness.base);
    const note = page.locator('.model .note');
    if (!REAL) await expectText(note).toBe('made by formula, for tests');
    await page.locator('header .quiet').click();
    if (!REAL) await expectText(note).toBe('由公式生成，仅供测试');
    await expectText(note).toMatch(/./);
  });

  it('opens at the place of a permalink, and follows a changed address', async () => {
    const page = await visit(link('section=2&layer=1&head=3&view=lines'));
    await expectText(page.locator('h2.figure-title')).toBe('Cross · layer 1 · head 3');
    await page.evaluate(
      () => (location.hash = location.hash.replace('view=lines', 'view=head').replace('head=3', 'head=0')),
    );
    await expectText(page.locator('h2.figure-title')).toBe('Cross · layer 1 · head 0');
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
    const language = () => page.evaluate(() => document.documentElement.lang);
    await expect.poll(language).toBe('zh-CN');
    await expectAttribute(button(page, '总览'), 'aria-pressed').toBe('true');
    await page.locator('header .quiet').click();
    await expectAttribute(button(page, 'Grid'), 'aria-pressed').toBe('true');
    await page.reload();
    await page.waitForSelector('body.loaded');
    await expect.poll(language).toBe('en');
  });

  it('is dark where the system is, and by its button', async () => {
    const page = await visit(link('view=head'), { colorScheme: 'dark' });
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await expect.poll(paper).toBe('rgb(20, 24, 29)');
    await button(page, 'Dark or light').click();
    await expect.poll(paper).toBe('rgb(251, 250, 247)');
  });

  it('shows a sentence whole on a phone', async () => {
    const page = await visit(
      link('view=head', 'The cat sat on the mat and did not want to leave it for all the fish.'),
      phone,
    );
    const field = page.getByLabel('Sentence');
    await expect.poll(() => field.evaluate((one) => one.clientHeight)).toBeGreaterThan(70); // two lines at least
    await expect.poll(() => field.evaluate((one) => one.scrollHeight - one.clientHeight)).toBeLessThanOrEqual(0);
  });

  it('fits a phone, and a finger reads a cell', async () => {
    const page = await visit(link('view=head&section=0&layer=0&head=0'), phone);
    await expectWidth(page).toBeLessThanOrEqual(390);
    await overlay(page).tap(await placeIn(overlay(page), 0.5, 0.5));
    await expectText(page.locator('.reading')).toMatch(/query \d+ · key \d+/);
    for (const view of ['Grid', 'Lines']) {
      await button(page, view).click();
      await expectAttribute(button(page, view), 'aria-pressed').toBe('true');
      await expectWidth(page).toBeLessThanOrEqual(390);
    }
  });

  it('names every control', async () => {
    const page = await visit(link('view=lines'));
    await expectCount(page.locator('tbody tr')).toBeGreaterThan(0);
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
    const page = await visit(harness.base);
    await page.keyboard.press('/');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.notice:not([hidden])');
    await expectText(page.locator('.notice')).toContain('There is no sentence yet');
    await page.locator('header .quiet').click();
    await expectText(page.locator('.notice')).toContain('请先输入一句');
    await expectText(page.locator('.notice')).not.toMatch(/[A-Za-z]/);
  });

  it.skipIf(REAL !== '')('has words for each refusal, and markup in them stays text', async () => {
    const page = await visit(harness.base);
    const ask = async (text: string) => {
      await page.getByLabel('Sentence').fill(text);
      await page.keyboard.press('Enter');
    };
    const notice = page.locator('.notice');
    await ask('word '.repeat(80));
    await expectText(notice).toContain('the model reads at most 60 tokens; it has 81');
    await button(page, 'Close').click();
    await expectVisible(notice).toBe(false);
    await ask('be busy');
    await expectText(notice).toContain('busy with other sentences');
    await button(page, 'Close').click();
    await ask('break');
    await expectText(notice).toContain('something <b>unheard</b> of');
    await expectCount(page.locator('.notice b')).toBe(0);
    await harness.mock.close();
    await button(page, 'Try again').click();
    await expectText(page.locator('.notice')).toMatch(/does not answer/);
  });

  it.skipIf(REAL !== '')('asks again, once, for a trace that the server let go', async () => {
    const page = await visit(link('view=head&section=0&layer=0&head=0'));
    await settled(overlay(page));
    harness.mock.forget();
    harness.mock.log.length = 0;
    await page.keyboard.press('ArrowRight');
    await expectAddress(page, 'head=1');
    await settled(overlay(page));
    expect(harness.mock.log).toEqual(['GET /api/weights', 'POST /api/trace', 'GET /api/weights']);
    await expectVisible(page.locator('.notice')).toBe(false);
  });

  it('asks nobody but its own server', async () => {
    const page = await visit(link('view=head'));
    await settled(overlay(page));
    expect(
      harness.opened[0].requests.filter((url) => !url.startsWith(harness.base) && !url.startsWith('data:')),
    ).toEqual([]);
  });

  it('from a file makes no request at all', async () => {
    const target = translate(CAT);
    const hostile = tokenize(CAT);
    hostile[1] = '</script><img src=x onerror=alert(1)>';
    const trace = synthesize('', CAT, target.text, hostile, target.tokens, { layers: 2, heads: 2 });
    const file = join(harness.folder, 'page.html');
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace));
    const page = await visit(pathToFileURL(file).href + '#view=head&section=2&layer=1&head=1');
    await expectCount(page.locator('.strongest li')).toBeGreaterThan(0);
    for (const key of ['ArrowLeft', '3', '1', 's', 'r']) await page.keyboard.press(key);
    await expectVisible(page.locator('.composer')).toBe(false);
    await expectText(page.locator('.translation')).toBe(target.text);
    await expectCount(page.locator('main img')).toBe(0);
    expect(harness.opened[0].requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
    await save(page, 'Numbers (JSON)');
  });

  it('works in the frame of a notebook, which has no address and no storage', async () => {
    const trace = synthesize('', 'a b c', '', ['a', 'b', 'c'], [], { layers: 2, heads: 2 });
    const page = await visit(harness.base);
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
    await expectText(inside.locator('h2.figure-title')).toBe('Encoder · layer 1 · head 1');
  });

  it('from a file without all heads says which it has not, and goes on', async () => {
    const trace = synthesize('', 'a b', '', ['a', 'b'], [], { layers: 1, heads: 2 });
    const file = join(harness.folder, 'part.html');
    writeFileSync(
      file,
      exported(readFileSync(PAGE, 'utf8'), trace).replace(
        /<script type="text\/plain" id="regard-block-0-0-1">.*?<\/script>/,
        '',
      ),
    );
    const page = await visit(pathToFileURL(file).href + '#view=head&section=0&layer=0&head=1');
    await page.waitForSelector('.notice:not([hidden])');
    await expectText(page.locator('.notice')).toContain('does not hold the weights of this head');
    await page.keyboard.press('ArrowRight');
    await expectVisible(page.locator('.notice')).toBe(false);
    await expectCount(page.locator('.strongest li')).toBeGreaterThan(0);
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
        await expectAddress(page, `view=${view}`);
        await expectCount(page.locator('.strongest li')).toBeGreaterThan(0);
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
