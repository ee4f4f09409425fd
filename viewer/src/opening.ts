// SPDX-License-Identifier: Apache-2.0
import { findPronoun, rankFinds } from './finds';
import { Look } from './look';
import type { Place } from './permalink';
import type { Source } from './source';
import type { Trace } from './trace';

// Where nobody named a head, and a text reads itself alone, the page opens where a
// pronoun looks most at what it may stand for.
export async function openingOf(source: Source, trace: Trace, place: Place): Promise<Place> {
  const [section] = trace.sections;
  const { layer, head } = trace.start;
  if (place.chosen || trace.sections.length > 1 || layer !== undefined || head !== undefined) return place;
  const { lens } = new Look(source, trace, { ...place, section: 0 }, () => {});
  const found = section.queries === section.keys ? findPronoun(lens, section.causal) : null;
  if (!found) return place;
  const codes = await source.rows(trace, 0, lens.rows[found.q]).catch(() => []);
  const best = rankFinds(codes, section.heads, lens.columns, found.among).at(0);
  if (!best) return place;
  return { ...place, section: 0, layer: best.layer, head: best.head, at: { q: found.q, k: best.k }, chosen: true };
}
