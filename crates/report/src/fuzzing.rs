//! Entry point of the fuzz target `results` in `fuzz/`, the replay of its corpus, and result files derived from a
//! valid one by changing a few values.

use results::plain;
use results::schema::Run;
use results::stats::{CompareOptions, compare_runs};

use super::over_time::intervals;
use super::{Look, html, lines, markdown, osu, prometheus, screen, tails, terminal, values};

/// Goal: whatever a result file holds, reading, reporting and comparing it end without a panic, and no text of it acts on a
/// terminal.
pub fn results(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(run) = Run::from_json(text) else { return };
    for colour in [false, true] {
        for width in [40, 100] {
            shown(&terminal(&run, width, colour));
            shown(&screen(&run, Look { width, lines: 30, colour, plot: colour }));
        }
        shown(&lines(&run, colour));
        shown(&tails(&run, colour));
    }
    shown(&values(&run));
    shown(&intervals(&run));
    shown(&markdown(&run));
    shown(&osu(&run).unwrap_or_default());
    shown(&prometheus(&run));
    let mut csv = Vec::new();
    run.to_csv(&mut csv).expect("a vector takes all");
    shown(std::str::from_utf8(&csv).expect("CSV is text"));
    let compared = compare_runs(&run, &run, &CompareOptions::default());
    assert!(compared.cells.len() <= run.results.len());
    let again =
        Run::from_json(&run.to_json().expect("what was read can be written")).expect("and read again");
    assert_eq!(again, run);
    shown(&html(&[run, again]).expect("a page"));
}

fn shown(text: &str) {
    let shown = plain::screen(text, true);
    assert!(shown == text && !text.contains('\r'), "{text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Rng;
    use serde_json::{Value, json};

    const CORPUS: &str = "fuzz/corpus/results";

    fn corpus() -> Vec<Vec<u8>> {
        let folder = format!("{}/../../{CORPUS}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(folder).expect("the corpus");
        let inputs = entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("an input"));
        inputs.collect()
    }

    /// Goal: bugs found once stay fixed. Method: every input of the corpus.
    #[test]
    fn results_of_the_corpus() {
        let all = corpus();
        assert!(!all.is_empty(), "{CORPUS} is empty");
        all.iter().for_each(|input| results(input));
    }

    /// A strange value in place of another.
    fn strange(rng: &mut Rng, before: &Value) -> Value {
        let numbers =
            [0.0, -0.0, -1.0, 1.0, 0.5, 1e-18, 5e-324, 1e18, -1e18, 1e300, 9.99, 1e15, 3e-7, f64::EPSILON];
        let wholes = [0, 1, 2, 63, 64, 1 << 30, (1 << 48) - 1, 1 << 48, u64::MAX];
        let texts = [
            "",
            "\u{1b}[2J",
            "µ\u{202e}",
            "floor",
            "latency",
            "bandwidth",
            "us",
            "MB/s",
            "1/s",
            "%",
            "T:::::",
            "2026-03-01T",
        ];
        match (before, rng.below(8)) {
            (_, 0) => Value::Null,
            (Value::Number(_), 1..=2) => json!(rng.one_of(&wholes)),
            (Value::Number(_), _) => json!(rng.one_of(&numbers)),
            (Value::String(_), _) => json!(rng.one_of(&texts)),
            (Value::Array(list), 1..=3) if !list.is_empty() => {
                let mut list = list.clone();
                let again = rng.one_of(&list).clone();
                list.extend(std::iter::repeat_n(again, rng.index(12)));
                list.into()
            }
            (Value::Array(list), _) => list.iter().take(rng.index(list.len() + 1)).cloned().collect(),
            (other, _) => other.clone(),
        }
    }

    /// Changes each value with a probability of `one_in`.
    fn changed(rng: &mut Rng, one_in: u64, value: Value) -> Value {
        let value = if rng.one_in(one_in) { strange(rng, &value) } else { value };
        match value {
            Value::Array(list) => list.into_iter().map(|item| changed(rng, one_in, item)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter().filter_map(|(key, field)| {
                    let field = if key == "schema" { field } else { changed(rng, one_in, field) };
                    (!rng.one_in(20 * one_in)).then_some((key, field))
                });
                fields.collect::<serde_json::Map<_, _>>().into()
            }
            other => other,
        }
    }

    /// Goal: no combination of values that JSON can hold makes a report or comparison panic. Method: valid files of
    /// the corpus in which some values are strange, few or many; most must still be readable.
    #[test]
    fn strange_values_are_reported_without_panic() {
        let seeds = std::env::var("NICETY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
        let all = corpus();
        let sound: Vec<Value> = all
            .iter()
            .filter(|input| is_read(input))
            .filter_map(|input| serde_json::from_slice(input).ok())
            .collect();
        let mut read = 0;
        for seed in 0..seeds {
            let rng = &mut Rng::new(seed);
            let one_in = *rng.one_of(&[4, 20, 100, 400]);
            let base = rng.one_of(&sound).clone();
            let text = changed(rng, one_in, base).to_string();
            read += u64::from(is_read(text.as_bytes()));
            results(text.as_bytes());
        }
        assert!(read >= seeds / 10, "only {read} of {seeds} were files");
    }

    fn is_read(input: &[u8]) -> bool {
        std::str::from_utf8(input).is_ok_and(|text| Run::from_json(text).is_ok())
    }
}
