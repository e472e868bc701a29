//! Where bandwidth saturates: the peak, the size that reaches half the peak, and the share of the ceiling.

use super::finding::{Finding, Noise, Tone, grouped, known, on_device, several_devices};
use crate::number::{percent, size, size_about, value};
use crate::series::{Series, apart, capital};
use crate::sides::lead;
use results::schema::Measurement;

/// Fewer sizes than this are no curve.
const MIN_SIZES: usize = 3;
/// Share of the peak that counts as saturated.
const SATURATED: f64 = 0.95;
/// A fall below this share of the peak, at larger sizes, is reported.
const FALLEN: f64 = 0.8;

/// Shape of one bandwidth curve.
#[derive(Debug, PartialEq)]
pub(crate) struct Shape<'a> {
    /// The highest point.
    pub(crate) peak: &'a Measurement,
    /// Size of half the peak by log-log interpolation; `None` if the smallest size has more.
    pub(crate) half_bytes: Option<f64>,
    /// Smallest size from which on up to the peak all are saturated.
    pub(crate) saturated_bytes: u64,
    /// Whether the curve still rises at its last size: `None` if no interval shows it.
    pub(crate) rising: Option<bool>,
}

/// Shape of a curve of at least three sizes.
pub(crate) fn shape<'a>(points: &[&'a Measurement]) -> Option<Shape<'a>> {
    if points.len() < MIN_SIZES {
        return None;
    }
    let peak = points.iter().copied().max_by(|a, b| a.median.total_cmp(&b.median))?;
    let at = points.iter().position(|r| std::ptr::eq(*r, peak))?;
    let half = points.iter().position(|r| r.median >= peak.median / 2.0)?;
    let half_bytes = (half > 0).then(|| crossing(points[half - 1], points[half], peak.median / 2.0));
    let before = points[..at].iter().rposition(|r| r.median < SATURATED * peak.median);
    let saturated_bytes = points[before.map_or(0, |i| i + 1)].size_bytes;
    let last = points.len() - 1;
    let steep = at == last && points[last - 1].median < SATURATED * peak.median;
    let rising = if steep { apart(points[last - 1], peak).filter(|apart| *apart) } else { Some(false) };
    Some(Shape { peak, half_bytes, saturated_bytes, rising })
}

fn crossing(below: &Measurement, above: &Measurement, level: f64) -> f64 {
    let (x0, x1) = (below.size_bytes.max(1) as f64, above.size_bytes.max(1) as f64);
    if below.median <= 0.0 {
        return x1;
    }
    let share = (level / below.median).ln() / (above.median / below.median).ln();
    x0 * (x1 / x0).powf(share)
}

/// One finding for each bandwidth experiment and device.
pub(super) fn saturation(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    let curves = all.iter().filter(|s| s.unit == "MB/s");
    grouped(curves, |s| (s.experiment == "bibw", s.experiment, s.metric, s.device))
        .into_iter()
        .filter_map(|group| of_group(&group, several_devices(all), noise))
        .collect()
}

fn of_group(group: &[&Series<'_>], several: bool, noise: &Noise<'_>) -> Option<Finding> {
    let mut shapes = Vec::new();
    for op in grouped(group.iter().copied(), |s| s.op().to_owned()) {
        let shaped = op.into_iter().filter_map(|s| Some((s, shape(&s.points)?)));
        shapes.extend(shaped.max_by(|a, b| a.1.peak.median.total_cmp(&b.1.peak.median)));
    }
    shapes.sort_by(|a, b| b.1.peak.median.total_cmp(&a.1.peak.median));
    let (s, best) = shapes.first()?;
    let topic = format!("{}{}", capital(&s.what()), on_device(s, several));
    let told = shapes.get(1).map(|(_, next)| lead(best.peak, next.peak, noise.on(s.device)).is_some());
    let text = match told {
        None => format!("{} {}.", s.name(), sentence(best)),
        Some(true) => format!("Best is {}: it {}.", s.name(), sentence(best)),
        Some(false) => format!(
            "Highest is {}: it {}; one cannot tell its peak from that of {}.",
            s.name(),
            sentence(best),
            shapes[1].0.name()
        ),
    };
    let unsure = best.rising.is_none() || told == Some(false);
    let tone = if unsure { Tone::CannotTell } else { Tone::Fact };
    let rest = shapes[1..].iter().map(|(s, shape)| format!("{} {}", s.name(), sentence(shape))).collect();
    let note = fallen(group, &shapes);
    Some(Finding::new(tone, topic, text + &note).with(rest))
}

fn sentence(shape: &Shape<'_>) -> String {
    let peak = shape.peak;
    let mut text = format!("peaks at {} with {}", known(peak), size(peak.size_bytes));
    if let Some(f) = &peak.floor {
        text += &format!(", {} of the ceiling ({}, {})", percent(f.ratio), f.what, value(f.value, &f.unit));
    }
    text += &match shape.half_bytes {
        Some(bytes) => format!("; half of that at about {} (n½)", size_about(bytes)),
        None => "; its smallest size already has half of that".to_owned(),
    };
    text + &match shape.rising {
        Some(true) => "; still rising at the largest size, so the true peak lies beyond".to_owned(),
        None => "; perhaps still rising there: without disjoint intervals one cannot tell".to_owned(),
        Some(false) if shape.saturated_bytes < peak.size_bytes => {
            format!("; within 5 % of it from {} on", size(shape.saturated_bytes))
        }
        Some(false) => String::new(),
    }
}

/// Curves that lose much of their peak at larger sizes.
fn fallen(group: &[&Series<'_>], shapes: &[(&Series<'_>, Shape<'_>)]) -> String {
    let (s, best) = &shapes[0];
    let Some(last) = s.points.last() else { return String::new() };
    if last.median >= FALLEN * best.peak.median {
        return String::new();
    }
    let alike = group.len() == 1;
    let whose = if alike { "It" } else { "That curve" };
    format!(
        " {whose} falls to {} of its peak at {}.",
        percent(last.median / best.peak.median),
        size(last.size_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{curve, floored, run};
    use super::*;
    use crate::series::series;
    use results::schema::Environment;

    /// Hockney's curve `peak * x / (x + half)` has n½ = half.
    fn hockney(half: f64) -> impl Fn(f64) -> f64 {
        move |x| 10_000.0 * x / (x + half)
    }

    #[test]
    fn half_the_peak_is_found_between_the_sizes() {
        let results = curve("bandwidth", "op=write", 0..=22, hockney(3000.0));
        let points: Vec<_> = results.iter().collect();
        let shape = shape(&points).expect("a shape");
        assert_eq!(shape.peak.size_bytes, 1 << 22);
        assert_eq!(shape.rising, Some(false));
        assert_eq!(shape.saturated_bytes, 1 << 16);
        let half = shape.half_bytes.expect("n½");
        assert!((2900.0..3100.0).contains(&half), "{half}");
    }

    #[test]
    fn a_curve_that_still_rises_is_called_so_only_with_intervals() {
        let mut results = curve("bandwidth", "op=write", 0..=10, hockney(1e6));
        let rising =
            |results: &[Measurement]| shape(&results.iter().collect::<Vec<_>>()).expect("shape").rising;
        assert_eq!(rising(&results), Some(true));
        results.iter_mut().for_each(|r| r.ci95 = None);
        assert_eq!(rising(&results), None);
        let quiet = Environment::default();
        let found = saturation(&series(&[run(results)]), &Noise(&quiet));
        assert_eq!(found[0].tone, Tone::CannotTell);
        assert!(found[0].text.contains("perhaps still rising"), "{}", found[0].text);
    }

    #[test]
    fn the_share_of_the_floor_and_a_fall_are_told() {
        let fall = |x: f64| if x > 65536.0 { 5000.0 } else { hockney(1000.0)(x) };
        let results = curve("bandwidth", "op=write,source=nic,sink=nic", 6..=22, fall);
        let results = results.into_iter().map(|m| floored(m, 12_000.0, "memcpy")).collect();
        let quiet = Environment::default();
        let found = saturation(&series(&[run(results)]), &Noise(&quiet));
        let text = &found[0].text;
        assert!(
            text.starts_with(
                "write (nic → nic) peaks at 9.85 GB/s (9.75..9.95) with 64 KiB, 82 % of the ceiling"
            ),
            "{text}"
        );
        assert!(text.contains("falls to 51 % of its peak at 4 MiB"), "{text}");
    }

    #[test]
    fn two_sizes_are_no_curve() {
        let results = curve("bandwidth", "op=write", 0..2, hockney(10.0));
        assert!(saturation(&series(&[run(results)]), &Noise(&Environment::default())).is_empty());
    }

    #[test]
    fn peaks_that_overlap_have_no_order() {
        let of = |factor: f64| {
            let mut results = curve("bandwidth", "op=write", 6..=16, hockney(1000.0));
            results.extend(curve("bandwidth", "op=send", 6..=16, |x| hockney(1000.0)(x) / factor));
            saturation(&series(&[run(results)]), &Noise(&Environment::default()))[0].clone()
        };
        assert!(of(1.5).text.starts_with("Best is write: it peaks"), "{}", of(1.5).text);
        assert_eq!(of(1.005).tone, Tone::CannotTell);
        assert!(of(1.005).text.contains("cannot tell its peak from that of send"), "{}", of(1.005).text);
    }
}
