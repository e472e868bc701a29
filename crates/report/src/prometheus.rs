//! A run for Prometheus: the text format that the textfile collector of its node exporter reads.
//!
//! A metric has its base unit in its name (seconds, bytes); the label `stat` distinguishes the median and the ends of
//! the interval, and the variant's factors are labels, too.

use std::collections::BTreeMap;

use results::schema::{Measurement, Run};

/// Name, help, and samples: labels and value.
type Families = BTreeMap<String, (String, Vec<(String, f64)>)>;

/// The whole file.
#[must_use]
pub fn prometheus(run: &Run) -> String {
    let mut families = Families::new();
    for r in &run.results {
        result(&mut families, r);
    }
    let env = &run.environment;
    if let Some(aa) = env.aa_noise {
        let help = "How far the same thing measured twice differed: smaller differences are not detectable.";
        add(&mut families, "nicety_noise_ratio", help, &[], aa.floor);
    }
    let about = [
        ("host", env.host.as_str()),
        ("version", &env.nicety_version),
        ("date", &env.date),
        ("cpu", &env.cpu),
    ];
    add(&mut families, "nicety_run_info", "The run that all of this is from.", &about, 1.0);
    let mut text = String::new();
    for (name, (help, samples)) in families {
        text += &format!(
            "# HELP {name} {}\n# TYPE {name} gauge\n",
            help.replace('\\', "\\\\").replace('\n', "\\n")
        );
        for (labels, value) in samples {
            text += &format!("{name}{labels} {value}\n");
        }
    }
    text
}

fn add(families: &mut Families, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{}=\"{}\"", word(k), escaped(v))).collect();
    let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
    let family = families.entry(name.to_owned()).or_insert_with(|| (help.to_owned(), Vec::new()));
    family.1.push((labels, value));
}

fn result(families: &mut Families, r: &Measurement) {
    let (unit, factor) = match r.unit.as_str() {
        "us" => ("_seconds", 1e-6),
        "MB/s" => ("_bytes_per_second", 1e6),
        "1/s" => ("_per_second", 1.0),
        "B" => ("_bytes", 1.0),
        "%" => ("_ratio", 0.01),
        _ => ("", 1.0),
    };
    let size = r.size_bytes.to_string();
    let mut labels: Vec<(&str, &str)> =
        vec![("experiment", &r.experiment), ("device", &r.device), ("size_bytes", &size)];
    labels.extend(r.variant.iter());
    let name = format!("nicety_{}{unit}", word(&r.metric));
    let help = format!("{} of {}.", r.metric.replace('_', " "), r.experiment);
    let ends = r.ci95.map(|[low, high]| [("ci95_low", low), ("ci95_high", high)]);
    for (stat, value) in [("median", r.median)].into_iter().chain(ends.into_iter().flatten()) {
        let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("stat", stat)]).collect();
        add(families, &name, &help, &labels, value * factor);
    }
    if let Some(floor) = &r.floor {
        labels.push(("metric", &r.metric));
        labels.push(("floor", &floor.what));
        let help = "Median over what the machine itself does.";
        add(families, "nicety_floor_ratio", help, &labels, floor.ratio);
    }
}

/// Replaces characters that are not allowed in a name.
fn word(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let word: String = text.chars().map(fits).collect();
    if word.starts_with(|c: char| c.is_ascii_digit()) { format!("_{word}") } else { word }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{floored, point, run};
    use super::*;

    #[test]
    fn units_are_base_units_and_a_family_stands_together() {
        let mut results = vec![point("latency", "op=write", 8, 2.0), point("rate", "op=write", 8, 1e6)];
        results.push(floored(point("latency", "op=send", 8, 4.0), 2.0, "cache \"line\"\\"));
        let text = prometheus(&run(results));
        let latency: Vec<&str> = text.lines().filter(|l| l.contains("one_way_latency_seconds")).collect();
        assert_eq!(latency[1], "# TYPE nicety_one_way_latency_seconds gauge");
        let first = "nicety_one_way_latency_seconds{experiment=\"latency\",device=\"shm\",size_bytes=\"8\",op=\"write\",";
        assert!(latency[2].starts_with(&format!("{first}stat=\"median\"}} 0.000002")), "{}", latency[2]);
        assert_eq!(latency.len(), 2 + 6, "{latency:#?}");
        let family = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
        let mut families: Vec<String> = text.lines().filter(|l| !l.starts_with('#')).map(family).collect();
        families.dedup();
        let once: std::collections::BTreeSet<&String> = families.iter().collect();
        assert_eq!(once.len(), families.len(), "{families:?}");
        assert!(text.contains("floor=\"cache \\\"line\\\"\\\\\"} 2\n"), "{text}");
    }

    /// Goal: nothing of a file's foreign text can be another line or another label.
    #[test]
    fn foreign_text_stays_in_its_place() {
        let mut r = point("latency", "op=write", 8, 2.0);
        r.metric = "evil\n{} 1".to_owned();
        r.device = "a\"} 7\nevil 1".to_owned();
        r.variant = [("9 b\"", "x\n")].into_iter().collect();
        let text = prometheus(&run(vec![r]));
        assert!(text.lines().all(|l| l.starts_with("# ") || l.starts_with("nicety_")), "{text}");
        assert!(text.contains("_9_b_=\"x\\n\""), "{text}");
    }
}
