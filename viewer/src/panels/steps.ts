// SPDX-License-Identifier: Apache-2.0
// The slider of generated steps.
import type { App, Changed } from '../app';
import { h } from '../dom';
import { showTokens } from '../tokens';
import { isStepped } from '../trace';

const MOST_TOKENS = 80;
const PACE = 450; // milliseconds a step

export class Steps {
  private readonly slider = h('input', { type: 'range', min: 1, id: 'step' });
  private readonly label = h('label', { for: 'step' });
  private readonly where = h('output', { for: 'step' });
  private readonly play = h('button', { type: 'button', class: 'round' });
  private readonly ribbon = h('div', { class: 'ribbon' });
  readonly element = h(
    'div',
    { class: 'steps' },
    h('div', { class: 'row' }, this.play, this.label, this.slider, this.where),
    this.ribbon,
  );
  private timer = 0;

  constructor(private readonly app: App) {
    this.slider.addEventListener('input', () => {
      const step = Number(this.slider.value); // before anything writes it back
      this.stop();
      app.go({ step });
    });
    this.play.addEventListener('click', () => (this.timer ? this.stop() : this.start()));
  }

  private start(): void {
    const { app } = this;
    if (app.state.step === 0) app.go({ step: 1 });
    this.timer = window.setInterval(() => {
      app.moveStep(1);
      if (app.state.step === 0) this.stop();
    }, PACE);
    this.update(new Set(['step']));
  }

  private stop(): void {
    window.clearInterval(this.timer);
    this.timer = 0;
    this.update(new Set(['step']));
  }

  private axis(): number {
    const { trace } = this.app.state;
    return trace
      ? trace.axes.findIndex((_, i) => isStepped(trace, i) && trace.sections.some((section) => section.queries === i))
      : -1;
  }

  update(changed: Changed): void {
    const { app } = this;
    const { trace, step } = app.state;
    const axis = this.axis();
    this.element.hidden = !trace || trace.steps < 2 || axis < 0;
    if (this.element.hidden || !trace) return;
    if (changed.has('trace') && this.timer) this.stop();
    if (changed.has('trace') || changed.has('language')) {
      this.slider.max = String(trace.steps);
      this.label.textContent = app.t('step');
      const tokens = showTokens(trace.axes[axis].tokens);
      this.ribbon.replaceChildren(
        ...(tokens.length > MOST_TOKENS
          ? []
          : tokens.map((token, i) =>
              h('button', { type: 'button', tabindex: -1, click: () => app.go({ step: i + 1 }) }, token),
            )),
      );
    }
    const now = step === 0 ? trace.steps : step;
    this.slider.value = String(now);
    this.where.textContent = app.t(step === 0 ? 'stepAll' : 'stepOf', { step: now, steps: trace.steps });
    this.slider.setAttribute('aria-valuetext', this.where.textContent);
    this.play.textContent = this.timer ? '❚❚' : '▶';
    this.play.setAttribute('aria-label', app.t(this.timer ? 'pause' : 'play'));
    [...this.ribbon.children].forEach((token, i) => {
      token.classList.toggle('later', i >= now);
      token.classList.toggle('now', step > 0 && i === now - 1);
    });
  }
}
