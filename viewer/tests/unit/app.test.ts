// SPDX-License-Identifier: Apache-2.0
import { beforeEach, expect, it, vi } from 'vitest';
import { App } from '../../src/app';
import type { Info, Source } from '../../src/source';
import { parseTrace, type Block, type Trace } from '../../src/trace';
import { pictured } from '../mock/pictured';

// As much of a browser as the state asks for.
beforeEach(() => {
  vi.stubGlobal('window', { matchMedia: () => ({ matches: false, addEventListener() {} }), addEventListener() {} });
  vi.stubGlobal('location', { hash: '' });
  vi.stubGlobal('history', { replaceState() {} });
  vi.stubGlobal('navigator', { languages: ['en'] });
});

function traceOf(id: string, tokens = ['a']): Trace {
  return {
    id,
    model: { name: '', note: '' },
    start: {},
    source: id,
    target: '',
    steps: 0,
    axes: [{ name: 'source', tokens, pictures: null }],
    sections: [
      {
        name: 'encoder',
        queries: 0,
        keys: 0,
        layers: 1,
        heads: 1,
        causal: false,
        thumbnails: { rows: 1, columns: 1, data: new Uint8Array(1) },
        statistics: [[{ telling: 0, entropy: 0, distance: null, first: null, previous: null, same: null }]],
        rollout: false,
        vectors: null,
        pictured: false,
      },
    ],
  };
}

// A server whose blocks come when the test says so.
class SlowSource implements Source {
  readonly offline = false;
  readonly asked: { id: string; come: (block: Block) => void; fail: (error: Error) => void }[] = [];
  async info(): Promise<Info> {
    return { model: { name: '', note: '' }, directions: [], canRead: true, trace: null, beside: null, characters: 0 };
  }
  async trace(text: string): Promise<Trace> {
    return traceOf(text);
  }
  block(trace: Trace): Promise<Block> {
    return new Promise((come, fail) => this.asked.push({ id: trace.id, come, fail }));
  }
  async rows(): Promise<number[][]> {
    return [];
  }
  async vectors(): Promise<never> {
    throw new Error('there are none');
  }
}

it('asks for the weights of a new sentence while those of the last are still on their way', async () => {
  const source = new SlowSource();
  const app = new App(source);
  await app.start();
  await app.ask('first', '');
  expect(app.block(0, 0)).toBeNull();
  await app.ask('second', '');
  expect(app.block(0, 0)).toBeNull();
  expect(source.asked.map((one) => one.id)).toEqual(['first', 'second']);
  source.asked[1].come({ rows: 1, columns: 1, codes: new Uint16Array([7]) });
  await vi.waitFor(() => expect(app.block(0, 0)?.codes[0]).toBe(7));
});

it('takes no weights of the last sentence for those of a new one', async () => {
  const source = new SlowSource();
  const app = new App(source);
  await app.start();
  await app.ask('first', '');
  app.block(0, 0);
  await app.ask('second', '');
  source.asked[0].come({ rows: 1, columns: 1, codes: new Uint16Array([7]) });
  await new Promise((done) => setTimeout(done));
  expect(app.block(0, 0)).toBeNull();
});

it('does not blame a new sentence for weights of the last that did not come', async () => {
  const source = new SlowSource();
  const app = new App(source);
  await app.start();
  await app.ask('first', '');
  app.block(0, 0);
  await app.ask('second', '');
  source.asked[0].fail(new Error('gone'));
  await new Promise((done) => setTimeout(done));
  expect(app.state.error).toBeNull();
  app.block(0, 0);
  expect(source.asked.map((one) => one.id)).toEqual(['first', 'second']);
});

// Its weights depend on the token that asks, and nothing is slow.
class WordSource extends SlowSource {
  override async trace(text: string): Promise<Trace> {
    return traceOf(text, text.split(' '));
  }
  override async rows(trace?: Trace, _section?: number, query?: { from: number }): Promise<number[][]> {
    return [trace!.axes[0].tokens.map((_, k) => 100 * query!.from + k)];
  }
}

it('points at the same word of both sentences, from either side', async () => {
  const app = new App(new WordSource());
  await app.start();
  await app.ask('the old cat sleeps', '', app.state, 'the cat sleeps now');
  app.point('main', { q: 2, k: 3 }, false);
  expect(app.state.otherFocus).toEqual({ q: 1, k: 2 });
  app.point('other', { q: 0, k: 1 }, true);
  expect(app.state.focus).toEqual({ q: 0, k: 2 });
  expect(app.state.otherFocus).toEqual({ q: 0, k: 1 });
  // A word that only one of them has.
  app.point('other', { q: 3, k: null }, true);
  expect([app.state.focus, app.state.otherFocus]).toEqual([null, { q: 3, k: null }]);
  app.set({ focus: null, pinned: false }); // Esc
  expect(app.state.otherFocus).toBeNull();
});

it('writes no address while the pointer only moves', async () => {
  const app = new App(new WordSource());
  await app.start();
  await app.ask('the cat sleeps', '', app.state, 'the dog sleeps');
  const write = vi.fn();
  vi.stubGlobal('history', { replaceState: write });
  app.point('main', { q: 0, k: 0 }, false);
  app.point('other', { q: 1, k: 1 }, false);
  app.point('main', null, false);
  expect(write).not.toHaveBeenCalled();
  app.point('other', { q: 1, k: 1 }, true);
  expect(write).toHaveBeenCalled();
});

it('asks where the clicked word looks in both sentences, else the pronoun', async () => {
  const app = new App(new WordSource());
  await app.start();
  await app.ask('the old cat said it sleeps', '', app.state, 'the cat said it sleeps');
  await vi.waitFor(() => expect(app.state.rows?.query).toEqual({ from: 4, to: 5 }));
  expect(app.state.rows!.codes[0]![0]).toBe(400);
  expect(app.state.rows!.other![0]![0]).toBe(300);
  app.point('main', { q: 0, k: 2 }, true);
  await vi.waitFor(() => expect(app.state.link).toEqual([2]));
  expect(app.state.order).toEqual({ column: 'link', descending: true });
  // "old" has no partner.
  app.point('main', { q: 1, k: 2 }, true);
  await vi.waitFor(() => expect(app.state.link).toEqual([102]));
  expect(app.state.rows!.other).toBeNull();
  app.set({ focus: null, pinned: false });
  await vi.waitFor(() => expect(app.state.rows?.query.from).toBe(4));
  expect(app.state.link).toBeNull();
});

it('opens where the pronoun looks most, unless somebody named a head', async () => {
  const app = new App(new WordSource());
  await app.start();
  await app.ask('the old cat said it sleeps', '');
  expect(app.state.focus).toEqual({ q: 4, k: 2 }); // "said" is a neighbour
  expect(app.state.pinned).toBe(true);
  await app.ask('the dog said it sleeps', '');
  expect(app.state.focus).toBeNull(); // the reader's place stays
});

it('opens a picture with the mean of its heads, and a head that is chosen is alone', async () => {
  const source = new SlowSource();
  const trace = parseTrace(pictured().header);
  source.info = async () => ({ ...(await new SlowSource().info()), canRead: false, trace });
  const app = new App(source);
  await app.start();
  expect(app.state).toMatchObject({ view: 'picture', section: 2, heads: [0, 1, 2, 3] });
  expect(app.headsShown).toEqual([0, 1, 2, 3]);
  expect(app.placeName()).toMatch(/^Cross · layer \d · mean of 4 heads$/);
  // All four are asked for, and what is shown is their mean.
  expect(app.shownBlock()).toBeNull();
  expect(source.asked.length).toBe(4);
  source.asked.forEach(({ come }, head) => come({ rows: 5, columns: 6, codes: new Uint16Array(30).fill(10 * head) }));
  await vi.waitFor(() => expect(app.shownBlock()?.codes[0]).toBe(15));
  expect(app.shownBlock()).toBe(app.shownBlock()); // made once
  app.moveHead(1);
  expect(app.headsShown).toEqual([app.state.head]);
  expect(app.shownBlock()!.codes[0]).toBe(10 * app.state.head);
  // In the lines, a head that is among those shown stays among them.
  app.go({ view: 'lines', heads: [0, 1] });
  app.go({ head: 1 });
  expect(app.headsShown).toEqual([0, 1]);
  app.go({ section: 1, view: 'picture' });
  expect(app.state.view).toBe('head'); // the decoder reads words
});
