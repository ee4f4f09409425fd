// SPDX-License-Identifier: Apache-2.0
// Debian's Chromium, driven by Playwright. Nothing is downloaded.
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type Browser, type BrowserContextOptions, type Page, type Request } from 'playwright-core';

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

// A machine that does other things, too, may hold up a whole browser: a test that failed is tried
// twice more, and vitest says so. REGARD_RETRY=0 shows a test that needs it.
export const patient = { retry: Number(process.env.REGARD_RETRY ?? 2) };

const asked = new WeakMap<Page, Set<Request>>();

// Has everything come that the page asked for?
export const isIdle = (page: Page): boolean => asked.get(page)?.size === 0;

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
  page.setDefaultTimeout(30_000);
  const problems: string[] = [];
  const requests: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    // An error status that the page answers with words is no problem of the page.
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) problems.push(message.text());
  });
  const pending = new Set<Request>();
  asked.set(page, pending);
  page.on('request', (request) => {
    requests.push(request.url());
    if (request.resourceType() === 'fetch') pending.add(request);
  });
  for (const end of ['requestfinished', 'requestfailed'] as const)
    page.on(end as 'requestfinished', (request) => pending.delete(request));
  await page.goto(url);
  await page.waitForSelector('body.loaded');
  return { page, problems, requests, close: () => context.close() };
}
