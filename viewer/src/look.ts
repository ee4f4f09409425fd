// SPDX-License-Identifier: Apache-2.0
// One trace as it is looked at: what stands on its axes, and the weights that came.
import { visibleKeys } from './heat';
import { groupsOf, meanBlock, throughLens, type Pair } from './lens';
import { BlockCache, type Source } from './source';
import { pairOf, showGroups, wordsOf, type Group } from './tokens';
import { keysOf, queriesOf, shownRows, type Block, type Layer, type Section, type Trace, type Vectors } from './trace';

const BLOCK_BYTES = 48 << 20;
const MOST_VECTORS = 64; // heads whose queries and keys are kept

// What stands on the two axes: who asks, and who is read.
export interface Axes {
  name: string; // of the state that it belongs to
  rows: Group[];
  columns: Group[];
  queries: string[];
  keys: string[];
  ends: number[]; // how many columns a row sees
}

// Of the page's state, what decides how a trace is looked at.
export interface Glasses {
  section: number;
  words: boolean;
  pair: Pair;
  view: string;
  step: number;
}

// Is it between the two sentences of a pair?
export const isPair = (trace: Trace, section: Section): boolean =>
  section.queries === section.keys && pairOf(keysOf(trace, section)) !== null;

export class Look {
  private readonly cache = new BlockCache(BLOCK_BYTES);
  private readonly coming = new Set<string>();
  private readonly failed = new Set<string>(); // not asked for again until someone wishes it
  private readonly vectorsHeld = new Map<string, Vectors>();
  private readonly seen = new WeakMap<Block, { name: string; block: Block }>();
  private axes: Axes | null = null;
  private meanOf: { blocks: Block[]; mean: Block } | null = null;

  // `done` hears when something has come, or why it did not.
  constructor(
    private readonly source: Source,
    readonly trace: Trace,
    private readonly glasses: Glasses,
    private readonly done: (look: Look, error: unknown) => void,
  ) {}

  get section(): Section {
    return this.trace.sections[this.glasses.section];
  }

  // Both axes as they are looked at: pieces or words, of one sentence or of both.
  lensOf({ section, words, pair, view }: Omit<Glasses, 'step'>): Axes {
    // Queries and keys belong to pieces: there they stay apart.
    const merged = words && view !== 'qk';
    const name = `${section}/${merged}/${pair}`;
    if (this.axes?.name === name) return this.axes;
    const one = this.trace.sections[section];
    const [asking, read] = [queriesOf(this.trace, one), keysOf(this.trace, one)];
    const rows = groupsOf(asking, merged, pair.slice(0, 1));
    const columns = groupsOf(read, merged, pair.slice(1));
    const ends = rows.map(({ to }) => {
      if (!one.causal) return columns.length;
      const visible = visibleKeys(one, asking.length, read.length, to - 1);
      return columns.filter((group) => group.from < visible).length;
    });
    const [queries, keys] = [showGroups(asking, rows), showGroups(read, columns)];
    return (this.axes = { name, rows, columns, queries, keys, ends });
  }

  get lens(): Axes {
    return this.lensOf(this.glasses);
  }

  // Is there a word of several pieces?
  get hasPieces(): boolean {
    const { trace, section } = this;
    return [queriesOf(trace, section), keysOf(trace, section)].some((tokens) => wordsOf(tokens).length < tokens.length);
  }

  get rowsShown(): number {
    const shown = shownRows(this.trace, this.section, this.glasses.step);
    return this.lens.rows.filter((group) => group.from < shown).length;
  }

  get matrix(): { rows: number; columns: number } {
    return { rows: this.lens.rows.length, columns: this.lens.columns.length };
  }

  // The weights of a head as they are looked at, where they are here; otherwise
  // they are sent for.
  block(layer: Layer, head: number): Block | null {
    const { trace } = this;
    const { section, step } = this.glasses;
    const name = layer === 'rollout' ? `${section}/rollout` : `${section}/${layer}/${head}`;
    const whole = this.cache.get(name);
    if (!whole) {
      this.fetch(
        name,
        () => this.source.block(trace, section, layer, head),
        (block) => this.cache.put(name, block),
      );
      return null;
    }
    const { rows, columns, name: lens } = this.lens;
    if (rows.length === whole.rows && columns.length === whole.columns) return whole;
    const shown = shownRows(trace, this.section, step);
    let held = this.seen.get(whole);
    if (held?.name !== `${lens}/${shown}`) {
      held = { name: `${lens}/${shown}`, block: throughLens(whole, rows, columns, shown) };
      this.seen.set(whole, held);
    }
    return held.block;
  }

  // The mean of some heads, once all are here.
  mean(layer: Layer, heads: readonly number[]): Block | null {
    const blocks = heads.map((head) => this.block(layer, head)).filter((block) => block !== null);
    if (blocks.length < heads.length) return null;
    if (blocks.length === 1) return blocks[0];
    const held = this.meanOf;
    if (held?.blocks.length !== blocks.length || held.blocks.some((block, i) => block !== blocks[i]))
      this.meanOf = { blocks, mean: meanBlock(blocks) };
    return this.meanOf!.mean;
  }

  // The queries and keys of a head, like its weights.
  vectors(layer: number, head: number): Vectors | null {
    if (!this.section.vectors) return null;
    const { section } = this.glasses;
    const name = `vectors/${section}/${layer}/${head}`;
    const held = this.vectorsHeld.get(name);
    if (!held)
      this.fetch(
        name,
        () => this.source.vectors(this.trace, section, layer, head),
        (came) => {
          if (this.vectorsHeld.size >= MOST_VECTORS) this.vectorsHeld.clear();
          this.vectorsHeld.set(name, came);
        },
      );
    return held ?? null;
  }

  // What did not come may be asked for again.
  forgive(): void {
    this.failed.clear();
  }

  private fetch<T>(name: string, load: () => Promise<T>, keep: (came: T) => void): void {
    if (!this.coming.has(name) && !this.failed.has(name)) void this.load(name, load, keep);
  }

  private async load<T>(name: string, load: () => Promise<T>, keep: (came: T) => void): Promise<void> {
    this.coming.add(name);
    try {
      keep(await load());
      this.done(this, null);
    } catch (error) {
      this.failed.add(name);
      this.done(this, error);
    } finally {
      this.coming.delete(name);
    }
  }
}
