//! The report in a real browser: it asks nothing of the network, complains of nothing, and shows its plots.
//!
//! Needs Chromium on PATH: without one the tests fail if `CI=true`, and are skipped with a message otherwise.
//! Screenshots for people land in the target directory's `tmp/report`.

#[path = "page/browser.rs"]
mod browser;
#[path = "page/made_up.rs"]
mod made_up;

use bench::schema::Run;
use bench::variant::factor;
use browser::{Browser, TRACES, browser, file, quiet};
use serde_json::json;

#[test]
fn the_page_shows_its_plots_and_is_quiet() {
    let Some(mut browser) = browser() else { return };
    let run = made_up::run(42);
    let page = file("one.html", &report::html(std::slice::from_ref(&run)).expect("a page"));
    browser.look(1280, 900, "light");
    browser.open(&page);
    let drawn: Vec<[u64; 2]> = serde_json::from_value(browser.eval(TRACES)).expect("counts");
    assert!(drawn.len() >= 10, "{drawn:?}");
    assert!(drawn.iter().all(|[svgs, traces]| *svgs > 0 && *traces > 0), "empty plots: {drawn:?}");
    let curves = browser.eval("document.querySelectorAll('.trace .points path').length");
    assert!(curves.as_u64() > Some(1000), "few points: {curves}");
    browser.screenshot(&page.with_file_name("light.png"));

    browser.look(1280, 900, "dark");
    let paper = browser.eval("getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, json!("rgb(20, 23, 27)"));
    // Many plots are drawn anew, one after the other, which takes its time on a busy machine.
    let ink = browser.eval(
        "new Promise(done => { let left = 300; const look = () => { \
         const ink = document.querySelector('.canvas').chart.theme.soft; \
         ink === '#a0a9b4' || left-- === 0 ? done(ink) : setTimeout(look, 100); }; look(); })",
    );
    assert_eq!(ink, json!("#a0a9b4"), "the plots follow the colour scheme");
    browser.screenshot(&page.with_file_name("dark.png"));

    browser.look(390, 844, "light");
    let wide = browser.eval(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll table, svg') && \
         e.getBoundingClientRect().right > screen.width).map(e => e.tagName + '.' + e.className)",
    );
    browser.screenshot(&page.with_file_name("phone.png"));
    assert_eq!(wide, json!([]), "the page is wider than a phone");
    quiet(&browser);
}

#[test]
fn tables_sort_and_filter_and_curves_hide() {
    let Some(mut browser) = browser() else { return };
    let run = made_up::run(42);
    let page = file("sort.html", &report::html(std::slice::from_ref(&run)).expect("a page"));
    browser.open(&page);
    let click = "(name) => { const th = [...document.querySelectorAll('#results th')].find(t => \
                 t.textContent.startsWith(name)); th.querySelector('button').click(); \
                 const i = th.cellIndex; return [th.getAttribute('aria-sort'), \
                 [...th.closest('table').tBodies[0].rows].map(r => r.cells[i].dataset.v ?? null)]; }";
    for direction in ["ascending", "descending"] {
        let told = browser.eval(&format!("({click})('median MB/s')"));
        assert_eq!(told[0], json!(direction));
        let values: Vec<f64> = told[1]
            .as_array()
            .expect("rows")
            .iter()
            .map(|v| v.as_str().expect("v").parse().expect("number"))
            .collect();
        let sorted = |a: &f64, b: &f64| if direction == "ascending" { a <= b } else { a >= b };
        assert!(values.len() > 100 && values.is_sorted_by(sorted), "not {direction}");
    }
    // Absent numbers stay last either way.
    for _ in 0..2 {
        let told = browser.eval(&format!("({click})('95 % interval µs')"));
        let values = told[1].as_array().expect("rows");
        assert!(values[0].is_string() && values[values.len() - 1].is_null());
    }
    let filter = "(text) => { const f = document.getElementById('filter'); f.value = text; \
                  f.dispatchEvent(new Event('input')); \
                  return [...document.querySelectorAll('table.results tbody tr')].filter(r => !r.hidden).length; }";
    let cas = run.results.iter().filter(|r| r.variant.is(factor::OP, "cas")).count();
    assert_eq!(browser.eval(&format!("({filter})('cas')")), json!(cas));
    assert_eq!(browser.eval(&format!("({filter})('')")), json!(run.results.len()));

    let hidden = browser.eval(
        "document.querySelector('.legend button').click(), \
         document.querySelector('.canvas').chart.traces.filter(t => !t.visible).length",
    );
    assert_eq!(hidden, json!(1), "the legend hides a curve");
    quiet(&browser);
}

#[test]
fn the_page_is_its_own_data_file() {
    let Some(mut browser) = browser() else { return };
    let runs = [made_up::run(1), made_up::run(2)];
    let page = file("two.html", &report::html(&runs).expect("a page"));
    browser.open(&page);
    for (i, run) in runs.iter().enumerate() {
        // What the button saves is this element's text.
        let text = browser.eval(&format!("document.getElementById('run-{}').textContent", i + 1));
        let read = Run::from_json(text.as_str().expect("text")).expect("a result file");
        assert_eq!(read, *run);
    }
    let saved = browser.eval(
        "new Promise(done => { URL.createObjectURL = blob => { blob.text().then(done); return 'blob:none'; }; \
         HTMLAnchorElement.prototype.click = () => {}; document.querySelectorAll('.download')[1].click(); })",
    );
    assert_eq!(Run::from_json(saved.as_str().expect("text")).expect("a result file"), runs[1]);
    browser.screenshot(&page.with_file_name("two.png"));
    quiet(&browser);
}

#[test]
fn hostile_strings_stay_text() {
    let Some(mut browser) = browser() else { return };
    let page = file("hostile.html", &report::html(&[made_up::hostile()]).expect("a page"));
    browser.open(&page);
    // Wake the text of a point.
    browser.eval("Chart.tell(document.querySelector('.canvas'), 0, 1)");
    assert_ne!(browser.eval("document.querySelector('.tip:not([hidden])')?.textContent ?? ''"), json!(""));
    assert_eq!(
        browser.eval("document.querySelectorAll('img, b script, a[href^=javascript]').length"),
        json!(0)
    );
    assert_eq!(browser.eval("document.scripts.length"), json!(5));
    let links = "[...document.querySelectorAll('svg a')].map(a => a.getAttribute('xlink:href') ?? '')\
                 .filter(h => h.startsWith('javascript')).length";
    assert_eq!(browser.eval(links), json!(0));
    assert!(browser.eval("document.body.innerText").as_str().is_some_and(|t| t.contains("<img src=")));
    browser.screenshot(&page.with_file_name("hostile.png"));
    quiet(&browser);
}

/// The other tests prove nothing unless requests, console errors and forbidden scripts are seen.
#[test]
fn a_page_that_misbehaves_is_caught() {
    let Some(mut browser) = browser() else { return };
    let ready = "<script>document.documentElement.dataset.plots='ready'</script>";
    let open = |browser: &mut Browser, name: &str, body: &str| {
        browser.open(&file(name, &format!("<!doctype html>{body}{ready}")));
        browser.eval("new Promise(done => setTimeout(done, 300))");
    };
    open(&mut browser, "asks.html", "<img src='http://evil.invalid/x'>");
    assert!(browser.requests.iter().any(|url| url.contains("evil.invalid")), "{:?}", browser.requests);
    browser.errors.clear();
    open(&mut browser, "complains.html", "<script>console.error('woe')</script>");
    assert!(browser.errors.iter().any(|e| e.contains("woe")), "{:?}", browser.errors);
    browser.errors.clear();
    // The page's own policy: a script that is not listed does not run, and says so.
    let page = report::html(&[Run::default()]).expect("a page");
    let spoilt = page.replacen("<main>", "<main><script>document.title = 'run'</script>", 1);
    browser.open(&file("forbidden.html", &spoilt));
    assert_ne!(browser.eval("document.title"), json!("run"));
    assert!(browser.errors.iter().any(|e| e.contains("Content Security Policy")), "{:?}", browser.errors);
}

/// Goal: hovering tells a point, dragging shows a part of the axes, and a double click shows all again. Method: the
/// events of a mouse, sent to a plot.
#[test]
fn a_plot_tells_its_points_and_zooms() {
    let Some(mut browser) = browser() else { return };
    let page = file("zoom.html", &report::html(&[made_up::run(42)]).expect("a page"));
    browser.open(&page);
    let told = browser.eval(
        "(() => { window.plot = document.querySelector('.canvas'); plot.setPointerCapture = () => {}; \
         window.send = (type, x, y) => { const { left, top } = plot.getBoundingClientRect(); \
         plot.dispatchEvent(new PointerEvent(type, { clientX: left + x, clientY: top + y, pointerType: 'mouse' })); }; \
         const spot = plot.chart.spots.at(-1); send('pointermove', spot.px + 2, spot.py); \
         return [plot.querySelector('.tip').textContent, spot.text.replace(/<[^>]*>/g, ''), spot.text]; })()",
    );
    assert!(told[2].as_str().is_some_and(|text| text.contains("median")), "{told}");
    assert_eq!(told[0], told[1], "the point under the pointer is told");
    let ranges =
        "[plot.chart.box.x.value(plot.chart.box.left), plot.chart.box.x.value(plot.chart.box.right)]";
    let whole = browser.eval(ranges);
    let part = browser.eval(&format!(
        "(() => {{ const {{ left, right, bottom }} = plot.chart.box; const third = (right - left) / 3; \
         send('pointerdown', left + third, 30); send('pointermove', right - third, bottom - 30); \
         send('pointerup', right - third, bottom - 30); return {ranges}; }})()"
    ));
    let number = |value: &serde_json::Value, end: usize| value[end].as_f64().expect("a number");
    let decades = |range: &serde_json::Value| (number(range, 1) / number(range, 0)).log10();
    let share = decades(&part) / decades(&whole);
    assert!((share - 1.0 / 3.0).abs() < 0.01, "{share}: {whole} became {part}");
    let again = browser.eval(&format!("(send('dblclick', 100, 100), {ranges})"));
    assert!((decades(&again) / decades(&whole) - 1.0).abs() < 1e-9, "{again}");
    quiet(&browser);
}
