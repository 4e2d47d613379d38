'use strict';
// What the scripts of the pages share: texts, elements, axes, the tip and the theme.
const parts = (() => {
  const root = document.documentElement;
  const fail = (what) => { root.dataset.check = 'error ' + what; };
  addEventListener('error', (event) => fail(event.message));
  const byId = (id) => document.getElementById(id);

  // ---- texts -----------------------------------------------------------------------------------

  const digits = (x) => (x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2));
  const seconds = (s) => {
    if (s >= 120) return digits(s / 60) + ' min';
    if (s >= 1) return digits(s) + ' s';
    if (s >= 1e-3) return digits(s * 1e3) + ' ms';
    return digits(s * 1e6) + ' \u00b5s';
  };
  const bytes = (b) => {
    if (b >= 2 ** 30) return digits(b / 2 ** 30) + ' GiB';
    return digits(b / 2 ** 20) + ' MiB';
  };
  const percent = (x) => (x * 100).toFixed(1) + ' %';
  const count = (x) => Math.round(x).toLocaleString('en-US');
  const number = (x) => (Math.abs(x) >= 1e4 ? count(x) : String(+x.toPrecision(4)));

  // ---- elements --------------------------------------------------------------------------------

  // Every text goes through textContent, so that none of it can be markup.
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const add = (parent, ...children) => { parent.append(...children); return parent; };
  const svg = (tag, attributes, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  // Colours of the DOM are variables, so that they follow the theme by themselves.
  const paint = (node, name) => { node.style.background = 'var(--' + name + ')'; return node; };
  const tile = (name, value, more, className) => {
    const node = add(make('div', 'tile' + (className || '')), make('div', 'name', name), make('div', 'value', value));
    if (more) node.append(typeof more === 'string' ? make('div', 'more', more) : more);
    byId('tiles').append(node);
    return node;
  };
  const tableOf = (headings) => {
    const row = make('tr');
    for (const [text, className] of headings) row.append(make('th', className, text));
    return add(make('table'), add(make('thead'), row));
  };

  // The distance of at most `parts` lines of a grid over `range`.
  const niceStep = (range, parts) => {
    const raw = range / parts, power = 10 ** Math.floor(Math.log10(raw));
    return power * ([1, 2, 5, 10].find((f) => f * power >= raw) || 10);
  };

  // ---- the tip and the theme -------------------------------------------------------------------

  const tip = byId('tip');
  // A line is a text or an element.
  const showTip = (event, title, lines) => {
    tip.replaceChildren(make('b', '', title), ...lines.map((text) => (typeof text === 'string' ? make('span', '', text) : text)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(innerWidth - box.width - 6, event.clientX + 14)) + 'px';
    const below = event.clientY + 16;
    tip.style.top = (below + box.height > innerHeight - 6 ? event.clientY - box.height - 12 : below) + 'px';
  };

  const themes = ['system', 'light', 'dark'];
  const onTheme = (repaint) => {
    byId('theme').addEventListener('click', () => {
      const next = themes[(themes.indexOf(root.dataset.theme || 'system') + 1) % 3];
      if (next === 'system') delete root.dataset.theme; else root.dataset.theme = next;
      byId('theme').textContent = 'Theme: ' + next;
      repaint();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => repaint());
  };

  return { root, fail, byId, digits, seconds, bytes, percent, count, number, make, add, svg, paint, tile, tableOf, niceStep, tip, showTip, onTheme };
})();
