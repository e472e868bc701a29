// Draws the timelines of a trace: a canvas for each row, all with the same range of time.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("trace-data").textContent);
  const holder = document.getElementById("trace-rows");
  const note = document.getElementById("trace-note");
  const filter = document.getElementById("trace-filter");
  const failures = document.getElementById("trace-failures");
  const LANE = 9, STEPS = 34, AXIS = 16, FAILED = 1;
  // The first bar may be long after the start of the process.
  const first = data.rows.reduce((least, row) => row.bars.reduce((least, bar) => Math.min(least, bar[0]), least), data.end);
  // Differences of times below this are lost in rounding; steps of the axis are larger.
  const finest = Math.max(1e-4, data.end * 1e-12);
  const margin = Math.max((data.end - first) * 0.01, 10 * finest);
  const whole = [Math.max(first - margin, 0), data.end + margin];
  let view = whole.slice();
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let colours = [];
  const readColours = () => {
    // Plain, failed, wait, ended with a later one, without an end, mark.
    colours = ["--c0", "--c8", "--c4", "--c5", "--c1", "--c2"].map(colour);
  };

  const rows = data.rows.map(row => {
    const box = document.createElement("div");
    box.className = "trace-row";
    const title = document.createElement("h4");
    title.textContent = row.name;
    const canvas = document.createElement("canvas");
    box.append(title, canvas);
    holder.append(box);
    const lanes = row.bars.reduce((most, bar) => Math.max(most, bar[2] + 1), 1);
    const shown = Math.min(lanes, 40);
    const height = AXIS + shown * LANE + (row.steps.length ? STEPS : 0);
    row.bars.sort((a, b) => a[0] - b[0]);
    return { ...row, box, canvas, shown, height, hasFailed: row.bars.some(bar => bar[3] === FAILED) };
  });

  const unit = us => us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : us >= 1 ? [1, "us"] : [1e-3, "ns"];
  const text = (us, per) => {
    const [size, name] = unit(per);
    return (us / size).toFixed(2).replace(/\.?0+$/, "") + " " + name;
  };

  const draw = row => {
    const { canvas } = row;
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.style.height = row.height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(row.height * ratio);
    const to = canvas.getContext("2d");
    to.scale(ratio, ratio);
    const [from, until] = view, scale = width / (until - from), x = us => (us - from) * scale;
    axis(to, width, row.height, x);
    for (const bar of row.bars) {
      if (bar[1] < from || bar[0] > until) continue;
      const left = Math.max(x(bar[0]), -2), right = Math.min(x(bar[1]), width + 2);
      to.fillStyle = colours[bar[3]];
      to.fillRect(left, AXIS + Math.min(bar[2], row.shown - 1) * LANE, Math.max(right - left, 1.5), LANE - 2);
    }
    if (row.steps.length) steps(to, row, width, x);
  };

  const axis = (to, width, height, x) => {
    const span = view[1] - view[0], raw = span / 8, base = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(factor => factor * base).find(size => size >= raw);
    to.fillStyle = colour("--soft");
    to.strokeStyle = colour("--grid");
    to.font = "10px system-ui, sans-serif";
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      const place = x(at);
      to.beginPath();
      to.moveTo(place, 0);
      to.lineTo(place, height);
      to.stroke();
      to.fillText(text(at, step), place + 2, 10);
    }
  };

  const steps = (to, row, width, x) => {
    const top = AXIS + row.shown * LANE + 4, high = STEPS - 6;
    const most = Math.max(row.size, row.steps.reduce((most, step) => Math.max(most, step[1]), 1));
    const y = depth => top + high - depth / most * high;
    to.fillStyle = colours[3];
    to.globalAlpha = 0.35;
    to.beginPath();
    to.moveTo(x(row.steps[0][0]), y(0));
    row.steps.forEach((step, at) => {
      const next = at + 1 < row.steps.length ? row.steps[at + 1][0] : whole[1];
      to.lineTo(x(step[0]), y(step[1]));
      to.lineTo(x(next), y(step[1]));
    });
    to.lineTo(x(whole[1]), y(0));
    to.fill();
    to.globalAlpha = 1;
    to.fillStyle = colour("--soft");
    to.font = "10px system-ui, sans-serif";
    to.fillText("depth, " + (row.size ? "of " + row.size : "at most " + most), 2, top + 8);
  };

  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const span = view[1] - view[0];
      document.getElementById("trace-range").textContent = text(view[0], span) + " to " + text(view[1], span);
      rows.filter(row => !row.box.hidden).forEach(draw);
    });
  };

  const set = (from, until) => {
    const span = Math.min(Math.max(until - from, finest), whole[1] - whole[0]);
    from = Math.min(Math.max(from, whole[0]), whole[1] - span);
    view = [from, from + span];
    redraw();
  };

  const select = () => {
    const words = filter.value.toLowerCase();
    rows.forEach(row => {
      const has = () => row.name.toLowerCase().includes(words) || row.bars.some(bar => bar[4].toLowerCase().includes(words));
      row.box.hidden = failures.checked && !row.hasFailed || words !== "" && !has();
    });
    redraw();
  };

  const pointed = (row, event) => {
    const box = row.canvas.getBoundingClientRect(), scale = (view[1] - view[0]) / box.width;
    const time = view[0] + (event.clientX - box.left) * scale, lane = Math.floor((event.clientY - box.top - AXIS) / LANE);
    const near = 4 * scale;
    let best = null, least = Infinity;
    for (const bar of row.bars) {
      if (Math.min(bar[2], row.shown - 1) !== lane) continue;
      const away = time < bar[0] ? bar[0] - time : time > bar[1] ? time - bar[1] : 0;
      if (away <= near && away <= least) { best = bar; least = away; }
    }
    note.textContent = best ? row.name + "\n" + text(best[0], 1) + "  " + best[4] : row.name + "\n" + text(time, view[1] - view[0]);
  };

  for (const row of rows) {
    let drag = null;
    row.canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const box = row.canvas.getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
      const factor = event.deltaY > 0 ? 1.25 : 0.8, span = view[1] - view[0], at = view[0] + part * span;
      set(at - part * span * factor, at + (1 - part) * span * factor);
    }, { passive: false });
    row.canvas.addEventListener("pointerdown", event => {
      drag = [event.clientX, view[0], view[1]];
      row.canvas.setPointerCapture(event.pointerId);
    });
    row.canvas.addEventListener("pointerup", () => { drag = null; });
    row.canvas.addEventListener("pointermove", event => {
      if (!drag) return pointed(row, event);
      const moved = (event.clientX - drag[0]) / row.canvas.clientWidth * (drag[2] - drag[1]);
      set(drag[1] - moved, drag[2] - moved);
    });
  }
  filter.addEventListener("input", select);
  failures.addEventListener("change", select);
  document.getElementById("trace-all").addEventListener("click", () => set(...whole));
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
  readColours();
  set(...whole);
})();
