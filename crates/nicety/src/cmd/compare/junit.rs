//! A comparison as JUnit XML for CI servers, with a test case for each cell.

use report::number::sig;
use results::plain;
use results::schema::Cell;
use results::stats::{CellComparison, Comparison, Verdict};

use super::words::{name, series};

/// The whole document. A worse cell is a failure; an undecided cell is skipped, or a failure if `strict`.
pub(super) fn document(compared: &Comparison, cautions: &[String], strict: bool) -> String {
    let mut cases: Vec<(String, Outcome)> =
        compared.cells.iter().map(|cell| (case(&cell.cell), outcome(cell, strict))).collect();
    for (cells, run) in [(&compared.only_old, "old"), (&compared.only_new, "new")] {
        let alone = |cell| (case(cell), Outcome::Skipped(format!("only in the {run} run")));
        cases.extend(cells.iter().map(alone));
    }
    let count = |wanted: fn(&Outcome) -> bool| cases.iter().filter(|(_, outcome)| wanted(outcome)).count();
    let failures = count(|o| matches!(o, Outcome::Failed(_)));
    let skipped = count(|o| matches!(o, Outcome::Skipped(_)));
    let counts = format!("tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\"", cases.len());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"nicety compare\" {counts}>\n"
    );
    for (open, outcome) in &cases {
        text += &match outcome {
            Outcome::Passed(found) => {
                format!("    {open}>\n      <system-out>{}</system-out>\n    </testcase>\n", escaped(found))
            }
            Outcome::Skipped(why) => {
                format!("    {open}>\n      <skipped message=\"{}\"/>\n    </testcase>\n", escaped(why))
            }
            Outcome::Failed(why) => {
                format!("    {open}>\n      <failure message=\"{}\"/>\n    </testcase>\n", escaped(why))
            }
        };
    }
    let lines: Vec<String> = cautions.iter().map(|caution| escaped(caution)).collect();
    text + &format!("    <system-err>{}</system-err>\n  </testsuite>\n</testsuites>\n", lines.join("\n"))
}

enum Outcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

/// The opening tag of a test case.
fn case(cell: &Cell) -> String {
    let class = format!("nicety.{}.{}", cell.experiment, cell.device);
    format!("<testcase classname=\"{}\" name=\"{}\"", escaped(&class), escaped(&name(cell)))
}

/// The outcome of a cell as a test case.
fn outcome(cell: &CellComparison, strict: bool) -> Outcome {
    let found = found(cell);
    let unsure =
        || format!("cannot tell: {}; {found}", cell.reason.as_deref().unwrap_or("the interval is too wide"));
    match cell.verdict {
        Verdict::Worse => Outcome::Failed(format!("worse: {} {found}", series(&cell.cell))),
        Verdict::CannotTell if strict => Outcome::Failed(unsure()),
        Verdict::CannotTell => Outcome::Skipped(unsure()),
        Verdict::Better | Verdict::Same => Outcome::Passed(format!("{}: {found}", cell.verdict)),
    }
}

/// `1.20 -> 1.32 us, ratio 1.10 [1.08, 1.12]`.
fn found(cell: &CellComparison) -> String {
    let mut text = format!("{} -> {} {}", sig(cell.old, 4), sig(cell.new, 4), cell.unit);
    if let Some(ratio) = cell.ratio {
        text += &format!(", ratio {}", sig(ratio.ratio, 3));
        if let Some((low, high)) = ratio.low.zip(ratio.high) {
            text += &format!(" [{}, {}]", sig(low, 3), sig(high, 3));
        }
    }
    text
}

/// Escapes markup and characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if plain::is_terminal_control(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::schema::{Launch, Measurement, Run};
    use results::stats::{CompareOptions, compare_runs};

    /// Goal: each cell is a test case, a worse cell is a failure, and foreign text stays text. Method: four cells: worse, the
    /// same, measured in a single launch, and missing in the new run.
    #[test]
    fn each_cell_is_a_test_case() {
        let result = |size_bytes: u64, median: f64, launches: usize| Measurement {
            experiment: "latency".to_owned(),
            device: "<b\"&\u{7}".to_owned(),
            size_bytes,
            metric: "one_way_latency".to_owned(),
            unit: "us".to_owned(),
            median,
            launches: vec![Launch { median, n: 100, ..Launch::default() }; launches],
            ..Measurement::default()
        };
        let run = |results: Vec<Measurement>| Run { results, ..Run::default() };
        let old = run(vec![result(1, 1.0, 6), result(2, 1.0, 6), result(4, 1.0, 1), result(8, 1.0, 6)]);
        let new = run(vec![result(1, 2.0, 6), result(2, 1.0, 6), result(4, 1.0, 1)]);
        let compared = compare_runs(&old, &new, &CompareOptions::default());
        let text = document(&compared, &["other <machine>".to_owned()], false);
        assert!(text.contains("<testsuites tests=\"4\" failures=\"1\" skipped=\"2\">"), "{text}");
        assert!(
            text.contains("<failure message=\"worse: latency one_way_latency on &lt;b&quot;&amp;?"),
            "{text}"
        );
        assert!(text.contains("<system-err>other &lt;machine&gt;</system-err>"), "{text}");
        assert!(text.contains("only in the old run") && !text.contains("<b"), "{text}");
        let strict = document(&compared, &[], true);
        assert!(strict.contains("failures=\"2\" skipped=\"1\""), "{strict}");
    }
}
