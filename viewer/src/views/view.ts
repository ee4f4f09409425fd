// SPDX-License-Identifier: Apache-2.0
import type { Changed } from '../app';
import type { Picture } from '../pen';

export interface View {
  readonly element: HTMLElement;
  // Called while the view is on the page.
  update(changed: Changed): void;
  // The whole picture for a file; null while its numbers are on their way.
  picture(): Picture | null;
}

// Widths of texts in the page's font.
const context = document.createElement('canvas').getContext('2d')!;
export function measure(text: string, size: number, family: string): number {
  context.font = `${size}px ${family}`;
  return context.measureText(text).width;
}

// The widest of many labels. Only the longest by number of characters are worth measuring.
export function widest(labels: readonly string[], size: number, family: string): number {
  const longest = [...new Set(labels)].sort((a, b) => b.length - a.length).slice(0, 40);
  const wide = labels.filter((label) => /[\u2e80-\uffff]/.test(label)).slice(0, 40);
  return Math.max(8, ...[...longest, ...wide].map((label) => measure(label, size, family)));
}
