//! The report in a real browser: it asks nothing of the network, complains of nothing, and shows its plots.
//!
//! Needs Chromium on PATH: without one the tests fail if `CI=true`, and are skipped with a message otherwise.
//! Screenshots for people land in the target directory's `tmp/report`.

#[path = "page/browser.rs"]
mod browser;
#[path = "page/made_up.rs"]
mod made_up;

use browser::{Browser, CUT, TRACES, WIDE, browser, file, quiet};
use results::schema::Run;
use results::variant::factor;
use serde_json::json;

#[test]
fn the_page_shows_its_plots_and_is_quiet() {
    let Some(mut browser) = browser() else { return };
    let run = made_up::run(42);
    let page = file("one.html", &report::html(std::slice::from_ref(&run)).expect("a page"));
    browser.look(1280, 900, "light");
    browser.open(&page);
    let drawn: Vec<[u64; 2]> = serde_json::from_value(browser.eval(TRACES)).expect("counts");
    assert!(drawn.len() >= 9, "{drawn:?}");
    assert!(drawn.iter().all(|[svgs, traces]| *svgs > 0 && *traces > 0), "empty plots: {drawn:?}");
    let points = browser.eval("document.querySelectorAll('.trace use').length");
    assert!(points.as_u64() > Some(1000), "few points: {points}");
    assert_eq!(browser.eval(WIDE), json!([]), "the page is wider than a desktop");
    assert_eq!(browser.eval(CUT), json!([]), "something is cut off, or in a box to scroll");
    browser.screenshot(&page.with_file_name("light.png"));

    browser.look(1280, 900, "dark");
    let paper = browser.eval("getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, json!("rgb(20, 23, 27)"));
    let ink = browser.eval("getComputedStyle(document.querySelector('.canvas text')).fill");
    assert_eq!(ink, json!("rgb(160, 169, 180)"), "the plots follow the colour scheme");
    browser.screenshot(&page.with_file_name("dark.png"));

    browser.look(390, 844, "light");
    browser.screenshot(&page.with_file_name("phone.png"));
    assert_eq!(browser.eval(WIDE), json!([]), "the page is wider than a phone");
    assert_eq!(browser.eval("document.scrollingElement.scrollWidth"), json!(390));
    quiet(&browser);
}

/// Goal: the answers come first, in the first screenfuls, and the page says when, on what and by which version it was measured.
#[test]
fn summary_and_two_plots_come_before_any_prose() {
    let Some(mut browser) = browser() else { return };
    let page = file("first.html", &report::html(&[made_up::run(42)]).expect("a page"));
    browser.look(1280, 900, "light");
    browser.open(&page);
    let tops = "(() => { const top = (s) => [...document.querySelectorAll(s)].map(e => \
                e.getBoundingClientRect().top + scrollY); \
                return [top('#summary table')[0], ...top('#summary .canvas'), top('#findings')[0]]; })()";
    let tops: Vec<f64> = serde_json::from_value(browser.eval(tops)).expect("positions");
    assert!(tops.len() == 4 && tops.is_sorted(), "table, two plots, findings: {tops:?}");
    assert!(
        tops[0] < 400.0 && tops[1] < 900.0 && tops[1] == tops[2],
        "plots side by side on the first screen: {tops:?}"
    );
    let head = browser.eval("document.querySelector('header').innerText");
    let head = head.as_str().expect("text");
    for part in ["2026-03-01 12:00 UTC", "Example CPU", "nicety 0.1.0"] {
        assert!(head.contains(part), "no {part} in {head}");
    }
    quiet(&browser);
}

/// Goal: every plot can be read, on a desktop and on a phone. Method: the size of all letters as they are drawn, and labels of an axis that
/// touch each other.
#[test]
fn letters_of_plots_are_readable_and_apart() {
    let Some(mut browser) = browser() else { return };
    let page = file("letters.html", &report::html(&[made_up::run(42)]).expect("a page"));
    let letters = "[...document.querySelectorAll('.canvas svg')].flatMap(svg => { \
                   const scale = svg.clientWidth / svg.viewBox.baseVal.width; \
                   return [...svg.querySelectorAll('text')].filter(t => t.checkVisibility()) \
                   .map(t => parseFloat(getComputedStyle(t).fontSize) * scale); })";
    let touching = "[...document.querySelectorAll('.canvas svg')].flatMap(svg => { \
                    const labels = [...svg.querySelectorAll('.grid text')].filter(t => t.checkVisibility() && !t.hasAttribute('transform')); \
                    const boxes = labels.map(t => [t.textContent, t.getBoundingClientRect()]); \
                    return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) => p.left < q.right && q.left < p.right \
                    && p.top + 2 < q.bottom && q.top + 2 < p.bottom).map(([b]) => a + ' on ' + b)); })";
    for width in [1280, 390] {
        browser.look(width, 900, "light");
        browser.open(&page);
        let sizes: Vec<f64> = serde_json::from_value(browser.eval(letters)).expect("sizes");
        let ends =
            sizes.iter().fold([f64::MAX, 0.0], |[a, b], size| [f64::min(a, *size), f64::max(b, *size)]);
        assert!(
            sizes.len() > 50 && ends[0] >= 10.5 && ends[1] <= 20.0,
            "{width}: letters of {ends:?} pixels"
        );
        assert_eq!(browser.eval(touching), json!([]), "labels touch at {width}");
    }
    quiet(&browser);
}

/// Goal: numbers are readable, on paper and on a phone. Method: no number in a table is broken into lines, nothing is
/// wider than the paper, and the text of a finding is not smaller than its details.
#[test]
fn paper_and_phone_keep_numbers_whole() {
    let Some(mut browser) = browser() else { return };
    let page = file("paper.html", &report::html(&[made_up::run(1), made_up::run(2)]).expect("a page"));
    let broken = "[...document.querySelectorAll('td.number, .row .value')].filter(cell => { \
                  const text = document.createRange(); text.selectNodeContents(cell); \
                  const line = parseFloat(getComputedStyle(cell).fontSize) * 2.2; \
                  return text.getBoundingClientRect().height > line; }).map(cell => cell.textContent)";
    for (width, media) in [(390, "screen"), (794, "print")] {
        browser.look(width, 1123, "light");
        browser.call("Emulation.setEmulatedMedia", json!({ "media": media }));
        browser.open(&page);
        assert_eq!(browser.eval(broken), json!([]), "numbers broken in {media}");
        assert_eq!(browser.eval(WIDE), json!([]), "too wide in {media}");
        let sizes = "['.finding p', '.finding li'].map(s => parseFloat(getComputedStyle(document.querySelector(s)).fontSize))";
        let sizes: [f64; 2] = serde_json::from_value(browser.eval(sizes)).expect("sizes");
        assert!(sizes[0] >= sizes[1], "{media}: {sizes:?}");
        browser.screenshot(&page.with_file_name(format!("{media}.png")));
    }
    quiet(&browser);
}

/// Goal: plots are visible without a script, which some browsers and all printers of pages do not run. Method: checks
/// the markup before the first script.
#[test]
fn plots_need_no_script() {
    let text = report::html(&[made_up::run(42)]).expect("a page");
    let (still, _) = text.split_once("<script").expect("scripts come last");
    assert!(
        still.matches("class=\"trace ").count() > 40,
        "{} curves",
        still.matches("class=\"trace ").count()
    );
    assert!(!still.contains("noscript"));
}

/// Goal: a page is small. Method: as many results as an overview has, each with a distribution; and a tenth of that.
#[test]
fn a_page_is_small() {
    for (results, most) in [(320, 2_000_000), (32, 1_000_000)] {
        let mut run = made_up::run(42);
        run.results.truncate(results);
        let text = report::html(&[run]).expect("a page");
        assert!(text.len() < most, "{} bytes of {results} results", text.len());
    }
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
        let told = browser.eval(&format!("({click})('median GB/s')"));
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

    // The filter that the field itself suggests finds its results, and no others.
    let proposed = browser.eval("document.getElementById('filter').placeholder.replace('e.g. ', '')");
    assert_eq!(proposed, json!("write nic, 4 KiB"));
    let meant = |r: &&results::schema::Measurement| {
        r.variant.is(factor::OP, "write") && r.variant.is(factor::SOURCE, "nic") && r.size_bytes == 4096
    };
    let meant = run.results.iter().filter(meant).count();
    assert!(meant > 0);
    assert_eq!(browser.eval(&format!("({filter})('write nic, 4 KiB')")), json!(meant));
    let hidden = "(() => { const button = document.querySelector('.legend button'); button.click(); \
                  const traces = [...button.closest('figure').querySelectorAll('.trace')]; \
                  return traces.filter(t => getComputedStyle(t).display === 'none').map(t => t.dataset.name); })()";
    let hidden: Vec<String> = serde_json::from_value(browser.eval(hidden)).expect("names");
    let name = browser.eval("document.querySelector('.legend button').textContent");
    assert!(!hidden.is_empty() && hidden.iter().all(|h| json!(h) == name), "{hidden:?}");
    quiet(&browser);
}

/// Whether both are equal, to six digits.
fn same(read: &Run, run: &Run) {
    assert_eq!((&read.parameters, read.results.len()), (&run.parameters, run.results.len()));
    for (a, b) in read.results.iter().zip(&run.results) {
        let medians = a.launches.iter().map(|l| l.median).chain([a.median]);
        let others = b.launches.iter().map(|l| l.median).chain([b.median]);
        assert!(medians.zip(others).all(|(a, b)| (a / b - 1.0).abs() < 1e-5), "{a:?} is not {b:?}");
        assert_eq!((a.cell(), a.n, a.launches.len()), (b.cell(), b.n, b.launches.len()));
    }
}

#[test]
fn the_page_is_its_own_data_file() {
    let Some(mut browser) = browser() else { return };
    let runs = [made_up::run(1), made_up::run(2)];
    let page = file("two.html", &report::html(&runs).expect("a page"));
    browser.open(&page);
    for (i, run) in runs.iter().enumerate() {
        // The button saves the text of this element.
        let text = browser.eval(&format!("document.getElementById('run-{}').textContent", i + 1));
        let read = Run::from_json(text.as_str().expect("text")).expect("a result file");
        same(&read, run);
    }
    let saved = browser.eval(
        "new Promise(done => { URL.createObjectURL = blob => { blob.text().then(done); return 'blob:none'; }; \
         HTMLAnchorElement.prototype.click = () => {}; document.querySelectorAll('.download')[1].click(); })",
    );
    same(&Run::from_json(saved.as_str().expect("text")).expect("a result file"), &runs[1]);
    browser.screenshot(&page.with_file_name("two.png"));
    quiet(&browser);
}

#[test]
fn hostile_strings_stay_text() {
    let Some(mut browser) = browser() else { return };
    let page = file("hostile.html", &report::html(&[made_up::hostile()]).expect("a page"));
    browser.open(&page);
    // Wake the text of a point, and a distribution.
    browser.eval(&format!("({POINT})('pointermove')"));
    browser.eval("document.querySelector('button.cell').click()");
    assert_ne!(browser.eval("document.querySelector('.tip:not([hidden])')?.textContent ?? ''"), json!(""));
    assert_eq!(
        browser.eval("document.querySelectorAll('img, b script, a[href^=javascript]').length"),
        json!(0)
    );
    assert_eq!(browser.eval("document.scripts.length"), json!(2));
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
    let ready = "<script>document.documentElement.dataset.page='ready'</script>";
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
    // The page's own policy: an unlisted script does not run, and the browser reports it.
    let page = report::html(&[Run::default()]).expect("a page");
    let spoilt = page.replacen("<main>", "<main><script>document.title = 'run'</script>", 1);
    browser.open(&file("forbidden.html", &spoilt));
    assert_ne!(browser.eval("document.title"), json!("run"));
    assert!(browser.errors.iter().any(|e| e.contains("Content Security Policy")), "{:?}", browser.errors);
}

/// Sends an event of the mouse to the last point of the first plot; its result is the plot.
const POINT: &str = "(type) => { const canvas = document.querySelector('.canvas'); \
    const { left, top, width, height } = [...canvas.querySelectorAll('use')].at(-1).getBoundingClientRect(); \
    const at = { clientX: left + width / 2 + 2, clientY: top + height / 2 }; \
    canvas.dispatchEvent(new PointerEvent(type, { ...at, bubbles: true })); return canvas; }";

/// Goal: a point under the pointer shows its numbers; pressed, it shows its distribution, and so does a median in the
/// table.
#[test]
fn points_and_medians_tell_more_on_demand() {
    let Some(mut browser) = browser() else { return };
    let page = file("hover.html", &report::html(&[made_up::run(42)]).expect("a page"));
    browser.open(&page);
    let told =
        browser.eval(&format!("({POINT})('pointermove').querySelector('.tip:not([hidden])').innerText"));
    let told = told.as_str().expect("text");
    assert!(told.contains("4 MiB") && told.contains("median") && told.contains("95 % interval"), "{told}");
    let drawn = browser.eval(&format!(
        "({POINT})('click').closest('.panel').querySelectorAll('.distribution .count').length"
    ));
    assert!(drawn.as_u64() > Some(5), "{drawn} bars");
    let row = "(() => { const button = document.querySelector('#results button.cell'); button.click(); \
               const row = button.closest('tr').nextElementSibling; \
               return [button.getAttribute('aria-expanded'), row.className, row.querySelectorAll('.count').length, \
               row.querySelector('.launches').getAttribute('d').split('M').length - 1]; })()";
    let row = browser.eval(row);
    assert_eq!((&row[0], &row[1], &row[3]), (&json!("true"), &json!("drawn"), &json!(6)), "{row}");
    assert!(row[2].as_u64() > Some(5), "{row}");
    browser.screenshot(&page.with_file_name("distribution.png"));
    let closed = "(() => { const button = document.querySelector('#results button.cell'); button.click(); \
                  return document.querySelectorAll('tr.drawn').length; })()";
    assert_eq!(browser.eval(closed), json!(0));
    quiet(&browser);
}
