// SPDX-License-Identifier: Apache-2.0
// A model that only reads: where a pronoun looks, and two sentences side by side.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { startMock, type Mock } from '../mock/server';
import { row, synthesize, tokenize } from '../mock/synthetic';
import { patient } from './browser';
import {
  CAT,
  expectAddress,
  expectAttribute,
  expectCount,
  expectText,
  expectTexts,
  expectVisible,
  expectWidth,
  Harness,
  hasBrowser,
  isRanked,
  overlay,
  phone,
  placeIn,
  pointAt,
  readText,
  save,
  settled,
} from './harness';

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

describe.skipIf(!hasBrowser)('a model that reads', patient, () => {
  const harness = new Harness();
  const { visit } = harness;
  let reader: Mock;
  beforeEach(async () => void (reader = await startMock({ reads: true })));
  afterEach(() => reader.close());

  const chips = (page: Page) => page.locator('.finds .find');
  const textOf = ({ layer, head, k, weight }: (typeof TRUTH)[0]) =>
    `it → ${WORDS[k].slice(1)} ${weight.toFixed(2)}layer ${layer} head ${head}`;
  const two = (rest: string) =>
    `${reader.url}#text=${encodeURIComponent(CAT)}&beside=${encodeURIComponent(OTHER)}&${rest}`;
  const comes = async (page: Page) => {
    await expectCount(page.locator('.pane .heat')).toBe(2);
    await settled(overlay(page, 1));
  };

  it('opens where a pronoun looks most, and shows such heads first', async () => {
    const page = await visit(reader.url);
    await expectText(page.locator('.welcome')).toContain('where each attention head of the model looks');
    await expectText(page.locator('.composer .primary')).toBe('Show');
    await page.getByLabel('Sentence').fill(CAT);
    await page.keyboard.press('Enter');
    await expectTexts(chips(page)).toEqual(TRUTH.slice(0, 5).map(textOf));
    const [best, second] = TRUTH;
    await expectAddress(page, `layer=${best.layer}&head=${best.head}&view=head`);
    await expectAddress(page, `at=${encodeURIComponent(`${IT},${best.k}`)}`);
    await expectAttribute(page.locator('.find').first(), 'aria-pressed').toBe('true');
    await page.locator('.find').nth(1).click();
    await expectAddress(page, `layer=${second.layer}&head=${second.head}&view=head`);
    await expectText(page.locator('.reading')).toContain(`query ${IT + 1} · key ${second.k + 1}`);
    // From the grid, a head is opened.
    await page.keyboard.press('1');
    await expectAddress(page, 'view=grid');
    await page.locator('.find').first().click();
    await expectAddress(page, `layer=${best.layer}&head=${best.head}&view=head`);
    await page.locator('header .quiet').click();
    await expectText(page.locator('.composer .primary')).toBe('看');
  });

  it('ranks the heads of a word that is clicked', async () => {
    const page = await visit(`${reader.url}#text=${encodeURIComponent('We saw the sea and the ship .')}&view=lines`);
    await settled(page.locator('.scroll canvas'));
    await expectVisible(page.locator('.finds')).toBe(false); // no pronoun
    await page.keyboard.press('Shift+ArrowDown');
    await expectCount(chips(page)).toBeGreaterThan(0);
    // Of "We", any word but its neighbour.
    for (const text of await chips(page).allTextContents()) expect(text).toMatch(/^We → (the|sea|and|ship) /);
    await page.keyboard.press('Escape');
    await expectVisible(page.locator('.finds')).toBe(false);
  });

  it('compares two sentences, the same head of both side by side', async () => {
    const page = await visit(reader.url);
    await page.getByLabel('Sentence').fill(CAT);
    await page.getByLabel('Compare with').fill(OTHER);
    await page.keyboard.press('Enter');
    await comes(page);
    await expectAddress(page, `beside=${encodeURIComponent(OTHER)}`);
    const captions = page.locator('figcaption');
    await expectTexts(captions).toEqual([CAT, OTHER]);
    await expectTexts(page.locator('figcaption mark')).toEqual(['tired', 'soft']);
    // Both chips and both tips have both weights; by formula they depend on places alone.
    const [best] = TRUTH;
    const number = best.weight.toFixed(2);
    await expectText(chips(page).first()).toContain(`${number} | ${number}`);
    await expectCount(page.locator('.tip:visible')).toBe(2);
    // Pointing into the second moves both, and so does the keyboard.
    await page.keyboard.press('Escape'); // leaves the field
    await page.keyboard.press('Escape');
    await expectCount(page.locator('.tip:visible')).toBe(0);
    await pointAt(page, 0.5, 0.6, 1);
    await expectCount(page.locator('.tip:visible')).toBe(2);
    await expectText(page.locator('.reading')).toMatch(/% \| .*%/);
    await page.mouse.move(2, 2);
    await expectCount(page.locator('.tip:visible')).toBe(0);
    await page.keyboard.press('Shift+ArrowDown');
    await page.keyboard.press('Shift+ArrowRight');
    await expectText(page.locator('.reading')).toMatch(/query 1 · key 2/);
    await expectCount(page.locator('.tip:visible')).toBe(2);
    const both = page.locator('.strongest .both .weight');
    await expectCount(both).toBe(6);
    await expectTexts(both).toSatisfy(isRanked);
    const svg = readFileSync((await (await save(page, 'Drawing (SVG)')).path())!, 'utf8');
    expect(svg).toContain('>tired</text>');
    expect(svg).toContain('>soft</text>');
    // Without the second sentence, one picture again.
    await page.keyboard.press('c');
    await page.keyboard.press('Delete');
    await page.keyboard.press('Enter');
    await expectCount(page.locator('.pane')).toBe(0);
    await expectAddress(page, 'view=head');
    await expect.poll(() => page.url()).not.toContain('beside=');
  });

  it('opens two sentences by their link, and draws their lines', async () => {
    const at = encodeURIComponent(`${IT},1`);
    const page = await visit(two(`section=0&layer=1&head=0&view=lines&at=${at}`));
    await page.waitForFunction(() =>
      [...document.querySelectorAll<HTMLCanvasElement>('.pane canvas')].every((one) => one.dataset.lines === '1'),
    );
    const said = weight(1, 0, IT, 1) * 100;
    const [, a, b] = (await readText(page.locator('.reading .weight'), /([\d.]+) % \| ([\d.]+) %/)).map(Number);
    expect(Math.abs(a - said)).toBeLessThan(0.06);
    expect(b).toBe(a);
    // Another address, without the second.
    await page.evaluate((text) => (location.hash = `#text=${encodeURIComponent(text)}&section=0&layer=0&head=1`), CAT);
    await expectCount(page.locator('.pane')).toBe(0);
  });

  it('shows what was given at the start, and in a file without a request', async () => {
    const traces = [CAT, OTHER].map((text, i) =>
      synthesize(`given${i}`, text, '', tokenize(text), [], { layers: 2, heads: 2 }),
    );
    const given = await startMock({ reads: true, trace: traces[0], beside: traces[1] });
    try {
      const page = await visit(given.url);
      await comes(page);
      await expect.poll(() => page.getByLabel('Compare with').inputValue()).toBe(OTHER);
      // What the server let go of is asked for again, each by its own name.
      await page.keyboard.press('ArrowRight');
      await comes(page);
    } finally {
      await given.close();
    }
    const url = harness.written('two', traces[0], traces[1]);
    const page = await visit(url);
    await comes(page);
    await expectTexts(page.locator('figcaption')).toEqual([CAT, OTHER]);
    for (const key of ['ArrowRight', '3', '1', '2']) await page.keyboard.press(key);
    await comes(page);
    await expectVisible(page.locator('.notice')).toBe(false);
    expect(harness.opened.at(-1)!.requests.filter((one) => !one.startsWith('data:'))).toEqual([url]);
  });

  it('fits a phone: one above the other, and a finger reads both', async () => {
    const page = await visit(two('section=0&layer=0&head=0&view=head'), phone);
    await comes(page);
    await expectWidth(page).toBeLessThanOrEqual(390);
    const [first, second] = [await settled(overlay(page)), await settled(overlay(page, 1))];
    expect(second.y).toBeGreaterThan(first.y + first.height);
    await overlay(page, 1).tap(await placeIn(overlay(page, 1), 0.5, 0.5));
    await expectText(page.locator('.reading')).toMatch(/% \| .*%/);
  });
});
