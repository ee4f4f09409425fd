// SPDX-License-Identifier: Apache-2.0
// A browser, a stand-in for the server, and what the tests of the page do with them.
// REGARD_VIEW_URL=http://... runs what can be run against a real `regard view` with a
// translator instead of the stand-in.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import type { Browser, BrowserContextOptions, Download, Page } from 'playwright-core';
import { PAGE, startMock, type Mock } from '../mock/server';
import { exported, type Synthetic } from '../mock/synthetic';
import { findChromium, launch, open, type Opened } from './browser';

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

// The page changes its own address, and the browser tells of it a moment later.
export const expectAddress = (page: Page, part: string) =>
  expect.poll(() => page.url(), { timeout: 5000 }).toContain(part);

export async function pointAt(page: Page, x: number, y: number): Promise<void> {
  const box = (await page.locator('.heat .overlay').first().boundingBox())!;
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
}

export async function save(page: Page, item: string): Promise<Download> {
  await page.locator('.save summary').click();
  const [download] = await Promise.all([page.waitForEvent('download'), button(page, item).click()]);
  return download;
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
    afterEach(async () => {
      const problems = this.opened.flatMap((one) => one.problems.splice(0));
      await Promise.all(this.opened.map((one) => one !== this.shared && one.close()));
      this.opened = [];
      await this.mock.close();
      expect(problems).toEqual([]);
    });
  }

  visit = async (url: string, options: BrowserContextOptions = {}): Promise<Page> => {
    const { shared } = this;
    const plain = Object.keys(options).length === 0;
    if (plain && shared) {
      await shared.page.mouse.move(0, 0);
      await shared.page.evaluate(() => localStorage.clear()).catch(() => undefined);
      await shared.page.goto('about:blank');
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
