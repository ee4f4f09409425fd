// SPDX-License-Identifier: Apache-2.0
// Pictures and numbers as files.
import type { App } from './app';
import { CanvasPen, SvgPen, type Pen, type Picture } from './pen';
import { keysOf, queriesOf, weightOf, type Block } from './trace';

const MARGIN = 28;
const TITLE = 30;
const LARGEST_SIDE = 16000; // what browsers give a canvas

// Moves what is drawn.
function moved(pen: Pen, x0: number, y0: number): Pen {
  return {
    rect: (x, y, ...rest) => pen.rect(x + x0, y + y0, ...rest),
    line: (x1, y1, x2, y2, ...rest) => pen.line(x1 + x0, y1 + y0, x2 + x0, y2 + y0, ...rest),
    curve: (x1, y1, x2, y2, ...rest) => pen.curve(x1 + x0, y1 + y0, x2 + x0, y2 + y0, ...rest),
    text: (x, y, ...rest) => pen.text(x + x0, y + y0, ...rest),
    image: (image, from, to) => pen.image(image, from, { ...to, x: to.x + x0, y: to.y + y0 }),
  };
}

export function sideBySide(left: Picture, right: Picture): Picture {
  const x = left.width + MARGIN;
  return {
    width: x + right.width,
    height: Math.max(left.height, right.height),
    paint: (pen) => {
      left.paint(pen);
      right.paint(moved(pen, x, 0));
    },
  };
}

// The picture under a title, on paper.
function titled(app: App, picture: Picture): Picture {
  const { theme } = app;
  const width = picture.width + 2 * MARGIN;
  const height = picture.height + 2 * MARGIN + TITLE;
  const title = app.state.view === 'grid' ? app.state.trace!.model.name : app.placeName();
  return {
    width,
    height,
    paint: (pen) => {
      pen.rect(0, 0, width, height, theme.paper);
      pen.text(MARGIN, MARGIN + 4, title, { fill: theme.soft, size: 14, bold: true });
      picture.paint(moved(pen, MARGIN, MARGIN + TITLE));
    },
  };
}

export function toSvg(app: App, picture: Picture): string {
  const { width, height, paint } = titled(app, picture);
  const pen = new SvgPen(width, height);
  paint(pen);
  return pen.toString();
}

export function toPng(app: App, picture: Picture): Promise<Blob | null> {
  const { width, height, paint } = titled(app, picture);
  const scale = Math.min(2, LARGEST_SIDE / width, LARGEST_SIDE / height);
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d')!;
  context.scale(scale, scale);
  paint(new CanvasPen(context));
  return new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
}

// The numbers of the head that is looked at, with its tokens.
export function toJson(app: App, block: Block): string {
  const { trace, section: index, layer, head, pair } = app.state;
  const mean = app.state.view === 'picture' && app.headsShown.length > 1;
  const section = app.section!;
  const words = app.state.words && app.hasPieces && app.state.view !== 'qk';
  const whole = !words && pair === '';
  const weights: number[][] = [];
  for (let q = 0; q < block.rows; ++q) {
    const row: number[] = [];
    for (let k = 0; k < block.columns; ++k) row.push(Number(weightOf(block.codes[q * block.columns + k]).toFixed(6)));
    weights.push(row);
  }
  return (
    JSON.stringify({
      format: 'regard-head',
      version: 1,
      model: trace!.model,
      source: trace!.source,
      target: trace!.target,
      section: section.name,
      section_index: index,
      layer,
      head: layer === 'rollout' || mean ? null : head,
      mean_of_heads: mean ? app.headsShown : null,
      statistics: layer === 'rollout' || mean ? null : section.statistics[layer][head],
      words,
      pair: pair === '' ? null : pair,
      queries: whole ? queriesOf(trace!, section) : app.queries,
      keys: whole ? keysOf(trace!, section) : app.keys,
      weights,
    }) + '\n'
  );
}

export function fileName(app: App, ending: string): string {
  const { view, layer, head } = app.state;
  const name = app.section?.name.replace(/[^\w-]+/g, '_') || 'section';
  if (view === 'grid' && ending !== 'json') return `regard-heads.${ending}`;
  if (layer === 'rollout') return `regard-${name}-rollout.${ending}`;
  const what = view === 'picture' && app.headsShown.length > 1 ? 'mean' : `head${head}`;
  return `regard-${name}-layer${layer}-${what}.${ending}`;
}

export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
