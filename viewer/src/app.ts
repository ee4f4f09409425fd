// SPDX-License-Identifier: Apache-2.0
// What is looked at, and everyone who must know when it changes.
import type { Curve, PaletteName } from './color';
import { CURVES, PALETTES } from './color';
import { recall, remember } from './dom';
import type { Theme } from './heat';
import { fill, isKey, languageOf, STRINGS, type Key, type Language } from './i18n';
import { fitPlace, readPlace, writePlace, type Place } from './permalink';
import { asSourceError, type Info, type Source, type SourceError } from './source';
import { alignWords, inverse } from './align';
import { candidates, findPronoun, type Rows } from './finds';
import { Follower } from './follower';
import { groupAt, type Pair } from './lens';
import { isPair, Look, type Axes } from './look';
import { openingOf } from './opening';
import { hasColumn, openingPlace, QUESTIONS, type Link, type Order } from './statistics';
import type { Group } from './tokens';
import type { Block, Layer, Section, Trace, Vectors } from './trace';

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
  rows: AskedRows | null;
  otherTrace: Trace | null; // of the sentence beside
  otherFocus: Focus | null;
}

// Two sentences stand side by side.
export type Side = 'main' | 'other';
interface Alignment {
  rows: (number | null)[];
  columns: (number | null)[];
}

// Where one word looks in every head.
export interface AskedRows {
  query: Group;
  codes: Rows;
  other: Rows | null; // its word of the sentence beside
}

export type Changed = ReadonlySet<keyof State>;
type Listener = (changed: Changed) => void;

// What decides where the focus of the sentence beside is.
const OF_FOCUS = ['trace', 'otherTrace', 'section', 'words', 'pair', 'view'] as const;

function pick<T extends string>(value: string | null, allowed: readonly T[], otherwise: T): T {
  return allowed.includes(value as T) ? (value as T) : otherwise;
}

export class App {
  readonly state: State;
  private readonly listeners: Listener[] = [];
  private look: Look | null = null;
  private other: Look | null = null; // of the sentence beside it
  private alignment: ({ name: string } & Record<Side, Alignment>) | null = null;
  private readonly follower = new Follower(this);
  private before: { layer: number; view: Place['view'] } = { layer: 0, view: 'head' }; // the rollout
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
      rows: null,
      otherTrace: null,
      otherFocus: null,
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
    if (changed.has('trace')) this.look = this.wear(this.state.trace);
    if (changed.has('otherTrace')) this.other = this.wear(this.state.otherTrace);
    if (changed.has('trace') || changed.has('otherTrace')) {
      this.alignment = null;
      this.follower.startAnew();
    }
    if (patch.otherFocus === undefined && ('focus' in patch || OF_FOCUS.some((key) => changed.has(key)))) {
      const there = this.focusAcross('main', this.state.focus);
      if (there !== this.state.otherFocus) changed.add('otherFocus');
      this.state.otherFocus = there;
    }
    for (const listener of this.listeners) listener(changed);
    // What only follows the pointer is not worth an address.
    const pointed = [...changed].every((key) => key === 'focus' || key === 'otherFocus');
    if (pointed && !this.state.pinned) return;
    this.writeAddress();
    this.follower.follow();
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
    return ['encoder', 'decoder', 'cross', 'pooling'].includes(section.name) && isKey(section.name)
      ? this.t(section.name)
      : section.name;
  }

  placeName(): string {
    const section = this.section;
    if (!section) return '';
    const { layer, head } = this.state;
    if (layer === 'rollout') return this.t('rolloutOf', { section: this.sectionName(section) });
    const { length } = this.headsShown;
    if (this.state.view === 'picture' && length > 1)
      return this.t('meanOf', { section: this.sectionName(section), layer, heads: length });
    return this.t('placeOf', { section: this.sectionName(section), layer, head });
  }

  private get lens(): Axes {
    return this.look!.lens;
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
    return this.look!.hasPieces;
  }

  get hasPair(): boolean {
    return isPair(this.state.trace!, this.section!);
  }

  get rowsShown(): number {
    return this.look!.rowsShown;
  }

  // The heads that are looked at together: in the lines, and over pictures, it may be several.
  get headsShown(): number[] {
    const { layer, head, heads, view } = this.state;
    const several = (view === 'lines' || view === 'picture') && layer !== 'rollout' && heads.length > 0;
    return several ? heads : [head];
  }

  // What is looked at, as one: over pictures the mean of several heads.
  shownBlock(): Block | null {
    const { layer, head, view } = this.state;
    return this.look?.mean(layer, view === 'picture' ? this.headsShown : [head]) ?? null;
  }

  block(layer: Layer, head: number): Block | null {
    return this.look?.block(layer, head) ?? null;
  }

  vectors(layer: number, head: number): Vectors | null {
    return this.look?.vectors(layer, head) ?? null;
  }

  private wear(trace: Trace | null): Look | null {
    return (
      trace &&
      new Look(this.source, trace, this.state, (look, error) => {
        if (look !== this.look && look !== this.other) return; // of a sentence that is gone
        this.set(error === null ? { blocks: this.state.blocks + 1 } : { error: asSourceError(error) });
      })
    );
  }

  // Are two sentences side by side?
  get compares(): boolean {
    return this.other !== null && (this.state.view === 'head' || this.state.view === 'lines');
  }

  // For each row and column of a sentence the one of the other sentence.
  across(from: Side): { rows: (number | null)[]; columns: (number | null)[] } {
    const [here, there] = [this.look!.lens, this.other!.lens];
    const { name } = here;
    if (this.alignment?.name !== name) {
      const rows = alignWords(here.queries, there.queries);
      const columns = alignWords(here.keys, there.keys);
      const other = { rows: inverse(rows, there.queries.length), columns: inverse(columns, there.keys.length) };
      this.alignment = { name, main: { rows, columns }, other };
    }
    return this.alignment[from];
  }

  lookOf(side: Side): Look | null {
    return side === 'main' ? this.look : this.other;
  }

  focusOf(side: Side): Focus | null {
    return side === 'main' ? this.state.focus : this.state.otherFocus;
  }

  private focusAcross(from: Side, focus: Focus | null): Focus | null {
    if (!this.look || !this.other || !focus) return null;
    const { rows, columns } = this.across(from);
    const q = focus.q === null ? null : (rows[focus.q] ?? null);
    const k = focus.k === null ? null : (columns[focus.k] ?? null);
    return q === null && k === null ? null : { q, k };
  }

  // The pointer or the keyboard is at a place of one sentence, and so of the other.
  point(side: Side, at: Focus | null, pinned: boolean): void {
    const there = this.focusAcross(side, at);
    const [focus, otherFocus] = side === 'main' ? [at, there] : [there, at];
    this.set({ focus, otherFocus, pinned });
  }

  // Asks again for weights that did not come.
  retryBlocks(): void {
    this.look?.forgive();
    this.other?.forgive();
    this.set({ error: null, blocks: this.state.blocks + 1 });
  }

  async start(): Promise<void> {
    const wanted: Place = { ...this.state };
    try {
      const info = await this.source.info();
      const direction = info.directions.includes(wanted.direction) ? wanted.direction : (info.directions[0] ?? '');
      if (info.canRead && wanted.text !== '') {
        this.set({ info, direction });
        await this.ask(wanted.text, direction, wanted);
      } else if (info.trace) {
        const { trace, beside } = info;
        const place = await openingOf(this.source, trace, wanted);
        this.set({
          info,
          direction,
          text: trace.source,
          beside: beside?.source ?? '',
          busy: false,
          trace,
          otherTrace: beside,
          ...this.fit(trace, place),
        });
        this.click(place.at);
      } else {
        this.set({ info, direction, busy: false });
      }
    } catch (error) {
      this.set({ error: asSourceError(error), busy: false });
    }
  }

  async ask(text: string, direction: string, wanted: Place = this.state, beside = wanted.beside): Promise<void> {
    const turn = ++this.asking;
    const kept = wanted === this.state;
    this.set({ busy: true, error: null, text, direction, beside });
    try {
      const [trace, otherTrace] = await Promise.all([
        this.source.trace(text, direction),
        beside === '' ? null : this.source.trace(beside, direction),
      ]);
      const place = await openingOf(this.source, trace, kept ? { ...this.state, step: 0, at: null } : wanted);
      if (turn !== this.asking) return; // a newer sentence is on its way
      this.set({ trace, otherTrace, busy: false, focus: null, pinned: false, ...this.fit(trace, place) });
      this.click(place.at);
    } catch (error) {
      if (turn === this.asking) this.set({ error: asSourceError(error), busy: false });
    }
  }

  // Whose looks at far words are ranked: the word that was clicked, else the pronoun.
  asker(): { q: number; among: number[] } | null {
    const { trace, focus, pinned } = this.state;
    if (!trace || this.section!.queries !== this.section!.keys || this.section!.pictured) return null;
    if (!pinned || !focus || focus.q === null) return findPronoun(this.lens, this.section!.causal);
    const { q } = focus;
    return { q, among: candidates(this.lens, q, this.section!.causal) };
  }

  private fit(trace: Trace, place: Place): Partial<State> {
    const opening = place.chosen ? null : openingPlace(trace);
    const wanted = { ...place, ...opening };
    if (opening && trace.sections[opening.section].pictured && place.view === 'head') wanted.view = 'picture';
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

  private written = '';
  private writeAddress(): void {
    if (!this.state.trace) return;
    const live = this.state.info?.canRead === true;
    const text = live ? this.state.text : '';
    const beside = live ? this.state.beside : '';
    const at = this.state.pinned ? this.state.focus : null;
    this.written = writePlace({ ...this.state, at, text, beside, direction: text ? this.state.direction : '' });
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
      info.canRead &&
      place.text !== '' &&
      (place.text !== this.state.text ||
        place.beside !== this.state.beside ||
        (place.direction !== '' && place.direction !== this.state.direction))
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
    const joins = next.view !== 'picture' && next.heads.includes(patch.head ?? -1);
    if (patch.head !== undefined && !patch.heads && !joins) next.heads = [];
    if (patch.section !== undefined && patch.section !== this.state.section) next.heads = [];
    const fitted = { ...next, ...this.fit(trace, next) };
    // What was said about one head does not follow to the next.
    const moved = fitted.section !== this.state.section;
    const other = moved || fitted.layer !== this.state.layer || fitted.head !== this.state.head;
    if (other) [this.look, this.other].forEach((one) => one?.forgive());
    const error = other && this.state.error?.code === 'missing_block' ? null : this.state.error;
    const { section, layer, head, heads, view, step, words, pair } = fitted;
    const place = { section, layer, head, heads, view, step, words, pair, error };
    const focus = moved ? null : this.focusThrough(this.look!.lensOf(fitted));
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
    return this.look!.matrix;
  }
}
