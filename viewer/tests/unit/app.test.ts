// SPDX-License-Identifier: Apache-2.0
import { beforeEach, expect, it, vi } from 'vitest';
import { App } from '../../src/app';
import type { Info, Source } from '../../src/source';
import type { Block, Trace } from '../../src/trace';

// As much of a browser as the state asks for.
beforeEach(() => {
  vi.stubGlobal('window', { matchMedia: () => ({ matches: false, addEventListener() {} }), addEventListener() {} });
  vi.stubGlobal('location', { hash: '' });
  vi.stubGlobal('history', { replaceState() {} });
  vi.stubGlobal('navigator', { languages: ['en'] });
});

function traceOf(id: string): Trace {
  return {
    id,
    model: { name: '', note: '' },
    start: {},
    source: id,
    target: '',
    steps: 0,
    axes: [{ name: 'source', tokens: ['a'] }],
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
      },
    ],
  };
}

// A server whose blocks come when the test says so.
class SlowSource implements Source {
  readonly offline = false;
  readonly asked: { id: string; come: (block: Block) => void; fail: (error: Error) => void }[] = [];
  async info(): Promise<Info> {
    return { model: { name: '', note: '' }, directions: [], canTranslate: true, trace: null, characters: 0 };
  }
  async trace(text: string): Promise<Trace> {
    return traceOf(text);
  }
  block(trace: Trace): Promise<Block> {
    return new Promise((come, fail) => this.asked.push({ id: trace.id, come, fail }));
  }
  async link(): Promise<number[]> {
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
