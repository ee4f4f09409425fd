// SPDX-License-Identifier: Apache-2.0
// The page as `regard view` serves and writes it, with a translator that learnt a
// dozen sentences. REGARD_PROGRAM names the program.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { patient } from './browser';
import {
  button,
  expectAttribute,
  expectCount,
  expectText,
  expectTexts,
  expectVisible,
  Harness,
  hasBrowser,
  isRanked,
  save,
} from './harness';

const PROGRAM = process.env.REGARD_PROGRAM ?? '';
const PAIRS = [
  ['I like tea.', '我喜欢茶。'],
  ['I like books.', '我喜欢书。'],
  ['He likes tea.', '他喜欢茶。'],
  ['She likes books.', '她喜欢书。'],
  ['The cat is here.', '猫在这里。'],
  ['The dog is here.', '狗在这里。'],
  ['The cat sleeps.', '猫在睡觉。'],
  ['The dog sleeps.', '狗在睡觉。'],
  ['Where is the cat?', '猫在哪里？'],
  ['Where is the dog?', '狗在哪里？'],
  ['It is cold today.', '今天很冷。'],
  ['It is hot today.', '今天很热。'],
];

// The address that the program prints, or null where it was built without a server.
function serve(...what: string[]): Promise<{ child: ChildProcess; url: string } | null> {
  return new Promise((done, fail) => {
    const child = spawn(PROGRAM, [...what, '--port', '0', '--no-open'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    const hear = (part: Buffer) => {
      said += part.toString();
      const url = /http:\/\/\S+/.exec(said);
      if (url) done({ child, url: url[0] });
    };
    child.stdout!.on('data', hear);
    child.stderr!.on('data', hear);
    child.on('error', fail);
    child.on('exit', () => (/httplib/.test(said) ? done(null) : fail(new Error(`regard view ended: ${said}`))));
  });
}

if (PROGRAM === '') console.log('skipped: REGARD_PROGRAM names no program');

describe.skipIf(!hasBrowser || PROGRAM === '')('regard view', patient, () => {
  const harness = new Harness();
  const { visit } = harness;
  let server: Awaited<ReturnType<typeof serve>> = null;
  const model = () => join(harness.folder, 'model');

  beforeAll(async () => {
    const tsv = join(harness.folder, 'pairs.tsv');
    writeFileSync(tsv, Array.from({ length: 8 }, () => PAIRS.map((pair) => pair.join('\t') + '\n').join('')).join(''));
    execFileSync(
      PROGRAM,
      [
        'train',
        'translate',
        '--tsv',
        tsv,
        '--src-lang',
        'en',
        '--tgt-lang',
        'zh',
        '--both-directions',
        '--out',
        model(),
        '--vocab',
        '90',
        '--updates',
        '120',
        '--dim',
        '32',
        '--ffn',
        '64',
        '--encoder-layers',
        '2',
        '--decoder-layers',
        '2',
        '--dropout',
        '0',
        '--lr',
        '0.01',
        '--warmup',
        '20',
        '--schedule',
        'constant',
        '--average',
        '1',
        '--valid-share',
        '0.1',
      ],
      { stdio: 'pipe' },
    );
    server = await serve('view', '--model', model());
  });
  afterAll(() => void server?.child.kill('SIGINT'));

  it('translates, and shows every kind of attention under its own policy', async (test) => {
    if (!server) return test.skip();
    const page = await visit(server.url);
    await page.getByLabel('Sentence').fill('The cat sleeps.');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.heat');
    await expectText(page.locator('.translation')).toMatch(/[\u4e00-\u9fff]/);
    // It opens on the head that the table has first, by how telling they are.
    await expectText(page.locator('th[aria-sort=descending]')).toContain('telling');
    await expectAttribute(page.locator('tbody tr').first(), 'aria-current').toBe('true');
    await button(page, 'Grid').click();
    await expectCount(page.locator('.thumb')).toBe(3 * 2 * 4);
    for (const section of ['Encoder', 'Decoder', 'Cross']) {
      for (const key of ['2', '3', '4']) {
        await button(page, section).click();
        await page.keyboard.press(key);
        await expectCount(page.locator('.strongest li')).toBeGreaterThan(0);
      }
    }
    // The products of query and key add up to the score, and a link ranks the heads.
    await expectText(page.locator('.reading')).toMatch(/sum of 8 products/);
    await page.keyboard.press('Shift+ArrowDown');
    await expectCount(page.locator('td.link')).toBe(2 * 4);
    await expectTexts(page.locator('td.link')).toSatisfy(isRanked);
    const numbers = JSON.parse(readFileSync((await (await save(page, 'Numbers (JSON)')).path())!, 'utf8'));
    expect(numbers.section).toBe('cross');
    for (const weights of numbers.weights) expect(weights.reduce((a: number, b: number) => a + b, 0)).toBeCloseTo(1, 2);
    const { requests } = harness.opened[0];
    expect(requests.filter((url) => !url.startsWith(server!.url) && !url.startsWith('data:'))).toEqual([]);
    return undefined;
  });

  it('refuses in words that the page has', async (test) => {
    if (!server) return test.skip();
    const page = await visit(server.url, { locale: 'zh-CN' });
    await page.getByLabel('句子').fill('x '.repeat(900));
    await page.keyboard.press('Enter');
    await expectText(page.locator('.notice')).toMatch(/最多能读 \d+ 个词元，这里有 [\d,]+ 个/);
    await expectText(page.locator('.notice')).not.toMatch(/[A-Za-z]/);
    await page.getByLabel('句子').fill(' ');
    await page.keyboard.press('Enter');
    await expectText(page.locator('.notice')).toContain('还没有句子');
    return undefined;
  });

  it('--export writes a page that makes no request', async () => {
    const file = join(harness.folder, 'cat.html');
    execFileSync(PROGRAM, ['view', '--model', model(), '--to', 'zh', 'The cat sleeps.', '--export', file], {
      stdio: 'pipe',
    });
    const page = await visit(pathToFileURL(file).href + '#view=head&section=2&layer=1&head=1');
    for (const key of ['ArrowRight', '4', '3', 's', 'r', '1']) await page.keyboard.press(key);
    await expectText(page.locator('.translation')).toMatch(/[\u4e00-\u9fff]/);
    await expectVisible(page.locator('.notice')).toBe(false);
    expect(harness.opened[0].requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
  });

  const examples = fileURLToPath(new URL('../../../examples/', import.meta.url));
  const shapes = process.env.REGARD_EXAMPLES ?? examples;
  it.skipIf(!existsSync(join(shapes, 'shapes.png')))('caption --view lights what each word looked at', async (test) => {
    const given = await serve('caption', join(shapes, 'shapes.png'), '--view');
    if (!given) return test.skip();
    try {
      const page = await visit(given.url);
      await expectText(page.locator('.translation')).toBe('a red circle above two blue squares');
      await page.locator('.caption-words .word', { hasText: 'red' }).click();
      await expectText(page.locator('.strongest .token').first()).toBe('1,3'); // where the red circle is
      await page.locator('.caption-words .word', { hasText: 'squares' }).click();
      await expectText(page.locator('.strongest .token').first()).toMatch(/^2,[23]$/);
      const { requests } = harness.opened[0];
      expect(requests.filter((url) => !url.startsWith(given.url) && !url.startsWith('data:'))).toEqual([]);
    } finally {
      given.child.kill('SIGINT');
    }
    return undefined;
  });

  it.skipIf(!existsSync(join(shapes, 'shapes')))('video --export has a film strip of every head', async () => {
    const file = join(harness.folder, 'orbits.html');
    execFileSync(PROGRAM, ['video', join(shapes, 'shapes/orbits.npy'), '--export', file], { stdio: 'pipe' });
    const page = await visit(pathToFileURL(file).href);
    await expectText(page.locator('.translation')).toBe('orbits');
    await expectText(page.locator('h2.figure-title')).toBe('Pooling · layer 0 · mean of 4 heads');
    await expectAttribute(page.locator('.places .lit'), 'data-query').toBe('orbits');
    await expectCount(page.locator('.film .one-head')).toBe(4);
  });

  // What transformers gives for these heads of the real model: 0.68 and 0.28, 0.67 and 0.56.
  const minilm = join(homedir(), '.cache/regard-models/all-MiniLM-L6-v2');
  it.skipIf(!existsSync(minilm))('finds the heads of all-MiniLM-L6-v2 in which "it" is the animal', async () => {
    const sentence = (why: string) => `The animal didn't cross the street because it was too ${why}.`;
    const file = join(harness.folder, 'animal.html');
    const given = [sentence('tired'), '--beside', sentence('wide')];
    execFileSync(PROGRAM, ['view', '--model', minilm, ...given, '--export', file], { stdio: 'pipe' });
    const page = await visit(pathToFileURL(file).href);
    const finds = page.locator('.find');
    await expectText(finds.first()).toBe('it → animal 0.68 | 0.28layer 3 head 1');
    await expectText(finds.nth(1)).toBe('it → animal 0.67 | 0.56layer 5 head 11');
    await expectText(page.locator('h2.figure-title')).toBe('Encoder · layer 3 · head 1');
    await expectCount(page.locator('.pane .tip:visible')).toBe(2);
    await expectTexts(page.locator('.tip')).toEqual(['it → animal67.7 %', 'it → animal28.1 %']);
    expect(harness.opened[0].requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
  });
});
