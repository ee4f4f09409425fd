// SPDX-License-Identifier: Apache-2.0
// Debian's Chromium, driven by Playwright. Nothing is downloaded.
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';

export function findChromium(): string | null {
  if (process.env.REGARD_CHROMIUM) return process.env.REGARD_CHROMIUM;
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // Not here.
      }
    }
  }
  return null;
}

export const launch = (): Promise<Browser> =>
  // A container has no user namespaces for the sandbox; the pages are our own.
  chromium.launch({ executablePath: findChromium() ?? undefined, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

export interface Opened {
  page: Page;
  problems: string[]; // errors of the script, and refusals by the policy
  requests: string[];
  close(): Promise<void>;
}

export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    locale: 'en-US',
    colorScheme: 'light',
    acceptDownloads: true,
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const problems: string[] = [];
  const requests: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    // An error status that the page answers with words is no problem of the page.
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) problems.push(message.text());
  });
  page.on('request', (request) => requests.push(request.url()));
  await page.goto(url);
  await page.waitForSelector('body.loaded');
  return { page, problems, requests, close: () => context.close() };
}
