'use strict';
// What a page adds to what is drawn already: texts under the pointer, curves that hide, tables that sort and filter,
// distributions on demand, and saving. Without it every plot and number is there.
(() => {
  const SVG = 'http://www.w3.org/2000/svg', NEAR = 28;
  const make = (name, attributes, ...children) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const element = (name, className, ...children) => {
    const node = document.createElement(name);
    node.className = className;
    node.append(...children);
    return node;
  };
  // Units as in the tables: `display_unit` of the program.
  const display = (unit, largest) => {
    if (unit === 'us') return ['µs', 1];
    if (unit === 'MB/s' && largest >= 1000) return ['GB/s', 1e-3];
    if (unit === '1/s' && largest >= 1e6) return ['M/s', 1e-6];
    return unit === 'B' && largest >= 10240 ? ['KiB', 1 / 1024] : [unit, 1];
  };
  const digits = (v) => (v >= 1000 ? Math.round(v).toLocaleString('en-US') : `${+v.toPrecision(3)}`);

  // Points: the nearest to the pointer tells its text. Titles of their own would be shown as well, later and alone.
  document.querySelectorAll('.canvas').forEach((canvas) => {
    const svg = canvas.querySelector('svg'), tip = element('div', 'tip');
    let points = null;
    tip.hidden = true;
    canvas.append(tip);
    const found = () => points ??= [...svg.querySelectorAll('use')].map((use) => {
      const title = use.querySelector('title'), text = title ? title.textContent : '';
      if (title) title.remove();
      return { use, text, x: +use.getAttribute('x'), y: +use.getAttribute('y') };
    });
    const nearest = (event) => {
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      let best = null, least = NEAR;
      for (const point of found()) {
        if (!point.use.parentNode.checkVisibility()) continue;
        const at = [box.left + point.x * scale, box.top + point.y * scale];
        const far = Math.hypot(at[0] - event.clientX, at[1] - event.clientY);
        if (far < least) [best, least] = [{ ...point, at: [at[0] - box.left, at[1] - box.top] }, far];
      }
      return best;
    };
    const tell = (point) => {
      tip.hidden = !point;
      if (!point) return;
      const [first, ...rest] = point.text.split('\n');
      tip.replaceChildren(element('b', '', first), ...rest.map((line) => element('div', '', line)));
      const [x, y] = point.at, room = canvas.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(x + 12 > room ? x - 12 - tip.offsetWidth : x + 12, room))}px`;
      tip.style.top = `${Math.max(0, Math.min(y - tip.offsetHeight / 2, canvas.clientHeight - tip.offsetHeight))}px`;
    };
    canvas.addEventListener('pointermove', (event) => tell(nearest(event)));
    canvas.addEventListener('pointerleave', () => tell(null));
    canvas.addEventListener('click', (event) => {
      const point = nearest(event), { cell } = point ? point.use.dataset : {};
      if (!cell) return;
      const panel = canvas.closest('.panel'), old = panel.querySelector('.distribution');
      if (old) old.remove();
      if (!old || old.dataset.cell !== cell) panel.append(distribution(cell, point.text.split('\n')));
    });
  });

  document.querySelectorAll('.legend button').forEach((button) => {
    button.addEventListener('click', () => {
      const hide = button.getAttribute('aria-pressed') === 'true', name = button.textContent;
      button.setAttribute('aria-pressed', String(!hide));
      for (const trace of button.closest('figure').querySelectorAll('.trace')) {
        if (trace.dataset.name === name) trace.classList.toggle('hidden', hide);
      }
    });
  });

  // Distributions: from the run that the page carries, which is read when the first is asked for.
  const runs = new Map();
  function result(cell) {
    const [run, index] = cell.split(',').map(Number);
    if (!runs.has(run)) runs.set(run, JSON.parse(document.getElementById(`run-${run + 1}`).textContent));
    return runs.get(run).results[index];
  }

  // Bars of equal width on a logarithmic axis, as far as there are finer bins.
  function bars(bins, low, high) {
    const count = Math.min(72, Math.max(12, bins.length)), all = new Array(count).fill(0);
    const place = (v) => Math.log(v / low) / Math.log(high / low) * count;
    for (const [from, to, n] of bins) {
      const [a, b] = [place(Math.max(from, low)), place(Math.min(Math.max(to, from), high))];
      const first = Math.min(count - 1, Math.floor(a)), last = Math.min(count - 1, Math.floor(b));
      for (let i = first; i <= last; i++) {
        const share = first === last ? 1 : (Math.min(b, i + 1) - Math.max(a, i)) / (b - a);
        all[i] += n * share;
      }
    }
    return all;
  }

  function distribution(cell, [name, where]) {
    const r = result(cell), bins = r.histogram ? r.histogram.bins.filter(([, to]) => to > 0) : [];
    const node = element('div', 'distribution', element('h5', '', `${name}, ${where}`));
    node.dataset.cell = cell;
    const launches = (r.launches || []).map((l) => l.median).filter((v) => v > 0);
    if (!bins.length && !launches.length) {
      node.append(element('p', 'hint', 'This result has no distribution.'));
      return node;
    }
    const ends = bins.length ? [bins[0][0] || bins[0][1], bins.at(-1)[1]] : [Math.min(...launches), Math.max(...launches)];
    const [low, high] = [Math.min(ends[0], ...launches) / 1.01, Math.max(ends[1], ...launches) * 1.01];
    const [width, height, foot] = [560, 170, 34];
    const x = (v) => Math.log(v / low) / Math.log(high / low) * width;
    const [unit, scale] = display(r.unit, r.median), shown = (v) => digits(v * scale);
    const counts = bars(bins, low, high), most = Math.max(1, ...counts), svg = make('svg', {
      viewBox: `0 0 ${width} ${height}`, role: 'img', class: 'k0',
      'aria-label': `Distribution of ${name}: median ${shown(r.median)} ${unit}, from ${shown(low)} to ${shown(high)}`,
    });
    if (r.ci95) svg.append(make('rect', { class: 'band', x: x(Math.max(r.ci95[0], low)), width: Math.max(1, x(Math.min(r.ci95[1], high)) - x(Math.max(r.ci95[0], low))), y: 0, height: height - foot }));
    counts.forEach((n, i) => {
      const tall = n / most * (height - foot - 4);
      if (n > 0) svg.append(make('rect', { class: 'count', x: i * width / counts.length, width: width / counts.length - 0.8, y: height - foot - Math.max(tall, 0.7), height: Math.max(tall, 0.7) }));
    });
    svg.append(make('path', { class: 'launches', d: launches.map((v) => `M${x(v)} ${height - foot + 2}v9`).join('') }));
    const ticks = Array.from({ length: 5 }, (_, i) => low * (high / low) ** (i / 4));
    ticks.forEach((v, i) => svg.append(make('text', { x: i * width / 4, y: height - 6, 'text-anchor': ['start', 'middle', 'middle', 'middle', 'end'][i] }, shown(v))));
    const each = r.batch > 1 ? `, each the mean of ${r.batch} operations` : '';
    node.append(svg, element('p', 'hint', `${r.n.toLocaleString('en-US')} samples${each} in ${unit}, logarithmic; shaded: the 95 % interval of the median; marks below: the median of each launch.`));
    return node;
  }

  const tables = [...document.querySelectorAll('table.results')];
  const closeAll = () => tables.forEach((table) => {
    table.querySelectorAll('tr.drawn').forEach((row) => row.remove());
    table.querySelectorAll('button.cell').forEach((button) => button.setAttribute('aria-expanded', 'false'));
  });
  document.querySelectorAll('button.cell').forEach((button) => {
    button.addEventListener('click', () => {
      const row = button.closest('tr'), next = row.nextElementSibling;
      if (next && next.classList.contains('drawn')) {
        next.remove();
        return button.setAttribute('aria-expanded', 'false');
      }
      const said = [...row.cells].filter((c) => !c.classList.contains('number')).map((c) => c.textContent).slice(0, -1);
      const size = [...row.cells].find((c) => c.dataset.l === 'size').textContent;
      const cell = element('td', '', distribution(button.dataset.cell, [said.filter(Boolean).join(', '), size]));
      cell.colSpan = row.cells.length;
      row.after(element('tr', 'drawn', cell));
      button.setAttribute('aria-expanded', 'true');
    });
  });

  // Numbers by data-v, absent ones last in either direction; texts by their own order.
  function compare(a, b, numeric) {
    if (numeric) {
      const x = a.dataset.v, y = b.dataset.v;
      if (x === undefined || y === undefined) return { known: false, order: (x === undefined) - (y === undefined) };
      return { known: true, order: x - y };
    }
    return { known: true, order: a.textContent.localeCompare(b.textContent, 'en', { numeric: true }) };
  }

  function sort(table, head, column) {
    closeAll();
    const direction = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
    table.querySelectorAll('thead th').forEach((th) => th.setAttribute('aria-sort', 'none'));
    head.setAttribute('aria-sort', direction);
    const body = table.tBodies[0], numeric = head.classList.contains('number'), sign = direction === 'ascending' ? 1 : -1;
    const rows = [...body.rows].sort((a, b) => {
      const { known, order } = compare(a.cells[column], b.cells[column], numeric);
      return known ? sign * order : order;
    });
    body.append(...rows);
  }

  tables.forEach((table) => {
    table.querySelectorAll('thead th').forEach((head, column) => {
      head.querySelector('button').addEventListener('click', () => sort(table, head, column));
    });
  });

  // Words are found from their beginning, whatever stands between them: `write nic` is in `write (nic → host)`.
  const filter = document.getElementById('filter'), doubtful = document.getElementById('doubtful');
  const shown = document.getElementById('shown');
  const fold = (text) => ` ${text.toLowerCase().replace(/[\s()→,;]+/g, ' ').trim()}`;
  const texts = new Map(tables.flatMap((t) => [...t.tBodies[0].rows].map((row) => [row, fold([...row.cells].map((c) => c.textContent).join(' '))])));

  // Commas separate phrases, all of which a row must have; without one every word must be there.
  function apply() {
    closeAll();
    const typed = filter.value, wanted = (typed.includes(',') ? typed.split(',') : typed.split(/\s+/)).map(fold).filter((p) => p !== ' ');
    let count = 0;
    texts.forEach((text, row) => {
      row.hidden = !wanted.every((phrase) => text.includes(phrase)) || (doubtful.checked && !row.dataset.doubtful);
      count += !row.hidden;
    });
    shown.textContent = `${count.toLocaleString('en-US')} of ${texts.size.toLocaleString('en-US')} ${filter.dataset.what || 'results'}`;
  }
  filter.addEventListener('input', apply);
  doubtful.addEventListener('change', apply);
  filter.form.addEventListener('submit', (event) => event.preventDefault());

  document.querySelectorAll('.download').forEach((button) => {
    button.addEventListener('click', () => {
      const text = document.getElementById(button.dataset.run).textContent;
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
      link.download = `nicety-${button.dataset.run}.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  });
  document.documentElement.dataset.page = 'ready';
})();
