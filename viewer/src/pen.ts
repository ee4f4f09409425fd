// SPDX-License-Identifier: Apache-2.0
// One way to draw, two papers: a canvas (screen and PNG) and SVG.

export const SANS =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "WenQuanYi Micro Hei", sans-serif';

export interface TextStyle {
  fill: string;
  size: number;
  align?: 'left' | 'center' | 'right';
  bold?: boolean;
  rotate?: number; // degrees around the text's own point
  opacity?: number;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Pen {
  rect(x: number, y: number, width: number, height: number, fill: string, opacity?: number, radius?: number): void;
  line(x1: number, y1: number, x2: number, y2: number, stroke: string, width: number, opacity?: number): void;
  curve(x1: number, y1: number, x2: number, y2: number, stroke: string, width: number, opacity: number): void;
  // The text's middle stands on y.
  text(x: number, y: number, text: string, style: TextStyle): void;
  // The part `from` of an image, drawn into `to`.
  image(image: HTMLCanvasElement, from: Box, to: Box): void;
}

// Something that can be painted, and the room it takes.
export interface Picture {
  width: number;
  height: number;
  paint: (pen: Pen) => void;
}

// How far a curve leaves its ends level before it bends.
const bendOf = (x1: number, x2: number): number => (x2 - x1) * 0.45;

export class CanvasPen implements Pen {
  constructor(readonly context: CanvasRenderingContext2D) {}

  rect(x: number, y: number, width: number, height: number, fill: string, opacity = 1, radius = 0): void {
    const c = this.context;
    c.globalAlpha = opacity;
    c.fillStyle = fill;
    if (radius > 0) {
      c.beginPath();
      c.roundRect(x, y, width, height, radius);
      c.fill();
    } else {
      c.fillRect(x, y, width, height);
    }
    c.globalAlpha = 1;
  }

  line(x1: number, y1: number, x2: number, y2: number, stroke: string, width: number, opacity = 1): void {
    this.path(x1, y1, stroke, width, opacity, (c) => c.lineTo(x2, y2));
  }

  curve(x1: number, y1: number, x2: number, y2: number, stroke: string, width: number, opacity: number): void {
    const bend = bendOf(x1, x2);
    this.path(x1, y1, stroke, width, opacity, (c) => c.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2));
  }

  private path(
    x: number,
    y: number,
    stroke: string,
    width: number,
    opacity: number,
    draw: (context: CanvasRenderingContext2D) => void,
  ): void {
    const c = this.context;
    c.globalAlpha = opacity;
    c.strokeStyle = stroke;
    c.lineWidth = width;
    c.beginPath();
    c.moveTo(x, y);
    draw(c);
    c.stroke();
    c.globalAlpha = 1;
  }

  text(x: number, y: number, text: string, style: TextStyle): void {
    const c = this.context;
    c.save();
    c.globalAlpha = style.opacity ?? 1;
    c.font = `${style.bold ? '600 ' : ''}${style.size}px ${SANS}`;
    c.fillStyle = style.fill;
    c.textAlign = style.align ?? 'left';
    c.textBaseline = 'middle';
    c.translate(x, y);
    if (style.rotate) c.rotate((style.rotate * Math.PI) / 180);
    c.fillText(text, 0, 0);
    c.restore();
  }

  image(image: HTMLCanvasElement, from: Box, to: Box): void {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(image, from.x, from.y, from.width, from.height, to.x, to.y, to.width, to.height);
  }
}

const escape = (text: string): string =>
  text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]!);
const n = (value: number): string => String(Math.round(value * 100) / 100);

export class SvgPen implements Pen {
  private readonly parts: string[] = [];
  constructor(
    private readonly width: number,
    private readonly height: number,
  ) {}

  rect(x: number, y: number, width: number, height: number, fill: string, opacity = 1, radius = 0): void {
    const more = (opacity < 1 ? ` fill-opacity="${n(opacity)}"` : '') + (radius > 0 ? ` rx="${n(radius)}"` : '');
    this.parts.push(
      `<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" fill="${escape(fill)}"${more}/>`,
    );
  }

  line(x1: number, y1: number, x2: number, y2: number, stroke: string, width: number, opacity = 1): void {
    this.path(`M${n(x1)} ${n(y1)}L${n(x2)} ${n(y2)}`, stroke, width, opacity);
  }

  curve(x1: number, y1: number, x2: number, y2: number, stroke: string, width: number, opacity: number): void {
    const bend = bendOf(x1, x2);
    this.path(
      `M${n(x1)} ${n(y1)}C${n(x1 + bend)} ${n(y1)} ${n(x2 - bend)} ${n(y2)} ${n(x2)} ${n(y2)}`,
      stroke,
      width,
      opacity,
    );
  }

  private path(d: string, stroke: string, width: number, opacity: number): void {
    const more = opacity < 1 ? ` stroke-opacity="${n(opacity)}"` : '';
    this.parts.push(`<path d="${d}" fill="none" stroke="${escape(stroke)}" stroke-width="${n(width)}"${more}/>`);
  }

  text(x: number, y: number, text: string, style: TextStyle): void {
    const anchor = { left: 'start', center: 'middle', right: 'end' }[style.align ?? 'left'];
    const turn = style.rotate ? ` transform="rotate(${n(style.rotate)} ${n(x)} ${n(y)})"` : '';
    const more =
      (style.bold ? ' font-weight="600"' : '') +
      (style.opacity !== undefined && style.opacity < 1 ? ` fill-opacity="${n(style.opacity)}"` : '');
    this.parts.push(
      `<text x="${n(x)}" y="${n(y)}" dy="0.35em" font-size="${n(style.size)}" text-anchor="${anchor}" fill="${escape(style.fill)}"${more}${turn}>${escape(text)}</text>`,
    );
  }

  image(image: HTMLCanvasElement, from: Box, to: Box): void {
    const cut = document.createElement('canvas');
    cut.width = Math.max(1, Math.round(from.width));
    cut.height = Math.max(1, Math.round(from.height));
    const all = { x: 0, y: 0, width: cut.width, height: cut.height };
    new CanvasPen(cut.getContext('2d')!).image(image, from, all);
    this.parts.push(
      `<image x="${n(to.x)}" y="${n(to.y)}" width="${n(to.width)}" height="${n(to.height)}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${cut.toDataURL()}"/>`,
    );
  }

  toString(): string {
    const size = `width="${n(this.width)}" height="${n(this.height)}" viewBox="0 0 ${n(this.width)} ${n(this.height)}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escape(SANS)}">${this.parts.join('')}</svg>\n`;
  }
}
