// SPDX-License-Identifier: Apache-2.0
// The page as `regard view` serves and writes it, with a translator that learnt a
// dozen sentences. REGARD_PROGRAM names the program.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Browser } from 'playwright-core';
import { findChromium, launch, open } from './browser';

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
function serve(model: string): Promise<{ child: ChildProcess; url: string } | null> {
  return new Promise((done, fail) => {
    const child = spawn(PROGRAM, ['view', '--model', model, '--port', '0', '--no-open'], {
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

describe.skipIf(!findChromium() || PROGRAM === '')('regard view', () => {
  let browser: Browser;
  let folder: string;
  let server: Awaited<ReturnType<typeof serve>> = null;
  const model = () => join(folder, 'model');

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'regard-view-'));
    const tsv = join(folder, 'pairs.tsv');
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
    server = await serve(model());
    browser = await launch();
  });
  afterAll(async () => {
    server?.child.kill('SIGINT');
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it('translates, and shows every kind of attention under its own policy', async (test) => {
    if (!server) return test.skip();
    const { page, problems, requests, close } = await open(browser, server.url);
    await page.getByLabel('Sentence').fill('The cat sleeps.');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.heat');
    expect(await page.locator('.translation').textContent()).toMatch(/[\u4e00-\u9fff]/);
    // It opens on the head that the table has first, by how telling they are.
    expect(await page.locator('th[aria-sort=descending]').textContent()).toContain('telling');
    expect(await page.locator('tbody tr').first().getAttribute('aria-current')).toBe('true');
    await page.getByRole('button', { name: 'Grid', exact: true }).click();
    expect(await page.locator('.thumb').count()).toBe(3 * 2 * 4);
    for (const section of ['Encoder', 'Decoder', 'Cross']) {
      for (const key of ['2', '3', '4']) {
        await page.getByRole('button', { name: section, exact: true }).click();
        await page.keyboard.press(key);
        await page.waitForFunction(() => document.querySelectorAll('.strongest li').length > 0);
      }
    }
    // The products of query and key add up to the score, and a link ranks the heads.
    await page.waitForFunction(() => /sum of 8 products/.test(document.querySelector('.reading')!.textContent!));
    await page.keyboard.press('Shift+ArrowDown');
    await page.waitForSelector('td.link');
    const link = (await page.locator('td.link').allTextContents()).map(parseFloat);
    expect(link.length).toBe(2 * 4);
    expect(link).toEqual([...link].sort((a, b) => b - a));
    await page.locator('.save summary').click();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Numbers (JSON)' }).click(),
    ]);
    const numbers = JSON.parse(readFileSync((await download.path())!, 'utf8'));
    expect(numbers.section).toBe('cross');
    for (const weights of numbers.weights) expect(weights.reduce((a: number, b: number) => a + b, 0)).toBeCloseTo(1, 2);
    expect(requests.filter((url) => !url.startsWith(server!.url) && !url.startsWith('data:'))).toEqual([]);
    expect(problems).toEqual([]);
    await close();
    return undefined;
  });

  it('refuses in words that the page has', async (test) => {
    if (!server) return test.skip();
    const { page, problems, close } = await open(browser, server.url, { locale: 'zh-CN' });
    await page.getByLabel('句子').fill('x '.repeat(900));
    await page.keyboard.press('Enter');
    await page.waitForSelector('.notice:not([hidden])');
    expect(await page.locator('.notice').textContent()).toMatch(/最多能读 \d+ 个词元，这里有 [\d,]+ 个/);
    expect(await page.locator('.notice').textContent()).not.toMatch(/[A-Za-z]/);
    await page.getByLabel('句子').fill(' ');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.notice')!.textContent!.includes('还没有句子'));
    expect(problems).toEqual([]);
    await close();
    return undefined;
  });

  it('--export writes a page that makes no request', async () => {
    const file = join(folder, 'cat.html');
    execFileSync(PROGRAM, ['view', '--model', model(), '--to', 'zh', 'The cat sleeps.', '--export', file], {
      stdio: 'pipe',
    });
    const { page, problems, requests, close } = await open(
      browser,
      pathToFileURL(file).href + '#view=head&section=2&layer=1&head=1',
    );
    for (const key of ['ArrowRight', '4', '3', 's', 'r', '1']) await page.keyboard.press(key);
    expect(await page.locator('.translation').textContent()).toMatch(/[\u4e00-\u9fff]/);
    expect(await page.locator('.notice').isVisible()).toBe(false);
    expect(requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
    expect(problems).toEqual([]);
    await close();
  });

  // What transformers gives for these heads of the real model: 0.68 and 0.28, 0.67 and 0.56.
  const minilm = join(homedir(), '.cache/regard-models/all-MiniLM-L6-v2');
  it.skipIf(!existsSync(minilm))('finds the heads of all-MiniLM-L6-v2 in which "it" is the animal', async () => {
    const sentence = (why: string) => `The animal didn't cross the street because it was too ${why}.`;
    const file = join(folder, 'animal.html');
    const given = [sentence('tired'), '--beside', sentence('wide')];
    execFileSync(PROGRAM, ['view', '--model', minilm, ...given, '--export', file], { stdio: 'pipe' });
    const { page, problems, requests, close } = await open(browser, pathToFileURL(file).href);
    await page.waitForSelector('.find');
    expect((await page.locator('.find').allTextContents()).slice(0, 2)).toEqual([
      'it → animal 0.68 | 0.28layer 3 head 1',
      'it → animal 0.67 | 0.56layer 5 head 11',
    ]);
    expect(await page.locator('h2.figure-title').textContent()).toBe('Encoder · layer 3 · head 1');
    await page.waitForFunction(() => document.querySelectorAll('.pane .tip:not([hidden])').length === 2);
    expect(await page.locator('.tip').allTextContents()).toEqual(['it → animal67.7 %', 'it → animal28.1 %']);
    expect(requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
    expect(problems).toEqual([]);
    await close();
  });
});
