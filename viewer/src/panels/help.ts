// SPDX-License-Identifier: Apache-2.0
import type { App } from '../app';
import { h } from '../dom';
import type { Key } from '../i18n';

const KEYS: readonly [string[], Key][] = [
  [['←', '→', '↑', '↓'], 'keyArrows'],
  [['Shift', '←→↑↓'], 'keyShift'],
  [['1', '2', '3', '4', '5'], 'keyViews'],
  [['S'], 'keySection'],
  [['R'], 'keyRollout'],
  [['W'], 'keyWords'],
  [[',', '.'], 'keyStep'],
  [['+', '−', '0'], 'keyZoom'],
  [['/'], 'keySentence'],
  [['C'], 'keyBeside'],
  [['T'], 'keyTheme'],
  [['L'], 'keyLanguage'],
  [['?'], 'keyHelp'],
  [['Esc'], 'keyEscape'],
];

export class Help {
  readonly element = h('dialog', { class: 'help', 'aria-labelledby': 'help-title' });

  constructor(private readonly app: App) {
    this.element.addEventListener('click', (event) => {
      if (event.target === this.element) this.element.close();
    });
  }

  toggle(): void {
    if (this.element.open) {
      this.element.close();
      return;
    }
    const { app } = this;
    this.element.replaceChildren(
      h(
        'div',
        { class: 'inside' },
        h('h2', { id: 'help-title' }, app.t('howToRead')),
        h('p', {}, app.t('readGrid')),
        h('p', {}, app.t('readWarning')),
        h('p', {}, h('b', {}, app.t('words')), ' ', app.t('wordsHint')),
        h('p', {}, h('b', {}, app.t('rollout')), ' ', app.t('rolloutHint')),
        h(
          'dl',
          {},
          ...KEYS.flatMap(([keys, text]) => [
            h('dt', {}, ...keys.map((key) => h('kbd', {}, key))),
            h('dd', {}, app.t(text)),
          ]),
        ),
        h(
          'div',
          { class: 'row' },
          h('button', { type: 'button', class: 'primary', click: () => this.element.close() }, app.t('close')),
        ),
      ),
    );
    this.element.showModal();
  }
}
