// SPDX-License-Identifier: Apache-2.0
// What is looked at, and everyone who must know when it changes.
import type { Curve, PaletteName } from './color';
import { CURVES, PALETTES } from './color';
import { recall, remember } from './dom';
import { visibleKeys, type Theme } from './heat';
import { fill, isKey, languageOf, STRINGS, type Key, type Language } from './i18n';
import { fitPlace, readPlace, writePlace, type Place } from './permalink';
import { asSourceError, BlockCache, type Info, type Source, type SourceError } from './source';
import { groupAt, groupsOf, throughLens, type Pair } from './lens';
import { hasColumn, openingPlace, QUESTIONS, type Link, type Order } from './statistics';
import { pairOf, showGroups, showTokens, wordsOf, type Group } from './tokens';
import { keysOf, queriesOf, shownRows, type Block, type Layer, type Section, type Trace, type Vectors } from './trace';

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
  link: Link | null; // of the two tokens that were clicked
}

// What stands on the two axes: who asks, and who is read.
interface Axes {
  name: string; // of the state that it belongs to
  rows: Group[];
  columns: Group[];
  queries: string[];
  keys: string[];
  ends: number[]; // how many columns a row sees
}

export type Changed = ReadonlySet<keyof State>;
type Listener = (changed: Changed) => void;

// Is it between the two sentences of a pair?
const isPair = (trace: Trace, section: Section): boolean =>
  section.queries === section.keys && pairOf(keysOf(trace, section)) !== null;

const BLOCK_BYTES = 48 << 20;
const MOST_VECTORS = 64; // heads whose queries and keys are kept

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
  private axes: Axes | null = null;
  private seen = new WeakMap<Block, { name: string; block: Block }>();
  private vectorsHeld = new Map<string, Vectors>();
  private before: { layer: number; view: Place['view'] } = { layer: 0, view: 'head' }; // the rollout
  private linkName = '';
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
      link: null,
    };
    if (!place.chosen) this.state.words = recall('words') !== 'no';
    this.media.addEventListener('change', () => this.set({ theme: this.state.theme }, true));
    window.addEventListener('hashchange', () => this.followAddress());
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(patch: Partial<State>, always = false): void {
    const changed = new Set<keyof State>();
    const { layer, view } = this.state;
    if (patch.layer === 'rollout' && layer !== 'rollout') this.before = { layer, view };
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
      this.axes = null;
      this.vectorsHeld.clear();
      this.cache.clear();
      this.coming = new Set();
      this.failed = new Set();
      this.labels = new Map();
    }
    for (const listener of this.listeners) listener(changed);
    // What only follows the pointer is not worth an address.
    if (!changed.has('focus') || changed.size > 1 || this.state.pinned) this.writeAddress();
    this.followLink();
  }

  t(key: Key, values: Record<string, string | number> = {}): string {
    return fill(STRINGS[this.state.language][key], values);
  }

  // Of a text that may come in several languages, the reader's.
  inLanguage(text: string | Readonly<Record<string, string>>): string {
    return typeof text === 'string' ? text : (text[this.state.language] ?? text.en ?? '');
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

  // Both axes as they are looked at: pieces or words, of one sentence or of both.
  private lensOf({ section, words, pair, view }: Pick<State, 'section' | 'words' | 'pair' | 'view'>): Axes {
    // Queries and keys belong to pieces: there they stay apart.
    const merged = words && view !== 'qk';
    const name = `${section}/${merged}/${pair}`;
    if (this.axes?.name === name) return this.axes;
    const trace = this.state.trace!;
    const one = trace.sections[section];
    const [asking, read] = [queriesOf(trace, one), keysOf(trace, one)];
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

  private get lens(): Axes {
    return this.lensOf(this.state);
  }

  get queries(): string[] {
    return this.lens.queries;
  }

  get keys(): string[] {
    return this.lens.keys;
  }

  // The token that each row, and each column, begins with.
  get queryTokens(): number[] {
    return this.lens.rows.map((group) => group.from);
  }

  get keyTokens(): number[] {
    return this.lens.columns.map((group) => group.from);
  }

  // How many keys each row sees.
  get ends(): number[] {
    return this.lens.ends;
  }

  // Is there a word of several pieces, or a pair of sentences?
  get hasPieces(): boolean {
    const { trace } = this.state;
    const one = this.section!;
    return [queriesOf(trace!, one), keysOf(trace!, one)].some((tokens) => wordsOf(tokens).length < tokens.length);
  }

  get hasPair(): boolean {
    return isPair(this.state.trace!, this.section!);
  }

  get rowsShown(): number {
    const shown = shownRows(this.state.trace!, this.section!, this.state.step);
    return this.lens.rows.filter((group) => group.from < shown).length;
  }

  // The weights of a head as they are looked at, where they are here; otherwise
  // they are sent for, and `blocks` changes when they come.
  block(layer: Layer, head: number): Block | null {
    const { trace, section } = this.state;
    if (!trace) return null;
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
    const shown = shownRows(trace, this.section!, this.state.step);
    let held = this.seen.get(whole);
    if (held?.name !== `${lens}/${shown}`) {
      held = { name: `${lens}/${shown}`, block: throughLens(whole, rows, columns, shown) };
      this.seen.set(whole, held);
    }
    return held.block;
  }

  // The queries and keys of a head, like its weights.
  vectors(layer: number, head: number): Vectors | null {
    const { trace, section } = this.state;
    if (!trace || !this.section!.vectors) return null;
    const name = `vectors/${section}/${layer}/${head}`;
    const held = this.vectorsHeld.get(name);
    if (!held)
      this.fetch(
        name,
        () => this.source.vectors(trace, section, layer, head),
        (came) => {
          if (this.vectorsHeld.size >= MOST_VECTORS) this.vectorsHeld.clear();
          this.vectorsHeld.set(name, came);
        },
      );
    return held ?? null;
  }

  private fetch<T>(name: string, load: () => Promise<T>, keep: (came: T) => void): void {
    if (!this.coming.has(name) && !this.failed.has(name)) void this.load(name, load, keep);
  }

  private async load<T>(name: string, load: () => Promise<T>, keep: (came: T) => void): Promise<void> {
    const { coming, failed } = this;
    const { trace } = this.state;
    coming.add(name);
    try {
      const came = await load();
      if (this.state.trace !== trace) return;
      keep(came);
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
        this.click(wanted.at);
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
      if (wanted !== this.state) this.click(wanted.at);
    } catch (error) {
      if (turn === this.asking) this.set({ error: asSourceError(error), busy: false });
    }
  }

  private fit(trace: Trace, place: Place): Partial<State> {
    const wanted = place.chosen ? place : { ...place, ...openingPlace(trace) };
    // The table then says why it opens there.
    const order =
      place.chosen || !hasColumn(trace.sections[wanted.section], 'telling') ? {} : { order: QUESTIONS.telling };
    const { section, layer, head, heads, view, step, words, pair } = fitPlace(wanted, trace.sections, trace.steps);
    const both = isPair(trace, trace.sections[section]) ? pair : '';
    return { section, layer, head, heads, view, step, words, pair: both, chosen: true, ...order };
  }

  // What a link says was clicked, if it is there.
  private click(at: Place['at']): void {
    const { rows, columns } = this.matrix;
    if (at && (at.q ?? 0) < rows && (at.k ?? 0) < columns) this.set({ focus: at, pinned: true });
  }

  // Heads by the link between two tokens, as soon as both are chosen.
  private followLink(): void {
    const { trace, section, focus, pinned } = this.state;
    const both = trace && pinned && focus && focus.q !== null && focus.k !== null;
    const query = both ? this.lens.rows[focus.q!] : undefined;
    const key = both ? this.lens.columns[focus.k!] : undefined;
    const range = ({ from, to }: Group) => `${from}-${to}`;
    const name = query && key ? `${trace!.id}/${section}/${range(query)}/${range(key)}` : '';
    if (name === this.linkName) return;
    this.linkName = name;
    const order: Order = this.state.order.column === 'link' ? { column: 'head', descending: false } : this.state.order;
    if (!query || !key) return this.set({ link: null, order });
    void this.source.link(trace!, section, query, key).then(
      (link) => {
        if (name === this.linkName) this.set({ link, order: { column: 'link', descending: true } });
      },
      (error) => {
        if (name === this.linkName) this.set({ link: null, order, error: asSourceError(error) });
      },
    );
  }

  private written = '';
  private writeAddress(): void {
    if (!this.state.trace) return;
    const text = this.state.info?.canTranslate ? this.state.text : '';
    const at = this.state.pinned ? this.state.focus : null;
    this.written = writePlace({ ...this.state, at, text, direction: text ? this.state.direction : '' });
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
      this.click(place.at);
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
    words?: boolean;
    pair?: Pair;
  }): void {
    const { trace } = this.state;
    if (!trace) return;
    const next = { ...this.state, ...patch };
    if (patch.head !== undefined && !patch.heads && next.heads.length > 0 && !next.heads.includes(patch.head))
      next.heads = [];
    if (patch.section !== undefined && patch.section !== this.state.section) next.heads = [];
    const fitted = { ...next, ...this.fit(trace, next) };
    // What was said about one head does not follow to the next.
    const moved = fitted.section !== this.state.section;
    const other = moved || fitted.layer !== this.state.layer || fitted.head !== this.state.head;
    if (other) this.failed.clear();
    const error = other && this.state.error?.code === 'missing_block' ? null : this.state.error;
    const { section, layer, head, heads, view, step, words, pair } = fitted;
    const place = { section, layer, head, heads, view, step, words, pair, error };
    const focus = moved ? null : this.focusThrough(this.lensOf(fitted));
    this.set({ ...place, focus, pinned: this.state.pinned && focus !== null });
    if (patch.words !== undefined) remember('words', patch.words ? 'yes' : 'no');
  }

  // What is chosen, on other axes: the word of a piece, the first piece of a word.
  private focusThrough(other: Axes): Focus | null {
    const { focus } = this.state;
    const now = this.lens;
    if (!focus || other.name === now.name) return focus;
    const moved = (from: Group[], to: Group[], at: number | null) => (at === null ? null : groupAt(to, from[at].from));
    const q = moved(now.rows, other.rows, focus.q);
    const k = moved(now.columns, other.columns, focus.k);
    return (q === null) === (focus.q === null) && (k === null) === (focus.k === null) ? { q, k } : null;
  }

  // On, and off again where it was.
  toggleRollout(section = this.state.section): void {
    const { trace, layer, view } = this.state;
    if (!trace?.sections[section].rollout) return;
    if (layer !== 'rollout') this.go({ section, layer: 'rollout', view: view === 'grid' ? 'head' : view });
    else if (section !== this.state.section) this.go({ section });
    else this.go({ layer: this.before.layer, view: view === 'head' ? this.before.view : view });
  }

  moveHead(by: number): void {
    const section = this.section;
    if (section)
      this.go({
        layer: this.state.layer === 'rollout' ? this.before.layer : this.state.layer,
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
    return { rows: this.lens.rows.length, columns: this.lens.columns.length };
  }
}
