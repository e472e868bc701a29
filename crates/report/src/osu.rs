//! Results of MPI as tables in the form of the OSU micro-benchmarks, for scripts that parse those.
//!
//! A table begins with comments, which begin with `#`; the last comment names the columns. A line for each size follows. Values are medians.

use std::slice::from_ref;

use results::schema::{Measurement, Run};

use super::series::{Series, capital, series};

/// Widths of the size and of the values.
const WIDTHS: (usize, usize) = (10, 20);

/// The tables of a run; `None` if it has no result of `mpi-...`.
#[must_use]
pub fn osu(run: &Run) -> Option<String> {
    let all = series(from_ref(run));
    let program = &run.environment.nicety_version;
    let tables: Vec<String> = all.iter().filter_map(|s| table(s, program)).collect();
    (!tables.is_empty()).then(|| tables.join("\n"))
}

fn table(s: &Series<'_>, program: &str) -> Option<String> {
    let test = s.experiment.strip_prefix("mpi-")?;
    let heads = heads(s.unit, s.metric);
    let (size, value) = WIDTHS;
    // A barrier has no size.
    let sized = s.points.iter().any(|r| r.size_bytes > 0);
    let mut text = format!("# Nicety MPI {} Test, nicety {program}\n", capital(test));
    text += &format!("# {}, device {}, medians\n", s.name(), s.device);
    text += &if sized { format!("{:<size$}", "# Size") } else { "# ".to_owned() };
    text.extend(heads.iter().map(|head| if sized { format!("{head:>value$}") } else { head.clone() }));
    text.push('\n');
    for r in &s.points {
        if sized {
            text += &format!("{:<size$}", r.size_bytes);
        }
        text.extend(values(r).iter().map(|v| format!("{v:>value$.2}")));
        text.push('\n');
    }
    Some(text)
}

/// The names of the columns; those of OSU where it measures the same.
fn heads(unit: &str, metric: &str) -> Vec<String> {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match (unit, metric) {
        ("us", "time_per_call") => own(&["Avg Latency(us)"]),
        ("us", _) => own(&["Latency (us)"]),
        ("MB/s", _) => own(&["Bandwidth (MB/s)"]),
        ("1/s", _) => own(&["MB/s", "Messages/s"]),
        ("1", _) => vec![capital(metric)],
        _ => vec![format!("{}({unit})", capital(metric))],
    }
}

/// The columns of a result.
fn values(r: &Measurement) -> Vec<f64> {
    match r.unit.as_str() {
        "1/s" => vec![r.median * r.size_bytes as f64 / 1e6, r.median],
        _ => vec![r.median],
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{curve, point, run};
    use super::*;

    fn of(experiment: &str, metric: &str, unit: &str, results: Vec<Measurement>) -> String {
        let mut run = run(results);
        for r in &mut run.results {
            (r.experiment, r.metric, r.unit) = (experiment.to_owned(), metric.to_owned(), unit.to_owned());
        }
        osu(&run).expect("MPI")
    }

    /// Goal: a script that parses OSU's tables parses these. Method: comments are skipped, and columns split at spaces, as such scripts do;
    /// lines of latency equal those of OSU's program.
    #[test]
    fn table_has_the_columns_of_osu() {
        let text =
            of("mpi-latency", "one_way_latency", "us", curve("latency", "layer=mpi", 0..3, |x| 0.2 * x));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "# Size            Latency (us)");
        assert_eq!(lines[3], "1                         0.20");
        assert_eq!(lines[5], "4                         0.80");
        assert!(lines[0].starts_with("# Nicety MPI Latency Test") && lines.len() == 6, "{text}");
        let text = of("mpi-rate", "message_rate", "1/s", vec![point("rate", "layer=mpi", 8, 2e6)]);
        let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(columns(text.lines().last().expect("a row")), ["8", "16.00", "2000000.00"]);
        let text = of("mpi-bcast", "time_per_call", "us", vec![point("latency", "ranks=4", 8, 3.456)]);
        assert!(text.contains("Avg Latency(us)\n8  ") && text.ends_with("3.46\n"), "{text}");
        let text = of("mpi-barrier", "time_per_call", "us", vec![point("latency", "ranks=4", 0, 3.456)]);
        assert!(text.ends_with("# Avg Latency(us)\n                3.46\n"), "{text}");
        let text = of("mpi-overlap", "overlap", "%", vec![point("latency", "layer=mpi", 8, 71.5)]);
        assert!(text.contains("          Overlap(%)\n8  ") && text.ends_with(" 71.50\n"), "{text}");
        let text = of("mpi-connect", "count", "1", vec![point("latency", "ranks=4", 0, 6.0)]);
        assert!(text.ends_with("# Count\n                6.00\n"), "{text}");
    }

    #[test]
    fn other_results_have_no_table() {
        assert_eq!(osu(&run(vec![point("latency", "op=write", 8, 1.0)])), None);
        assert_eq!(osu(&Run::default()), None);
    }
}
