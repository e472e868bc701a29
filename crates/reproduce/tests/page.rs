//! The reproduction in a real browser, as the report's own test shows the report.
//!
//! Needs Chromium on PATH: without one the test fails if `CI=true`, and is skipped with a message otherwise.

#[path = "../../report/tests/page/browser.rs"]
mod browser;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use browser::{CUT, TRACES, WIDE, browser, file, quiet};
use reproduce::{Class, Moves, Probe, Request, Row, html, reproduce, select};
use serde_json::json;

/// Cells of tables so narrow that words are broken letter by letter.
const SPELLED: &str = "[...document.querySelectorAll('td, th')].filter(cell => { \
                       const text = document.createRange(); text.selectNodeContents(cell); \
                       const height = text.getBoundingClientRect().height; \
                       const lines = height / (parseFloat(getComputedStyle(cell).fontSize) * 1.55); \
                       return lines > 3 && cell.textContent.length / lines < 4; }).map(cell => cell.textContent)";

/// Goal: the papers' figures are drawn, on their axes, with the published points in their curve's colour.
#[test]
fn the_reproduction_shows_the_papers_figures() {
    let Some(mut browser) = browser() else { return };
    let made_up = |probe: &Probe| Ok(3.0 + (probe.cell.size as f64).sqrt());
    let rows = select(None).expect("all rows");
    let experiments: BTreeSet<&str> = rows.iter().map(|row| row.experiment.as_str()).collect();
    let request = Request {
        rows: rows.clone(),
        figures: true,
        machines: Vec::new(),
        moves: Moves::stored(),
        changes: Vec::new(),
        measure: &made_up,
        threads: 2,
    };
    let all = reproduce(request, &mut (), &AtomicBool::new(false)).expect("not stopped");
    let text = html(&all).expect("a page");
    // The rows furthest off name their subject, also rows with one number and no variant.
    let furthest = text.split("Furthest off").nth(1).and_then(|rest| rest.split("</ul>").next());
    let items: Vec<&str> = furthest.expect("a list").split("</b> ").skip(1).collect();
    let names = |item: &&str| item.split(", ").next().is_some_and(|name| experiments.contains(name));
    assert!(!items.is_empty() && items.iter().all(names), "{items:?}");
    let fitted = text.split("id=\"fitted\"").nth(1).and_then(|rest| rest.split("</section>").next());
    let lines = fitted.map(|table| table.matches("<code>host.wake_ns</code>").count());
    let values: BTreeSet<_> =
        all.fitted.iter().filter(|one| one.key == "host.wake_ns").map(|one| &one.rows).collect();
    assert_eq!(lines, Some(values.len()), "what cards of one family share is one line");
    let page = file("reproduction.html", &text);
    browser.look(1280, 900, "light");
    browser.open(&page);
    let drawn: Vec<[u64; 2]> = serde_json::from_value(browser.eval(TRACES)).expect("counts");
    // How far numbers are off, and the figures: ten of MPI over iWARP, seven of several rails, fourteen of SeaStar.
    let is_drawn = |row: &&Row| row.is_scored() || row.class == Class::Fitted && !row.apart;
    let numbers = all.rows.iter().filter(is_drawn).filter(|row| !row.qualitative && row.ratio.is_some());
    let mut of_papers: BTreeMap<&str, usize> = BTreeMap::new();
    numbers.for_each(|row| *of_papers.entry(&row.paper).or_default() += 1);
    assert_eq!(of_papers.len(), 5);
    let residuals: usize = of_papers.values().map(|count| count.div_ceil(14)).sum();
    assert_eq!(drawn.len(), 80 + residuals);
    assert!(drawn.iter().all(|[svgs, traces]| *svgs > 0 && *traces > 0), "empty plots: {drawn:?}");
    // In a figure with only zero values, too, each point has its place.
    let placed = format!(
        "document.querySelectorAll('.canvas')[{}].querySelectorAll('.trace use[href^=\"#s\"]').length",
        residuals + 1
    );
    assert_eq!(browser.eval(&placed), json!(21));
    // A published point has the colour of its curve.
    let colours = "(() => { const traces = [...document.querySelectorAll('.canvas')[FIGURE].querySelectorAll('.trace')]; \
                   const first = traces.find((t) => t.dataset.name === 'published'); \
                   return [first.className.baseVal, traces.find((t) => t.dataset.name !== 'published').className.baseVal, \
                   first.querySelector('title').textContent]; })()";
    let told = browser.eval(&colours.replace("FIGURE", &(residuals + 3).to_string()));
    assert_eq!(told[0], told[1], "{told}");
    assert!(told[2].as_str().is_some_and(|text| text.contains("886")), "{told}");
    assert_eq!(browser.eval(CUT), json!([]), "something is cut off on a desktop, or in a box to scroll");
    let columns = "(() => { const at = (cells) => [...document.querySelectorAll(cells)].map((c) => c.getBoundingClientRect().x); \
                   return [at('table.results thead th'), at('table.results tbody tr:first-child > *')]; })()";
    let columns = browser.eval(columns);
    assert_eq!(columns[0], columns[1], "heads stand over other columns than theirs");
    let filter = "(() => { const f = document.getElementById('filter'); f.value = 'NM-043'; \
                  f.dispatchEvent(new Event('input')); \
                  return [...document.querySelectorAll('table.results tbody tr')].filter(r => !r.hidden).length; })()";
    assert_eq!(browser.eval(filter), json!(1));
    browser.screenshot(&page.with_file_name("reproduction.png"));
    browser.look(390, 844, "light");
    browser.screenshot(&page.with_file_name("reproduction-phone.png"));
    assert_eq!(browser.eval(WIDE), json!([]), "the page is wider than a phone");
    assert_eq!(browser.eval(SPELLED), json!([]), "cells of which a line holds hardly a letter");
    quiet(&browser);
}
