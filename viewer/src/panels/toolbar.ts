// SPDX-License-Identifier: Apache-2.0
// Which attention, which view, which head; zoom and files.
import type { App, Changed } from '../app';
import { choose, h } from '../dom';
import type { Key } from '../i18n';
import { PAIRS } from '../lens';
import { VIEWS } from '../permalink';

export interface Actions {
  zoom(by: number): void; // 0: show all
  save(kind: 'png' | 'svg' | 'json'): void;
  copyLink(): void;
}

class Stepper {
  private readonly back = h('button', { type: 'button', class: 'round' }, '‹');
  private readonly on = h('button', { type: 'button', class: 'round' }, '›');
  private readonly text = h('span', { class: 'value' });
  readonly element = h('div', { class: 'stepper', role: 'group' }, this.back, this.text, this.on);

  constructor(
    private readonly app: App,
    move: (by: number) => void,
    private readonly labels: [Key, Key],
  ) {
    this.back.addEventListener('click', () => move(-1));
    this.on.addEventListener('click', () => move(1));
  }

  show(text: string): void {
    this.text.textContent = text;
    this.element.setAttribute('aria-label', text);
    this.back.setAttribute('aria-label', this.app.t(this.labels[0]));
    this.on.setAttribute('aria-label', this.app.t(this.labels[1]));
  }
}

export class Toolbar {
  private readonly views = h('div', { class: 'segments views', role: 'group' });
  private readonly sections = h('div', { class: 'segments', role: 'group' });
  private readonly layer: Stepper;
  private readonly head: Stepper;
  private readonly rollout = h('button', { type: 'button', class: 'chip plain' });
  private readonly words = h('button', { type: 'button', class: 'chip plain' });
  private readonly pair = h('div', { class: 'segments pair', role: 'group' });
  private readonly zoom = h('div', { class: 'segments zoom', role: 'group' });
  private readonly summary = h('summary');
  private readonly menu = h('div', { class: 'menu' });
  private readonly save = h('details', { class: 'save' }, this.summary, this.menu);
  readonly element: HTMLElement;

  constructor(
    private readonly app: App,
    private readonly actions: Actions,
  ) {
    this.layer = new Stepper(app, (by) => app.moveLayer(by), ['previousLayer', 'nextLayer']);
    this.head = new Stepper(app, (by) => app.moveHead(by), ['previousHead', 'nextHead']);
    this.rollout.addEventListener('click', () => app.toggleRollout());
    this.words.addEventListener('click', () => this.toggleWords());
    this.element = h(
      'div',
      { class: 'toolbar' },
      this.views,
      this.sections,
      this.layer.element,
      this.head.element,
      this.rollout,
      this.words,
      this.pair,
      h('span', { class: 'spring' }),
      this.zoom,
      this.save,
    );
    document.addEventListener('click', (event) => {
      if (this.save.open && !this.save.contains(event.target as Node)) this.save.open = false;
    });
    this.save.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.save.open = false;
    });
  }

  toggleWords(): void {
    const { app } = this;
    if (app.state.trace && app.hasPieces) app.go({ words: !app.state.words });
  }

  private build(): void {
    const { app } = this;
    this.views.setAttribute('aria-label', app.t('view'));
    this.views.replaceChildren(
      ...VIEWS.map((view, i) =>
        h(
          'button',
          { type: 'button', 'data-view': view, title: String(i + 1), click: () => app.go({ view }) },
          app.t(view),
        ),
      ),
    );
    this.sections.setAttribute('aria-label', app.t('section'));
    const sections = app.state.trace?.sections ?? [];
    this.sections.hidden = sections.length < 2;
    this.sections.replaceChildren(
      ...sections.map((section, i) =>
        h('button', { type: 'button', click: () => app.go({ section: i }) }, app.sectionName(section)),
      ),
    );
    this.rollout.textContent = app.t('rollout');
    this.rollout.title = app.t('rolloutHint');
    this.words.textContent = app.t('words');
    this.words.title = app.t('wordsHint');
    this.pair.setAttribute('aria-label', app.t('pair'));
    this.pair.title = app.t('pairHint');
    this.pair.replaceChildren(
      ...PAIRS.map((pair) =>
        h(
          'button',
          { type: 'button', 'data-pair': pair, click: () => app.go({ pair }) },
          pair === '' ? app.t('pairAll') : pair.split('').join(' → '),
        ),
      ),
    );
    this.zoom.setAttribute('aria-label', app.t('zoom'));
    const zoom = (text: string, label: Key, by: number) =>
      h(
        'button',
        { type: 'button', 'aria-label': app.t(label), title: app.t(label), click: () => this.actions.zoom(by) },
        text,
      );
    this.zoom.replaceChildren(zoom('−', 'zoomOut', -1), zoom('⤢', 'zoomFit', 0), zoom('+', 'zoomIn', 1));
    this.summary.textContent = app.t('export');
    const item = (label: Key, act: () => void) =>
      h(
        'button',
        {
          type: 'button',
          click: () => {
            this.save.open = false;
            act();
          },
        },
        app.t(label),
      );
    this.menu.replaceChildren(
      item('savePng', () => this.actions.save('png')),
      item('saveSvg', () => this.actions.save('svg')),
      item('saveJson', () => this.actions.save('json')),
      item('copyLink', () => this.actions.copyLink()),
    );
  }

  update(changed: Changed): void {
    const { app } = this;
    const { trace, view, section, layer, head } = app.state;
    this.element.hidden = !trace;
    if (!trace) return;
    if (changed.has('trace') || changed.has('language')) this.build();
    VIEWS.forEach((one, i) => choose(this.views.children[i], one === view));
    (this.views.children[VIEWS.indexOf('qk')] as HTMLElement).hidden = !app.section!.vectors;
    (this.views.children[VIEWS.indexOf('picture')] as HTMLElement).hidden = !app.section!.pictured;
    this.words.hidden = view === 'grid' || view === 'qk' || !app.hasPieces;
    choose(this.words, app.state.words);
    this.pair.hidden = view === 'grid' || !app.hasPair;
    PAIRS.forEach((one, i) => choose(this.pair.children[i], one === app.state.pair));
    [...this.sections.children].forEach((one, i) => choose(one, i === section));
    const rolled = layer === 'rollout';
    const one = app.section!;
    this.layer.element.hidden = rolled || one.layers === 1;
    this.head.element.hidden = rolled || one.heads === 1;
    this.layer.show(app.t('layerOf', { layer: rolled ? '' : layer }));
    const mean = view === 'picture' && app.headsShown.length > 1;
    this.head.show(mean ? app.t('headsMean') : app.t('headOf', { head }));
    this.rollout.hidden = !one.rollout;
    choose(this.rollout, rolled);
    this.zoom.hidden = view !== 'head';
  }
}
