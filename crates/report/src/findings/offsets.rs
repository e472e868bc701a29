//! The cost of where source and sink begin in their pages, if a run has these offsets as factors.

use super::finding::{Finding, Noise, Tone, grouped, on_device, several_devices};
use crate::number::size;
use crate::series::{EXPERIMENTS, Series, rank};
use crate::sides::{Lead, lead};
use results::schema::Measurement;
use results::variant::{Factor, factor};

/// The page that explains the cause and what to do.
const PAGE: &str = "docs/guides/slow-copies.md";
/// Distances from source to sink, modulo a page, at which the string moves of some processors are slow.
const SLOW_ON_SOME: std::ops::RangeInclusive<u64> = 1..=63;

/// The largest difference between two pairs of offsets at one size.
struct Difference<'a> {
    slow: &'a Series<'a>,
    fast: &'a Series<'a>,
    size: u64,
    lead: Lead,
}

/// One finding for each experiment and device that was measured at several offsets.
pub(super) fn cost(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    let placed =
        all.iter().filter(|s| offset(s, factor::SOURCE_OFFSET).or(offset(s, factor::SINK_OFFSET)).is_some());
    grouped(placed, |s| (rank(EXPERIMENTS, s.experiment), s.experiment, s.metric, s.device))
        .into_iter()
        .filter_map(|group| of_group(&group, noise, several_devices(all)))
        .collect()
}

fn of_group(group: &[&Series<'_>], noise: &Noise<'_>, several: bool) -> Option<Finding> {
    let first = *group.first()?;
    let others = |s: &Series<'_>| s.variant.without(&[factor::SOURCE_OFFSET, factor::SINK_OFFSET]);
    let families = grouped(group.iter().copied(), others);
    let families: Vec<_> = families.into_iter().filter(|family| family.len() > 1).collect();
    if families.is_empty() {
        return None;
    }
    let topic = format!("What offsets in a page cost: {}{}", first.what(), on_device(first, several));
    let differences: Vec<Difference<'_>> =
        families.iter().filter_map(|family| largest(family, noise)).collect();
    let Some(worst) = differences.iter().max_by(|a, b| a.lead.ratio.total_cmp(&b.lead.ratio)) else {
        let text = "No difference that the intervals carry.";
        return Some(Finding::new(Tone::CannotTell, topic, text));
    };
    let items = differences.iter().map(told).collect();
    let cause = match distance(worst.slow) {
        Some(distance) if SLOW_ON_SOME.contains(&distance) => format!(
            " The sink begins {distance} bytes behind the source modulo 4096, where some processors copy slowly: {PAGE}."
        ),
        _ => String::new(),
    };
    Some(Finding::new(Tone::Fact, topic, format!("Largest penalty: {}.{cause}", told(worst))).with(items))
}

/// The largest difference within results that differ in their offsets only.
fn largest<'a>(family: &[&'a Series<'a>], noise: &Noise<'_>) -> Option<Difference<'a>> {
    let sizes = family.iter().flat_map(|s| s.points.iter().map(|r| r.size_bytes));
    let mut sizes: Vec<u64> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    let at = |size| {
        let mut there: Vec<(&'a Series<'a>, &Measurement)> =
            family.iter().filter_map(|s| Some((*s, s.at(size)?))).collect();
        there.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
        let ((low, least), (high, most)) = (*there.first()?, *there.last()?);
        let [(fast, better), (slow, worse)] = if least.higher_is_better() {
            [(high, most), (low, least)]
        } else {
            [(low, least), (high, most)]
        };
        let lead = lead(better, worse, noise.on(fast.device))?;
        Some(Difference { slow, fast, size, lead })
    };
    sizes.into_iter().filter_map(at).max_by(|a, b| a.lead.ratio.total_cmp(&b.lead.ratio))
}

/// `write (host → host) at 64 KiB, offsets 0 and 8: 4.10× worse than at 0 and 0`.
fn told(found: &Difference<'_>) -> String {
    let Difference { slow, fast, size: bytes, lead } = found;
    let what = slow.variant.without(&[factor::SOURCE_OFFSET, factor::SINK_OFFSET]);
    let name = what.iter().map(|(_, level)| level).collect::<Vec<_>>().join(" ");
    format!(
        "{name}, {}: offsets {} are {} worse than {}",
        size(*bytes),
        offsets(slow),
        lead.text(),
        offsets(fast)
    )
}

/// The offsets of source and sink, as `0 and 8`.
fn offsets(s: &Series<'_>) -> String {
    let [source, sink] =
        [factor::SOURCE_OFFSET, factor::SINK_OFFSET].map(|factor| offset(s, factor).unwrap_or(0));
    format!("{source} and {sink}")
}

fn offset(s: &Series<'_>, factor: Factor) -> Option<u64> {
    s.variant.get(factor)?.parse().ok()
}

/// Bytes from the source to the sink, modulo a page; `None` where one of the two is in NIC memory.
fn distance(s: &Series<'_>) -> Option<u64> {
    let is_host = |factor| s.variant.is(factor, "host");
    let at = |factor| offset(s, factor).unwrap_or(0);
    let both = is_host(factor::SOURCE) && is_host(factor::SINK);
    both.then(|| (at(factor::SINK_OFFSET) + 4096 - at(factor::SOURCE_OFFSET) % 4096) % 4096)
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{point, run};
    use super::*;
    use crate::series::series;
    use results::schema::Environment;

    fn found(of: &[(&str, &str, f64)]) -> Vec<Finding> {
        let at = |(experiment, offsets, median): &(&str, &str, f64)| {
            point(experiment, &format!("op=write,source=host,sink=host{offsets}"), 65_536, *median)
        };
        let run = run(of.iter().map(at).collect());
        cost(&series(&[run]), &Noise(&Environment::default()))
    }

    #[test]
    fn the_slowest_pair_is_told_with_its_cause() {
        let all = found(&[
            ("latency", ",source-offset=0,sink-offset=0", 6.5),
            ("latency", ",source-offset=0,sink-offset=16", 27.0),
            ("latency", ",source-offset=16,sink-offset=0", 7.0),
        ]);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].tone, Tone::Fact);
        let text = &all[0].text;
        assert!(text.contains("64 KiB: offsets 0 and 16 are 4.15× worse than 0 and 0"), "{text}");
        assert!(text.contains("16 bytes behind") && text.contains(PAGE), "{text}");
    }

    #[test]
    fn a_rate_is_worse_when_lower_and_other_distances_have_no_cause() {
        let all =
            found(&[("bandwidth", ",sink-offset=0", 9000.0), ("bandwidth", ",sink-offset=2048", 3000.0)]);
        let text = &all[0].text;
        assert!(text.contains("offsets 0 and 2048 are 3.00× worse than 0 and 0"), "{text}");
        assert!(!text.contains("behind"), "{text}");
    }

    #[test]
    fn runs_without_these_factors_and_single_pairs_have_no_finding() {
        assert_eq!(found(&[("latency", "", 6.5)]), []);
        assert_eq!(found(&[("latency", ",sink-offset=16", 27.0)]), []);
    }

    #[test]
    fn equal_results_cannot_tell() {
        let all = found(&[("latency", ",sink-offset=0", 6.5), ("latency", ",sink-offset=16", 6.51)]);
        assert_eq!(all[0].tone, Tone::CannotTell);
    }
}
