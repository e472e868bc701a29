//! Reasons to distrust numbers: wide intervals, invalid floors, flags, a noisy or unpinned machine.

use std::collections::BTreeMap;

use super::finding::{Finding, Noise, Tone, known, list};
use crate::number::{count, percent, plural, size, times};
use crate::series::{self, WIDE, bound, half_width, interval, is_wide};
use results::schema::{Environment, Floor, Measurement};

/// Topic of findings about the machine rather than results.
pub(crate) const MACHINE: &str = "Machine";

fn cell(r: &Measurement) -> String {
    let s = series::alone(r);
    let at = if r.size_bytes == 0 { String::new() } else { format!(", {}", size(r.size_bytes)) };
    format!("{}, {}{at}", s.what(), s.name())
}

/// By how much a result beats its floor or ceiling, if by more than noise.
fn beats<'a>(r: &'a Measurement, noise: &Noise<'_>) -> Option<(f64, &'a Floor)> {
    let floor = r.floor.as_ref()?;
    let [low, high] = interval(r).unwrap_or([r.median; 2]);
    let nearest = if r.higher_is_better() { low / floor.value } else { floor.value / high };
    (nearest > 1.0 + noise.on(&r.device)).then_some((nearest, floor))
}

/// Results beyond their floor or ceiling: it is no bound for them.
pub(super) fn beaten(results: &[Measurement], noise: &Noise<'_>) -> Option<Finding> {
    let mut all: Vec<_> = results.iter().filter_map(|r| Some((r, beats(r, noise)?))).collect();
    all.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    if all.is_empty() {
        return None;
    }
    let text = format!(
        "{} of {} beat the floor or ceiling shown next to them: it is no bound there, and the ratio to it means nothing.",
        plural(all.len(), "result"),
        series_count(results.len())
    );
    let item = |(r, (_, floor)): &(&Measurement, (f64, &Floor))| {
        format!("{}: {} the {} ({})", cell(r), times(floor.ratio), bound(r), floor.what)
    };
    let items = all.iter().take(3).map(item).collect();
    Some(Finding::new(Tone::Caution, "Floors beaten", text).with(items))
}

/// Results whose interval is wide, and results without one.
pub(super) fn precision(results: &[Measurement]) -> Vec<Finding> {
    let mut wide: Vec<_> =
        results.iter().filter(|r| is_wide(r)).filter_map(|r| Some((r, half_width(r)?))).collect();
    let bare: Vec<_> = results.iter().filter(|r| interval(r).is_none()).collect();
    let mut out = Vec::new();
    if !wide.is_empty() {
        wide.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (worst, _) = &wide[0];
        let text = format!(
            "{} of {} (marked !) have an interval wider than {} to either side: stop other programs, or measure more launches \
             (--launches); the widest is that of {}: {}.",
            plural(wide.len(), "result"),
            series_count(results.len()),
            percent(WIDE),
            cell(worst),
            known(worst)
        );
        out.push(Finding::new(Tone::Caution, "Wide intervals", text));
    }
    if !bare.is_empty() {
        let mut reasons: Vec<String> = bare.iter().filter_map(|r| r.ci95_reason.clone()).collect();
        reasons.sort();
        reasons.dedup();
        reasons.truncate(3);
        let text = format!(
            "{} of {} have none: differences among them may be noise.",
            plural(bare.len(), "result"),
            series_count(results.len())
        );
        out.push(Finding::new(Tone::CannotTell, "Intervals", text).with(reasons));
    }
    out
}

fn series_count(n: usize) -> String {
    count(n as u64)
}

/// Results whose launches carry flags, by kind: the text before the colon. A number after it is a count.
pub(super) fn flagged(results: &[Measurement]) -> Option<Finding> {
    let mut kinds: BTreeMap<&str, Kind<'_>> = BTreeMap::new();
    for r in results {
        for flag in r.launches.iter().flat_map(|l| &l.flags) {
            let (name, count) =
                flag.split_once(": ").map_or((flag.as_str(), ""), |(name, count)| (name, count));
            let kind = kinds.entry(name).or_default();
            kind.counts.extend(count.parse::<u64>().ok());
            if !kind.of.last().is_some_and(|last| std::ptr::eq(*last, r)) {
                kind.of.push(r);
            }
        }
    }
    if kinds.is_empty() {
        return None;
    }
    let told: Vec<String> = kinds.iter_mut().map(|(name, kind)| kind.text(name)).collect();
    let text = format!("Samples are not one steady distribution everywhere: {}.", list(&told));
    let items = kinds
        .iter()
        .map(|(name, kind)| {
            let named: Vec<String> = kind.of.iter().take(3).map(|r| cell(r)).collect();
            let more = kind.of.len().saturating_sub(3);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            format!("{name}: {}{more}", named.join("; "))
        })
        .collect();
    Some(Finding::new(Tone::Caution, "Flags", text).with(items))
}

/// Flags of one kind.
#[derive(Default)]
struct Kind<'a> {
    of: Vec<&'a Measurement>,
    counts: Vec<u64>,
}

impl Kind<'_> {
    /// `trend (2 results)`, or `context switches (median 6, up to 3,405 in a launch, 188 results)`.
    fn text(&mut self, name: &str) -> String {
        let of = plural(self.of.len(), "result");
        self.counts.sort_unstable();
        match (self.counts.get(self.counts.len() / 2), self.counts.last()) {
            (Some(middle), Some(most)) => {
                format!("{name} (median {}, up to {} in a launch, {of})", count(*middle), count(*most))
            }
            _ => format!("{name} ({of})"),
        }
    }
}

/// The machine's own trouble, each with its remedy.
pub(super) fn machine(env: &Environment) -> Option<Finding> {
    if env.warnings.is_empty() {
        return None;
    }
    let items: Vec<String> = env.warnings.iter().map(|w| advice(&w.what, &w.advice)).collect();
    let text = format!("{} about the machine.", plural(items.len(), "warning"));
    Some(Finding::new(Tone::Caution, MACHINE, text).with(items))
}

fn advice(what: &str, remedy: &str) -> String {
    if remedy.is_empty() { what.to_owned() } else { format!("{what}: {remedy}") }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{floored, point};
    use super::*;
    use results::schema::{AaNoise, Warning};

    /// Goal: the finding counts what the table marks. Method: eight results of growing width; all launches reached
    /// their own precision.
    #[test]
    fn wide_intervals_are_counted_and_the_worst_named() {
        let mut results: Vec<_> = (0..8).map(|i| point("latency", "op=write", 1 << i, 1.0)).collect();
        for (i, r) in results.iter_mut().enumerate() {
            let half = 0.02 * i as f64;
            r.ci95 = Some([1.0 - half, 1.0 + half]);
        }
        let found = precision(&results);
        assert!(found[0].text.starts_with("5 results of 8 "), "{}", found[0].text);
        assert!(
            found[0].text.ends_with("that of one-way latency, write, 128 B: 1.00 µs (0.860..1.14)."),
            "{}",
            found[0].text
        );
        assert!(found[0].items.is_empty(), "one line");
    }

    #[test]
    fn a_floor_that_is_beaten_is_told_and_noise_beats_none() {
        let of = |experiment: &str, ratio: f64| {
            vec![
                floored(point(experiment, "op=write", 8, ratio), 1.0, "memcpy"),
                point("latency", "op=read", 8, 1.0),
            ]
        };
        let noise = |floor| Environment {
            aa_noise: Some(AaNoise { floor, ratio: 1.0, launches: 6 }),
            ..Environment::default()
        };
        let quiet = noise(0.01);
        let found = beaten(&of("latency", 0.35), &Noise(&quiet)).expect("beaten");
        assert_eq!(found.tone, Tone::Caution);
        assert!(found.text.starts_with("1 result of 2 "), "{}", found.text);
        assert_eq!(found.items, ["one-way latency, write, 8 B: 0.350× the floor (memcpy)"]);
        let found = beaten(&of("bandwidth", 1.5), &Noise(&quiet)).expect("beaten");
        assert_eq!(found.items, ["bandwidth, write, 8 B: 1.50× the ceiling (memcpy)"]);
        assert!(beaten(&of("latency", 1.0), &Noise(&quiet)).is_none());
        assert!(beaten(&of("bandwidth", 0.35), &Noise(&quiet)).is_none());
        assert!(beaten(&of("latency", 0.9), &Noise(&noise(0.2))).is_none());
    }

    #[test]
    fn absent_intervals_give_their_reasons_once() {
        let mut results = vec![point("latency", "op=write", 1, 1.0), point("latency", "op=write", 2, 1.0)];
        for r in &mut results {
            r.ci95 = None;
            r.ci95_reason = Some("3 launches; six are needed".to_owned());
        }
        let found = precision(&results);
        assert_eq!(found[0].tone, Tone::CannotTell);
        assert_eq!(found[0].items, ["3 launches; six are needed"]);
    }

    #[test]
    fn flags_are_counted_by_result() {
        let mut results = vec![point("latency", "op=write", 1, 1.0), point("latency", "op=write", 2, 1.0)];
        assert!(flagged(&results).is_none());
        results[0].launches[0].flags = vec!["trend".to_owned()];
        results[0].launches[1].flags = vec!["trend".to_owned(), "bimodal".to_owned()];
        let found = flagged(&results).expect("flags");
        assert!(found.text.contains("bimodal (1 result) and trend (1 result)"), "{}", found.text);
    }

    /// A count belongs to its kind: hundreds of different counts are still one line.
    #[test]
    fn flags_that_count_are_summed_up_by_kind() {
        let mut results: Vec<_> = (0..100).map(|i| point("latency", "op=write", 1 + i, 1.0)).collect();
        for (i, r) in results.iter_mut().enumerate() {
            r.launches[0].flags = vec![format!("context switches: {}", 11 * (i + 1))];
            r.launches[1].flags = vec!["context switches: 1".to_owned()];
        }
        let found = flagged(&results).expect("flags");
        let expected = "context switches (median 11, up to 1,100 in a launch, 100 results)";
        assert!(found.text.contains(expected), "{}", found.text);
        assert_eq!(found.items.len(), 1, "{:?}", found.items);
    }

    #[test]
    fn warnings_are_told_with_their_advice() {
        let mut env = Environment::default();
        assert!(machine(&env).is_none());
        env.warnings.push(Warning { what: "2 cores only".to_owned(), advice: "use four".to_owned() });
        assert_eq!(machine(&env).expect("a warning").items, ["2 cores only: use four"]);
    }
}
