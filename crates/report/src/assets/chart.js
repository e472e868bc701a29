'use strict';
// Chart: curves and marks as SVG. A point tells its text under the pointer, dragging zooms, a double click goes back.
//
// A trace has x, y, text, colour, visible, and what of it is drawn: line { width, dash }, mark { symbol, size, hollow },
// bars { along, low, high } for intervals. An axis has title, log, range in data units, and ticks(range) that gives
// [{ value, text }]; one that is fixed does not zoom. Texts may have <b> and <br> and escaped characters, and nothing else.
const Chart = (() => {
  // Marks in the box -7 to 7.
  const SHAPES = {
    circle: 'M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z', square: 'M-3.5 -3.5H3.5V3.5H-3.5Z', diamond: 'M0 -5L5 0L0 5L-5 0Z',
    'triangle-up': 'M0 -5L4.5 3.5H-4.5Z', 'triangle-down': 'M0 5L4.5 -3.5H-4.5Z',
    x: 'M-4 -2L-2 -4L0 -2L2 -4L4 -2L2 0L4 2L2 4L0 2L-2 4L-4 2L-2 0Z', cross: 'M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z',
    star: 'M0 -5L1.4 -1.6L5 -1.6L2.2 .8L3.2 4.4L0 2.3L-3.2 4.4L-2.2 .8L-5 -1.6L-1.4 -1.6Z',
    dash: 'M-7 0H7', bar: 'M0 -7V7',
  };
  // Pixels: above and right of the curves, of a line of text, how near the pointer must be, what is no click any more.
  const TOP = 26, RIGHT = 14, LINE = 18, NEAR = 28, DRAG = 5;

  const svg = (name, attributes, ...children) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined && value !== null) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  const pen = document.createElement('canvas').getContext('2d');
  const widthOf = (text, font) => {
    pen.font = `11px ${font}`;
    return pen.measureText(text).width;
  };

  const scaled = (axis, v) => (axis.log ? Math.log10(v) : v);
  const unscaled = (axis, v) => (axis.log ? 10 ** v : v);

  // From values to pixels, and back.
  function scale(axis, range, from, to) {
    const [low, high] = range.map((v) => scaled(axis, v));
    return {
      at: (v) => from + ((scaled(axis, v) - low) / (high - low)) * (to - from),
      value: (pixel) => unscaled(axis, low + ((pixel - from) / (to - from)) * (high - low)),
      ticks: axis.ticks(range).filter((t) => scaled(axis, t.value) >= Math.min(low, high) - 1e-9 && scaled(axis, t.value) <= Math.max(low, high) + 1e-9),
    };
  }

  function frame(canvas, chart) {
    const font = getComputedStyle(document.body).fontFamily;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const bottom = height - 2 * LINE - 10;
    const y = scale(chart.axes.y, chart.zoom.y, bottom, TOP);
    const labels = Math.max(0, ...y.ticks.map((t) => widthOf(t.text, font)));
    const left = Math.min(labels + 10 + (chart.axes.y.title ? LINE + 2 : 0), width * 0.6);
    return { width, height, left, bottom, right: width - RIGHT, y, x: scale(chart.axes.x, chart.zoom.x, left, width - RIGHT), font };
  }

  function grid(chart, box) {
    const { theme, axes } = chart, { left, right, bottom, x, y } = box;
    const group = svg('g', { class: 'grid', 'font-size': 11, fill: theme.soft });
    let free = -Infinity;
    for (const { value, text } of x.ticks) {
      const at = x.at(value), half = widthOf(text, box.font) / 2;
      group.append(svg('path', { d: `M${at} ${TOP}V${bottom}`, stroke: theme.grid }));
      if (at - half < free) continue;
      group.append(svg('text', { x: at, y: bottom + LINE - 2, 'text-anchor': 'middle' }, text));
      free = at + half + 6;
    }
    let low = Infinity;
    for (const { value, text } of [...y.ticks].sort((a, b) => y.at(b.value) - y.at(a.value))) {
      const at = y.at(value);
      group.append(svg('path', { d: `M${left} ${at}H${right}`, stroke: theme.grid }));
      if (at > low - 11) continue;
      group.append(svg('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, text));
      low = at;
    }
    const title = { 'font-size': 12, 'text-anchor': 'middle' };
    if (axes.x.title) group.append(svg('text', { x: (left + right) / 2, y: box.height - 6, ...title }, axes.x.title));
    if (axes.y.title) group.append(svg('text', { transform: `translate(${LINE - 4} ${(TOP + bottom) / 2}) rotate(-90)`, ...title }, axes.y.title));
    return group;
  }

  // An interval with its ends.
  function interval(bars, i, px, py, { x, y }) {
    if (bars.along === 'y') {
      const [low, high] = [y.at(bars.low[i]), y.at(bars.high[i])];
      return `M${px} ${low}V${high}M${px - 2.5} ${low}H${px + 2.5}M${px - 2.5} ${high}H${px + 2.5}`;
    }
    const [low, high] = [x.at(bars.low[i]), x.at(bars.high[i])];
    return `M${low} ${py}H${high}M${low} ${py - 2.5}V${py + 2.5}M${high} ${py - 2.5}V${py + 2.5}`;
  }

  function drawn(trace, box, theme, spots) {
    const { colour, line, mark, bars } = trace;
    const at = trace.x.map((v, i) => [box.x.at(v), box.y.at(trace.y[i])]);
    // A logarithmic axis has no place for what is not above nothing.
    const shown = at.map((_, i) => i).filter((i) => at[i].every(Number.isFinite));
    const group = svg('g', { class: 'trace', fill: 'none', stroke: colour });
    if (line && shown.length > 1) group.append(svg('path', { class: 'line', d: `M${shown.map((i) => at[i].join(' ')).join('L')}`, 'stroke-width': line.width, 'stroke-dasharray': line.dash }));
    if (bars) group.append(svg('path', { d: shown.map((i) => interval(bars, i, ...at[i], box)).join(''), 'stroke-width': 1.2 }));
    const points = svg('g', { class: 'points' });
    for (const i of shown) {
      const [px, py] = at[i];
      const plain = !mark || mark.symbol === 'dash' || mark.symbol === 'bar';
      if (mark) {
        points.append(svg('path', {
          d: SHAPES[mark.symbol], transform: `translate(${px} ${py}) scale(${mark.size / (plain ? 14 : 8)})`,
          fill: plain ? 'none' : mark.hollow ? theme.paper : colour, 'stroke-width': plain || mark.hollow ? mark.stroke || 1.5 : 0, 'vector-effect': 'non-scaling-stroke',
        }));
      }
      if (trace.text) spots.push({ px, py, text: trace.text[i], colour });
    }
    group.append(points);
    return group;
  }

  // Texts as nodes: nothing in them becomes markup.
  function lines(text) {
    const plain = (t) => t.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&amp;/g, '&');
    return text.split('<br>').map((line) => {
      const row = document.createElement('div');
      line.split(/<b>(.*?)<\/b>/).forEach((part, i) => {
        if (!part) return;
        const bold = document.createElement('b');
        bold.textContent = plain(part);
        row.append(i % 2 ? bold : plain(part));
      });
      return row;
    });
  }

  function tell(canvas, spot) {
    const { tip } = canvas.chart;
    tip.hidden = !spot;
    if (!spot) return;
    tip.replaceChildren(...lines(spot.text));
    tip.style.borderColor = spot.colour;
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    const left = spot.px + 12 + width > canvas.clientWidth ? spot.px - 12 - width : spot.px + 12;
    tip.style.left = `${Math.max(0, Math.min(left, canvas.clientWidth - width))}px`;
    tip.style.top = `${Math.max(0, Math.min(spot.py - height / 2, canvas.clientHeight - height))}px`;
  }

  const place = (canvas, event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };

  function nearest(chart, x, y) {
    let best = null, least = NEAR;
    for (const spot of chart.spots) {
      const far = Math.hypot(spot.px - x, spot.py - y);
      if (far < least) [best, least] = [spot, far];
    }
    return best;
  }

  // The part of the axes between two places, or nothing if that is no area.
  function part(chart, [fromX, fromY], [toX, toY]) {
    const { box, axes } = chart, zoom = { ...chart.zoom };
    const inside = (v, low, high) => Math.max(low, Math.min(high, v));
    const [x0, x1] = [fromX, toX].map((v) => inside(v, box.left, box.right)).sort((a, b) => a - b);
    const [y0, y1] = [fromY, toY].map((v) => inside(v, TOP, box.bottom)).sort((a, b) => a - b);
    if (!axes.x.fixed && x1 - x0 > DRAG) zoom.x = [box.x.value(x0), box.x.value(x1)];
    if (!axes.y.fixed && y1 - y0 > DRAG) zoom.y = [box.y.value(y1), box.y.value(y0)];
    return { zoom, rect: { x: x0, y: axes.y.fixed ? TOP : y0, width: x1 - x0, height: axes.y.fixed ? box.bottom - TOP : y1 - y0 } };
  }

  function listen(canvas) {
    let from = null, marked = null;
    const end = () => {
      if (marked) marked.remove();
      [from, marked] = [null, null];
    };
    canvas.addEventListener('pointerdown', (event) => {
      if (event.pointerType !== 'mouse' || event.button !== 0) return;
      from = place(canvas, event);
      canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    canvas.addEventListener('pointermove', (event) => {
      const at = place(canvas, event), { chart } = canvas;
      if (!from) return tell(canvas, nearest(chart, ...at));
      tell(canvas, null);
      if (!marked) canvas.querySelector('svg').append(marked = svg('rect', { fill: chart.theme.soft, 'fill-opacity': 0.2 }));
      for (const [key, value] of Object.entries(part(chart, from, at).rect)) marked.setAttribute(key, value);
    });
    canvas.addEventListener('pointerup', (event) => {
      const at = place(canvas, event), dragged = from && Math.hypot(at[0] - from[0], at[1] - from[1]) > DRAG;
      if (dragged) canvas.chart.zoom = part(canvas.chart, from, at).zoom;
      end();
      if (dragged) render(canvas);
    });
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('pointerleave', () => from || tell(canvas, null));
    canvas.addEventListener('dblclick', () => {
      canvas.chart.zoom = whole(canvas.chart.axes);
      render(canvas);
    });
    new ResizeObserver(() => render(canvas)).observe(canvas);
  }

  const whole = (axes) => ({ x: axes.x.range, y: axes.y.range });
  let clips = 0;

  function render(canvas) {
    const { chart } = canvas, box = frame(canvas, chart);
    [chart.box, chart.spots] = [box, []];
    const clip = `clip-${clips++}`;
    const curves = svg('g', { 'clip-path': `url(#${clip})` });
    curves.append(...chart.traces.filter((t) => t.visible).map((t) => drawn(t, box, chart.theme, chart.spots)));
    const area = svg('rect', { x: box.left - 8, y: TOP - 8, width: Math.max(0, box.right - box.left + 16), height: Math.max(0, box.bottom - TOP + 16) });
    chart.spots = chart.spots.filter((s) => s.px >= box.left - 8 && s.px <= box.right + 8 && s.py >= TOP - 8 && s.py <= box.bottom + 8);
    const all = svg('svg', { role: 'img', 'aria-label': `${chart.axes.y.title || ''} ${chart.axes.x.title || ''}`.trim(), width: box.width, height: box.height });
    all.append(svg('clipPath', { id: clip }, area), grid(chart, box), curves);
    canvas.replaceChildren(all, chart.tip);
    tell(canvas, null);
  }

  // Draws anew; what was zoomed stays so.
  function draw(canvas, traces, axes, theme) {
    const old = canvas.chart, tip = old ? old.tip : document.createElement('div');
    tip.className = 'tip';
    canvas.chart = { traces, axes, theme, tip, zoom: old ? old.zoom : whole(axes) };
    render(canvas);
    if (!old) listen(canvas);
  }

  return { SHAPES, draw, tell: (canvas, trace, point) => tell(canvas, canvas.chart.spots.find((s) => s.text === canvas.chart.traces[trace].text[point])) };
})();
