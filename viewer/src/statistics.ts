// SPDX-License-Identifier: Apache-2.0
// Which heads are interesting.
import type { HeadStatistics, Section, Trace } from './trace';

export type Column = keyof HeadStatistics;
export const COLUMNS: readonly Column[] = ['telling', 'entropy', 'distance', 'first', 'previous', 'same'];

// The weight of one link in every head, [layers, heads].
export type Link = readonly (number | null)[];

export interface Order {
  column: Column | 'head' | 'link';
  descending: boolean;
}

export interface HeadPlace {
  layer: number;
  head: number;
}

// Questions that a reader asks, each an order of the table.
export type Question = 'telling' | 'sharp' | 'diffuse' | 'near' | 'far' | 'first' | 'previous' | 'same';
export const QUESTIONS: Readonly<Record<Question, Order>> = {
  telling: { column: 'telling', descending: true },
  sharp: { column: 'entropy', descending: false },
  diffuse: { column: 'entropy', descending: true },
  near: { column: 'distance', descending: false },
  far: { column: 'distance', descending: true },
  first: { column: 'first', descending: true },
  previous: { column: 'previous', descending: true },
  same: { column: 'same', descending: true },
};

export function hasColumn(section: Section, column: Column): boolean {
  return section.statistics.some((row) => row.some((one) => one[column] !== null));
}

export function questionsFor(section: Section): Question[] {
  return (Object.keys(QUESTIONS) as Question[]).filter((question) =>
    hasColumn(section, QUESTIONS[question].column as Column),
  );
}

export function valueOf(section: Section, place: HeadPlace, column: Column): number | null {
  return section.statistics[place.layer][place.head][column];
}

// All heads in the order asked for; heads without a value come last, equal ones
// in the order of layers and heads.
export function rank(section: Section, order: Order, link: Link = []): HeadPlace[] {
  const places: HeadPlace[] = [];
  for (let layer = 0; layer < section.layers; ++layer) {
    for (let head = 0; head < section.heads; ++head) places.push({ layer, head });
  }
  const sign = order.descending ? -1 : 1;
  if (order.column === 'head') return order.descending ? places.reverse() : places;
  const { column } = order;
  const value = (place: HeadPlace) =>
    column === 'link' ? (link[place.layer * section.heads + place.head] ?? null) : valueOf(section, place, column);
  // Array.prototype.sort is stable.
  return places.sort((a, b) => {
    const x = value(a);
    const y = value(b);
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
    return sign * (x - y);
  });
}

// Where the page opens: the most telling head of those that `start` allows; over
// pictures, where nobody named a head, all heads of its layer.
export function openingPlace(trace: Trace): HeadPlace & { section: number; heads: number[] } {
  const { start } = trace;
  let best = { section: start.section ?? 0, layer: start.layer ?? 0, head: start.head ?? 0 };
  let most = -1;
  trace.sections.forEach((one, section) => {
    if (section !== (start.section ?? section)) return;
    for (const { layer, head } of rank(one, { column: 'head', descending: false })) {
      const telling = one.statistics[layer][head].telling ?? 0;
      if (layer !== (start.layer ?? layer) || head !== (start.head ?? head) || telling <= most) continue;
      best = { section, layer, head };
      most = telling;
    }
  });
  const { pictured, heads } = trace.sections[best.section];
  const all = pictured && start.head === undefined ? Array.from({ length: heads }, (_, head) => head) : [];
  return { ...best, heads: all };
}
