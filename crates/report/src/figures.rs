//! Which curves go together: figures by experiment and metric, panels of a few curves each.

use std::collections::BTreeSet;

use super::columns::{Column, column_of};
use super::number;
use super::series::{Series, capital, named_level};

/// More curves than this on one panel are indistinguishable.
pub(super) const MAX_CURVES: usize = 8;
/// Maximum curves of a figure with a single panel.
const MAX_ALONE: usize = 6;

/// One experiment's metric: panels with common axes and a common legend.
pub(super) struct Figure<'a> {
    /// The heading.
    pub(super) title: String,
    /// Factors that are the same for all curves.
    pub(super) constant: String,
    /// Unit for people.
    pub(super) unit: String,
    /// Factor from the schema's unit to it.
    pub(super) scale: f64,
    pub(super) metric: &'a str,
    /// Legend: each label is one colour in all panels.
    pub(super) labels: Vec<String>,
    pub(super) panels: Vec<Panel<'a>>,
    /// Whether its curves are devices side by side, each label a device.
    pub(super) sides: bool,
}

/// Some curves drawn, or tabulated, together.
pub(super) struct Panel<'a> {
    /// What its curves have in common; empty for the only panel.
    pub(super) title: String,
    /// Whether each curve has a single size, so that it is drawn as dots, not lines.
    pub(super) dots: bool,
    /// Index into the legend, and curve.
    pub(super) curves: Vec<(usize, Series<'a>)>,
}

type Levels = Vec<(String, String)>;

/// All figures of some curves, in the curves' order; with several columns, devices side by side.
pub(super) fn figures_of<'a>(all: &[Series<'a>], columns: &[Column]) -> Vec<Figure<'a>> {
    let alike =
        |a: &Series<'_>, b: &Series<'_>| (a.experiment, a.metric, a.unit) == (b.experiment, b.metric, b.unit);
    let mut ordered: Vec<&Series<'a>> = all.iter().collect();
    // The floor's own figures are last; within an experiment the order is unchanged.
    ordered.sort_by_key(|s| s.is_floor());
    ordered.chunk_by(|a, b| alike(a, b)).map(|group| figure(group, columns)).collect()
}

fn figure<'a>(group: &[&Series<'a>], columns: &[Column]) -> Figure<'a> {
    let first = group[0];
    let sides = columns.len() > 1 && !first.is_floor();
    let largest = group.iter().flat_map(|s| &s.points).map(|r| r.median).fold(0.0, f64::max);
    let (unit, scale) = number::display_unit(first.unit, largest);
    // With several devices, some may have results at only one size.
    let several = |s: &Series<'_>| {
        sizes(s) > 1 || (sides && group.iter().any(|other| other.variant == s.variant && sizes(other) > 1))
    };
    let (lines, dots): (Vec<_>, Vec<_>) = group.iter().partition(|s| several(s));
    let varying = varying(group);
    let constant: Vec<String> = first
        .factors()
        .iter()
        .filter(|(name, _)| !varying.contains(name) && name != "run" && !first.is_floor())
        .filter(|(name, _)| !sides || name != "device")
        .map(
            |(name, level)| {
                if name == "device" { format!("device {level}") } else { named_level(name, level) }
            },
        )
        .collect();
    let (labels, mut panels) =
        if sides { side_panels(&lines, &varying, columns) } else { line_panels(&lines, &varying) };
    if sides && !dots.is_empty() {
        panels.push(side_dots(&dots, &lines, columns));
    } else {
        for some in dots.chunks(3 * MAX_CURVES) {
            panels.push(dot_panel(some, &lines));
        }
    }
    let title = capital(&first.what());
    let constant = constant.join(", ");
    Figure { title, constant, unit, scale, metric: first.metric, labels, panels, sides }
}

/// A panel for each variant, on which the devices are curves.
fn side_panels<'a>(
    lines: &[&&Series<'a>],
    varying: &[String],
    columns: &[Column],
) -> (Vec<String>, Vec<Panel<'a>>) {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for s in lines {
        let Some(column) = column_of(columns, s) else { continue };
        let title = label(s, |n| n != "device" && n != "run" && varying.iter().any(|v| v == n));
        match panels.iter_mut().find(|p| p.title == title) {
            Some(panel) => panel.curves.push((column, (**s).clone())),
            None => panels.push(Panel { title, dots: false, curves: vec![(column, (**s).clone())] }),
        }
    }
    panels.iter_mut().for_each(|p| p.curves.sort_by_key(|(column, _)| *column));
    (columns.iter().map(|c| c.label.clone()).collect(), panels)
}

fn side_dots<'a>(dots: &[&&Series<'a>], lines: &[&&Series<'a>], columns: &[Column]) -> Panel<'a> {
    let title = dot_panel(dots, lines).title;
    let curves = dots.iter().filter_map(|s| Some((column_of(columns, s)?, (**s).clone())));
    Panel { title, dots: true, curves: curves.collect() }
}

fn sizes(s: &Series<'_>) -> usize {
    s.points.iter().map(|r| r.size_bytes).collect::<BTreeSet<_>>().len()
}

/// Names of the factors that differ within a group.
fn varying(group: &[&Series<'_>]) -> Vec<String> {
    let all: Vec<Levels> = group.iter().map(|s| s.factors()).collect();
    let mut names: Vec<String> = Vec::new();
    for (name, _) in all.iter().flatten() {
        let level = |f: &Levels| f.iter().find(|(n, _)| n == name).map(|(_, l)| l.clone());
        if !names.contains(name) && all.iter().any(|f| level(f) != level(&all[0])) {
            names.push(name.clone());
        }
    }
    names
}

/// Levels of some factors as a label.
fn label(s: &Series<'_>, wanted: impl Fn(&str) -> bool) -> String {
    let levels: Vec<String> =
        s.factors().iter().filter(|(n, _)| wanted(n)).map(|(n, l)| named_level(n, l)).collect();
    levels.join(", ")
}

fn line_panels<'a>(lines: &[&&Series<'a>], varying: &[String]) -> (Vec<String>, Vec<Panel<'a>>) {
    let facets = facets(lines, varying);
    let in_title = |name: &str| facets.iter().any(|f| f == name);
    let mut labels: Vec<String> = Vec::new();
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for s in lines {
        let title = label(s, in_title);
        let name = label(s, |n| varying.iter().any(|v| v == n) && !in_title(n));
        let name = if name.is_empty() { s.name() } else { name };
        let index = labels.iter().position(|l| *l == name).unwrap_or_else(|| {
            labels.push(name);
            labels.len() - 1
        });
        let room = |p: &&mut Panel<'_>| p.title == title && p.curves.len() < MAX_CURVES;
        match panels.iter_mut().rev().find(room) {
            Some(panel) => panel.curves.push((index, (**s).clone())),
            None => panels.push(Panel { title, dots: false, curves: vec![(index, (**s).clone())] }),
        }
    }
    (labels, panels)
}

/// The fewest factors that, as panel titles, leave few enough curves on each panel.
fn facets(lines: &[&&Series<'_>], varying: &[String]) -> Vec<String> {
    let labels_without = |facets: &[&String]| {
        let wanted = |n: &str| varying.iter().any(|v| v == n) && !facets.iter().any(|f| *f == n);
        lines.iter().map(|s| label(s, wanted)).collect::<BTreeSet<_>>().len()
    };
    if labels_without(&[]) <= MAX_ALONE {
        return Vec::new();
    }
    for (i, a) in varying.iter().enumerate() {
        if labels_without(&[a]) <= MAX_CURVES {
            return vec![a.clone()];
        }
        for b in &varying[i + 1..] {
            if labels_without(&[a, b]) <= MAX_CURVES {
                return vec![a.clone(), b.clone()];
            }
        }
    }
    varying.iter().take(2).cloned().collect()
}

fn dot_panel<'a>(dots: &[&&Series<'a>], lines: &[&&Series<'a>]) -> Panel<'a> {
    let sizes: BTreeSet<u64> = dots.iter().flat_map(|s| &s.points).map(|r| r.size_bytes).collect();
    let at = match sizes.iter().collect::<Vec<_>>()[..] {
        [one] if *one > 0 => format!("at {}", number::size(*one)),
        _ => "one size each".to_owned(),
    };
    let title = if lines.is_empty() && at == "one size each" { String::new() } else { capital(&at) };
    let curves = dots.iter().enumerate().map(|(i, s)| (i % MAX_CURVES, (**s).clone())).collect();
    Panel { title, dots: true, curves }
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{curve, point, run};
    use super::super::series::series;
    use super::*;
    use results::schema::{Measurement, Run};

    fn figures<'a>(all: &[Series<'a>]) -> Vec<Figure<'a>> {
        figures_of(all, &[])
    }

    const PLACES: [&str; 4] =
        ["source=nic,sink=nic", "source=nic,sink=host", "source=host,sink=nic", "source=host,sink=host"];

    fn results(ops: &[&str]) -> Vec<Measurement> {
        let variants = ops.iter().flat_map(|op| PLACES.map(|place| format!("op={op},{place}")));
        variants.flat_map(|v| curve("latency", &v, 0..4, |x| x)).collect()
    }

    fn shape(runs: &[Run]) -> Vec<(String, usize)> {
        let figures = figures(&series(runs));
        let panels = figures.iter().flat_map(|f| &f.panels);
        panels.map(|p| (p.title.clone(), p.curves.len())).collect()
    }

    #[test]
    fn few_curves_share_one_panel_and_many_are_split_by_operation() {
        assert_eq!(shape(&[run(results(&["write"]))]), [(String::new(), 4)]);
        let many = shape(&[run(results(&["read", "send", "write"]))]);
        assert_eq!(many, [("send".to_owned(), 4), ("write".to_owned(), 4), ("read".to_owned(), 4)]);
    }

    #[test]
    fn several_runs_share_panels_while_there_is_room() {
        let one = run(results(&["read", "send"]));
        let two = shape(&[one.clone(), one.clone()]);
        assert_eq!(two, [("send".to_owned(), 8), ("read".to_owned(), 8)]);
        let three = shape(&[one.clone(), one.clone(), one]);
        assert!(three.iter().all(|(_, curves)| *curves <= MAX_CURVES), "{three:?}");
    }

    #[test]
    fn no_panel_is_crowded_even_if_one_factor_has_many_levels() {
        let all =
            (0..30).flat_map(|w| curve("bandwidth", &format!("op=write,window={w}"), 0..3, |x| x)).collect();
        let panels = shape(&[run(all)]);
        assert_eq!(panels.iter().map(|(_, n)| n).sum::<usize>(), 30);
        assert!(panels.iter().all(|(_, n)| *n <= MAX_CURVES), "{panels:?}");
    }

    #[test]
    fn devices_side_by_side_share_a_panel_for_each_variant() {
        let runs = [super::super::sides::tests::three()];
        let columns = super::super::columns::columns(&runs);
        let figures = figures_of(&series(&runs), &columns);
        let panels: Vec<_> = figures[0].panels.iter().map(|p| (p.title.as_str(), p.curves.len())).collect();
        assert_eq!(panels, [("nic → nic", 3), ("host → host", 3)]);
        assert_eq!(figures[0].labels, ["shm", "iwarp", "model:card (virtual)"]);
        assert_eq!(figures[0].constant, "write");
        // One dot for each device and variant, in the colours of the curves.
        let dots = &figures[1].panels[0];
        assert!(dots.dots && dots.curves.len() == 6);
        let of = |device: &str| dots.curves.iter().find(|(_, s)| s.device == device).expect("there").0;
        assert_eq!([of("shm"), of("iwarp"), of("model:card")], [0, 1, 2]);
    }

    #[test]
    fn single_sizes_become_dots_of_their_own() {
        let mut all = results(&["write"]);
        all.push(point("latency", "op=cas,source=nic,sink=nic", 8, 0.4));
        let all = [run(all)];
        let all = series(&all);
        let figures = figures(&all);
        let last = figures[0].panels.last().expect("a panel");
        assert_eq!((last.dots, last.title.as_str()), (true, "At 8 B"));
    }
}
