// SPDX-License-Identifier: Apache-2.0
// Which heads of a layer are shown together.
import type { App } from '../app';
import { headColor } from '../color';
import { choose, h } from '../dom';

export class HeadChips {
  readonly element = h('div', { class: 'chips heads', role: 'group' });

  constructor(private readonly app: App) {}

  build(): void {
    const { app } = this;
    const section = app.section!;
    const { dark } = app.theme;
    const rollout = app.state.layer === 'rollout';
    this.element.hidden = rollout || section.heads === 1;
    this.element.setAttribute('aria-label', app.t('headsShown'));
    const chosen = app.headsShown;
    const chips = Array.from({ length: section.heads }, (_, head) => {
      const label = app.t('headOf', { head });
      const click = () => this.toggle(head);
      const chip = h('button', { type: 'button', class: 'chip', 'aria-label': label, click }, String(head));
      chip.style.setProperty('--chip', headColor(head, dark));
      choose(chip, chosen.includes(head));
      return chip;
    });
    const plain = (label: 'allHeads' | 'oneHead', heads: number[]) =>
      h('button', { type: 'button', class: 'chip plain', click: () => app.go({ heads }) }, app.t(label));
    this.element.replaceChildren(
      h('span', { class: 'label' }, app.t('headsShown')),
      ...chips,
      plain(
        'allHeads',
        chips.map((_, head) => head),
      ),
      plain('oneHead', []),
    );
  }

  private toggle(head: number): void {
    const { app } = this;
    const now = app.headsShown;
    const next = now.includes(head) ? now.filter((one) => one !== head) : [...now, head].sort((a, b) => a - b);
    if (next.length === 0) return;
    app.go({ heads: next.length > 1 ? next : [], head: next.includes(app.state.head) ? app.state.head : next[0] });
  }
}
