// SPDX-License-Identifier: Apache-2.0
// The trace: what a model looked at for one input. See docs/viewer.md.

export interface HeadStatistics {
  telling: number | null; // from 0: looks everywhere, or always at one place
  entropy: number | null;
  distance: number | null;
  first: number | null;
  previous: number | null;
  same: number | null;
}

export interface Section {
  name: string;
  queries: number; // index into axes
  keys: number;
  layers: number;
  heads: number;
  causal: boolean;
  thumbnails: { rows: number; columns: number; data: Uint8Array }; // [layers][heads][rows][columns]
  statistics: HeadStatistics[][];
  rollout: boolean;
  vectors: { dim: number; scale: number } | null; // of its queries and keys, where they can be had
  pictured: boolean; // its keys are places of pictures
}

// Pictures whose places are the tokens of an axis: picture by picture, row by row.
export interface Pictures {
  rows: number;
  columns: number;
  images: string[]; // addresses that hold a PNG file
}

export interface Axis {
  name: string;
  tokens: string[];
  pictures: Pictures | null;
}

export interface Model {
  name: string;
  note: string | Readonly<Record<string, string>>; // one line, or one in each language
}

// Where the page opens; what is not said is the page's to choose.
export interface Start {
  section?: number;
  layer?: number;
  head?: number;
}

export interface Trace {
  id: string;
  model: Model;
  start: Start;
  source: string;
  target: string;
  steps: number;
  axes: Axis[];
  sections: Section[];
}

// The weights of one head: rows x columns, row major, weight = code / 65535.
export interface Block {
  rows: number;
  columns: number;
  codes: Uint16Array;
}

// The queries and keys of one head, [rows, dim] and [columns, dim]. The score of a
// pair is scale * the sum of their products; softmax makes it a weight.
export interface Vectors {
  dim: number;
  scale: number;
  queries: Float32Array;
  keys: Float32Array;
}

// A layer's number, or the product over all layers.
export type Layer = number | 'rollout';

export class TraceError extends Error {}

export function decodeBase64(text: string): Uint8Array {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

export function decodeBlock(bytes: Uint8Array, rows: number, columns: number): Block {
  if (bytes.length !== 2 * rows * columns) {
    throw new TraceError(`block: ${rows} x ${columns} weights take ${2 * rows * columns} bytes; ${bytes.length} came`);
  }
  const codes = new Uint16Array(rows * columns);
  for (let i = 0; i < codes.length; ++i) codes[i] = bytes[2 * i] | (bytes[2 * i + 1] << 8);
  return { rows, columns, codes };
}

// IEEE half precision; not every browser reads it by itself.
export function halfOf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

// Half precision, little endian: all queries, then all keys.
export function decodeVectors(
  bytes: Uint8Array,
  { dim, scale }: { dim: number; scale: number },
  rows: number,
  columns: number,
): Vectors {
  const wanted = 2 * (rows + columns) * dim;
  if (bytes.length !== wanted) {
    throw new TraceError(`vectors: ${rows} + ${columns} of ${dim} take ${wanted} bytes; ${bytes.length} came`);
  }
  const all = Float32Array.from({ length: wanted / 2 }, (_, i) => halfOf(bytes[2 * i] | (bytes[2 * i + 1] << 8)));
  return { dim, scale, queries: all.subarray(0, rows * dim), keys: all.subarray(rows * dim) };
}

export const weightOf = (code: number): number => code / 65535;

type Json = Record<string, unknown>;

function fail(rule: string): never {
  throw new TraceError(`trace: ${rule}`);
}
function object(value: unknown, name: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) fail(`${name} must be an object`);
  return value as Json;
}
function list(value: unknown, name: string): unknown[] {
  if (!Array.isArray(value)) fail(`${name} must be a list`);
  return value as unknown[];
}
function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
function count(value: unknown, name: string, limit: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > limit) {
    fail(`${name} must be a whole number from 0 to ${limit}`);
  }
  return value as number;
}
function figure(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function parseSection(value: unknown, name: string, axes: number): Section {
  const json = object(value, name);
  const layers = count(json.layers, `${name}.layers`, 10_000);
  const heads = count(json.heads, `${name}.heads`, 10_000);
  if (layers === 0 || heads === 0) fail(`${name} must have layers and heads`);
  const small = object(json.thumbnails, `${name}.thumbnails`);
  const rows = count(small.rows, `${name}.thumbnails.rows`, 48);
  const columns = count(small.columns, `${name}.thumbnails.columns`, 48);
  const data = decodeBase64(text(small.data));
  if (data.length !== layers * heads * rows * columns) {
    fail(`${name}.thumbnails must hold ${layers * heads * rows * columns} bytes; ${data.length} came`);
  }
  const given = Array.isArray(json.statistics) ? json.statistics : [];
  const statistics: HeadStatistics[][] = [];
  for (let layer = 0; layer < layers; ++layer) {
    const row: HeadStatistics[] = [];
    for (let head = 0; head < heads; ++head) {
      const one = (given[layer]?.[head] ?? {}) as Json;
      row.push({
        telling: figure(one.telling),
        entropy: figure(one.entropy),
        distance: figure(one.distance),
        first: figure(one.first),
        previous: figure(one.previous),
        same: figure(one.same),
      });
    }
    statistics.push(row);
  }
  return {
    name: text(json.name),
    queries: count(json.queries, `${name}.queries`, axes - 1),
    keys: count(json.keys, `${name}.keys`, axes - 1),
    layers,
    heads,
    causal: json.causal === true,
    thumbnails: { rows, columns, data },
    statistics,
    rollout: json.rollout === true,
    vectors: parseVectors(json.vectors, `${name}.vectors`),
    pictured: false,
  };
}

function parseAxis(value: unknown, name: string): Axis {
  const axis = object(value, name);
  const tokens = list(axis.tokens, `${name}.tokens`).map(text);
  if (axis.pictures === undefined || axis.pictures === null) return { name: text(axis.name), tokens, pictures: null };
  const json = object(axis.pictures, `${name}.pictures`);
  const rows = count(json.rows, `${name}.pictures.rows`, 1024);
  const columns = count(json.columns, `${name}.pictures.columns`, 1024);
  const images = list(json.images, `${name}.pictures.images`).map((image) => {
    if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text(image))) fail(`${name}.pictures.images must be in base64`);
    return `data:image/png;base64,${text(image)}`;
  });
  if (rows * columns * images.length !== tokens.length)
    fail(`${name}.pictures must have ${tokens.length} places; there are ${rows * columns * images.length}`);
  return { name: text(axis.name), tokens, pictures: { rows, columns, images } };
}

function parseVectors(value: unknown, name: string): Section['vectors'] {
  if (value === undefined || value === null) return null;
  const json = object(value, name);
  const scale = figure(json.scale);
  if (scale === null) fail(`${name}.scale must be a number`);
  return { dim: count(json.dim, `${name}.dim`, 65536), scale: scale as number };
}

function parseNote(value: unknown): Model['note'] {
  if (typeof value !== 'object' || value === null) return text(value);
  return Object.fromEntries(Object.entries(value).map(([language, line]) => [language, text(line)]));
}

export const parseModel = (json: Record<string, unknown>): Model => ({
  name: text(json.name),
  note: parseNote(json.note),
});

function parseStart(value: unknown): Start {
  const json = object(value ?? {}, 'start');
  const start: Start = {};
  for (const key of ['section', 'layer', 'head'] as const)
    if (json[key] !== undefined && json[key] !== null) start[key] = count(json[key], `start.${key}`, 10_000);
  return start;
}

export function parseTrace(value: unknown): Trace {
  const json = object(value, 'header');
  if (json.format !== 'regard-trace') fail('format must be "regard-trace"');
  if (json.version !== 1) fail(`this page reads version 1; version ${String(json.version)} came`);
  const axes = list(json.axes, 'axes').map((entry, i) => parseAxis(entry, `axes[${i}]`));
  const sections = list(json.sections, 'sections').map((entry, i) =>
    parseSection(entry, `sections[${i}]`, axes.length),
  );
  if (sections.length === 0) fail('sections must not be empty');
  for (const section of sections) section.pictured = axes[section.keys].pictures !== null;
  const model = object(json.model ?? {}, 'model');
  return {
    id: text(json.id),
    model: parseModel(model),
    start: parseStart(json.start),
    source: text(json.source),
    target: text(json.target),
    steps: count(json.steps ?? 0, 'steps', 1_000_000),
    axes,
    sections,
  };
}

export const queriesOf = (trace: Trace, section: Section): string[] => trace.axes[section.queries].tokens;
export const keysOf = (trace: Trace, section: Section): string[] => trace.axes[section.keys].tokens;

// An axis that grew token by token follows the slider of steps.
export function isStepped(trace: Trace, axis: number): boolean {
  const { name, tokens } = trace.axes[axis];
  return trace.steps > 0 && name !== 'source' && tokens.length === trace.steps;
}

// How many queries the chosen step shows. Step 0 means all.
export function shownRows(trace: Trace, section: Section, step: number): number {
  const rows = queriesOf(trace, section).length;
  return step > 0 && isStepped(trace, section.queries) ? Math.min(step, rows) : rows;
}
