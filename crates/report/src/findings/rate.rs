//! The best message rate.

use super::finding::{Finding, Tone, grouped, on_device, several_devices};
use crate::number::{plural, size, times, value};
use crate::series::{Series, capital};

/// One finding for each metric in `1/s` and device.
pub(super) fn best(all: &[Series<'_>]) -> Vec<Finding> {
    let rates = all.iter().filter(|s| s.unit == "1/s");
    grouped(rates, |s| (s.experiment, s.metric, s.device))
        .into_iter()
        .filter_map(|group| {
            let points = group.iter().flat_map(|s| s.points.iter().map(move |r| (*s, *r)));
            let (s, r) = points.max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
            let topic = format!("{}{}", capital(&s.what()), on_device(s, several_devices(all)));
            let mut text = format!(
                "Best is {} with {} messages: {}",
                s.name(),
                size(r.size_bytes),
                value(r.median, s.unit)
            );
            if let Some(f) = &r.floor {
                text += &format!(", {} the floor ({}, {})", times(f.ratio), f.what, value(f.value, &f.unit));
            }
            text += &format!(", the most of {}.", plural(group.len(), "curve"));
            Some(Finding::new(Tone::Fact, topic, text))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{point, run};
    use super::*;
    use crate::series::series;

    #[test]
    fn the_highest_rate_is_told() {
        let run = run(vec![point("rate", "op=write", 8, 12.34e6), point("rate", "op=send", 8, 5e6)]);
        let found = best(&series(&[run]));
        assert_eq!(found[0].text, "Best is write with 8 B messages: 12.3 million/s, the most of 2 curves.");
    }
}
