'use strict';
// Draws the figures from the data in #plot-data. Texts are finished; only colours, ticks and sizes are made here.
(() => {
  const figures = JSON.parse(document.getElementById('plot-data').textContent);
  const SYMBOLS = ['circle', 'square', 'diamond', 'triangle-up', 'x', 'triangle-down', 'star', 'cross'];
  const DASHES = ['6 4', '2 3', '6 3 2 3', '9 4'];
  // Okabe and Ito's colours, the weak ones darkened or lightened for the paper they are on.
  const THEMES = {
    light: {
      soft: '#5b6470', grid: '#e6e8eb', paper: '#ffffff', floor: '#6b7280',
      curves: ['#0072b2', '#d55e00', '#009e73', '#c0579b', '#b8860b', '#3a9bd9', '#6a4c93', '#7a5c3e'],
    },
    dark: {
      soft: '#a0a9b4', grid: '#2b323a', paper: '#191d22', floor: '#9ca3af',
      curves: ['#56b4e9', '#f0803c', '#2fc79a', '#e39bc9', '#e6b83c', '#9fd6ff', '#b79ced', '#cbb092'],
    },
  };
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const screenTheme = () => (dark.matches ? THEMES.dark : THEMES.light);
  const hidden = figures.map(() => new Set());

  const sizeText = (bytes) => {
    const units = [['GiB', 30], ['MiB', 20], ['KiB', 10]];
    for (const [unit, shift] of units) {
      if (bytes >= 2 ** shift) return `${bytes / 2 ** shift} ${unit}`;
    }
    return `${bytes} B`;
  };

  function sizeTicks([low, high]) {
    const first = Math.floor(Math.log2(low)), last = Math.ceil(Math.log2(high));
    const step = last - first > 16 ? 4 : last - first > 8 ? 3 : last - first > 4 ? 2 : 1;
    const vals = [];
    for (let shift = Math.ceil(first / step) * step; shift <= last; shift += step) vals.push(2 ** shift);
    return vals.map((value) => ({ value, text: sizeText(value) }));
  }

  function valueText(v) {
    for (const [unit, factor] of [['G', 1e9], ['M', 1e6]]) {
      if (v >= factor) return `${+(v / factor).toPrecision(3)}${unit}`;
    }
    return v >= 1000 ? v.toLocaleString('en-US') : `${+v.toPrecision(3)}`;
  }

  function valueTicks([low, high]) {
    const decades = Math.log10(high / low);
    const steps = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
    const vals = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const s of steps) vals.push(+(s * 10 ** e).toPrecision(3));
    }
    return vals.map((value) => ({ value, text: valueText(value) }));
  }

  function linearTicks([low, high]) {
    const span = Math.abs(high - low), power = 10 ** Math.floor(Math.log10(span / 5));
    const step = [1, 2, 5, 10].find((s) => span / (s * power) <= 6) * power;
    const first = Math.ceil(Math.min(low, high) / step), count = Math.floor(Math.max(low, high) / step) - first + 1;
    return Array.from({ length: count }, (_, i) => +((first + i) * step).toPrecision(12)).map((value) => ({ value, text: valueText(value) }));
  }

  const padded = ([low, high], share, least) => {
    const a = Math.log10(low), b = Math.log10(high), pad = Math.max(share * (b - a), least);
    return [10 ** (a - pad), 10 ** (b + pad)];
  };
  // Where all values are one, around it.
  const linear = ([low, high], share) => {
    const pad = share * (high - low || Math.abs(high) || 1);
    return [low - pad, high + pad];
  };

  // Without axes of its own a figure has message sizes against values, both logarithmic.
  const AXES = { x: { title: 'message size', log: true, bytes: true }, y: { log: true } };

  function xAxis(figure) {
    const { title, log, bytes } = (figure.axes || AXES).x;
    return { title, log, ticks: bytes ? sizeTicks : log ? valueTicks : linearTicks, range: log ? padded(figure.x, 0.03, 0.05) : linear(figure.x, 0.05) };
  }

  function yAxis(figure) {
    const { log } = (figure.axes || AXES).y;
    return { title: figure.y_title, log, ticks: log ? valueTicks : linearTicks, range: log ? padded(figure.y, 0.06, 0.05) : linear(figure.y, 0.06) };
  }

  const floorLabels = (figure) =>
    [...new Set(figure.panels.flatMap((p) => p.floors.map((f) => f.label)))];

  // Devices side by side: floors belong to curves, and dashes say that time is virtual.
  const sides = (figure) => figure.reference && figure.panels.some((p) => p.rows !== undefined);
  const symbol = (c) => SYMBOLS[c.label % SYMBOLS.length];

  function lineTraces(figure, panel, theme, off) {
    const labels = floorLabels(figure);
    // A reference that belongs to a curve has its colour.
    const colour = (f) => (f.of === undefined ? theme.floor : theme.curves[f.of % theme.curves.length]);
    const floors = panel.floors.map((f) => ({
      x: f.x, y: f.y, text: f.text, colour: colour(f), visible: !off.has(`floor ${f.label}`),
      line: { width: sides(figure) ? 1.3 : 1.6, dash: sides(figure) ? '2 3' : DASHES[labels.indexOf(f.label) % DASHES.length] },
      mark: f.x.length > 1 ? undefined : { symbol: 'dash', size: 16, stroke: 2.5 },
    }));
    const curves = panel.curves.map((c) => ({
      x: c.x, y: c.y, text: c.text, colour: theme.curves[c.label % theme.curves.length], visible: !off.has(`curve ${c.label}`),
      line: { width: 1.8, dash: c.dashed && sides(figure) ? '6 4' : undefined },
      mark: { symbol: symbol(c), size: sides(figure) ? 6.5 : 5.5, hollow: c.dashed && sides(figure) },
      bars: { along: 'y', low: c.low, high: c.high },
    }));
    return floors.concat(curves);
  }

  const short = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);

  function dotTraces(panel, theme) {
    const rows = panel.curves.map((_, i) => i);
    const floored = rows.filter((i) => panel.curves[i].floor !== null);
    const first = (key) => panel.curves.map((c) => c[key][0]);
    return [
      { x: floored.map((i) => panel.curves[i].floor), y: floored, colour: theme.floor, visible: true, mark: { symbol: 'bar', size: 16, stroke: 2 } },
      {
        x: first('y'), y: rows, text: first('text'), colour: theme.curves[0], visible: true,
        mark: { symbol: 'circle', size: 9 }, bars: { along: 'x', low: first('low'), high: first('high') },
      },
    ];
  }

  // A row for each variant, on which every device has its mark and its floor.
  function sideDots(figure, panel, theme, off) {
    const used = [...new Set(panel.curves.map((c) => c.label))].sort((a, b) => a - b);
    const offset = (c) => (used.indexOf(c.label) - (used.length - 1) / 2) * Math.min(0.2, 0.6 / used.length);
    return panel.curves.flatMap((c) => {
      const colour = theme.curves[c.label % theme.curves.length], row = c.row + offset(c);
      const shown = !off.has(`curve ${c.label}`);
      const floor = c.floor === null ? [] : [{
        x: [c.floor], y: [row], colour, visible: shown, mark: { symbol: 'bar', size: 11, stroke: 2 },
      }];
      return floor.concat([{
        x: [c.y[0]], y: [row], text: [c.text[0]], colour, visible: shown,
        mark: { symbol: symbol(c), size: 9, hollow: c.dashed }, bars: { along: 'x', low: c.low, high: c.high },
      }]);
    });
  }

  const rowsOf = (panel) => (panel.rows && panel.rows.length ? panel.rows : panel.curves.map((c) => c.name));
  const dotsHeight = (panel) => 96 + (rowsOf(panel).length < panel.curves.length ? 40 : 26) * rowsOf(panel).length;

  function axes(figure, panel) {
    if (!panel.dots) return { x: xAxis(figure), y: yAxis(figure) };
    const values = panel.curves.flatMap((c) => [c.low[0], c.high[0]].concat(c.floor === null ? [] : [c.floor]));
    const range = padded([Math.min(...values), Math.max(...values)], 0.06, 0.15), rows = rowsOf(panel);
    return {
      x: { title: figure.y_title, log: true, ticks: valueTicks, range },
      y: { fixed: true, ticks: () => rows.map((text, value) => ({ value, text: short(text) })), range: [rows.length - 0.4, -0.6] },
    };
  }

  function draw(theme) {
    document.querySelectorAll('figure[data-figure]').forEach((node) => {
      const index = +node.dataset.figure, figure = figures[index];
      node.querySelectorAll('.canvas').forEach((canvas, i) => {
        const panel = figure.panels[i];
        if (!panel.curves.length) {
          canvas.textContent = 'No positive value to draw on a logarithmic axis.';
          canvas.style.height = 'auto';
          return;
        }
        if (panel.dots) canvas.style.height = `${dotsHeight(panel)}px`;
        const traces = !panel.dots ? lineTraces(figure, panel, theme, hidden[index])
          : sides(figure) ? sideDots(figure, panel, theme, hidden[index]) : dotTraces(panel, theme);
        Chart.draw(canvas, traces, axes(figure, panel), theme);
      });
      legend(node.querySelector('.legend'), figure, index, theme);
    });
  }

  function swatch(colour, symbol, dash, hollow) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    for (const [k, v] of Object.entries({ width: 26, height: 12, viewBox: '-13 -6 26 12', 'aria-hidden': 'true' })) svg.setAttribute(k, v);
    const part = (d, attributes) => {
      const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
      path.setAttribute('d', d);
      for (const [k, v] of Object.entries(attributes)) path.setAttribute(k, v);
      svg.append(path);
    };
    part('M-13 0H13', Object.assign({ stroke: colour, 'stroke-width': 2 }, dash ? { 'stroke-dasharray': dash } : {}));
    if (symbol) part(Chart.SHAPES[symbol], hollow ? { fill: 'var(--panel)', stroke: colour, 'stroke-width': 1.5 } : { fill: colour });
    return svg;
  }

  function legend(node, figure, index, theme) {
    const curves = figure.panels.filter((p) => !p.dots || sides(figure)).flatMap((p) => p.curves);
    const used = new Set(curves.map((c) => c.label)), dashed = new Set(curves.filter((c) => c.dashed && sides(figure)).map((c) => c.label));
    const entries = figure.labels.map((text, i) => ({
      key: `curve ${i}`, text, used: used.has(i),
      mark: () => swatch(theme.curves[i % theme.curves.length], SYMBOLS[i % SYMBOLS.length], dashed.has(i) ? '5 3' : null, dashed.has(i)),
    }));
    const owner = (text) => figure.panels.flatMap((p) => p.floors).find((f) => f.label === text).of;
    const floorMark = (text, i) => (sides(figure) ? swatch(theme.curves[owner(text) % theme.curves.length], null, '2 3')
      : swatch(theme.floor, null, DASHES[i % DASHES.length]));
    floorLabels(figure).forEach((text, i) => entries.push({
      key: `floor ${text}`, text: figure.reference ? text : `floor: ${text}`, used: true, mark: () => floorMark(text, i),
    }));
    const focused = node.contains(document.activeElement) ? [...node.children].indexOf(document.activeElement) : -1;
    node.replaceChildren(...entries.filter((e) => e.used).map((e) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.setAttribute('aria-pressed', String(!hidden[index].has(e.key)));
      button.append(e.mark(), e.text);
      button.addEventListener('click', () => {
        if (!hidden[index].delete(e.key)) hidden[index].add(e.key);
        draw(screenTheme());
      });
      return button;
    }));
    if (focused >= 0 && node.children[focused]) node.children[focused].focus();
  }

  const root = document.documentElement;
  draw(screenTheme());
  root.dataset.plots = 'ready';
  dark.addEventListener('change', () => draw(screenTheme()));
  addEventListener('beforeprint', () => draw(THEMES.light));
  addEventListener('afterprint', () => draw(screenTheme()));
})();
