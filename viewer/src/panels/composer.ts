// SPDX-License-Identifier: Apache-2.0
// The sentence, its translation, and what went wrong.
import type { App, Changed } from '../app';
import { directionFor } from '../direction';
import { h } from '../dom';
import { isKey, type Key } from '../i18n';
import { SourceError } from '../source';

const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  en: [
    'The cat sat on the mat because it was tired.',
    'I have never seen the sea.',
    'She gave the book to her sister.',
  ],
  zh: ['我喜欢在下雨天读书。', '他昨天没有来学校。', '你能告诉我车站在哪里吗？'],
  de: ['Ein Hund läuft durch den Schnee.', 'Zwei Kinder spielen im Park.'],
};
// Asking again would bring the same answer.
const HOPELESS = [
  'empty',
  'unreadable',
  'too_long',
  'too_large',
  'direction',
  'bad_request',
  'no_model',
  'missing_block',
  'trace',
];
const NAMES: Readonly<Record<string, string>> = {
  en: 'English',
  zh: '中文',
  de: 'Deutsch',
  fr: 'Français',
  es: 'Español',
  ja: '日本語',
};

function directionName(direction: string): string {
  return direction
    .split('-')
    .map((part) => NAMES[part] ?? part)
    .join(' → ');
}

export class Composer {
  private readonly input = h('textarea', { id: 'sentence', rows: 1, autocomplete: 'off', spellcheck: 'false' });
  private readonly besideLabel = h('label', { for: 'beside', class: 'label' });
  private readonly beside = h('input', { id: 'beside', type: 'text', autocomplete: 'off', spellcheck: 'false' });
  private readonly directions = h('div', { class: 'segments', role: 'group' });
  private readonly only = h('span', { class: 'label' });
  private readonly send = h('button', { type: 'submit', class: 'primary' });
  private readonly label = h('label', { for: 'sentence', class: 'unseen' });
  private readonly count = h('span', { class: 'count', role: 'status', hidden: true });
  private readonly form = h(
    'form',
    { class: 'composer' },
    this.label,
    this.input,
    h('div', { class: 'row' }, this.count, this.directions, this.only, this.send),
    h('div', { class: 'beside' }, this.besideLabel, this.beside),
  );
  private readonly output = h('p', { class: 'translation', 'aria-live': 'polite' });
  private readonly given = h('p', { class: 'given' });
  private readonly welcome = h('div', { class: 'welcome' });
  private readonly notice = h('div', { class: 'notice', role: 'alert', hidden: true });
  readonly element = h('div', { class: 'sentence' }, this.form, this.given, this.notice, this.output, this.welcome);

  constructor(private readonly app: App) {
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener('keydown', (event) => {
      // Enter while a Chinese word is being composed belongs to the input method.
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener('input', () => {
      this.grow();
      this.showCount();
    });
    window.addEventListener('resize', () => this.grow());
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  focusBeside(): void {
    this.beside.focus();
    this.beside.select();
  }

  private grow(): void {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, 220)}px`;
  }

  // As the server counts.
  private get characters(): number {
    return Array.from(this.input.value.trim()).length;
  }

  // Who comes near the limit sees it; nothing is ever cut.
  private showCount(): void {
    const limit = this.app.state.info?.characters ?? 0;
    const count = this.characters;
    this.count.hidden = limit === 0 || count < 0.8 * limit;
    this.count.classList.toggle('over', count > limit);
    this.count.textContent = this.app.t('characters', this.grouped({ count, limit }));
  }

  private grouped<T extends Record<string, number>>(values: T): Record<string, string> {
    const locale = this.app.state.language === 'zh' ? 'zh-CN' : 'en';
    return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, value.toLocaleString(locale)]));
  }

  private submit(): void {
    const text = this.input.value.trim();
    const { direction, info } = this.app.state;
    const limit = info?.characters ?? 0;
    const count = this.characters;
    if (limit > 0 && count > limit) this.app.set({ error: new SourceError('too_long', '', limit, count) });
    else
      void this.app.ask(
        text,
        directionFor(text, direction, info?.directions ?? []),
        this.app.state,
        this.beside.value.trim(),
      );
  }

  // Only a translator translates; others look.
  private get translates(): boolean {
    return (this.app.state.info?.directions.length ?? 0) > 0;
  }

  update(changed: Changed): void {
    const { app } = this;
    const { state } = app;
    const can = state.info?.canRead === true;
    this.form.hidden = !can;
    if (changed.has('text') && this.input.value.trim() !== state.text) this.input.value = state.text;
    if (changed.has('beside') && this.beside.value.trim() !== state.beside) this.beside.value = state.beside;
    if (changed.has('text') || changed.has('language') || changed.has('info')) this.showCount();
    if (changed.has('language') || changed.has('info') || changed.has('direction')) this.relabel();
    const [idle, busy] = this.translates ? (['look', 'looking'] as const) : (['show', 'showing'] as const);
    this.send.textContent = app.t(state.busy && can ? busy : idle);
    this.send.disabled = state.busy;
    this.element.classList.toggle('busy', state.busy);
    const target = state.trace?.target ?? '';
    this.output.hidden = target === '';
    if (changed.has('trace')) {
      this.output.textContent = target;
      this.output.lang = state.direction.split('-')[1] ?? '';
      // The animation starts anew with each translation.
      this.output.classList.remove('fresh');
      void this.output.offsetWidth;
      this.output.classList.add('fresh');
    }
    this.given.hidden = can || !state.trace || state.trace.source === '';
    this.given.textContent = state.trace?.source ?? '';
    this.showWelcome();
    if (changed.has('error') || changed.has('language')) this.showError();
    this.grow();
  }

  private relabel(): void {
    const { app } = this;
    const { info, direction } = app.state;
    this.label.textContent = app.t('sentence');
    this.besideLabel.textContent = app.t('beside');
    this.beside.placeholder = app.t('besidePlaceholder');
    this.input.placeholder = app.t('placeholder');
    this.directions.setAttribute('aria-label', app.t('direction'));
    const known = info?.directions ?? [];
    this.directions.hidden = known.length < 2;
    this.only.hidden = known.length !== 1;
    this.only.textContent = known.length === 1 ? directionName(known[0]) : '';
    this.directions.replaceChildren(
      ...known.map((one) =>
        h(
          'button',
          { type: 'button', 'aria-pressed': String(one === direction), click: () => app.set({ direction: one }) },
          directionName(one),
        ),
      ),
    );
  }

  private showWelcome(): void {
    const { app } = this;
    const { trace, busy, info, direction, error } = app.state;
    this.welcome.hidden = trace !== null || (busy && info === null) || (info === null && error !== null);
    if (this.welcome.hidden) return;
    if (!info?.canRead) {
      this.welcome.replaceChildren(h('p', {}, app.t('nothing')));
      return;
    }
    const examples = EXAMPLES[direction.split('-')[0]] ?? EXAMPLES.en;
    this.welcome.replaceChildren(
      h('p', {}, app.t(this.translates ? 'welcome' : 'welcomeReader')),
      h('p', { class: 'label' }, app.t('tryOne')),
      h(
        'ul',
        {},
        ...examples.map((text) =>
          h(
            'li',
            {},
            h('button', { type: 'button', class: 'quiet', click: () => void app.ask(text, direction) }, text),
          ),
        ),
      ),
    );
  }

  private showError(): void {
    const { app } = this;
    const { error, text, direction, info } = app.state;
    this.notice.hidden = error === null;
    if (!error) return;
    let key: Key = 'error_other';
    const wanted = `error_${error.code}`;
    if (isKey(wanted)) key = wanted;
    if (error.code === 'too_long' && error.limit !== undefined && error.count !== undefined)
      key = error.limit === info?.characters ? 'error_too_long_characters' : 'error_too_long_tokens';
    const { limit = 0, count = 0 } = error;
    const again = () => {
      const { trace } = app.state;
      if (!info) void app.start();
      else if (trace && (trace.source === text || !info.canRead)) app.retryBlocks();
      else void app.ask(text, direction);
    };
    this.notice.replaceChildren(
      h(
        'div',
        {},
        h('strong', {}, app.t('errorTitle')),
        h('p', {}, app.t(key, this.grouped({ limit, count, over: count - limit }))),
        // What the server says, it says in English.
        app.state.language === 'en' && error.message !== '' && h('p', { class: 'detail' }, error.message),
      ),
      h(
        'div',
        { class: 'row' },
        !HOPELESS.includes(error.code) && h('button', { type: 'button', click: again }, app.t('retry')),
        h('button', { type: 'button', class: 'quiet', click: () => app.set({ error: null }) }, app.t('close')),
      ),
    );
  }
}
