// SPDX-License-Identifier: Apache-2.0
// Where traces come from: the server that sent the page, or the page itself.
import type { Rows } from './finds';
import type { Group } from './tokens';
import {
  decodeBase64,
  decodeBlock,
  decodeVectors,
  keysOf,
  parseModel,
  parseTrace,
  queriesOf,
  TraceError,
} from './trace';
import type { Block, Layer, Model, Trace, Vectors } from './trace';

export interface Info {
  model: Model;
  directions: string[];
  canRead: boolean; // there is a model that takes sentences
  trace: Trace | null;
  beside: Trace | null; // of another text, compared with the first
  characters: number; // 0: no limit known
}

export interface Source {
  readonly offline: boolean;
  info(): Promise<Info>;
  trace(text: string, direction: string): Promise<Trace>;
  block(trace: Trace, section: number, layer: Layer, head: number): Promise<Block>;
  // Where a query looks in every head, [layers, heads] rows of codes; null where a
  // file does not hold it.
  rows(trace: Trace, section: number, query: Group): Promise<Rows>;
  vectors(trace: Trace, section: number, layer: number, head: number): Promise<Vectors>;
}

export class SourceError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly limit?: number,
    readonly count?: number, // what came, where there is a limit
  ) {
    super(message);
  }
}

// Keeps what was used last, up to so many bytes, and always the newest one.
export class BlockCache {
  private readonly held = new Map<string, Block>();
  private bytes = 0;
  constructor(private readonly limit: number) {}

  get(key: string): Block | undefined {
    const block = this.held.get(key);
    if (block) {
      this.held.delete(key);
      this.held.set(key, block);
    }
    return block;
  }

  put(key: string, block: Block): void {
    const old = this.held.get(key);
    if (old) this.bytes -= old.codes.byteLength;
    this.held.delete(key);
    this.held.set(key, block);
    this.bytes += block.codes.byteLength;
    for (const [name, one] of this.held) {
      if (this.bytes <= this.limit || name === key) break;
      this.held.delete(name);
      this.bytes -= one.codes.byteLength;
    }
  }

  clear(): void {
    this.held.clear();
    this.bytes = 0;
  }

  get size(): number {
    return this.held.size;
  }
}

function toBlock(trace: Trace, section: number, bytes: Uint8Array): Block {
  const one = trace.sections[section];
  return decodeBlock(bytes, queriesOf(trace, one).length, keysOf(trace, one).length);
}

function toVectors(trace: Trace, section: number, bytes: Uint8Array): Vectors {
  const one = trace.sections[section];
  return decodeVectors(bytes, one.vectors!, queriesOf(trace, one).length, keysOf(trace, one).length);
}

// Some codes of a block in base64, without the others.
function codesIn(base64: string, from: number, count: number): Uint16Array {
  const group = Math.floor((2 * from) / 3); // of three bytes
  const bytes = decodeBase64(base64.slice(4 * group, 4 * Math.ceil((2 * (from + count)) / 3)));
  const skip = 2 * from - 3 * group;
  return decodeBlock(bytes.subarray(skip, skip + 2 * count), 1, count).codes;
}

// The mean of some rows.
function meanOf(rows: readonly Uint16Array[]): Uint16Array {
  if (rows.length === 1) return rows[0];
  return rows[0].map((_, k) => Math.round(rows.reduce((sum, row) => sum + row[k], 0) / rows.length));
}

// The trace is in the page: nothing is ever asked for.
export class PageSource implements Source {
  readonly offline = true;
  private beside: Trace | null = null;
  constructor(
    private readonly header: string,
    private readonly find: (id: string) => string | null,
  ) {}

  async info(): Promise<Info> {
    const trace = parseTrace(JSON.parse(this.header));
    const beside = this.find('regard-beside-trace');
    this.beside = beside === null ? null : parseTrace(JSON.parse(beside));
    return { model: trace.model, directions: [], canRead: false, trace, beside: this.beside, characters: 0 };
  }

  private part(trace: Trace, name: string): string | null {
    return this.find(`regard-${trace === this.beside ? 'beside-' : ''}${name}`)?.trim() ?? null;
  }

  async trace(): Promise<Trace> {
    throw new SourceError('no_model', '');
  }

  async block(trace: Trace, section: number, layer: Layer, head: number): Promise<Block> {
    const found = this.part(trace, `block-${section}-${layer === 'rollout' ? layer : `${layer}-${head}`}`);
    if (found === null) throw new SourceError('missing_block', '');
    return toBlock(trace, section, decodeBase64(found));
  }

  async rows(trace: Trace, section: number, { from, to }: Group): Promise<Rows> {
    const { layers, heads, keys } = trace.sections[section];
    const columns = trace.axes[keys].tokens.length;
    return Array.from({ length: layers * heads }, (_, i) => {
      const found = this.part(trace, `block-${section}-${Math.floor(i / heads)}-${i % heads}`);
      if (found === null) return null;
      return meanOf(Array.from({ length: to - from }, (_, q) => codesIn(found, (from + q) * columns, columns)));
    });
  }

  async vectors(trace: Trace, section: number, layer: number, head: number): Promise<Vectors> {
    const found = this.part(trace, `vectors-${section}-${layer}-${head}`);
    if (found === null) throw new SourceError('missing_block', '');
    return toVectors(trace, section, decodeBase64(found));
  }
}

type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

export class ServerSource implements Source {
  readonly offline = false;
  // How each trace was asked for, to ask again when the server has let go of it.
  private readonly asked = new WeakMap<Trace, { text: string; direction: string } | 'trace' | 'beside'>();
  constructor(private readonly fetch: Fetch) {}

  private async ask(url: string, init?: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await this.fetch(url, init);
    } catch {
      throw new SourceError('network', '');
    }
    if (response.ok) return response;
    let error: { code?: unknown; message?: unknown; limit?: unknown; count?: unknown } = {};
    try {
      error = ((await response.json()) as { error?: typeof error }).error ?? {};
    } catch {
      // Not JSON: the status alone must do.
    }
    const code = typeof error.code === 'string' ? error.code : 'other';
    const message = typeof error.message === 'string' ? error.message : `HTTP ${response.status}`;
    const number = (value: unknown) => (typeof value === 'number' ? value : undefined);
    throw new SourceError(code, message, number(error.limit), number(error.count));
  }

  async info(): Promise<Info> {
    const json = (await (await this.ask('/api/info')).json()) as Record<string, any>;
    const given = (name: 'trace' | 'beside') => {
      const trace = json[name] ? parseTrace(json[name]) : null;
      if (trace) this.asked.set(trace, name);
      return trace;
    };
    return {
      model: parseModel(json.model ?? {}),
      directions: Array.isArray(json.directions) ? json.directions.map(String) : [],
      canRead: json.can_read === true,
      trace: given('trace'),
      beside: given('beside'),
      characters: Number(json.limits?.characters) || 0,
    };
  }

  async trace(text: string, direction: string): Promise<Trace> {
    const response = await this.ask('/api/trace', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(direction === '' ? { text } : { text, direction }),
    });
    const trace = parseTrace(await response.json());
    this.asked.set(trace, { text, direction });
    return trace;
  }

  async block(trace: Trace, section: number, layer: Layer, head: number): Promise<Block> {
    const place = layer === 'rollout' ? 'layer=rollout' : `layer=${layer}&head=${head}`;
    return toBlock(trace, section, await this.bytes(trace, section, 'weights', place));
  }

  async rows(trace: Trace, section: number, { from, to }: Group): Promise<Rows> {
    const bytes = await this.bytes(trace, section, 'rows', `queries=${from}-${to - 1}`);
    const { layers, heads, keys } = trace.sections[section];
    const columns = trace.axes[keys].tokens.length;
    const { codes } = decodeBlock(bytes, layers * heads, columns);
    return Array.from({ length: layers * heads }, (_, i) => codes.subarray(i * columns, (i + 1) * columns));
  }

  async vectors(trace: Trace, section: number, layer: number, head: number): Promise<Vectors> {
    return toVectors(trace, section, await this.bytes(trace, section, 'vectors', `layer=${layer}&head=${head}`));
  }

  private async bytes(trace: Trace, section: number, what: string, place: string): Promise<Uint8Array> {
    const load = async () => {
      const url = `/api/${what}?trace=${encodeURIComponent(trace.id)}&section=${section}&${place}`;
      return new Uint8Array(await (await this.ask(url)).arrayBuffer());
    };
    try {
      return await load();
    } catch (error) {
      const how = this.asked.get(trace);
      if (!(error instanceof SourceError) || error.code !== 'gone' || !how) throw error;
      // Once: a second refusal is shown.
      const again = typeof how === 'string' ? (await this.info())[how] : await this.trace(how.text, how.direction);
      if (!again) throw error;
      trace.id = again.id;
      return load();
    }
  }
}

export function findSource(page: Document): Source {
  const header = page.getElementById('regard-trace');
  if (header) return new PageSource(header.textContent ?? '', (id) => page.getElementById(id)?.textContent ?? null);
  return new ServerSource((url, init) => fetch(url, init));
}

export function asSourceError(error: unknown): SourceError {
  if (error instanceof SourceError) return error;
  if (error instanceof TraceError || error instanceof SyntaxError) return new SourceError('trace', error.message);
  return new SourceError('other', error instanceof Error ? error.message : String(error));
}
