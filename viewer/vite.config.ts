// SPDX-License-Identifier: Apache-2.0
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

// One file, which asks for nothing: the script and the style stand in the page,
// and its policy names both by their hash and forbids all the rest.
function onePage(): Plugin {
  return {
    name: 'regard-one-page',
    apply: 'build',
    enforce: 'post',
    generateBundle(_options, bundle) {
      let script = '';
      let style = '';
      for (const [name, part] of Object.entries(bundle)) {
        if (part.type === 'chunk') script += part.code.trim();
        else if (name.endsWith('.css')) style += String(part.source).trim();
        delete bundle[name];
      }
      if (/<\/script|<!--/i.test(script)) this.error('the script would end its own element');
      const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
      const policy = [
        "default-src 'none'",
        `script-src ${hash(script)}`,
        `style-src ${hash(style)}`,
        "connect-src 'self'",
        'img-src data:',
        "base-uri 'none'",
        "form-action 'none'",
      ].join('; ');
      // Its first part: what we take of it, cividis and viridis, is not from ColorBrewer.
      const d3 = new URL('node_modules/d3-scale-chromatic/LICENSE', import.meta.url);
      const license = readFileSync(fileURLToPath(d3), 'utf8').split('Apache-Style')[0].trim();
      const template = readFileSync(fileURLToPath(new URL('index.html', import.meta.url)), 'utf8');
      // Functions, because "$&" in a replacement text would be read as a pattern.
      const page = template
        .replace('<!--policy-->', () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
        .replace('<!--style-->', () => `<style>${style}</style>`)
        .replace('<!--license-->', () => `<!-- Holds parts of d3-scale-chromatic.\n${license}\n-->`)
        .replace(/<script type="module"[^>]*><\/script>/, () => `<script>${script}</script>`);
      this.emitFile({ type: 'asset', fileName: 'index.html', source: page });
    },
  };
}

export default defineConfig({
  plugins: [onePage()],
  build: {
    target: 'es2020',
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    rollupOptions: { input: 'src/main.ts', output: { format: 'iife' } },
  },
  // As long as a browser may need on a machine that does other things, too.
  test: { testTimeout: 120_000, hookTimeout: 180_000, expect: { poll: { timeout: 10_000 } } },
} as Parameters<typeof defineConfig>[0]);
