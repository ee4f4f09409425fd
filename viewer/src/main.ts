// SPDX-License-Identifier: Apache-2.0
import './style.css';
import { App, type Changed } from './app';
import { h } from './dom';
import { Composer } from './panels/composer';
import { Finds } from './panels/finds';
import { Help } from './panels/help';
import { Legend } from './panels/legend';
import { Readout } from './panels/readout';
import { StatisticsPanel } from './panels/statistics';
import { Steps } from './panels/steps';
import { Toolbar } from './panels/toolbar';
import { showDifference } from './panels/difference';
import type { Picture } from './pen';
import { download, fileName, sideBySide, toJson, toPng, toSvg } from './save';
import { findSource } from './source';
import { GridView } from './views/grid';
import { HeadView } from './views/head';
import { LinesView } from './views/lines';
import { PictureView } from './views/picture';
import { QkView } from './views/qk';
import type { View } from './views/view';

class Page {
  private readonly app = new App(findSource(document));
  private readonly composer = new Composer(this.app);
  private readonly qk = new QkView(this.app);
  private readonly readout = new Readout(this.app, () => this.qk.place());
  private readonly legend = new Legend(this.app);
  private readonly statistics = new StatisticsPanel(this.app, () => this.reveal());
  private readonly steps = new Steps(this.app);
  private readonly help = new Help(this.app);
  private readonly grid = new GridView(this.app, (text) => this.readout.say(text));
  private readonly head = new HeadView(this.app);
  private readonly lines = new LinesView(this.app);
  private readonly pictures = new PictureView(this.app);
  private readonly besides = { head: new HeadView(this.app, 'other'), lines: new LinesView(this.app, 'other') };
  private readonly captions = [h('figcaption'), h('figcaption')];
  private readonly finds = new Finds(this.app, () => this.reveal());
  private readonly toolbar = new Toolbar(this.app, {
    zoom: (by) => this.zoom(by),
    save: (kind) => void this.save(kind),
    copyLink: () => void this.copyLink(),
  });
  private readonly title = h('h2', { class: 'figure-title', id: 'figure' });
  private readonly stage = h('div', { class: 'stage' });
  private readonly figure = h(
    'section',
    { class: 'figure', 'aria-labelledby': 'figure' },
    this.title,
    this.stage,
    this.legend.element,
  );
  // Words beside the picture: what is under the pointer is never below the fold.
  private readonly side = h('div', { class: 'side' }, this.readout.element, this.statistics.element);
  private readonly work = h('div', { class: 'work' }, this.figure, this.side);
  private readonly tagline = h('span', { class: 'tagline' });
  private readonly model = h('p', { class: 'model' });
  private readonly languageButton = h('button', { type: 'button', class: 'quiet' });
  private readonly themeButton = h('button', { type: 'button', class: 'round' });
  private readonly helpButton = h('button', { type: 'button', class: 'round' }, '?');
  private readonly toast = h('div', { class: 'toast', role: 'status' });

  start(): void {
    const { app } = this;
    void app.theme; // sets the page's colours before anything is shown
    this.languageButton.addEventListener('click', () => this.switchLanguage());
    this.themeButton.addEventListener('click', () => this.switchTheme());
    this.helpButton.addEventListener('click', () => this.help.toggle());
    document.body.append(
      h(
        'header',
        {},
        h('h1', {}, 'regard', this.tagline),
        h('div', { class: 'row' }, this.languageButton, this.themeButton, this.helpButton),
      ),
      h(
        'main',
        {},
        this.model,
        this.composer.element,
        this.steps.element,
        this.toolbar.element,
        this.finds.element,
        this.work,
      ),
      this.help.element,
      this.toast,
    );
    document.addEventListener('keydown', (event) => this.key(event));
    app.listen((changed) => this.update(changed));
    this.update(new Set(Object.keys(app.state)) as Changed);
    void app.start();
  }

  private get view(): View {
    const { grid, head, lines, qk, pictures: picture } = this;
    return { grid, head, lines, qk, picture }[this.app.state.view];
  }

  // What shows the sentence beside, while there is one.
  private get beside(): View | null {
    const { view } = this.app.state;
    return this.app.compares && (view === 'head' || view === 'lines') ? this.besides[view] : null;
  }

  // The chosen head comes onto the screen.
  private reveal(): void {
    if (this.app.state.view === 'grid') this.grid.scrollToChosen();
    else this.title.scrollIntoView({ block: 'nearest' });
  }

  private update(changed: Changed): void {
    const { app } = this;
    const { state } = app;
    // Only the drawing and the words beside it follow the pointer.
    if ([...changed].every((key) => key === 'focus' || key === 'otherFocus' || key === 'pinned')) {
      if (state.view !== 'grid') this.view.update(changed);
      this.beside?.update(changed);
      this.readout.update(changed);
      this.finds.update(changed);
      return;
    }
    if (changed.has('theme')) void app.theme;
    if (changed.has('language')) this.relabel();
    if (changed.has('language') || changed.has('info') || changed.has('trace')) this.showModel();
    this.work.hidden = state.trace === null;
    this.work.classList.toggle('stale', state.busy);
    document.body.classList.toggle('loaded', !state.busy);
    this.composer.update(changed);
    this.steps.update(changed);
    this.toolbar.update(changed);
    this.title.textContent = app.placeName();
    this.title.hidden = state.view === 'grid';
    const switched = this.showStage();
    const news = switched ? (new Set([...changed, 'view']) as Changed) : changed;
    this.view.update(news);
    this.beside?.update(news);
    this.finds.update(changed);
    this.readout.update(changed);
    this.legend.update(changed);
    // The picture first: a table of many heads takes longer than they do.
    if (changed.has('trace')) requestAnimationFrame(() => window.setTimeout(() => this.statistics.update(changed)));
    else this.statistics.update(changed);
    // For whoever measures: the first picture is on the screen with the next frame.
    if (changed.has('trace') && state.trace) requestAnimationFrame(() => performance.mark('regard-shown'));
    if (changed.has('error') || changed.has('trace')) this.pending = null;
    else if (changed.has('blocks') && this.pending) void this.save(this.pending);
  }

  private shown = '';
  // Puts the view onto the page, or two of them side by side; false: they are there.
  private showStage(): boolean {
    const { beside, view } = this;
    const { trace, otherTrace } = this.app.state;
    if (beside) showDifference(this.captions, trace!.source, otherTrace!.source);
    const name = `${this.app.state.view}/${beside !== null}`;
    if (name === this.shown) return false;
    this.shown = name;
    this.work.classList.toggle('two', beside !== null);
    this.stage.classList.toggle('two', beside !== null);
    if (beside) {
      const pane = (i: number, one: View) => h('figure', { class: 'pane' }, this.captions[i], one.element);
      this.stage.replaceChildren(pane(0, view), pane(1, beside));
    } else {
      this.stage.replaceChildren(view.element);
    }
    return true;
  }

  private relabel(): void {
    const { app } = this;
    document.documentElement.lang = app.state.language === 'zh' ? 'zh-CN' : 'en';
    this.tagline.textContent = app.t('tagline');
    this.languageButton.textContent = app.t('language');
    this.languageButton.setAttribute('aria-label', app.t('languageLabel'));
    this.themeButton.textContent = '◐';
    this.themeButton.setAttribute('aria-label', app.t('themeLabel'));
    this.themeButton.title = app.t('themeLabel');
    this.helpButton.setAttribute('aria-label', app.t('help'));
    this.helpButton.title = app.t('help');
  }

  private showModel(): void {
    const { trace, info } = this.app.state;
    const model = trace?.model ?? info?.model;
    const note = this.app.inLanguage(model?.note ?? '');
    this.model.replaceChildren(model?.name ?? '', note && h('span', { class: 'note' }, note));
    this.model.hidden = !model?.name && !note;
    document.title = trace?.source ? `${trace.source.slice(0, 60)} · regard` : 'regard';
  }

  private switchLanguage(): void {
    this.app.set({ language: this.app.state.language === 'en' ? 'zh' : 'en' });
  }

  private switchTheme(): void {
    this.app.set({ theme: this.app.dark ? 'light' : 'dark' });
  }

  private zoom(by: number): void {
    if (this.app.state.view !== 'head') return;
    if (by === 0) this.head.resetZoom();
    else this.head.zoomBy(by > 0 ? 1.6 : 1 / 1.6);
  }

  private tell(text: string): void {
    this.toast.textContent = text;
    this.toast.classList.remove('shown');
    void this.toast.offsetWidth;
    this.toast.classList.add('shown');
  }

  private async save(kind: 'png' | 'svg' | 'json'): Promise<void> {
    const { app } = this;
    const name = fileName(app, kind);
    let content: Blob | null = null;
    if (kind === 'json') {
      const block = app.shownBlock();
      if (block) content = new Blob([toJson(app, block)], { type: 'application/json' });
    } else {
      const picture = this.picture();
      if (picture && kind === 'svg') content = new Blob([toSvg(app, picture)], { type: 'image/svg+xml' });
      if (picture && kind === 'png') content = await toPng(app, picture);
    }
    if (!content) {
      // The numbers are on their way: once they are here, it is done.
      this.tell(app.t('loading'));
      this.pending = kind;
      return;
    }
    this.pending = null;
    download(name, content);
    this.tell(app.t('saved', { name }));
  }

  private picture(): Picture | null {
    const picture = this.view.picture();
    if (!this.beside || !picture) return picture;
    const beside = this.beside.picture();
    return beside && sideBySide(picture, beside);
  }

  private pending: 'png' | 'svg' | 'json' | null = null;

  private async copyLink(): Promise<void> {
    try {
      await navigator.clipboard.writeText(location.href);
      this.tell(this.app.t('copied'));
    } catch {
      this.tell(this.app.t('notCopied'));
    }
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (target.closest('textarea, input:not([type=range]), select, dialog')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    const arrow = (
      { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] } as Record<
        string,
        [number, number]
      >
    )[event.key];
    if (arrow && target instanceof HTMLInputElement) return; // the slider's own
    if (arrow ? this.arrow(arrow[0], arrow[1], event.shiftKey) : this.letter(event.key)) event.preventDefault();
  }

  private arrow(down: number, right: number, shift: boolean): boolean {
    const { app } = this;
    if (!app.state.trace) return false;
    if (shift) {
      if (app.state.view === 'head') this.head.walk(down, right);
      else if (app.state.view === 'qk') this.qk.walk(down, right);
      else if (app.state.view === 'lines' && down !== 0) this.lines.walk(down);
      else if (app.state.view === 'picture') this.pictures.walk(down, right);
      else return false;
      return true;
    }
    if (right !== 0) app.moveHead(right);
    else app.moveLayer(down);
    this.grid.follow();
    return true;
  }

  private letter(key: string): boolean {
    const { app } = this;
    const acts: Record<string, () => void> = {
      '1': () => app.go({ view: 'grid' }),
      '2': () => app.go({ view: 'head' }),
      '3': () => app.go({ view: 'lines' }),
      '4': () => app.go({ view: app.section?.vectors ? 'qk' : app.state.view }),
      '5': () => app.go({ view: app.section?.pictured ? 'picture' : app.state.view }),
      s: () => app.moveSection(1),
      r: () => app.toggleRollout(),
      w: () => this.toolbar.toggleWords(),
      ',': () => app.moveStep(-1),
      '.': () => app.moveStep(1),
      '+': () => this.zoom(1),
      '=': () => this.zoom(1),
      '-': () => this.zoom(-1),
      '0': () => this.zoom(0),
      '/': () => this.composer.focus(),
      c: () => this.composer.focusBeside(),
      t: () => this.switchTheme(),
      l: () => this.switchLanguage(),
      '?': () => this.help.toggle(),
      Escape: () => app.set({ focus: null, pinned: false, error: null }),
    };
    const act = acts[key.length === 1 ? key.toLowerCase() : key];
    act?.();
    return act !== undefined;
  }
}

new Page().start();
