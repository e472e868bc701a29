//! The best small-message latency of each operation, and its ratio to the floor.

use super::finding::{Finding, Noise, Tone, grouped, known, on_device, several_devices};
use crate::number::{percent, size, times, value};
use crate::series::{Series, apart, capital};
use crate::sides::lead;
use results::schema::{ClockKind, Measurement};

/// Size at which small-message latency is reported, if it was measured.
const SMALL_BYTES: u64 = 8;

/// One finding for each latency experiment and device.
pub(super) fn smallest(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    let latencies = all.iter().filter(|s| s.is_time() && s.metric.contains("latency"));
    grouped(latencies, |s| (s.experiment == "bilat", s.experiment, s.metric, s.device))
        .into_iter()
        .filter_map(|group| of_group(&group, several_devices(all), noise))
        .collect()
}

fn of_group(group: &[&Series<'_>], several: bool, noise: &Noise<'_>) -> Option<Finding> {
    let sizes = || group.iter().flat_map(|s| s.points.iter().map(|r| r.size_bytes));
    let at = if sizes().any(|s| s == SMALL_BYTES) { SMALL_BYTES } else { sizes().min()? };
    let mut best: Vec<(&Series<'_>, &Measurement)> = Vec::new();
    for op in grouped(group.iter().copied(), |s| s.op().to_owned()) {
        let candidates = op.into_iter().filter_map(|s| Some((s, s.at(at)?)));
        best.extend(candidates.min_by(|a, b| a.1.median.total_cmp(&b.1.median)));
    }
    best.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let (fastest, r) = *best.first()?;
    let topic = format!("{}{}, {}", capital(&fastest.what()), on_device(fastest, several), size(at));
    let (told, rival) = rival(&best, noise.on(fastest.device));
    let rank = match (best.len(), told) {
        (1, _) => "",
        (_, true) => "Best is ",
        (_, false) => "Lowest is ",
    };
    let mut text = format!("{rank}{}: {}", fastest.name(), known(r));
    if let Some(f) = &r.floor {
        text += &format!(", {} the machine's own {} ({})", times(f.ratio), f.what, value(f.value, &f.unit));
    }
    text += &rival;
    let items = if best.len() > 1 { best.iter().map(|(s, r)| item(s, r)).collect() } else { Vec::new() };
    let tone = if told { Tone::Fact } else { Tone::CannotTell };
    Some(Finding::new(tone, topic, text).with(items))
}

/// Whether the fastest differs significantly from the next, and that in words.
fn rival(best: &[(&Series<'_>, &Measurement)], noise: f64) -> (bool, String) {
    let [(_, first), (next, second), ..] = best else { return (true, ".".to_owned()) };
    let next = next.name();
    if let Some(lead) = lead(first, second, noise) {
        return (true, format!("; the next, {next}, takes {}.", lead.text()));
    }
    let exact = first.clock == ClockKind::Virtual && second.clock == ClockKind::Virtual;
    if exact {
        let same = if first.median == second.median { "as long" } else { "as good as the same" };
        return (true, format!("; {next} takes {same}."));
    }
    let why = match apart(first, second) {
        Some(true) => format!(
            "; {next} differs by less than the same thing measured twice ({}): cannot tell which is faster.",
            percent(noise)
        ),
        Some(false) => format!("; its interval overlaps that of {next}: cannot tell which is faster."),
        None => format!("; without intervals one cannot tell whether {next} is really slower."),
    };
    (false, why)
}

fn item(s: &Series<'_>, r: &Measurement) -> String {
    let floor = r.floor.as_ref().map_or_else(String::new, |f| format!(", {} {}", times(f.ratio), f.what));
    format!("{}: {}{floor}", s.name(), known(r))
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{floored, point, run};
    use super::*;
    use crate::series::series;
    use results::schema::{AaNoise, Environment};

    #[test]
    fn the_best_placement_of_each_operation_is_told_with_its_floor() {
        let at = |op, size, us| floored(point("latency", op, size, us), 0.1, "cache-line half round trip");
        let run = run(vec![
            at("op=send,source=nic,sink=nic", 8, 0.31),
            at("op=write,source=host,sink=nic", 8, 0.5),
            at("op=write,source=nic,sink=nic", 8, 0.12),
            at("op=write,source=nic,sink=nic", 1, 0.05),
        ]);
        let found = smallest(&series(std::slice::from_ref(&run)), &Noise(&run.environment));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].topic, "One-way latency, 8 B");
        assert_eq!(
            found[0].text,
            "Best is write (nic → nic): 0.120 µs (0.119..0.121), 1.20× the machine's own cache-line half round trip (0.100 µs); \
             the next, send (nic → nic), takes 2.58×."
        );
        assert_eq!(
            found[0].items[1],
            "send (nic → nic): 0.310 µs (0.307..0.313), 3.10× cache-line half round trip"
        );
    }

    #[test]
    fn overlapping_or_absent_intervals_are_no_order() {
        let mut results = vec![point("latency", "op=write", 8, 0.120), point("latency", "op=send", 8, 0.121)];
        let quiet = Environment::default();
        let text = |results: &Vec<Measurement>| {
            smallest(&series(&[run(results.clone())]), &Noise(&quiet))[0].text.clone()
        };
        assert!(text(&results).contains("cannot tell which is faster"), "{}", text(&results));
        results[1].ci95 = None;
        assert!(text(&results).contains("without intervals"), "{}", text(&results));
        assert!(text(&results).starts_with("Lowest is write: "), "{}", text(&results));
    }

    /// A lead that the same thing measured twice would have is none.
    #[test]
    fn a_lead_within_the_noise_is_no_order() {
        let results = vec![point("latency", "op=write", 8, 0.120), point("latency", "op=send", 8, 0.131)];
        let aa_noise = Some(AaNoise { floor: 0.33, ratio: 1.1, launches: 6 });
        let of = |environment: Environment| {
            smallest(&series(&[run(results.clone())]), &Noise(&environment))[0].clone()
        };
        let noisy = of(Environment { aa_noise, ..Environment::default() });
        assert_eq!(noisy.tone, Tone::CannotTell);
        assert!(
            noisy.text.contains("measured twice (33 %)") && !noisy.text.contains("1.09×"),
            "{}",
            noisy.text
        );
        let quiet = of(Environment::default());
        assert_eq!(quiet.tone, Tone::Fact);
        assert!(quiet.text.contains("the next, send, takes 1.09×"), "{}", quiet.text);
    }

    #[test]
    fn without_8_bytes_the_smallest_size_stands_in() {
        let run = run(vec![point("latency", "op=write", 64, 0.2), point("latency", "op=write", 16, 0.1)]);
        let found = smallest(&series(std::slice::from_ref(&run)), &Noise(&run.environment));
        assert!(found[0].topic.ends_with("16 B"), "{}", found[0].topic);
    }
}
