// SPDX-License-Identifier: Apache-2.0
// What is looked at, in the address:
// #text=...&beside=...&direction=...&section=0&layer=1&head=2&view=head&words=1&at=3,5&step=3
import { PAIRS, type Pair } from './lens';
import type { Layer } from './trace';

export type ViewName = 'grid' | 'head' | 'lines' | 'qk' | 'picture';
export const VIEWS: readonly ViewName[] = ['grid', 'head', 'lines', 'qk', 'picture'];

export interface Place {
  text: string;
  beside: string; // the text that it is compared with; empty: none
  direction: string;
  section: number;
  layer: Layer;
  head: number;
  heads: number[]; // those that lines and pictures show; empty means `head` alone
  view: ViewName;
  step: number; // from 1; 0 means all
  words: boolean; // pieces are merged
  pair: Pair;
  at?: { q: number | null; k: number | null } | null; // what was clicked
  chosen: boolean; // somebody named a head; otherwise the page chooses one
}

export function writePlace(place: Place): string {
  const parts: [string, string][] = [];
  if (place.text !== '') parts.push(['text', place.text]);
  if (place.beside !== '') parts.push(['beside', place.beside]);
  if (place.direction !== '') parts.push(['direction', place.direction]);
  parts.push(['section', String(place.section)], ['layer', String(place.layer)], ['head', String(place.head)]);
  if (place.heads.length > 1) parts.push(['heads', place.heads.join(',')]);
  parts.push(['view', place.view]);
  if (place.words) parts.push(['words', '1']);
  if (place.pair !== '') parts.push(['pair', place.pair]);
  if (place.at) parts.push(['at', `${place.at.q ?? ''},${place.at.k ?? ''}`]);
  if (place.step > 0) parts.push(['step', String(place.step)]);
  return '#' + parts.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&');
}

function whole(value: string | undefined): number {
  return value !== undefined && /^\d{1,6}$/.test(value) ? Number(value) : 0;
}

// Takes anything: what it does not understand is as if it were not there.
export function readPlace(hash: string): Place {
  const found = new Map<string, string>();
  for (const part of hash.replace(/^#/, '').split('&')) {
    const cut = part.indexOf('=');
    if (cut < 1) continue;
    try {
      found.set(part.slice(0, cut), decodeURIComponent(part.slice(cut + 1)));
    } catch {
      // A lone "%": not one of ours.
    }
  }
  const view = found.get('view') as ViewName;
  const pair = found.get('pair') as Pair;
  const at = /^(\d{0,6}),(\d{0,6})$/.exec(found.get('at') ?? '');
  const index = (text: string) => (text === '' ? null : Number(text));
  const heads = (found.get('heads') ?? '')
    .split(',')
    .filter((one) => /^\d{1,6}$/.test(one))
    .map(Number);
  return {
    text: found.get('text') ?? '',
    beside: found.get('beside') ?? '',
    direction: found.get('direction') ?? '',
    section: whole(found.get('section')),
    layer: found.get('layer') === 'rollout' ? 'rollout' : whole(found.get('layer')),
    head: whole(found.get('head')),
    heads: [...new Set(heads)],
    view: VIEWS.includes(view) ? view : 'head',
    step: whole(found.get('step')),
    words: found.get('words') === '1',
    pair: PAIRS.includes(pair) ? pair : '',
    at: at && at[0] !== ',' ? { q: index(at[1]), k: index(at[2]) } : null,
    chosen: found.has('section') || found.has('layer') || found.has('head'),
  };
}

// The same place in a trace that may be smaller than the one it was written for.
export function fitPlace(
  place: Place,
  sections: readonly { layers: number; heads: number; rollout: boolean; vectors: unknown; pictured: boolean }[],
  steps: number,
): Place {
  const section = Math.min(place.section, sections.length - 1);
  const { layers, heads, rollout, vectors, pictured } = sections[section];
  const layer = place.layer === 'rollout' ? (rollout ? 'rollout' : 0) : Math.min(place.layer, layers - 1);
  // A product of layers has no queries and keys of its own.
  const has = { qk: vectors && layer !== 'rollout', picture: pictured, grid: true, head: true, lines: true };
  return {
    ...place,
    section,
    layer,
    head: Math.min(place.head, heads - 1),
    heads: place.heads.filter((head) => head < heads),
    view: has[place.view] ? place.view : 'head',
    step: place.step >= steps ? 0 : place.step,
  };
}
