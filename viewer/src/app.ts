// SPDX-License-Identifier: Apache-2.0
// What is looked at, and everyone who must know when it changes.
import type { Curve, PaletteName } from './color';
import { CURVES, PALETTES } from './color';
import { recall, remember } from './dom';
import type { Theme } from './heat';
import { fill, isKey, languageOf, STRINGS, type Key, type Language } from './i18n';
import { fitPlace, readPlace, writePlace, type Place } from './permalink';
import { asSourceError, BlockCache, type Info, type Source, type SourceError } from './source';
import type { Order } from './statistics';
import { showTokens } from './tokens';
import { keysOf, queriesOf, shownRows, type Block, type Layer, type Section, type Trace } from './trace';

export interface Focus {
  q: number | null;
  k: number | null;
}

export interface State extends Place {
  language: Language;
  theme: 'auto' | 'light' | 'dark';
  palette: PaletteName;
  curve: Curve;
  order: Order;
  info: Info | null;
  trace: Trace | null;
  focus: Focus | null; // what the pointer or the keyboard is at
  pinned: boolean; // the focus stays when the pointer leaves
  busy: boolean;
  error: SourceError | null;
  blocks: number; // grows when the weights of a head have come
}

export type Changed = ReadonlySet<keyof State>;
type Listener = (changed: Changed) => void;

const BLOCK_BYTES = 48 << 20;

function pick<T extends string>(value: string | null, allowed: readonly T[], otherwise: T): T {
  return allowed.includes(value as T) ? (value as T) : otherwise;
}

export class App {
  readonly state: State;
  private readonly listeners: Listener[] = [];
  private readonly cache = new BlockCache(BLOCK_BYTES);
  // Blocks of this trace: a new one has sets of its own, whatever is still on its way.
  private coming = new Set<string>();
  private failed = new Set<string>(); // not asked for again until someone wishes it
  private labels = new Map<number, string[]>();
  private asking = 0;
  private readonly media = window.matchMedia('(prefers-color-scheme: dark)');
  private colors: Theme | null = null;

  constructor(readonly source: Source) {
    const place = readPlace(location.hash);
    this.state = {
      ...place,
      language: pick(recall('language'), ['en', 'zh'], languageOf(navigator.languages ?? [navigator.language])),
      theme: pick(recall('theme'), ['auto', 'light', 'dark'], 'auto'),
      palette: pick(recall('palette'), PALETTES, 'ink'),
      curve: pick(recall('curve'), CURVES, 'stretch'),
      order: { column: 'head', descending: false },
      info: null,
      trace: null,
      focus: null,
      pinned: false,
      busy: true,
      error: null,
      blocks: 0,
    };
    this.media.addEventListener('change', () => this.set({ theme: this.state.theme }, true));
    window.addEventListener('hashchange', () => this.followAddress());
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(patch: Partial<State>, always = false): void {
    const changed = new Set<keyof State>();
    for (const key of Object.keys(patch) as (keyof State)[]) {
      if (!always && Object.is(this.state[key], patch[key])) continue;
      (this.state as unknown as Record<string, unknown>)[key] = patch[key];
      changed.add(key);
    }
    if (changed.size === 0) return;
    for (const key of ['language', 'theme', 'palette', 'curve'] as const)
      if (changed.has(key)) remember(key, this.state[key]);
    if (changed.has('theme')) this.colors = null;
    if (changed.has('trace')) {
      this.cache.clear();
      this.coming = new Set();
      this.failed = new Set();
      this.labels = new Map();
    }
    for (const listener of this.listeners) listener(changed);
    if (!changed.has('focus') || changed.size > 1) this.writeAddress();
  }

  t(key: Key, values: Record<string, string | number> = {}): string {
    return fill(STRINGS[this.state.language][key], values);
  }

  get dark(): boolean {
    return this.state.theme === 'dark' || (this.state.theme === 'auto' && this.media.matches);
  }

  // The colours of the style sheet, for what is drawn.
  get theme(): Theme {
    if (!this.colors) {
      document.documentElement.dataset.theme = this.dark ? 'dark' : 'light';
      const style = getComputedStyle(document.documentElement);
      const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
      this.colors = {
        dark: this.dark,
        ink: color('ink'),
        soft: color('soft'),
        faint: color('faint'),
        paper: color('paper'),
        rule: color('rule'),
        accent: color('accent'),
      };
    }
    return this.colors;
  }

  get section(): Section | null {
    return this.state.trace?.sections[this.state.section] ?? null;
  }

  sectionName(section: Section): string {
    return ['encoder', 'decoder', 'cross'].includes(section.name) && isKey(section.name)
      ? this.t(section.name)
      : section.name;
  }

  placeName(): string {
    const section = this.section;
    if (!section) return '';
    const { layer, head } = this.state;
    if (layer === 'rollout') return this.t('rolloutOf', { section: this.sectionName(section) });
    return this.t('placeOf', { section: this.sectionName(section), layer, head });
  }

  // Tokens as they are shown.
  axis(index: number): string[] {
    let shown = this.labels.get(index);
    if (!shown) {
      shown = showTokens(this.state.trace!.axes[index].tokens);
      this.labels.set(index, shown);
    }
    return shown;
  }

  get rowsShown(): number {
    return shownRows(this.state.trace!, this.section!, this.state.step);
  }

  // The weights of a head, where they are here; otherwise they are sent for, and
  // `blocks` changes when they come.
  block(layer: Layer, head: number): Block | null {
    const { trace, section } = this.state;
    if (!trace) return null;
    const name = layer === 'rollout' ? `${section}/rollout` : `${section}/${layer}/${head}`;
    const held = this.cache.get(name);
    if (held) return held;
    if (!this.coming.has(name) && !this.failed.has(name)) void this.fetchBlock(trace, section, layer, head, name);
    return null;
  }

  private async fetchBlock(trace: Trace, section: number, layer: Layer, head: number, name: string): Promise<void> {
    const { coming, failed } = this;
    coming.add(name);
    try {
      const block = await this.source.block(trace, section, layer, head);
      if (this.state.trace !== trace) return;
      this.cache.put(name, block);
      this.set({ blocks: this.state.blocks + 1 });
    } catch (error) {
      failed.add(name);
      if (this.state.trace === trace) this.set({ error: asSourceError(error) });
    } finally {
      coming.delete(name);
    }
  }

  // Asks again for weights that did not come.
  retryBlocks(): void {
    this.failed.clear();
    this.set({ error: null, blocks: this.state.blocks + 1 });
  }

  async start(): Promise<void> {
    const wanted: Place = { ...this.state };
    try {
      const info = await this.source.info();
      const direction = info.directions.includes(wanted.direction) ? wanted.direction : (info.directions[0] ?? '');
      if (info.canTranslate && wanted.text !== '') {
        this.set({ info, direction });
        await this.ask(wanted.text, direction, wanted);
      } else if (info.trace) {
        this.set({
          info,
          direction,
          text: info.trace.source,
          busy: false,
          trace: info.trace,
          ...this.fit(info.trace, wanted),
        });
      } else {
        this.set({ info, direction, busy: false });
      }
    } catch (error) {
      this.set({ error: asSourceError(error), busy: false });
    }
  }

  async ask(text: string, direction: string, wanted: Place = this.state): Promise<void> {
    const turn = ++this.asking;
    this.set({ busy: true, error: null, text, direction });
    try {
      const trace = await this.source.trace(text, direction);
      if (turn !== this.asking) return; // a newer sentence is on its way
      this.set({
        trace,
        busy: false,
        focus: null,
        pinned: false,
        ...this.fit(trace, { ...wanted, step: wanted === this.state ? 0 : wanted.step }),
      });
    } catch (error) {
      if (turn === this.asking) this.set({ error: asSourceError(error), busy: false });
    }
  }

  private fit(trace: Trace, place: Place): Partial<State> {
    const { section, layer, head, heads, view, step } = fitPlace(place, trace.sections, trace.steps);
    return { section, layer, head, heads, view, step };
  }

  private written = '';
  private writeAddress(): void {
    if (!this.state.trace) return;
    const text = this.state.info?.canTranslate ? this.state.text : '';
    this.written = writePlace({ ...this.state, text, direction: text ? this.state.direction : '' });
    try {
      if (location.hash !== this.written) history.replaceState(null, '', this.written);
    } catch {
      // A page inside a frame has no address of its own.
    }
  }

  // Someone wrote another address, or went back.
  private followAddress(): void {
    if (location.hash === this.written || !this.state.info) return;
    const place = readPlace(location.hash);
    const { trace, info } = this.state;
    if (
      info.canTranslate &&
      place.text !== '' &&
      (place.text !== this.state.text || (place.direction !== '' && place.direction !== this.state.direction))
    ) {
      void this.ask(place.text, place.direction || this.state.direction, place);
    } else if (trace) {
      this.set({ ...this.fit(trace, place), focus: null, pinned: false });
    }
  }

  // Moves in the trace, and stays inside it.
  go(patch: {
    section?: number;
    layer?: Layer;
    head?: number;
    view?: Place['view'];
    step?: number;
    heads?: number[];
  }): void {
    const { trace } = this.state;
    if (!trace) return;
    const next = { ...this.state, ...patch };
    if (patch.head !== undefined && !patch.heads && next.heads.length > 0 && !next.heads.includes(patch.head))
      next.heads = [];
    if (patch.section !== undefined && patch.section !== this.state.section) next.heads = [];
    const fitted = this.fit(trace, next);
    // What was said about one head does not follow to the next.
    const moved = fitted.section !== this.state.section;
    const other = moved || fitted.layer !== this.state.layer || fitted.head !== this.state.head;
    if (other) this.failed.clear();
    const error = other && this.state.error?.code === 'missing_block' ? null : this.state.error;
    this.set(moved ? { ...fitted, error, focus: null, pinned: false } : { ...fitted, error });
  }

  moveHead(by: number): void {
    const section = this.section;
    if (section)
      this.go({
        layer: this.state.layer === 'rollout' ? 0 : this.state.layer,
        head: (this.state.head + by + section.heads) % section.heads,
      });
  }

  moveLayer(by: number): void {
    const section = this.section;
    if (!section) return;
    const layer = this.state.layer === 'rollout' ? (by > 0 ? 0 : section.layers - 1) : this.state.layer + by;
    this.go({ layer: (layer + section.layers) % section.layers });
  }

  moveSection(by: number): void {
    const count = this.state.trace?.sections.length ?? 1;
    this.go({ section: (this.state.section + by + count) % count });
  }

  moveStep(by: number): void {
    const steps = this.state.trace?.steps ?? 0;
    if (steps === 0) return;
    const now = this.state.step === 0 ? steps : this.state.step;
    this.go({ step: Math.min(Math.max(now + by, 1), steps) });
  }

  get matrix(): { rows: number; columns: number } {
    const { trace } = this.state;
    const section = this.section!;
    return { rows: queriesOf(trace!, section).length, columns: keysOf(trace!, section).length };
  }
}
