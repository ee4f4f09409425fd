// SPDX-License-Identifier: Apache-2.0
// Traces made by formula, in the format that the server sends. They look like
// attention (heads on the previous, the same, the first token, alignments), and
// each number can be computed again by a test.

export const NOTE = { en: 'made by formula, for tests', zh: '由公式生成，仅供测试' };

export interface Shape {
  layers: number;
  heads: number;
}

export interface Synthetic {
  header: Record<string, any>;
  block(section: number, layer: number | 'rollout', head: number): Uint16Array;
  vectors(section: number, layer: number, head: number): Uint16Array;
}

export const DIM = 8;

// One number of a query (side 0) or key (side 1): a multiple of 1/64 below 1, which
// half precision holds exactly.
export function vectorAt(section: number, layer: number, head: number, side: number, token: number, i: number): number {
  return Math.round(126 * noise(section, layer, head, 77 + side, token, i) - 63) / 64;
}

function toHalf(value: number): number {
  if (value === 0) return 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  const fraction = (Math.abs(value) / 2 ** exponent - 1) * 1024;
  return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | fraction;
}

function noise(...at: number[]): number {
  let x = 2166136261;
  for (const part of at) x = Math.imul(x ^ (part + 0x9e3779b9), 16777619);
  x ^= x >>> 15;
  x = Math.imul(x, 2246822519);
  x ^= x >>> 13;
  return (x >>> 0) / 4294967296;
}

// One row of weights that adds up to 1 over the keys it sees.
export function row(
  section: number,
  layer: number,
  head: number,
  q: number,
  rows: number,
  columns: number,
  causal: boolean,
): Float64Array {
  const seen = causal ? q + 1 : columns;
  const weights = new Float64Array(columns);
  const kind = (head + layer) % 5;
  const at = section === 2 ? Math.round((q * (columns - 1)) / Math.max(1, rows - 1)) : q;
  let sum = 0;
  for (let k = 0; k < seen; ++k) {
    const far = Math.abs(k - at);
    let score = noise(section, layer, head, q, k) * 1.6;
    if (kind === 0) score += far === 0 ? 4.5 : far === 1 ? 1.5 : 0;
    if (kind === 1) score += k === at - 1 ? 5 : 0;
    if (kind === 2) score += k === 0 ? 4 : 0;
    if (kind === 3) score += 3 * Math.exp(-far / (3 + layer));
    if (kind === 4 && noise(section, layer, head, k) > 0.8) score += 3.2;
    weights[k] = Math.exp(score);
    sum += weights[k];
  }
  for (let k = 0; k < seen; ++k) weights[k] /= sum;
  return weights;
}

function statistics(
  matrix: Float64Array,
  rows: number,
  columns: number,
  self: boolean,
  stride = 1,
): Record<string, number | null> {
  let entropy = 0,
    distance = 0,
    first = 0,
    previous = 0,
    same = 0,
    taken = 0;
  for (let q = 0; q < rows; q += stride, ++taken) {
    for (let k = 0; k < columns; ++k) {
      const w = matrix[q * columns + k];
      if (w > 0) entropy -= w * Math.log(w);
      distance += w * Math.abs(q - k);
      if (k === 0) first += w;
      if (k === q - 1) previous += w;
      if (k === q) same += w;
    }
  }
  return {
    entropy: entropy / taken,
    distance: self ? distance / taken : null,
    first: first / taken,
    previous: self ? previous / taken : null,
    same: self ? same / taken : null,
  };
}

// How much where a head looks depends on who asks, as docs/viewer.md has it: the mean
// over rows of the divergence from what the rows prefer together, in units of the
// largest that it can be, without the share of a token itself and its neighbours.
export function telling(matrix: Float64Array, rows: number, columns: number, self: boolean, causal: boolean): number {
  const seen = (q: number) => (causal ? q + 1 : columns);
  const liked = Array.from({ length: columns }, (_, k) => {
    let sum = 0;
    let count = 0;
    for (let q = 0; q < rows; ++q) {
      if (k >= seen(q)) continue;
      sum += matrix[q * columns + k] * seen(q);
      ++count;
    }
    return sum / count;
  });
  let divergence = 0;
  let near = 0;
  for (let q = 0; q < rows; ++q) {
    const all = liked.slice(0, seen(q)).reduce((a, b) => a + b, 0);
    for (let k = 0; k < seen(q); ++k) {
      const w = matrix[q * columns + k];
      if (w > 0) divergence += w * Math.log(w / (liked[k] / all));
      if (self && Math.abs(q - k) <= 1) near += w;
    }
  }
  return columns < 2 ? 0 : (divergence / rows / Math.log(columns)) * (1 - near / rows);
}

function thumbnail(matrix: Float64Array, rows: number, columns: number, r: number, c: number): Uint8Array {
  const small = new Uint8Array(r * c);
  for (let q = 0; q < rows; ++q) {
    for (let k = 0; k < columns; ++k) {
      const at = Math.floor((q * r) / rows) * c + Math.floor((k * c) / columns);
      small[at] = Math.max(small[at], Math.round(255 * matrix[q * columns + k]));
    }
  }
  return small;
}

export const toCodes = (matrix: ArrayLike<number>): Uint16Array =>
  Uint16Array.from(matrix as number[], (w) => Math.round(w * 65535));

// targetTokens: the piece that each step read, "<s>" first. As the server does it, a
// row is named by the piece that its step wrote.
export function synthesize(
  id: string,
  source: string,
  target: string,
  sourceTokens: string[],
  targetTokens: string[],
  shape: Shape,
): Synthetic {
  const written = targetTokens.length ? [...targetTokens.slice(1), '</s>'] : [];
  const axes = [
    { name: 'source', tokens: sourceTokens },
    { name: 'target', tokens: written },
    { name: 'read', tokens: targetTokens },
  ];
  const plan =
    targetTokens.length === 0
      ? [{ name: 'encoder', queries: 0, keys: 0, causal: false }]
      : [
          { name: 'encoder', queries: 0, keys: 0, causal: false },
          { name: 'decoder', queries: 1, keys: 2, causal: true },
          { name: 'cross', queries: 1, keys: 0, causal: false },
        ];
  const { layers, heads } = shape;
  const matrix = (section: number, layer: number, head: number): Float64Array => {
    const rows = axes[plan[section].queries].tokens.length;
    const columns = axes[plan[section].keys].tokens.length;
    const all = new Float64Array(rows * columns);
    for (let q = 0; q < rows; ++q)
      all.set(row(section, layer, head, q, rows, columns, plan[section].causal), q * columns);
    return all;
  };
  const sections = plan.map((one, index) => {
    const rows = axes[one.queries].tokens.length;
    const columns = axes[one.keys].tokens.length;
    const r = Math.min(48, rows);
    const c = Math.min(48, columns);
    const data = new Uint8Array(layers * heads * r * c);
    const table: Record<string, number | null>[][] = [];
    for (let layer = 0; layer < layers; ++layer) {
      table.push([]);
      for (let head = 0; head < heads; ++head) {
        const all = matrix(index, layer, head);
        data.set(thumbnail(all, rows, columns, r, c), (layer * heads + head) * r * c);
        const self = one.name !== 'cross';
        table[layer].push({
          ...statistics(all, rows, columns, self),
          telling: telling(all, rows, columns, self, one.causal),
        });
      }
    }
    return {
      ...one,
      layers,
      heads,
      thumbnails: { rows: r, columns: c, data: Buffer.from(data).toString('base64') },
      statistics: table,
      rollout: one.name !== 'cross',
      vectors: { dim: DIM, scale: 1 / Math.sqrt(DIM) },
    };
  });
  const vectors = (section: number, layer: number, head: number): Uint16Array => {
    const counts = [axes[plan[section].queries].tokens.length, axes[plan[section].keys].tokens.length];
    return Uint16Array.from(
      counts.flatMap((count, side) =>
        Array.from({ length: count * DIM }, (_, i) =>
          toHalf(vectorAt(section, layer, head, side, Math.floor(i / DIM), i % DIM)),
        ),
      ),
    );
  };
  const rollout = (section: number): Float64Array => {
    const n = axes[plan[section].queries].tokens.length;
    let product: Float64Array | null = null;
    for (let layer = 0; layer < layers; ++layer) {
      const mean = new Float64Array(n * n);
      for (let head = 0; head < heads; ++head) matrix(section, layer, head).forEach((w, i) => (mean[i] += w / heads));
      for (let i = 0; i < mean.length; ++i) mean[i] = (mean[i] + (i % (n + 1) === 0 ? 1 : 0)) / 2;
      if (!product) {
        product = mean;
        continue;
      }
      const next = new Float64Array(n * n);
      for (let i = 0; i < n; ++i)
        for (let j = 0; j < n; ++j) for (let k = 0; k < n; ++k) next[i * n + k] += mean[i * n + j] * product[j * n + k];
      product = next;
    }
    return product!;
  };
  return {
    header: {
      format: 'regard-trace',
      version: 1,
      id,
      model: { name: 'mock', note: NOTE },
      source,
      target,
      steps: targetTokens.length,
      axes: targetTokens.length ? axes : [axes[0]],
      sections,
    },
    block: (section, layer, head) => toCodes(layer === 'rollout' ? rollout(section) : matrix(section, layer, head)),
    vectors,
  };
}

// Many tokens, layers and heads, in a second: no exponentials, all layers alike, and
// statistics of every 25th row.
export function longTrace(tokens: number, layers: number, heads: number): Synthetic {
  const matrix = (head: number): Float64Array => {
    const all = new Float64Array(tokens * tokens);
    const reach = 2 + 9 * head;
    const stripe = 3 + ((head * 7) % 40);
    for (let q = 0; q < tokens; ++q) {
      let sum = 0;
      for (let k = 0; k < tokens; ++k) {
        const far = Math.abs(k - q + (head % 3));
        const w =
          reach / (reach + far * far) + (k % stripe === 0 ? 0.02 * (head % 4) : 0) + (k === 0 ? 0.7 * (head % 5) : 0);
        all[q * tokens + k] = w;
        sum += w;
      }
      for (let k = 0; k < tokens; ++k) all[q * tokens + k] /= sum;
    }
    return all;
  };
  const side = Math.min(48, tokens);
  const data = new Uint8Array(layers * heads * side * side);
  const table: Record<string, number | null>[][] = [];
  const row = Array.from({ length: heads }, (_, head) => {
    const all = matrix(head);
    data.set(thumbnail(all, tokens, tokens, side, side), head * side * side);
    return statistics(all, tokens, tokens, true, 25);
  });
  for (let layer = 0; layer < layers; ++layer) {
    data.copyWithin(layer * heads * side * side, 0, heads * side * side);
    table.push(row);
  }
  const section = {
    name: 'encoder',
    queries: 0,
    keys: 0,
    causal: false,
    layers,
    heads,
    rollout: false,
    statistics: table,
    thumbnails: { rows: side, columns: side, data: Buffer.from(data).toString('base64') },
  };
  const axes = [{ name: 'source', tokens: Array.from({ length: tokens }, (_, i) => `▁word${i}`) }];
  return {
    header: {
      format: 'regard-trace',
      version: 1,
      id: 'long',
      model: { name: 'mock', note: 'made by formula, for tests' },
      source: 'a long text',
      target: '',
      steps: 0,
      axes,
      sections: [section],
    },
    block: (_section, _layer, head) => toCodes(matrix(head)),
    vectors: () => new Uint16Array(),
  };
}

const KNOWN: Readonly<Record<string, [string[], string]>> = {
  'The cat sat on the mat because it was tired.': [
    ['<s>', '▁那只', '猫', '坐', '在', '垫子', '上', '，', '因为', '它', '累', '了', '。'],
    '那只猫坐在垫子上，因为它累了。',
  ],
  '我喜欢在下雨天读书。': [
    ['<s>', '▁I', '▁like', '▁reading', '▁on', '▁rain', 'y', '▁days', '.'],
    'I like reading on rainy days.',
  ],
};

export function tokenize(text: string): string[] {
  const tokens: string[] = [];
  for (const part of text.match(/[\u4e00-\u9fff]|[A-Za-z']+|\d+|\S/g) ?? []) {
    if (/^[A-Za-z']+$/.test(part) && part.length > 7) tokens.push('▁' + part.slice(0, 5), part.slice(5));
    else tokens.push(/^[A-Za-z0-9']+$/.test(part) ? '▁' + part : part);
  }
  return [...tokens, '</s>'];
}

export function translate(text: string): { tokens: string[]; text: string } {
  const known = KNOWN[text];
  if (known) return { tokens: known[0], text: known[1] };
  const tokens = tokenize(text).slice(0, -1).reverse();
  return { tokens: ['<s>', ...tokens], text: tokens.join('').replace(/▁/g, ' ').trim() };
}

// The one page, with a trace inside, as `regard view --export` writes it.
export function exported(page: string, trace: Synthetic, beside?: Synthetic): string {
  const parts = [...elements(trace, 'regard-'), ...(beside ? elements(beside, 'regard-beside-') : [])];
  return page.replace('<!--regard-trace-->', () => parts.join('\n'));
}

function elements(trace: Synthetic, prefix: string): string[] {
  const header = JSON.stringify({ ...trace.header, id: '' }).replace(/<\//g, '<\\/');
  const parts = [`<script type="application/json" id="${prefix}trace">${header}</script>`];
  const base64 = (codes: Uint16Array) =>
    Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength).toString('base64');
  const plain = (id: string, codes: Uint16Array) =>
    parts.push(`<script type="text/plain" id="${prefix}${id}">${base64(codes)}</script>`);
  (trace.header.sections as { layers: number; heads: number; rollout: boolean; vectors?: unknown }[]).forEach(
    (section, s) => {
      for (let layer = 0; layer < section.layers; ++layer) {
        for (let head = 0; head < section.heads; ++head) {
          plain(`block-${s}-${layer}-${head}`, trace.block(s, layer, head));
          if (section.vectors) plain(`vectors-${s}-${layer}-${head}`, trace.vectors(s, layer, head));
        }
      }
      if (section.rollout) plain(`block-${s}-rollout`, trace.block(s, 'rollout', 0));
    },
  );
  return parts;
}
