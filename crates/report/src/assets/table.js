'use strict';
// Sorting, filtering and saving; without this script the tables are still whole.
(() => {
  const tables = [...document.querySelectorAll('table.results')];

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

  const filter = document.getElementById('filter'), doubtful = document.getElementById('doubtful');
  const shown = document.getElementById('shown');
  const fold = (text) => text.toLowerCase().replace(/\s+/g, ' ');
  const texts = new Map(tables.flatMap((t) => [...t.tBodies[0].rows].map((row) => [row, fold([...row.cells].map((c) => c.textContent).join(' '))])));

  // Commas separate phrases, all of which a row must have; within a phrase every word must be there.
  function apply() {
    const phrases = fold(filter.value).split(',').map((p) => p.trim()).filter(Boolean);
    const wanted = phrases.length > 1 ? phrases : fold(filter.value).split(' ').filter(Boolean);
    let count = 0;
    texts.forEach((text, row) => {
      row.hidden = !wanted.every((word) => text.includes(word)) || (doubtful.checked && !row.dataset.doubtful);
      count += !row.hidden;
    });
    shown.textContent = `${count.toLocaleString('en-US')} of ${texts.size.toLocaleString('en-US')} results`;
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
})();
