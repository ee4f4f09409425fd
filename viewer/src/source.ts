// SPDX-License-Identifier: Apache-2.0
// Where traces come from: the server that sent the page, or the page itself.
import { decodeBase64, decodeBlock, keysOf, parseTrace, queriesOf, TraceError } from './trace';
import type { Block, Layer, Model, Trace } from './trace';

export interface Info {
  model: Model;
  directions: string[];
  canTranslate: boolean;
  trace: Trace | null;
  characters: number; // 0: no limit known
}

export interface Source {
  readonly offline: boolean;
  info(): Promise<Info>;
  trace(text: string, direction: string): Promise<Trace>;
  block(trace: Trace, section: number, layer: Layer, head: number): Promise<Block>;
}

export class SourceError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly limit?: number,
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

// The trace is in the page: nothing is ever asked for.
export class PageSource implements Source {
  readonly offline = true;
  constructor(
    private readonly header: string,
    private readonly find: (id: string) => string | null,
  ) {}

  async info(): Promise<Info> {
    const trace = parseTrace(JSON.parse(this.header));
    return { model: trace.model, directions: [], canTranslate: false, trace, characters: 0 };
  }

  async trace(): Promise<Trace> {
    throw new SourceError('no_model', '');
  }

  async block(trace: Trace, section: number, layer: Layer, head: number): Promise<Block> {
    const id = layer === 'rollout' ? `regard-block-${section}-rollout` : `regard-block-${section}-${layer}-${head}`;
    const found = this.find(id);
    if (found === null) throw new SourceError('missing_block', '');
    return toBlock(trace, section, decodeBase64(found));
  }
}

type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

export class ServerSource implements Source {
  readonly offline = false;
  // How each trace was asked for, to ask again when the server has let go of it.
  private readonly asked = new WeakMap<Trace, { text: string; direction: string } | 'info'>();
  constructor(private readonly fetch: Fetch) {}

  private async ask(url: string, init?: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await this.fetch(url, init);
    } catch {
      throw new SourceError('network', '');
    }
    if (response.ok) return response;
    let error: { code?: unknown; message?: unknown; limit?: unknown } = {};
    try {
      error = ((await response.json()) as { error?: typeof error }).error ?? {};
    } catch {
      // Not JSON: the status alone must do.
    }
    const code = typeof error.code === 'string' ? error.code : 'other';
    const message = typeof error.message === 'string' ? error.message : `HTTP ${response.status}`;
    throw new SourceError(code, message, typeof error.limit === 'number' ? error.limit : undefined);
  }

  async info(): Promise<Info> {
    const json = (await (await this.ask('/api/info')).json()) as Record<string, any>;
    const trace = json.trace ? parseTrace(json.trace) : null;
    if (trace) this.asked.set(trace, 'info');
    return {
      model: { name: String(json.model?.name ?? ''), note: String(json.model?.note ?? '') },
      directions: Array.isArray(json.directions) ? json.directions.map(String) : [],
      canTranslate: json.can_translate === true,
      trace,
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
    const load = async () => {
      const place = layer === 'rollout' ? 'layer=rollout' : `layer=${layer}&head=${head}`;
      const response = await this.ask(`/api/weights?trace=${encodeURIComponent(trace.id)}&section=${section}&${place}`);
      return toBlock(trace, section, new Uint8Array(await response.arrayBuffer()));
    };
    try {
      return await load();
    } catch (error) {
      const how = this.asked.get(trace);
      if (!(error instanceof SourceError) || error.code !== 'gone' || !how) throw error;
      // Once: a second refusal is shown.
      const again = how === 'info' ? (await this.info()).trace : await this.trace(how.text, how.direction);
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
