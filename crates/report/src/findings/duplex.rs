//! What both directions at once carry, against one.

use super::finding::{Finding, Tone, grouped, on_device, several_devices};
use crate::number::{size, times};
use crate::series::{Series, apart};

/// One finding for each device with bandwidth one way and both ways.
pub(super) fn gain(all: &[Series<'_>]) -> Vec<Finding> {
    let both = all.iter().filter(|s| s.experiment == "bibw");
    grouped(both, |s| s.device)
        .into_iter()
        .filter_map(|group| {
            let pairs: Vec<_> = group.iter().filter_map(|s| Some((*s, pair(all, s)?))).collect();
            let best = |a: &&(&Series<'_>, Pair), b: &&(&Series<'_>, Pair)| a.1.ratio.total_cmp(&b.1.ratio);
            let (s, pair) = pairs.iter().max_by(best)?;
            let topic = format!("Both directions at once{}", on_device(s, several_devices(all)));
            let (tone, verdict) = match pair.apart {
                Some(true) => (Tone::Fact, ""),
                Some(false) => (Tone::CannotTell, "; the intervals overlap, so this may be no difference"),
                None => {
                    (Tone::CannotTell, "; without intervals one cannot tell whether that is a difference")
                }
            };
            let at = size(pair.size_bytes);
            let text = format!(
                "Most for {}: {at} messages move {} the bytes per second of one direction{verdict}.",
                s.name(),
                times(pair.ratio)
            );
            Some(Finding::new(tone, topic, text))
        })
        .collect()
}

struct Pair {
    size_bytes: u64,
    ratio: f64,
    apart: Option<bool>,
}

/// The largest size that was measured one way and both ways.
fn pair(all: &[Series<'_>], both: &Series<'_>) -> Option<Pair> {
    let one = all.iter().find(|s| {
        s.experiment == "bandwidth"
            && s.unit == both.unit
            && s.device == both.device
            && s.variant == both.variant
    })?;
    let (b, o) = both.points.iter().rev().find_map(|b| Some((*b, one.at(b.size_bytes)?)))?;
    (o.median > 0.0).then(|| Pair {
        size_bytes: b.size_bytes,
        ratio: b.median / o.median,
        apart: apart(b, o),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{point, run};
    use super::*;
    use crate::series::series;

    #[test]
    fn the_gain_is_that_of_the_largest_common_size() {
        let run = run(vec![
            point("bandwidth", "op=write", 1024, 1000.0),
            point("bandwidth", "op=write", 4096, 4000.0),
            point("bibw", "op=write", 4096, 6000.0),
            point("bibw", "op=write", 8192, 9000.0),
        ]);
        let found = gain(&series(&[run]));
        assert_eq!(
            found[0].text,
            "Most for write: 4 KiB messages move 1.50× the bytes per second of one direction."
        );
    }

    #[test]
    fn overlap_is_no_gain() {
        let results = vec![point("bandwidth", "op=write", 8, 100.0), point("bibw", "op=write", 8, 101.0)];
        let found = gain(&series(&[run(results)]));
        assert_eq!(found[0].tone, Tone::CannotTell);
    }
}
