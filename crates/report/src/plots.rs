//! Figures as data for the page's script: numbers and finished texts, no code.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{Figure, Panel};
use super::number::{self, count, percent, plural, sig, times};
use super::series::{Series, bound, half_width, interval, is_wide};
use bench::schema::Measurement;

/// What the script draws for one figure.
#[derive(Serialize)]
pub(super) struct Plot {
    /// Axis title.
    y_title: String,
    /// Legend, in order of colour.
    labels: Vec<String>,
    /// Range of sizes of all panels.
    x: Option<[f64; 2]>,
    /// Range of values of all line panels.
    y: Option<[f64; 2]>,
    panels: Vec<PlotPanel>,
    /// Whether dashed lines belong to a curve each, and are named in full.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reference: bool,
}

#[derive(Serialize)]
struct PlotPanel {
    dots: bool,
    /// Names on the axis of a dot panel.
    rows: Vec<String>,
    curves: Vec<Curve>,
    floors: Vec<FloorCurve>,
}

#[derive(Serialize)]
struct Curve {
    /// Index of the legend entry.
    label: usize,
    /// Row of a dot panel.
    row: usize,
    /// Whether its time is virtual: dashed, with hollow marks.
    dashed: bool,
    name: String,
    x: Vec<u64>,
    y: Vec<f64>,
    /// Interval, the median itself where there is none.
    low: Vec<f64>,
    high: Vec<f64>,
    text: Vec<String>,
    /// Floor beside each dot of a dot panel.
    floor: Option<f64>,
}

#[derive(Serialize)]
struct FloorCurve {
    label: String,
    /// The curve whose floor it is, where each has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<usize>,
    x: Vec<u64>,
    y: Vec<f64>,
    text: Vec<String>,
}

/// Data of one figure; points that a logarithmic axis cannot show are left out.
pub(super) fn plot(figure: &Figure<'_>) -> Plot {
    let panels: Vec<PlotPanel> = figure.panels.iter().map(|p| panel(figure, p)).collect();
    let lines = || panels.iter().filter(|p| !p.dots);
    let of_curves = |f: &dyn Fn(&Curve) -> Vec<f64>| range(lines().flat_map(|p| &p.curves).flat_map(f));
    let x = of_curves(&|c| c.x.iter().map(|x| *x as f64).collect());
    let floors = range(lines().flat_map(|p| &p.floors).flat_map(|f| f.y.iter().copied()));
    let y = of_curves(&|c| c.low.iter().chain(&c.high).copied().collect());
    let y = range(y.iter().chain(&floors).flatten().copied());
    let y_title = format!("{} ({})", super::series::words(figure.metric), figure.unit);
    Plot { y_title, labels: figure.labels.clone(), x, y, panels, reference: figure.sides }
}

fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values.fold(None, |range: Option<[f64; 2]>, v| {
        Some(range.map_or([v, v], |[low, high]| [low.min(v), high.max(v)]))
    })
}

fn drawable(r: &Measurement, dots: bool) -> bool {
    r.median > 0.0 && (dots || r.size_bytes > 0)
}

fn panel(figure: &Figure<'_>, panel: &Panel<'_>) -> PlotPanel {
    let scale = figure.scale;
    let mut rows: Vec<String> = Vec::new();
    let mut curves = Vec::new();
    for (label, s) in &panel.curves {
        let curve = curve(*label, s, panel.dots, scale);
        if curve.x.is_empty() {
            continue;
        }
        // Devices side by side share the row of their variant.
        let known = rows.iter().position(|row| *row == curve.name).filter(|_| figure.sides);
        let row = known.unwrap_or_else(|| {
            rows.push(curve.name.clone());
            rows.len() - 1
        });
        curves.push(Curve { row, ..curve });
    }
    let floors = match (panel.dots, figure.sides) {
        (true, _) => Vec::new(),
        (false, true) => side_floors(figure, panel),
        (false, false) => floors(panel, scale),
    };
    PlotPanel { dots: panel.dots, rows, curves, floors }
}

fn curve(label: usize, s: &Series<'_>, dots: bool, scale: f64) -> Curve {
    let points: Vec<&Measurement> = s.points.iter().copied().filter(|r| drawable(r, dots)).collect();
    let interval = |r: &Measurement, end: usize| {
        // A log axis has no zero: an interval that reaches it is cut at a thousandth of the median.
        r.ci95.map_or(r.median, |ci| ci[end]).max(r.median / 1000.0) * scale
    };
    Curve {
        label,
        row: 0,
        dashed: s.is_virtual(),
        name: s.name(),
        x: points.iter().map(|r| r.size_bytes).collect(),
        y: points.iter().map(|r| r.median * scale).collect(),
        low: points.iter().map(|r| interval(r, 0)).collect(),
        high: points.iter().map(|r| interval(r, 1)).collect(),
        text: points.iter().map(|r| hover(s, r)).collect(),
        floor: points.first().filter(|_| dots).and_then(|r| r.floor.as_ref()).map(|f| f.value * scale),
    }
}

/// Text whose few tags the page shows: those in it are made harmless.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn hover(s: &Series<'_>, r: &Measurement) -> String {
    let mut lines = vec![format!("<b>{}</b>", plain(&s.name()))];
    let time = if s.is_virtual() { " (virtual)" } else { "" };
    lines.push(format!("{}{time}, run {}, {}", plain(s.device), s.run + 1, number::size(r.size_bytes)));
    lines.push(format!("median {}", number::value(r.median, &r.unit)));
    if s.is_virtual() {
        lines.push("exact: virtual time".to_owned());
    } else if let Some([low, high]) = interval(r) {
        let (_, scale) = number::display_unit(&r.unit, r.median);
        let half = half_width(r).map_or_else(String::new, |w| format!(" (±{})", percent(w)));
        lines.push(format!("95 % interval {} to {}{half}", sig(low * scale, 3), sig(high * scale, 3)));
    } else {
        lines.push("no interval".to_owned());
    }
    let launches = if r.launches.is_empty() {
        String::new()
    } else {
        format!(" in {}", plural(r.launches.len(), "launch").replace("launchs", "launches"))
    };
    lines.push(format!("n {}{launches}", count(r.n)));
    if let Some(f) = &r.floor {
        lines.push(format!(
            "{} the {}: {} {}",
            times(f.ratio),
            bound(r),
            plain(&f.what),
            number::value(f.value, &f.unit)
        ));
    }
    if is_wide(r) {
        lines.push("a wide interval".to_owned());
    }
    lines.join("<br>")
}

/// One curve for each kind of floor; curves of one panel mostly share it.
fn floors(panel: &Panel<'_>, scale: f64) -> Vec<FloorCurve> {
    let several = panel.curves.windows(2).any(|pair| pair[0].1.run != pair[1].1.run);
    let mut map: BTreeMap<(usize, &str), BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for (_, s) in &panel.curves {
        for r in s.points.iter().filter(|r| drawable(r, false)) {
            if let Some(f) = r.floor.as_ref().filter(|f| f.value > 0.0 && f.unit == r.unit) {
                map.entry((s.run, f.what.as_str()))
                    .or_default()
                    .entry(r.size_bytes)
                    .or_default()
                    .push(f.value);
            }
        }
    }
    map.into_iter()
        .map(|((run, what), at)| {
            let run = if several { format!(", run {}", run + 1) } else { String::new() };
            // Where variants were each compared with their own measurement of it, the middle one is drawn.
            let middle = at.into_iter().map(|(x, mut values)| {
                values.sort_by(f64::total_cmp);
                (x, values[values.len() / 2])
            });
            let (x, y): (Vec<u64>, Vec<f64>) = middle.unzip();
            let unit = panel.curves[0].1.unit;
            let text = x.iter().zip(&y).map(|(x, y)| {
                format!(
                    "<b>floor: {}</b>{run}<br>{}<br>{}",
                    plain(what),
                    number::size(*x),
                    number::value(*y, unit)
                )
            });
            let text = text.collect();
            FloorCurve {
                label: format!("{what}{run}"),
                of: None,
                x,
                y: y.iter().map(|y| y * scale).collect(),
                text,
            }
        })
        .collect()
}

/// The floor of each curve, as a curve of its own.
fn side_floors(figure: &Figure<'_>, panel: &Panel<'_>) -> Vec<FloorCurve> {
    let one = |(label, s): &(usize, Series<'_>)| {
        let with_floor =
            |r: &&Measurement| drawable(r, false) && r.floor.as_ref().is_some_and(|f| f.value > 0.0);
        let points: Vec<_> = s.points.iter().copied().filter(with_floor).collect();
        let floors = || points.iter().filter_map(|r| Some((*r, r.floor.as_ref()?)));
        let device = &figure.labels[*label];
        let text = floors().map(|(r, f)| {
            let (at, value) = (number::size(r.size_bytes), number::value(f.value, s.unit));
            format!("<b>floor of {}: {}</b><br>{at}<br>{value}", plain(device), plain(&f.what))
        });
        (!points.is_empty()).then(|| FloorCurve {
            label: format!("floor of {device}"),
            of: Some(*label),
            x: points.iter().map(|r| r.size_bytes).collect(),
            y: floors().map(|(_, f)| f.value * figure.scale).collect(),
            text: text.collect(),
        })
    };
    panel.curves.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::figures_of;
    use super::super::findings::made_up::{curve, floored, point, run};
    use super::super::series::series;
    use super::*;

    fn of(results: Vec<Measurement>) -> Plot {
        let runs = [run(results)];
        plot(&figures_of(&series(&runs), &[])[0])
    }

    #[test]
    fn curves_share_one_floor_and_hover_tells_everything() {
        let mut all = curve("latency", "op=write", 0..4, |x| x);
        all.extend(curve("latency", "op=send", 0..4, |x| 2.0 * x));
        let plot = of(all.into_iter().map(|m| floored(m, 0.5, "cache line")).collect());
        assert_eq!(plot.panels[0].floors.len(), 1);
        assert_eq!(plot.panels[0].floors[0].y, [0.5; 4]);
        assert_eq!(plot.y, Some([0.5, 16.16]));
        let hover = &plot.panels[0].curves[0].text[3];
        for part in
            ["send", "8 B", "16.0 µs", "15.8 to 16.2", "±1.0 %", "n 6,000 in 6 launches", "32.0× the floor"]
        {
            assert!(hover.contains(part), "{hover} lacks {part}");
        }
    }

    #[test]
    fn side_by_side_each_device_has_its_floor_and_virtual_time_is_dashed() {
        let mut runs = [super::super::sides::tests::three()];
        for r in runs[0].results.iter_mut().filter(|r| r.device != "model:card") {
            *r = floored(r.clone(), r.median / 2.0, &format!("what {} cannot beat", r.device));
        }
        let columns = super::super::columns::columns(&runs);
        let all = series(&runs);
        let figures = figures_of(&all, &columns);
        let drawn = plot(&figures[0]);
        assert!(drawn.reference);
        let dashed: Vec<bool> = drawn.panels[0].curves.iter().map(|c| c.dashed).collect();
        assert_eq!(dashed, [false, false, true]);
        let floors: Vec<_> = drawn.panels[0].floors.iter().map(|f| (f.of, f.label.as_str())).collect();
        assert_eq!(floors, [(Some(0), "floor of shm"), (Some(1), "floor of iwarp")]);
        assert!(drawn.panels[0].floors[1].text[0].contains("what iwarp cannot beat"));
        assert!(drawn.panels[0].curves[2].text[0].contains("model:card (virtual)"));
        let dots = &plot(&figures[1]).panels[0];
        assert_eq!((dots.rows.len(), dots.curves.len()), (2, 6));
        assert!(dots.curves.iter().all(|c| dots.rows[c.row] == c.name));
    }

    #[test]
    fn what_a_logarithmic_axis_cannot_show_is_left_out() {
        let mut all = curve("latency", "op=write", 0..4, |x| x);
        all.push(point("latency", "op=write", 0, 1.0));
        all[1].median = 0.0;
        all[2].ci95 = Some([0.0, 5.0]);
        let plot = of(all);
        assert_eq!(plot.panels[0].curves[0].x, [1, 4, 8]);
        assert!(plot.panels[0].curves[0].low.iter().all(|v| *v > 0.0));
    }

    #[test]
    fn foreign_text_in_hover_has_no_tags() {
        let mut evil = curve("latency", "op=<a href='x'>", 0..3, |x| x);
        evil.iter_mut().for_each(|r| r.device = "<b>".to_owned());
        let text = &of(evil).panels[0].curves[0].text[0];
        assert!(!text.contains("<a") && text.contains("&lt;a"), "{text}");
    }
}
