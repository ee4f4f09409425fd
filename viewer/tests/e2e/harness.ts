// SPDX-License-Identifier: Apache-2.0
// A browser, a stand-in for the server, and what the tests of the page do with them.
// REGARD_VIEW_URL=http://... runs what can be run against a real `regard view` with a
// translator instead of the stand-in.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import type { Browser, BrowserContextOptions, Download, Locator, Page } from 'playwright-core';
import { PAGE, startMock, type Mock } from '../mock/server';
import { exported, type Synthetic } from '../mock/synthetic';
import { findChromium, isIdle, launch, open, type Opened } from './browser';

export const REAL = process.env.REGARD_VIEW_URL ?? '';
export const CAT = 'The cat sat on the mat because it was tired.';
export const phone: BrowserContextOptions = {
  viewport: { width: 390, height: 844 },
  hasTouch: true,
  isMobile: true,
  deviceScaleFactor: 2,
};

export const hasBrowser = findChromium() !== null;
if (!hasBrowser) console.log('skipped: there is no Chromium (apt-get install chromium)');

export const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });

// On a loaded machine the page answers later than a test asks: what follows an action is read
// again until it is right, or until the time of vite.config.ts is over.
export const expectText = (one: Locator) => expect.poll(() => one.textContent());
export const expectTexts = (all: Locator) => expect.poll(() => all.allTextContents());
export const expectCount = (all: Locator) => expect.poll(() => all.count());
export const expectVisible = (one: Locator) => expect.poll(() => one.isVisible());
export const expectAttribute = (one: Locator, name: string) => expect.poll(() => one.getAttribute(name));
export const expectAddress = (page: Page, part: string) => expect.poll(() => page.url()).toContain(part);
export const expectWidth = (page: Page) => expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth));

// A text, once it reads like this, and what the parts of the pattern found in it.
export async function readText(one: Locator, pattern: RegExp): Promise<RegExpExecArray> {
  let text = '';
  await expect.poll(async () => (text = (await one.textContent())!)).toMatch(pattern);
  return pattern.exec(text)!;
}

// Texts with numbers, largest first.
export const isRanked = (texts: string[]): boolean =>
  texts.length > 0 && texts.every((text, i) => i === 0 || parseFloat(text) <= parseFloat(texts[i - 1]));

// Waits until everything that was asked for has come and stands where it will stay; where that is.
export async function settled(one: Locator): Promise<{ x: number; y: number; width: number; height: number }> {
  const page = one.page();
  let before = '';
  await expect
    .poll(async () => {
      await page.evaluate(() => document.fonts.ready.then(() => undefined));
      const idle = isIdle(page) && (await page.locator('.heat.waiting').count()) === 0;
      const now = JSON.stringify(await one.boundingBox());
      const same = now === before && now !== 'null';
      before = now;
      return idle && same;
    })
    .toBe(true);
  return JSON.parse(before);
}

// A place inside of an element, by its shares of width and height.
export async function placeIn(one: Locator, x: number, y: number): Promise<{ position: { x: number; y: number } }> {
  const { width, height } = await settled(one);
  return { position: { x: width * x, y: height * y } };
}

export const overlay = (page: Page, which = 0) => page.locator('.heat .overlay').nth(which);

export async function pointAt(page: Page, x: number, y: number, which = 0): Promise<void> {
  const one = overlay(page, which);
  await one.hover(await placeIn(one, x, y));
}

export async function save(page: Page, item: string): Promise<Download> {
  await page.locator('.save summary').click();
  const [download] = await Promise.all([page.waitForEvent('download'), button(page, item).click()]);
  return download;
}

// The next address is then met as by a new page: no choice kept, no pointer over it, not scrolled.
async function leave({ page }: Opened): Promise<void> {
  await page.evaluate(() => localStorage.clear()).catch(() => undefined); // a frame without storage, or nothing yet
  await page.goto('about:blank');
  await page.mouse.move(0, 0);
}

// What a test file works with; its hooks start and end it.
export class Harness {
  mock!: Mock;
  base = '';
  folder = '';
  opened: Opened[] = [];
  private browser!: Browser;
  private shared: Opened | null = null; // one page for all visits without wishes: a new one costs a process

  constructor() {
    beforeAll(async () => {
      this.folder = mkdtempSync(join(tmpdir(), 'regard-viewer-'));
      this.browser = await launch();
    });
    afterAll(async () => {
      await this.browser?.close();
      rmSync(this.folder, { recursive: true, force: true });
    });
    beforeEach(async () => {
      this.mock = await startMock();
      this.base = REAL || this.mock.url;
    });
    afterEach(async ({ task }) => {
      // Away from the page while its server is still there: nothing of it comes in the next test.
      if (this.shared) await leave(this.shared);
      const problems = this.opened.flatMap((one) => one.problems.splice(0));
      const failed = task.result?.state === 'fail';
      const done = this.opened.filter((one) => one !== this.shared || failed);
      if (failed) this.shared = null; // in a state that nobody knows
      this.opened = [];
      await Promise.all(done.map((one) => one.close()));
      await this.mock.close();
      expect(problems).toEqual([]);
    });
  }

  visit = async (url: string, options: BrowserContextOptions = {}): Promise<Page> => {
    const { shared } = this;
    const plain = Object.keys(options).length === 0;
    if (plain && shared) {
      await leave(shared);
      shared.requests.length = 0;
      await shared.page.goto(url);
      await shared.page.waitForSelector('body.loaded');
    }
    const one = plain && shared ? shared : await open(this.browser, url, options);
    if (plain) this.shared = one;
    this.opened.push(one);
    return one.page;
  };

  link = (rest: string, text = CAT, direction = 'en-zh'): string =>
    `${this.base}#text=${encodeURIComponent(text)}&direction=${direction}&${rest}`;

  // The address of a page with a trace inside.
  written = (name: string, trace: Synthetic, beside?: Synthetic): string => {
    const file = join(this.folder, `${name}.html`);
    writeFileSync(file, exported(readFileSync(PAGE, 'utf8'), trace, beside));
    return pathToFileURL(file).href;
  };
}
