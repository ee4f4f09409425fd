// SPDX-License-Identifier: Apache-2.0
// A stand-in for `regard view`: the same addresses, traces made by formula.
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { NOTE, synthesize, tokenize, translate, type Synthetic } from './synthetic';

export interface Options {
  page?: string;
  reads?: boolean; // an encoder: it takes sentences and translates none
  trace?: Synthetic; // as if given on the command line
  beside?: Synthetic;
}

export interface Mock {
  url: string;
  log: string[]; // "POST /api/trace", ...
  forget(): void; // lets go of every trace
  close(): Promise<void>;
}

export const PAGE = fileURLToPath(new URL('../../page/index.html', import.meta.url));
const LIMIT = 60;

export async function startMock(options: Options = {}): Promise<Mock> {
  const page = readFileSync(options.page ?? PAGE, 'utf8');
  const policy = /http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(page)![1];
  const traces = new Map<string, Synthetic>();
  const log: string[] = [];
  let made = 0;
  for (const given of [options.trace, options.beside]) if (given) traces.set(given.header.id, given);

  const refuse = (response: ServerResponse, status: number, error: Record<string, unknown>) => {
    response.writeHead(status, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ error }));
  };
  const json = (response: ServerResponse, value: unknown) => {
    response.writeHead(200, { 'Content-Type': 'application/json; charset=utf-8' });
    response.end(JSON.stringify(value));
  };

  const trace = (body: string, response: ServerResponse) => {
    const { text = '', direction } = JSON.parse(body) as { text?: string; direction?: string };
    if (text.trim() === '') return refuse(response, 400, { code: 'empty', message: 'the text is empty' });
    if (text === 'be busy') return refuse(response, 503, { code: 'busy', message: 'too many requests' });
    if (text === 'break') return refuse(response, 500, { code: 'strange', message: 'something <b>unheard</b> of' });
    if (!options.reads && direction !== 'en-zh' && direction !== 'zh-en')
      return refuse(response, 400, { code: 'direction', message: 'directions: en-zh, zh-en' });
    const source = tokenize(text);
    if (source.length > LIMIT)
      return refuse(response, 413, {
        code: 'too_long',
        message: `at most ${LIMIT} tokens`,
        limit: LIMIT,
        count: source.length,
      });
    const target = options.reads ? { text: '', tokens: [] } : translate(text);
    const id = `t${++made}`;
    const built = synthesize(id, text, target.text, source, target.tokens, { layers: 4, heads: 4 });
    traces.set(id, built);
    return json(response, built.header);
  };

  // Where some queries look in every head: the mean of their rows.
  const rows = (held: Synthetic, section: number, query: URLSearchParams): Uint16Array => {
    const [q1, q2] = query.get('queries')!.split('-').map(Number);
    const { layers, heads, keys } = held.header.sections[section];
    const columns = held.header.axes[keys].tokens.length;
    const all = new Uint16Array(layers * heads * columns);
    for (let i = 0; i < layers * heads; ++i) {
      const block = held.block(section, Math.floor(i / heads), i % heads);
      for (let k = 0; k < columns; ++k) {
        let sum = 0;
        for (let q = q1; q <= q2; ++q) sum += block[q * columns + k];
        all[i * columns + k] = Math.round(sum / (q2 - q1 + 1));
      }
    }
    return all;
  };

  const weights = (what: string, query: URLSearchParams, response: ServerResponse) => {
    const held = traces.get(query.get('trace') ?? '');
    if (!held) return refuse(response, 404, { code: 'gone', message: 'no such trace' });
    const layer = query.get('layer') === 'rollout' ? 'rollout' : Number(query.get('layer'));
    const [section, head] = [Number(query.get('section')), Number(query.get('head') ?? 0)];
    const codes =
      what === 'rows'
        ? rows(held, section, query)
        : what === 'vectors'
          ? held.vectors(section, layer as number, head)
          : held.block(section, layer, head);
    response.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    return response.end(Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength));
  };

  const answer = (request: IncomingMessage, response: ServerResponse, body: string) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    log.push(`${request.method} ${url.pathname}`);
    if (url.pathname === '/') {
      response.writeHead(200, {
        'Content-Type': 'text/html; charset=utf-8',
        'Content-Security-Policy': `${policy}; frame-ancestors 'none'`,
      });
      return response.end(page);
    }
    if (url.pathname === '/api/info') {
      const can = options.reads ?? !options.trace;
      return json(response, {
        model: { name: 'mock', note: NOTE },
        directions: can && !options.reads ? ['en-zh', 'zh-en'] : [],
        can_read: can,
        beside: options.beside?.header ?? null,
        trace: options.trace && traces.has(options.trace.header.id) ? options.trace.header : null,
        limits: { characters: 2000, tokens: LIMIT },
        version: 'mock',
      });
    }
    if (url.pathname === '/api/trace' && request.method === 'POST') return trace(body, response);
    const what = /^\/api\/(weights|rows|vectors)$/.exec(url.pathname);
    if (what) return weights(what[1], url.searchParams, response);
    return refuse(response, 404, { code: 'not_found', message: 'no such address' });
  };

  const server: Server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => answer(request, response, Buffer.concat(parts).toString('utf8')));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    log,
    forget: () => traces.clear(),
    close: () =>
      new Promise((done) => {
        server.closeAllConnections();
        server.close(() => done());
      }),
  };
}
