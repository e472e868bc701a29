//! A figure as an element of the page: its caption, its legend, and its panels.

use maud::{Markup, html};

use crate::figures::Figure;
use crate::number::plural;
use crate::plots;
use crate::svg::{Chart, Point};
use results::schema::Run;

/// Points beyond an axis that a caption names; of more it says how many there are.
const NAMED: usize = 3;

/// Arranges panels side by side such that no row is left half empty.
fn layout(figure: &Figure<'_>) -> &'static str {
    match panels(figure) {
        0 | 1 => "alone",
        2 | 4 => "two",
        _ => "three",
    }
}

/// The number of panels with curves.
fn panels(figure: &Figure<'_>) -> usize {
    figure.panels.iter().filter(|p| !p.dots).count()
}

/// The figure, under this identifier.
pub(super) fn frame(id: &str, figure: &Figure<'_>, runs: &[Run]) -> Markup {
    let charts = plots::charts(figure, runs);
    let beyond = beyond(&charts);
    html! {
        figure.plot id=(id) {
            figcaption {
                h3 { (figure.title) @if charts.iter().all(Option::is_none) { " (" (figure.unit) ")" } }
                @if !figure.constant.is_empty() { p.constant { (figure.constant) } }
                @if !beyond.is_empty() { p.constant { "Beyond the axis, at its edge: " (beyond) "." } }
            }
            @if charts.iter().any(Option::is_some) { (plots::legend_of(figure, &charts)) }
            div.panels.(layout(figure)) {
                @for (panel, chart) in figure.panels.iter().zip(&charts) {
                    div.panel.(if panel.dots { "dots" } else { "lines" }) {
                        @if !panel.title.is_empty() { h4 { (panel.title) } }
                        @match chart {
                            Some(chart) if panels(figure) > 1 => { div.canvas { (chart.small()) } }
                            Some(chart) => { div.canvas { (chart.markup()) } }
                            None if panel.dots => { (plots::rows(figure, panel, runs)) }
                            None => { p.hint { "No positive value to draw on a logarithmic axis." } }
                        }
                    }
                }
            }
        }
    }
}

/// The points that are beyond the axis, in words.
fn beyond(charts: &[Option<Chart>]) -> String {
    let found: Vec<&Point> =
        charts.iter().flatten().flat_map(Chart::beyond).map(|(_, point)| point).collect();
    // The first lines of the text name the curve, the size and the value.
    let named = |point: &&Point| point.text.lines().take(3).collect::<Vec<_>>().join(", ");
    let mut all: Vec<String> = found.iter().take(NAMED).map(named).collect();
    if found.len() > NAMED {
        all.push(plural(found.len() - NAMED, "more point"));
    }
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::figures_of;
    use crate::findings::made_up::{curve, run};
    use crate::series::series;

    fn framed(runs: &[Run]) -> String {
        let all = series(runs);
        frame("figure-0", &figures_of(&all, &[])[0], runs).into_string()
    }

    #[test]
    fn far_point_is_named_in_the_caption_with_its_value() {
        let mut results = curve("latency", "op=write", 0..5, |_| 10.0);
        results[2].median = 100_000.0;
        let text = framed(&[run(results)]);
        assert!(
            text.contains("Beyond the axis, at its edge: write, shm, run 1, 4 B, median 100,000 µs."),
            "{text}"
        );
        assert!(!framed(&[run(curve("latency", "op=write", 0..5, |_| 10.0))]).contains("Beyond"));
    }

    #[test]
    fn panels_side_by_side_are_small() {
        let places = ["nic,sink=nic", "nic,sink=host", "host,sink=nic", "host,sink=host"];
        let ops = ["write", "send", "read"];
        let variants = ops.iter().flat_map(|op| places.map(|place| format!("op={op},source={place}")));
        let many = run(variants.flat_map(|v| curve("latency", &v, 0..4, |x| x)).collect());
        let text = framed(&[many]);
        assert!(
            text.matches("viewBox=\"0 0 400 270\"").count() == 3 && text.contains("panels three"),
            "{text}"
        );
        let text = framed(&[run(curve("latency", "op=write", 0..4, |x| x))]);
        assert!(text.contains("viewBox=\"0 0 560 330\"") && text.contains("panels alone"), "{text}");
    }
}
