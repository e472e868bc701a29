'use strict';
// Draws the figures from the data in #plot-data. Texts are finished; only colours, ticks and sizes are made here.
(() => {
  const figures = JSON.parse(document.getElementById('plot-data').textContent);
  const SYMBOLS = ['circle', 'square', 'diamond', 'triangle-up', 'x', 'triangle-down', 'star', 'cross'];
  const DASHES = ['dash', 'dot', 'dashdot', 'longdash'];
  // Okabe and Ito's colours, the weak ones darkened or lightened for the paper they are on.
  const THEMES = {
    light: {
      ink: '#1d2228', soft: '#5b6470', grid: '#e6e8eb', paper: '#ffffff', floor: '#6b7280',
      curves: ['#0072b2', '#d55e00', '#009e73', '#c0579b', '#b8860b', '#3a9bd9', '#6a4c93', '#7a5c3e'],
    },
    dark: {
      ink: '#e6e8eb', soft: '#a0a9b4', grid: '#2b323a', paper: '#191d22', floor: '#9ca3af',
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
    return { tickvals: vals, ticktext: vals.map(sizeText) };
  }

  function valueText(v) {
    for (const [unit, factor] of [['G', 1e9], ['M', 1e6]]) {
      if (v >= factor) return `${+(v / factor).toPrecision(3)}${unit}`;
    }
    return v >= 1000 ? v.toLocaleString('en-US') : `${+v.toPrecision(3)}`;
  }

  function valueTicks([low, high]) {
    const decades = Math.log10(high / low);
    const steps = decades > 3.5 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
    const vals = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const s of steps) vals.push(+(s * 10 ** e).toPrecision(3));
    }
    return { tickvals: vals, ticktext: vals.map(valueText) };
  }

  const padded = ([low, high], share, least) => {
    const a = Math.log10(low), b = Math.log10(high), pad = Math.max(share * (b - a), least);
    return [a - pad, b + pad];
  };

  const axis = (theme, title, log = true) => ({
    type: log ? 'log' : 'linear', title: { text: title, font: { size: 12, color: theme.soft }, standoff: 8 },
    gridcolor: theme.grid, linecolor: theme.grid, zeroline: false, tickangle: 0, ticks: '',
    tickfont: { size: 11, color: theme.soft }, automargin: true,
  });

  // Without axes of its own a figure has message sizes against values, both logarithmic.
  const AXES = { x: { title: 'message size', log: true, bytes: true }, y: { log: true } };
  const linear = ([low, high], share) => [low - share * (high - low), high + share * (high - low)];

  function xAxis(theme, figure) {
    const { title, log, bytes } = (figure.axes || AXES).x;
    const ticks = bytes ? sizeTicks(figure.x) : { dtick: 1 };
    return Object.assign(axis(theme, title, log), ticks, { range: log ? padded(figure.x, 0.03, 0.05) : linear(figure.x, 0.05) });
  }

  function yAxis(theme, figure) {
    const { log } = (figure.axes || AXES).y;
    const ticks = log ? valueTicks(figure.y) : {};
    return Object.assign(axis(theme, figure.y_title, log), ticks, { range: log ? padded(figure.y, 0.06, 0.05) : linear(figure.y, 0.06) });
  }

  const bars = (c, direction, colour) => ({
    type: 'data', symmetric: false, thickness: 1.2, width: 2.5, color: colour,
    array: c.high.map((v, i) => v - c[direction][i]), arrayminus: c.low.map((v, i) => c[direction][i] - v),
  });

  const floorLabels = (figure) =>
    [...new Set(figure.panels.flatMap((p) => p.floors.map((f) => f.label)))];

  // Devices side by side: floors belong to curves, and dashes say that time is virtual.
  const sides = (figure) => figure.reference && figure.panels.some((p) => p.rows !== undefined);
  const symbol = (c) => SYMBOLS[c.label % SYMBOLS.length] + (c.dashed ? '-open' : '');

  function lineTraces(figure, panel, theme, off) {
    const labels = floorLabels(figure);
    // A reference that belongs to a curve has its colour.
    const colour = (f) => (f.of === undefined ? theme.floor : theme.curves[f.of % theme.curves.length]);
    const floors = panel.floors.map((f) => ({
      x: f.x, y: f.y, text: f.text, mode: f.x.length > 1 ? 'lines' : 'markers', hovertemplate: '%{text}<extra></extra>',
      line: { color: colour(f), width: sides(figure) ? 1.3 : 1.6, dash: sides(figure) ? 'dot' : DASHES[labels.indexOf(f.label) % DASHES.length] },
      marker: { color: colour(f), symbol: 'line-ew-open', size: 16, line: { width: 2.5 } },
      visible: !off.has(`floor ${f.label}`), name: 'floor', meta: 'floor',
    }));
    const curves = panel.curves.map((c) => {
      const colour = theme.curves[c.label % theme.curves.length];
      return {
        x: c.x, y: c.y, text: c.text, mode: 'lines+markers', hovertemplate: '%{text}<extra></extra>',
        line: { color: colour, width: 1.8, dash: c.dashed && sides(figure) ? 'dash' : 'solid' },
        marker: { color: colour, size: sides(figure) ? 6.5 : 5.5, symbol: sides(figure) ? symbol(c) : SYMBOLS[c.label % SYMBOLS.length] },
        error_y: bars(c, 'y', colour), visible: !off.has(`curve ${c.label}`), name: c.name, meta: 'curve',
      };
    });
    return floors.concat(curves);
  }

  const short = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text)
    .replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');

  function dotTraces(panel, theme) {
    const rows = panel.curves.map((_, i) => i);
    const all = { x: panel.curves.map((c) => c.y[0]), low: panel.curves.map((c) => c.low[0]), high: panel.curves.map((c) => c.high[0]) };
    const floored = rows.filter((i) => panel.curves[i].floor !== null);
    return [
      {
        x: floored.map((i) => panel.curves[i].floor), y: floored, mode: 'markers', hoverinfo: 'skip', meta: 'floor',
        marker: { color: theme.floor, symbol: 'line-ns-open', size: 16, line: { width: 2 } },
      },
      {
        x: all.x, y: rows, text: panel.curves.map((c) => c.text[0]), mode: 'markers', hovertemplate: '%{text}<extra></extra>',
        marker: { color: theme.curves[0], size: 9 }, error_x: bars(all, 'x', theme.curves[0]), meta: 'curve',
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
        x: [c.floor], y: [row], mode: 'markers', hoverinfo: 'skip', meta: 'floor', visible: shown,
        marker: { color: colour, symbol: 'line-ns-open', size: 11, line: { width: 2 } },
      }];
      return floor.concat([{
        x: [c.y[0]], y: [row], text: [c.text[0]], mode: 'markers', hovertemplate: '%{text}<extra></extra>', visible: shown,
        marker: { color: colour, size: 9, symbol: symbol(c) }, error_x: bars({ x: c.y, low: c.low, high: c.high }, 'x', colour), meta: 'curve',
      }]);
    });
  }

  const rowsOf = (panel) => (panel.rows && panel.rows.length ? panel.rows : panel.curves.map((c) => c.name));
  const dotsHeight = (panel) => 96 + (rowsOf(panel).length < panel.curves.length ? 40 : 26) * rowsOf(panel).length;

  function layout(figure, panel, theme) {
    const base = {
      paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', showlegend: false, hovermode: 'closest', dragmode: 'zoom',
      font: { family: getComputedStyle(document.body).fontFamily, color: theme.ink, size: 12 },
      margin: { l: 54, r: 14, t: 26, b: 46 },
      modebar: { bgcolor: 'rgba(0,0,0,0)', color: theme.soft, activecolor: theme.ink },
      hoverlabel: { bgcolor: theme.paper, bordercolor: theme.soft, align: 'left', font: { color: theme.ink, size: 12 } },
    };
    if (panel.dots) {
      const values = panel.curves.flatMap((c) => [c.low[0], c.high[0]].concat(c.floor === null ? [] : [c.floor]));
      const range = [Math.min(...values), Math.max(...values)];
      return Object.assign(base, {
        xaxis: Object.assign(axis(theme, figure.y_title), valueTicks(range), { range: padded(range, 0.06, 0.15) }),
        yaxis: {
          tickvals: rowsOf(panel).map((_, i) => i), ticktext: rowsOf(panel).map(short),
          range: [rowsOf(panel).length - 0.4, -0.6], gridcolor: theme.grid, zeroline: false, automargin: true, fixedrange: true,
          tickfont: { size: 11, color: theme.soft },
        },
      });
    }
    return Object.assign(base, {
      xaxis: xAxis(theme, figure),
      yaxis: yAxis(theme, figure),
    });
  }

  const CONFIG = {
    responsive: true, displaylogo: false, displayModeBar: true, scrollZoom: false,
    modeBarButtonsToRemove: ['select2d', 'lasso2d', 'autoScale2d'],
  };

  function draw(theme) {
    const all = [];
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
        all.push(Plotly.react(canvas, traces, layout(figure, panel, theme), CONFIG));
      });
      legend(node.querySelector('.legend'), figure, index, theme);
    });
    return Promise.all(all);
  }

  // Shapes of the legend, in the box -7 to 7.
  const SHAPES = {
    circle: 'M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z', square: 'M-3.5 -3.5H3.5V3.5H-3.5Z', diamond: 'M0 -5L5 0L0 5L-5 0Z',
    'triangle-up': 'M0 -5L4.5 3.5H-4.5Z', 'triangle-down': 'M0 5L4.5 -3.5H-4.5Z',
    x: 'M-4 -2L-2 -4L0 -2L2 -4L4 -2L2 0L4 2L2 4L0 2L-2 4L-4 2L-2 0Z', cross: 'M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z',
    star: 'M0 -5L1.4 -1.6L5 -1.6L2.2 .8L3.2 4.4L0 2.3L-3.2 4.4L-2.2 .8L-5 -1.6L-1.4 -1.6Z',
  };

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
    if (symbol) part(SHAPES[symbol], hollow ? { fill: 'var(--panel)', stroke: colour, 'stroke-width': 1.5 } : { fill: colour });
    return svg;
  }

  function legend(node, figure, index, theme) {
    const curves = figure.panels.filter((p) => !p.dots || sides(figure)).flatMap((p) => p.curves);
    const used = new Set(curves.map((c) => c.label)), dashed = new Set(curves.filter((c) => c.dashed && sides(figure)).map((c) => c.label));
    const entries = figure.labels.map((text, i) => ({
      key: `curve ${i}`, text, used: used.has(i),
      mark: () => swatch(theme.curves[i % theme.curves.length], SYMBOLS[i % SYMBOLS.length], dashed.has(i) ? '5 3' : null, dashed.has(i)),
    }));
    const patterns = ['6 4', '2 3', '6 3 2 3', '9 4'];
    const owner = (text) => figure.panels.flatMap((p) => p.floors).find((f) => f.label === text).of;
    const floorMark = (text, i) => (sides(figure) ? swatch(theme.curves[owner(text) % theme.curves.length], null, '2 3')
      : swatch(theme.floor, null, patterns[i % 4]));
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
  draw(screenTheme()).then(() => { root.dataset.plots = 'ready'; });
  dark.addEventListener('change', () => draw(screenTheme()));
  addEventListener('beforeprint', () => draw(THEMES.light));
  addEventListener('afterprint', () => draw(screenTheme()));
})();
