//! The best message rate.

use super::finding::{Finding, Noise, Tone, grouped, known, on_device, several_devices};
use crate::number::{plural, size, times, value};
use crate::series::{Series, capital};
use crate::sides::lead;
use results::schema::Measurement;

/// One finding for each metric in `1/s` and device.
pub(super) fn best(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    let rates = all.iter().filter(|s| s.unit == "1/s");
    grouped(rates, |s| (s.experiment, s.metric, s.device))
        .into_iter()
        .filter_map(|group| of_group(&group, several_devices(all), noise))
        .collect()
}

fn of_group(group: &[&Series<'_>], several: bool, noise: &Noise<'_>) -> Option<Finding> {
    let mut peaks: Vec<(&Series<'_>, &Measurement)> = group
        .iter()
        .filter_map(|s| Some((*s, s.points.iter().copied().max_by(|a, b| a.median.total_cmp(&b.median))?)))
        .collect();
    peaks.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    let (s, r) = *peaks.first()?;
    let told = peaks.get(1).map(|(_, next)| lead(r, next, noise.on(s.device)).is_some());
    let topic = format!("{}{}", capital(&s.what()), on_device(s, several));
    let rank = match told {
        None => "",
        Some(true) => "Best is ",
        Some(false) => "Highest is ",
    };
    let mut text = format!("{rank}{} with {} messages: {}", s.name(), size(r.size_bytes), known(r));
    if let Some(f) = &r.floor {
        text += &format!(", {} the ceiling ({}, {})", times(f.ratio), f.what, value(f.value, &f.unit));
    }
    text += &match (told, peaks.get(1)) {
        (Some(true), _) => format!(", the most of {}.", plural(group.len(), "curve")),
        (Some(false), Some((next, _))) => format!("; one cannot tell it from {}.", next.name()),
        _ => ".".to_owned(),
    };
    let tone = if told == Some(false) { Tone::CannotTell } else { Tone::Fact };
    Some(Finding::new(tone, topic, text))
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{point, run};
    use super::*;
    use crate::series::series;

    #[test]
    fn the_highest_rate_is_told() {
        let run = run(vec![point("rate", "op=write", 8, 12.34e6), point("rate", "op=send", 8, 5e6)]);
        let found = best(&series(std::slice::from_ref(&run)), &Noise(&run.environment));
        assert_eq!(
            found[0].text,
            "Best is write with 8 B messages: 12.3 M/s (12.2..12.5), the most of 2 curves."
        );
    }

    #[test]
    fn one_curve_is_no_contest_and_neither_are_two_that_cannot_be_told_apart() {
        let of = |mut results: Vec<Measurement>, ci95| {
            results[0].ci95 = ci95;
            let run = run(results);
            best(&series(std::slice::from_ref(&run)), &Noise(&run.environment))[0].clone()
        };
        let write = || point("rate", "op=write", 8, 12.34e6);
        let alone = of(vec![write()], write().ci95);
        assert_eq!(alone.text, "write with 8 B messages: 12.3 M/s (12.2..12.5).");
        // An interval of 1,400 % to either side makes nothing the best.
        let wild = of(vec![write(), point("rate", "op=send", 8, 5e6)], Some([1e5, 3.5e8]));
        assert_eq!(wild.tone, Tone::CannotTell);
        assert!(wild.text.starts_with("Highest is write") && wild.text.contains("cannot tell it from send"));
    }
}
