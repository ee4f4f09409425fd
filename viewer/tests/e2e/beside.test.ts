// SPDX-License-Identifier: Apache-2.0
// A model that only reads: where a pronoun looks, and two sentences side by side.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { startMock, type Mock } from '../mock/server';
import { row, synthesize, tokenize } from '../mock/synthetic';
import { CAT, expectAddress, Harness, hasBrowser, phone, save } from './harness';

const OTHER = 'The cat sat on the mat because it was soft.';
const WORDS = tokenize(CAT); // one token a word: The cat sat on the mat because it was tired . </s>
const [IT, N] = [WORDS.indexOf('▁it'), WORDS.length];

const weight = (layer: number, head: number, q: number, k: number) => row(0, layer, head, q, N, N, false)[k];

// By the rule of docs/viewer.md: of each head the largest weight of "it" on a word
// before it that is no neighbour.
const TRUTH = Array.from({ length: 16 }, (_, i) => {
  const [layer, head] = [Math.floor(i / 4), i % 4];
  const all = Array.from({ length: IT - 1 }, (_, k) => ({ layer, head, k, weight: weight(layer, head, IT, k) }));
  return all.reduce((best, one) => (one.weight > best.weight ? one : best));
}).sort((a, b) => b.weight - a.weight);

describe.skipIf(!hasBrowser)('a model that reads', () => {
  const harness = new Harness();
  const { visit } = harness;
  let reader: Mock;
  beforeEach(async () => void (reader = await startMock({ reads: true })));
  afterEach(() => reader.close());

  const chips = (page: Page) => page.locator('.finds .find').allTextContents();
  const textOf = ({ layer, head, k, weight }: (typeof TRUTH)[0]) =>
    `it → ${WORDS[k].slice(1)} ${weight.toFixed(2)}layer ${layer} head ${head}`;
  const two = (rest: string) =>
    `${reader.url}#text=${encodeURIComponent(CAT)}&beside=${encodeURIComponent(OTHER)}&${rest}`;
  const comes = (page: Page) =>
    page.waitForFunction(
      () => document.querySelectorAll('.pane .heat').length === 2 && !document.querySelector('.heat.waiting'),
    );

  it('opens where a pronoun looks most, and shows such heads first', async () => {
    const page = await visit(reader.url);
    expect(await page.locator('.welcome').textContent()).toContain('where each attention head of the model looks');
    expect(await page.locator('.composer .primary').textContent()).toBe('Show');
    await page.getByLabel('Sentence').fill(CAT);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.finds .find');
    expect(await chips(page)).toEqual(TRUTH.slice(0, 5).map(textOf));
    const [best, second] = TRUTH;
    await expectAddress(page, `layer=${best.layer}&head=${best.head}&view=head`);
    await expectAddress(page, `at=${encodeURIComponent(`${IT},${best.k}`)}`);
    expect(await page.locator('.find').first().getAttribute('aria-pressed')).toBe('true');
    await page.locator('.find').nth(1).click();
    await expectAddress(page, `layer=${second.layer}&head=${second.head}&view=head`);
    expect(await page.locator('.reading').textContent()).toContain(`query ${IT + 1} · key ${second.k + 1}`);
    // From the grid, a head is opened.
    await page.keyboard.press('1');
    await page.locator('.find').first().click();
    await expectAddress(page, `layer=${best.layer}&head=${best.head}&view=head`);
    await page.locator('header .quiet').click();
    expect(await page.locator('.composer .primary').textContent()).toBe('看');
  });

  it('ranks the heads of a word that is clicked', async () => {
    const page = await visit(`${reader.url}#text=${encodeURIComponent('We saw the sea and the ship .')}&view=lines`);
    expect(await page.locator('.finds').isVisible()).toBe(false); // no pronoun
    await page.keyboard.press('Shift+ArrowDown');
    await page.waitForSelector('.finds .find');
    // Of "We", any word but its neighbour.
    for (const text of await chips(page)) expect(text).toMatch(/^We → (the|sea|and|ship) /);
    await page.keyboard.press('Escape');
    expect(await page.locator('.finds').isVisible()).toBe(false);
  });

  it('compares two sentences, the same head of both side by side', async () => {
    const page = await visit(reader.url);
    await page.getByLabel('Sentence').fill(CAT);
    await page.getByLabel('Compare with').fill(OTHER);
    await page.keyboard.press('Enter');
    await comes(page);
    await expectAddress(page, `beside=${encodeURIComponent(OTHER)}`);
    const captions = page.locator('figcaption');
    expect(await captions.allTextContents()).toEqual([CAT, OTHER]);
    expect(await page.locator('figcaption mark').allTextContents()).toEqual(['tired', 'soft']);
    // Both chips and both tips have both weights; by formula they depend on places alone.
    const [best] = TRUTH;
    const number = best.weight.toFixed(2);
    expect((await chips(page))[0]).toContain(`${number} | ${number}`);
    expect(await page.locator('.tip:visible').count()).toBe(2);
    // Pointing into the second moves both, and so does the keyboard.
    await page.keyboard.press('Escape'); // leaves the field
    await page.keyboard.press('Escape');
    expect(await page.locator('.tip:visible').count()).toBe(0);
    const box = (await page.locator('.heat .overlay').nth(1).boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.5, box.y + box.height * 0.6);
    expect(await page.locator('.tip:visible').count()).toBe(2);
    expect(await page.locator('.reading').textContent()).toMatch(/% \| .*%/);
    await page.mouse.move(2, 2);
    await page.keyboard.press('Shift+ArrowDown');
    await page.keyboard.press('Shift+ArrowRight');
    await page.waitForFunction(() => /query 1 · key 2/.test(document.querySelector('.reading')!.textContent!));
    expect(await page.locator('.tip:visible').count()).toBe(2);
    const both = await page.locator('.strongest .both .weight').allTextContents();
    expect(both.length).toBe(6);
    const first = both.map((text) => text.split(' | ').map(parseFloat)[0]);
    expect(first).toEqual([...first].sort((a, b) => b - a));
    const svg = readFileSync((await (await save(page, 'Drawing (SVG)')).path())!, 'utf8');
    expect(svg).toContain('>tired</text>');
    expect(svg).toContain('>soft</text>');
    // Without the second sentence, one picture again.
    await page.keyboard.press('c');
    await page.keyboard.press('Delete');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => !document.querySelector('.pane'));
    await expectAddress(page, 'view=head');
    expect(page.url()).not.toContain('beside=');
  });

  it('opens two sentences by their link, and draws their lines', async () => {
    const at = encodeURIComponent(`${IT},1`);
    const page = await visit(two(`section=0&layer=1&head=0&view=lines&at=${at}`));
    await page.waitForFunction(() =>
      [...document.querySelectorAll<HTMLCanvasElement>('.pane canvas')].every((one) => one.dataset.lines === '1'),
    );
    const said = weight(1, 0, IT, 1) * 100;
    const [a, b] = (await page.locator('.reading .weight').textContent())!.split(' | ').map(parseFloat);
    expect(Math.abs(a - said)).toBeLessThan(0.06);
    expect(b).toBe(a);
    // Another address, without the second.
    await page.evaluate((text) => (location.hash = `#text=${encodeURIComponent(text)}&section=0&layer=0&head=1`), CAT);
    await page.waitForFunction(() => !document.querySelector('.pane'));
  });

  it('shows what was given at the start, and in a file without a request', async () => {
    const traces = [CAT, OTHER].map((text, i) =>
      synthesize(`given${i}`, text, '', tokenize(text), [], { layers: 2, heads: 2 }),
    );
    const given = await startMock({ reads: true, trace: traces[0], beside: traces[1] });
    try {
      const page = await visit(given.url);
      await comes(page);
      expect(await page.getByLabel('Compare with').inputValue()).toBe(OTHER);
      // What the server let go of is asked for again, each by its own name.
      await page.keyboard.press('ArrowRight');
      await comes(page);
    } finally {
      await given.close();
    }
    const url = harness.written('two', traces[0], traces[1]);
    const page = await visit(url);
    await comes(page);
    expect(await page.locator('figcaption').allTextContents()).toEqual([CAT, OTHER]);
    for (const key of ['ArrowRight', '3', '1', '2']) await page.keyboard.press(key);
    await comes(page);
    expect(await page.locator('.notice').isVisible()).toBe(false);
    expect(harness.opened.at(-1)!.requests.filter((one) => !one.startsWith('data:'))).toEqual([url]);
  });

  it('fits a phone: one above the other, and a finger reads both', async () => {
    const page = await visit(two('section=0&layer=0&head=0&view=head'), phone);
    await comes(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    const overlay = page.locator('.heat .overlay');
    await overlay.nth(1).scrollIntoViewIfNeeded();
    const [first, second] = [(await overlay.nth(0).boundingBox())!, (await overlay.nth(1).boundingBox())!];
    expect(second.y).toBeGreaterThan(first.y + first.height);
    await page.touchscreen.tap(second.x + second.width / 2, second.y + second.height / 2);
    await page.waitForFunction(() => /% \| .*%/.test(document.querySelector('.reading')!.textContent!));
  });
});
