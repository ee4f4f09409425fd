// SPDX-License-Identifier: Apache-2.0
// Keeps what all heads say about a word, and about a link, up to what is chosen.
import type { App } from './app';
import { codeOf } from './finds';
import { asSourceError } from './source';
import type { Order } from './statistics';
import type { Group } from './tokens';

export class Follower {
  private generation = 0; // of traces
  private rowsName = '';
  private linkName = '';

  constructor(private readonly app: App) {}

  startAnew(): void {
    ++this.generation;
  }

  // Where one word looks in every head: the one that was clicked, else the pronoun.
  follow(): void {
    const { app } = this;
    const { trace, section, focus, pinned } = app.state;
    const q = (trace && pinned && focus ? focus.q : null) ?? app.asker()?.q ?? null;
    const other = app.lookOf('other');
    const query = q === null ? null : app.lookOf('main')!.lens.rows[q];
    const place = query && other ? app.across('main').rows[q!] : null;
    const beside = place === null ? null : other!.lens.rows[place];
    const range = (group: Group | null) => (group ? `${group.from}-${group.to}` : '');
    const name = query ? `${this.generation}/${section}/${range(query)}/${range(beside)}` : '';
    if (name === this.rowsName) return this.followLink();
    this.rowsName = name;
    if (!query) {
      app.set({ rows: null });
      return this.followLink();
    }
    void Promise.all([
      app.source.rows(trace!, section, query),
      beside && app.source.rows(other!.trace, section, beside),
    ]).then(
      ([codes, besides]) => {
        if (name === this.rowsName) app.set({ rows: { query, codes, other: besides } });
      },
      (error) => {
        if (name === this.rowsName) app.set({ rows: null, error: asSourceError(error) });
      },
    );
  }

  // Heads by the link between two tokens, as soon as both are chosen.
  private followLink(): void {
    const { app } = this;
    const { focus, pinned, rows, order: now } = app.state;
    const both = pinned && focus && focus.q !== null && focus.k !== null;
    const query = both ? app.lookOf('main')!.lens.rows[focus.q!] : undefined;
    const key = both ? app.lookOf('main')!.lens.columns[focus.k!] : undefined;
    if (query && (rows?.query.from !== query.from || rows.query.to !== query.to)) return; // on its way
    const name = query && key ? `${this.rowsName}/${key.from}-${key.to}` : '';
    if (name === this.linkName) return;
    this.linkName = name;
    const order: Order = now.column === 'link' ? { column: 'head', descending: false } : now;
    if (!query || !key) return app.set({ link: null, order });
    const link = rows!.codes.map((row) => row && codeOf(row, key));
    app.set({ link, order: { column: 'link', descending: true } });
  }
}
