// SPDX-License-Identifier: Apache-2.0
// What is looked at, in the address: #text=...&direction=...&section=0&layer=1&head=2&view=head&step=3
import type { Layer } from './trace';

export type ViewName = 'grid' | 'head' | 'lines';
export const VIEWS: readonly ViewName[] = ['grid', 'head', 'lines'];

export interface Place {
  text: string;
  direction: string;
  section: number;
  layer: Layer;
  head: number;
  heads: number[]; // those that the lines show; empty means `head` alone
  view: ViewName;
  step: number; // from 1; 0 means all
}

export function writePlace(place: Place): string {
  const parts: [string, string][] = [];
  if (place.text !== '') parts.push(['text', place.text]);
  if (place.direction !== '') parts.push(['direction', place.direction]);
  parts.push(['section', String(place.section)], ['layer', String(place.layer)], ['head', String(place.head)]);
  if (place.heads.length > 1) parts.push(['heads', place.heads.join(',')]);
  parts.push(['view', place.view]);
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
  const heads = (found.get('heads') ?? '')
    .split(',')
    .filter((one) => /^\d{1,6}$/.test(one))
    .map(Number);
  return {
    text: found.get('text') ?? '',
    direction: found.get('direction') ?? '',
    section: whole(found.get('section')),
    layer: found.get('layer') === 'rollout' ? 'rollout' : whole(found.get('layer')),
    head: whole(found.get('head')),
    heads: [...new Set(heads)],
    view: VIEWS.includes(view) ? view : 'grid',
    step: whole(found.get('step')),
  };
}

// The same place in a trace that may be smaller than the one it was written for.
export function fitPlace(
  place: Place,
  sections: readonly { layers: number; heads: number; rollout: boolean }[],
  steps: number,
): Place {
  const section = Math.min(place.section, sections.length - 1);
  const { layers, heads, rollout } = sections[section];
  const layer = place.layer === 'rollout' ? (rollout ? 'rollout' : 0) : Math.min(place.layer, layers - 1);
  return {
    ...place,
    section,
    layer,
    head: Math.min(place.head, heads - 1),
    heads: place.heads.filter((head) => head < heads),
    step: place.step >= steps ? 0 : place.step,
  };
}
