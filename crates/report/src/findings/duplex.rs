//! Throughput of both directions together, compared with one.

use super::finding::{Finding, Noise, Tone, grouped, on_device, several_devices};
use crate::number::{size, times};
use crate::series::{Series, apart};
use crate::sides::{Lead, lead};

/// One finding for each device with bandwidth in one direction and in both.
pub(super) fn gain(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    let both = all.iter().filter(|s| s.experiment == "bibw");
    grouped(both, |s| s.device)
        .into_iter()
        .filter_map(|group| {
            let pairs: Vec<_> =
                group.iter().filter_map(|s| Some((*s, pair(all, s, noise.on(s.device))?))).collect();
            let best = |a: &&(&Series<'_>, Pair), b: &&(&Series<'_>, Pair)| a.1.ratio.total_cmp(&b.1.ratio);
            let (s, pair) = pairs.iter().max_by(best)?;
            let topic = format!("Both directions at once{}", on_device(s, several_devices(all)));
            let (tone, verdict) = match (pair.told, pair.apart) {
                (Some(_), _) => (Tone::Fact, ""),
                (None, Some(true)) => (Tone::CannotTell, "; that is within the noise of the run"),
                (None, Some(false)) => {
                    (Tone::CannotTell, "; the intervals overlap, so this may be no difference")
                }
                (None, None) => {
                    (Tone::CannotTell, "; without intervals one cannot tell whether that is a difference")
                }
            };
            let at = size(pair.size_bytes);
            let text = format!(
                "Largest gain for {}: {at} messages move {} the bytes per second of one direction{verdict}.",
                s.name(),
                pair.told.map_or_else(|| times(pair.ratio), |told| told.text())
            );
            Some(Finding::new(tone, topic, text))
        })
        .collect()
}

struct Pair {
    size_bytes: u64,
    ratio: f64,
    /// Both directions relative to one, if they differ.
    told: Option<Lead>,
    apart: Option<bool>,
}

/// The largest size measured in one direction and in both.
fn pair(all: &[Series<'_>], both: &Series<'_>, noise: f64) -> Option<Pair> {
    let one = all.iter().find(|s| {
        s.experiment == "bandwidth"
            && s.unit == both.unit
            && s.device == both.device
            && s.variant == both.variant
    })?;
    let (b, o) = both.points.iter().rev().find_map(|b| Some((*b, one.at(b.size_bytes)?)))?;
    let told = if b.median >= o.median { lead(b, o, noise) } else { lead(o, b, noise).map(Lead::inverted) };
    (o.median > 0.0).then(|| Pair {
        size_bytes: b.size_bytes,
        ratio: b.median / o.median,
        told,
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
        let found = gain(&series(std::slice::from_ref(&run)), &Noise(&run.environment));
        assert_eq!(
            found[0].text,
            "Largest gain for write: 4 KiB messages move 1.50× the bytes per second of one direction."
        );
    }

    #[test]
    fn overlap_is_no_gain() {
        let results = vec![point("bandwidth", "op=write", 8, 100.0), point("bibw", "op=write", 8, 101.0)];
        let run = run(results);
        let found = gain(&series(std::slice::from_ref(&run)), &Noise(&run.environment));
        assert_eq!(found[0].tone, Tone::CannotTell);
    }
}
