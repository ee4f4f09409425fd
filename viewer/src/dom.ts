// SPDX-License-Identifier: Apache-2.0
// Elements made without HTML text, so that no token can become markup.

type Attributes = Record<string, string | number | boolean | ((event: never) => void)>;
type Child = Node | string | null | false;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value as unknown as EventListener);
    else if (typeof value === 'boolean') element.toggleAttribute(name, value);
    else element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

// A chosen one of several: the pressed state is told to everyone, not only shown.
export function choose(element: Element, on: boolean): void {
  element.setAttribute('aria-pressed', String(on));
}

// Sizes a canvas for the screen's pixels and returns a context in CSS pixels.
export function fitCanvas(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * ratio));
  const hgt = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== hgt) {
    canvas.width = w;
    canvas.height = hgt;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`regard.${key}`, value);
  } catch {
    // A page in a frame or from a file may have no storage.
  }
}

export function recall(key: string): string | null {
  try {
    return localStorage.getItem(`regard.${key}`);
  } catch {
    return null;
  }
}
