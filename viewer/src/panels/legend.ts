// SPDX-License-Identifier: Apache-2.0
// What the colours mean, and which ones are used.
import type { App, Changed } from '../app';
import { css, CURVES, paletteColor, PALETTES, weightAt, type Curve, type PaletteName } from '../color';
import { h } from '../dom';
import { largest, percent } from '../heat';

export class Legend {
  private readonly bar = h('canvas', { width: 256, height: 1, role: 'img' });
  private readonly ticks = h('div', { class: 'ticks', 'aria-hidden': 'true' });
  private readonly palette = h('select', { id: 'palette' });
  private readonly curve = h('select', { id: 'curve' });
  private readonly paletteLabel = h('label', { for: 'palette' });
  private readonly curveLabel = h('label', { for: 'curve' });
  private readonly colors = h('div', { class: 'scale' }, this.bar, this.ticks);
  private readonly paletteField = h('div', { class: 'field' }, this.paletteLabel, this.palette);
  readonly element = h(
    'div',
    { class: 'legend' },
    this.colors,
    this.paletteField,
    h('div', { class: 'field' }, this.curveLabel, this.curve),
  );

  constructor(private readonly app: App) {
    this.palette.addEventListener('change', () => app.set({ palette: this.palette.value as PaletteName }));
    this.curve.addEventListener('change', () => app.set({ curve: this.curve.value as Curve }));
  }

  private max(): number {
    const { app } = this;
    const { view, layer, head } = app.state;
    const section = app.section;
    if (!section) return 1;
    const block = view === 'grid' ? null : app.block(layer, head);
    return block ? largest(block.codes) / 65535 : largest(section.thumbnails.data) / 255;
  }

  update(changed: Changed): void {
    const { app } = this;
    if (changed.has('language')) {
      this.paletteLabel.textContent = app.t('colors');
      this.curveLabel.textContent = app.t('curve');
      this.palette.replaceChildren(...PALETTES.map((one) => h('option', { value: one }, app.t(one))));
      this.curve.replaceChildren(...CURVES.map((one) => h('option', { value: one }, app.t(one))));
    }
    // Lines are coloured by head, pictures have their own: there the scale alone matters.
    const colored = app.state.view !== 'lines' && app.state.view !== 'picture';
    this.element.hidden = app.state.view === 'qk'; // whose colours have a sign
    this.colors.hidden = !colored;
    this.paletteField.hidden = !colored;
    const { palette, curve } = app.state;
    this.palette.value = palette;
    this.curve.value = curve;
    const { dark } = app.theme;
    const max = this.max();
    const context = this.bar.getContext('2d')!;
    for (let x = 0; x < 256; ++x) {
      context.fillStyle = css(paletteColor(palette, dark, x / 255));
      context.fillRect(x, 0, 1, 1);
    }
    const places = [0, 0.25, 0.5, 0.75, 1];
    this.ticks.replaceChildren(
      ...places.map((t) => h('span', {}, percent(weightAt(t, curve, max)).replace(/\.0+ %/, ' %'))),
    );
    this.bar.setAttribute('aria-label', app.t('legend', { low: percent(0), high: percent(weightAt(1, curve, max)) }));
  }
}
