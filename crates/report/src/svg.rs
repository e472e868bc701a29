//! Curves against an axis as SVG, drawn when the page is made: it is seen without a script, and printed as it is.
//!
//! Colours are classes of the page's style, `k0` to `k7` for curves and `kf` for other lines, so that a dark page
//! needs no other drawing. The page's script adds tooltips: each mark has its text as a title.

use maud::{Markup, html};

use super::number::{group, sig, size};

/// The shape of a drawing, in units that the page scales.
#[derive(Clone, Copy)]
struct Shape {
    width: f64,
    height: f64,
    /// Width of a tick label's character on a phone, where letters are larger relative to the drawing.
    character: f64,
    /// Characters of tick labels that fit side by side below an axis on a phone.
    narrow: usize,
    /// Steps of sizes on an axis at most.
    steps: i32,
}

/// The only drawing of a figure.
const LARGE: Shape = Shape { width: 560.0, height: 330.0, character: 10.0, narrow: 16, steps: 8 };
/// One of several drawings next to each other: with fewer labels, so that they stay readable.
const SMALL: Shape = Shape { width: 400.0, height: 270.0, character: 7.5, narrow: 36, steps: 4 };
/// Margins around the curves.
const TOP: f64 = 14.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Share of the vertical axis that is free above and below the curves.
const MARGIN: f64 = 0.06;
/// Colours of curves.
pub const COLOURS: usize = 10;

/// An axis: its quantity, and its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub title: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Whether it counts bytes.
    pub bytes: bool,
    /// The least and the greatest value on it.
    pub range: [f64; 2],
    /// Names of positions on the axis, shown in place of round numbers; empty for a numeric axis.
    pub names: Vec<(f64, String)>,
}

impl Axis {
    fn scaled(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }

    /// Both ends with a margin, scaled.
    fn ends(&self, share: f64) -> [f64; 2] {
        let [low, high] = self.range.map(|v| self.scaled(v));
        let span = high - low;
        let pad = match (self.log, span > 0.0) {
            (true, _) => (share * span).max(0.05),
            (false, true) => share * span,
            (false, false) => share * if high == 0.0 { 1.0 } else { high.abs() },
        };
        [low - pad, high + pad]
    }

    /// Values labelled on the axis.
    fn ticks(&self, [low, high]: [f64; 2], steps: i32) -> Vec<(f64, String)> {
        let all = if self.names.is_empty() { self.round([low, high], steps) } else { self.names.clone() };
        let inside = |(v, _): &(f64, String)| (low - 1e-9..=high + 1e-9).contains(&self.scaled(*v));
        all.into_iter().filter(inside).map(|(v, text)| (self.scaled(v), text)).collect()
    }

    /// Round numbers, some beyond the ends of the axis.
    fn round(&self, [low, high]: [f64; 2], most: i32) -> Vec<(f64, String)> {
        match (self.log, self.bytes) {
            (true, true) => {
                let (first, last) = (self.range[0].log2().floor() as i32, self.range[1].log2().ceil() as i32);
                let step = [1, 2, 3, 4, 6].into_iter().find(|step| (last - first) / step <= most);
                let step = step.unwrap_or(10);
                let shifts =
                    (first.div_euclid(step) * step..=last).step_by(step as usize).filter(|s| *s >= 0);
                shifts.map(|shift| (2f64.powi(shift), size(1 << shift.min(62)))).collect()
            }
            (true, false) => {
                let steps: &[f64] = match high - low {
                    d if d > 4.0 => &[1.0],
                    d if d > 2.0 => &[1.0, 3.0],
                    _ => &[1.0, 2.0, 5.0],
                };
                let decades = low.floor() as i32..=high.ceil() as i32;
                decades
                    .flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)))
                    .map(|v| (v, number(v)))
                    .collect()
            }
            (false, bytes) => {
                let power = 10f64.powf(((high - low) / 5.0).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| (high - low) / (s * power) <= 6.0);
                let step = step.unwrap_or(10.0) * power;
                let from = (low / step).ceil() as i64;
                let to = (high / step).floor() as i64;
                let text = |v: f64| if bytes { size(v as u64) } else { number(v) };
                (from..=to).take(12).map(|i| i as f64 * step).map(|v| (v, text(v))).collect()
            }
        }
    }
}

/// A value on an axis, with as few digits as possible.
fn number(v: f64) -> String {
    let (v, unit) = match v.abs() {
        1e9.. => (v / 1e9, "G"),
        1e6.. => (v / 1e6, "M"),
        _ => (v, ""),
    };
    let text = if v.abs() >= 1000.0 { group(&format!("{v:.0}")) } else { sig(v, 3) };
    let bare = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{bare}{unit}")
}

/// How a trace is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Not at all.
    No,
    /// By a line.
    Solid,
    /// A dashed line, in one of four styles.
    Dashed(usize),
    /// Not connected: each point is the end of a bar that starts at the axis or at the lower end of its interval.
    Bars,
}

/// The marker drawn at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing that is seen; its text is found all the same.
    No,
    /// The symbol of its curve, filled.
    Full,
    /// The symbol of its curve, hollow.
    Hollow,
    /// A short level line.
    Level,
}

/// A point of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// On the axes.
    pub at: [f64; 2],
    /// Ends of its interval.
    pub interval: Option<[f64; 2]>,
    /// The text of its tooltip, in lines.
    pub text: String,
    /// Run and result, if it represents one.
    pub cell: Option<(usize, usize)>,
}

/// Points that are shown and hidden together.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The name of its entry in the legend.
    pub name: String,
    /// The curve that determines its colour and symbol; `None` for other lines.
    pub curve: Option<usize>,
    /// How it is connected.
    pub line: Line,
    /// The marker at its points.
    pub mark: Mark,
    /// The points, from left to right.
    pub points: Vec<Point>,
}

impl Trace {
    fn class(&self) -> String {
        self.curve.map_or_else(|| "kf".to_owned(), |curve| format!("k{}", curve % COLOURS))
    }

    fn dash(&self) -> Option<&'static str> {
        match self.line {
            Line::Dashed(kind) => Some(["6 4", "2 3", "6 3 2 3", "9 4"][kind % 4]),
            Line::No | Line::Solid | Line::Bars => None,
        }
    }

    /// The symbol of its marks, among those of [`symbols`].
    fn symbol(&self) -> Option<String> {
        match self.mark {
            Mark::No => None,
            Mark::Level => Some("#level".to_owned()),
            Mark::Full | Mark::Hollow => Some(format!("#s{}", self.curve.unwrap_or(0) % COLOURS)),
        }
    }
}

/// A plot of traces against two axes, which all panels of a figure share.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The description for readers who cannot see the plot (`aria-label`).
    pub label: String,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// The traces, bottom layer first.
    pub traces: Vec<Trace>,
}

/// Maps values to positions in the drawing.
struct PlotArea {
    x: [f64; 2],
    y: [f64; 2],
    left: f64,
    shape: Shape,
}

impl PlotArea {
    fn right(&self) -> f64 {
        self.shape.width - RIGHT
    }

    fn bottom(&self) -> f64 {
        self.shape.height - BOTTOM
    }

    fn x(&self, scaled: f64) -> f64 {
        self.left + (scaled - self.x[0]) / (self.x[1] - self.x[0]) * (self.right() - self.left)
    }

    /// The position of a value, at the edge if it is beyond.
    fn y(&self, scaled: f64) -> f64 {
        let share = (scaled - self.y[0]) / (self.y[1] - self.y[0]);
        // NaN stays: a logarithmic axis has no position for values that are not positive.
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { f64::NAN };
        self.bottom() - share * (self.bottom() - TOP)
    }

    /// On which side of the axis a value is beyond it.
    fn beyond(&self, scaled: f64) -> Option<Edge> {
        match scaled {
            s if !s.is_finite() => None,
            s if s > self.y[1] => Some(Edge::Top),
            s if s < self.y[0] => Some(Edge::Bottom),
            _ => None,
        }
    }
}

/// An edge of a plot, at which a point or the end of an interval beyond it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Top,
    Bottom,
}

impl Chart {
    /// The SVG element of the only plot of a figure; the page scales it.
    #[must_use]
    pub fn markup(&self) -> Markup {
        self.drawn(LARGE)
    }

    /// The SVG element of one of several plots side by side.
    #[must_use]
    pub fn small(&self) -> Markup {
        self.drawn(SMALL)
    }

    /// The points beyond the vertical axis, with the names of their traces.
    #[must_use]
    pub fn beyond(&self) -> Vec<(&str, &Point)> {
        let [low, high] = self.y.ends(MARGIN);
        let is_beyond = |point: &&Point| {
            let scaled = self.y.scaled(point.at[1]);
            scaled.is_finite() && !(low..=high).contains(&scaled)
        };
        let mut found = Vec::new();
        for trace in &self.traces {
            found.extend(trace.points.iter().filter(is_beyond).map(|point| (trace.name.as_str(), point)));
        }
        found
    }

    fn drawn(&self, shape: Shape) -> Markup {
        let (x, y) = (self.x.ends(0.03), self.y.ends(MARGIN));
        let (across, up) = (self.x.ticks(x, shape.steps), self.y.ticks(y, shape.steps));
        let widest = up.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0) as f64;
        let place = PlotArea { x, y, left: 30.0 + shape.character * widest, shape };
        html! {
            svg viewBox={ "0 0 " (shape.width) " " (shape.height) } role="img" aria-label=(self.label) {
                (self.grid(&place, &across, &up))
                @for trace in &self.traces { (self.trace(trace, &place)) }
            }
        }
    }

    fn grid(&self, place: &PlotArea, across: &[(f64, String)], up: &[(f64, String)]) -> Markup {
        let (left, bottom, right) = (place.left, place.bottom(), place.right());
        let mut lines = String::new();
        for (v, _) in across {
            lines += &format!("M{:.1} {TOP}V{bottom}", place.x(*v));
        }
        for (v, _) in up {
            lines += &format!("M{left} {:.1}H{right}", place.y(*v));
        }
        // On a phone every other label is hidden if they do not all fit.
        let letters = across.iter().map(|(_, text)| text.len()).sum::<usize>();
        let crowded = self.x.names.is_empty() && letters > place.shape.narrow;
        html! {
            g.grid {
                path d=(lines) {}
                @for (i, (v, text)) in across.iter().enumerate() {
                    text.odd[crowded && i % 2 == 1] x=(one(place.x(*v))) y=(bottom + 17.0) text-anchor="middle" { (text) }
                }
                @for (v, text) in up {
                    text x=(one(left - 6.0)) y=(one(place.y(*v) + 4.0)) text-anchor="end" { (text) }
                }
                text x=(one((left + right) / 2.0)) y=(place.shape.height - 8.0) text-anchor="middle" { (self.x.title) }
                text transform={ "translate(14 " (one((TOP + bottom) / 2.0)) ") rotate(-90)" } text-anchor="middle" { (self.y.title) }
            }
        }
    }

    fn trace(&self, trace: &Trace, place: &PlotArea) -> Markup {
        let at = |[x, y]: [f64; 2]| [place.x(self.x.scaled(x)), place.y(self.y.scaled(y))];
        let drawn: Vec<(&Point, [f64; 2])> = trace.points.iter().map(|p| (p, at(p.at))).collect();
        // A logarithmic axis has no position for values that are not positive.
        let drawn: Vec<_> = drawn.into_iter().filter(|(_, at)| at.iter().all(|v| v.is_finite())).collect();
        let ways: Vec<String> = drawn.iter().map(|(_, [x, y])| format!("{x:.1} {y:.1}")).collect();
        let intervals = drawn.iter().filter(|_| trace.line != Line::Bars);
        let bars: String =
            intervals.filter_map(|(point, [x, _])| Some(self.interval(*x, point.interval?, place))).collect();
        let nothing = if self.y.log { self.y.range[0] } else { 0.0 };
        let foot = |point: &Point| place.y(self.y.scaled(point.interval.map_or(nothing, |[low, _]| low)));
        let stand = |(point, [x, y]): &(&Point, [f64; 2])| format!("M{x:.1} {:.1}V{y:.1}", foot(point));
        let standing: String = drawn.iter().map(stand).collect();
        html! {
            g class={ "trace " (trace.class()) @if trace.mark == Mark::Hollow { " hollow" } } data-name=(trace.name) {
                @if trace.line == Line::Bars { path.bar d=(standing) {} }
                @if matches!(trace.line, Line::Solid | Line::Dashed(_)) && ways.len() > 1 {
                    path.line d={ "M" (ways.join("L")) } stroke-dasharray=[trace.dash()] {}
                }
                @if !bars.is_empty() { path.bars d=(bars) {} }
                @for (point, [x, y]) in &drawn {
                    @let cell = point.cell.map(|(run, result)| format!("{run},{result}"));
                    @let edge = place.beyond(self.y.scaled(point.at[1]));
                    @let symbol = match edge {
                        Some(Edge::Top) => Some("#over".to_owned()),
                        Some(Edge::Bottom) => Some("#under".to_owned()),
                        None => trace.symbol(),
                    };
                    use href=[symbol] x=(one(*x)) y=(one(*y)) data-cell=[cell] { title { (point.text) } }
                    @if edge.is_some() { (beyond(*x, *y, point.at[1], place)) }
                }
            }
        }
    }

    /// The path of an interval. An end beyond the axis has an arrow in place of its cap.
    fn interval(&self, x: f64, ends: [f64; 2], place: &PlotArea) -> String {
        let scaled = ends.map(|v| self.y.scaled(v));
        let [low, high] = scaled.map(|v| place.y(v));
        if !low.is_finite() || !high.is_finite() {
            return String::new();
        }
        let cap = |at: f64, edge: Option<Edge>| match edge {
            None => format!("M{:.1} {at:.1}h5", x - 2.5),
            Some(Edge::Top) => format!("M{:.1} {:.1}l3 -5l3 5", x - 3.0, at + 5.0),
            Some(Edge::Bottom) => format!("M{:.1} {:.1}l3 5l3 -5", x - 3.0, at - 5.0),
        };
        let [lower, upper] = scaled.map(|v| place.beyond(v));
        format!("M{x:.1} {low:.1}V{high:.1}{}{}", cap(low, lower), cap(high, upper))
    }
}

/// The value of a point beyond the axis, next to its mark.
fn beyond(x: f64, y: f64, value: f64, place: &PlotArea) -> Markup {
    let (at, anchor) = if x > 0.75 * place.shape.width { (x - 8.0, "end") } else { (x + 8.0, "start") };
    html! { text.beyond x=(one(at)) y=(one(y + 4.0)) text-anchor=(anchor) { (number(value)) } }
}

/// A coordinate to a tenth.
fn one(v: f64) -> String {
    format!("{v:.1}")
}

/// The symbols that all drawings of a page use.
#[must_use]
pub fn symbols() -> Markup {
    const SHAPES: [&str; COLOURS] = [
        "M3.4 0A3.4 3.4 0 1 1 -3.4 0A3.4 3.4 0 1 1 3.4 0Z",
        "M-3 -3H3V3H-3Z",
        "M0 -4.2L4.2 0L0 4.2L-4.2 0Z",
        "M0 -4.2L3.8 3H-3.8Z",
        "M-3.4 -1.7L-1.7 -3.4L0 -1.7L1.7 -3.4L3.4 -1.7L1.7 0L3.4 1.7L1.7 3.4L0 1.7L-1.7 3.4L-3.4 1.7L-1.7 0Z",
        "M0 4.2L3.8 -3H-3.8Z",
        "M0 -4.4L1.2 -1.4L4.4 -1.4L1.9 .7L2.8 3.9L0 2L-2.8 3.9L-1.9 .7L-4.4 -1.4L-1.2 -1.4Z",
        "M-1.3 -3.9H1.3V-1.3H3.9V1.3H1.3V3.9H-1.3V1.3H-3.9V-1.3H-1.3Z",
        "M-4 0L-2 -3.4H2L4 0L2 3.4H-2Z",
        "M-4 -1.7H4V1.7H-4Z",
    ];
    html! {
        svg.symbols width="0" height="0" aria-hidden="true" {
            defs {
                @for (i, shape) in SHAPES.iter().enumerate() { path id={ "s" (i) } d=(shape) {} }
                path #level d="M-8 0H8" {}
                path #over d="M0 -2L5 7H-5Z" {}
                path #under d="M0 2L5 -7H-5Z" {}
            }
        }
    }
}

/// The legend; each entry shows and hides the traces with its name.
#[must_use]
pub fn legend(label: &str, traces: &[&Trace]) -> Markup {
    let mut named: Vec<&Trace> = Vec::new();
    for trace in traces {
        if !named.iter().any(|known| known.name == trace.name) {
            named.push(trace);
        }
    }
    html! {
        div.legend role="group" aria-label=(label) {
            @for trace in named {
                button type="button" aria-pressed="true" {
                    svg class={ (trace.class()) @if trace.mark == Mark::Hollow { " hollow" } } width="26" height="12" viewBox="-13 -6 26 12" aria-hidden="true" {
                        path.line d="M-13 0H13" stroke-dasharray=[trace.dash()] {}
                        @if trace.mark != Mark::Level { use href=[trace.symbol()] {} }
                    }
                    span { (trace.name) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(log: bool, bytes: bool, range: [f64; 2]) -> Axis {
        Axis { title: "a < b".to_owned(), log, bytes, range, names: Vec::new() }
    }

    fn texts(axis: &Axis) -> Vec<String> {
        axis.ticks(axis.ends(0.03), LARGE.steps).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn axes_have_few_round_numbers() {
        let cases = [
            (
                axis(true, true, [1.0, 4_194_304.0]),
                vec!["1 B", "8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB", "2 MiB"],
            ),
            (axis(true, false, [0.13, 190.0]), vec!["0.3", "1", "3", "10", "30", "100"]),
            (axis(true, false, [90.0, 11_000.0]), vec!["100", "300", "1,000", "3,000", "10,000"]),
            (axis(false, false, [0.0, 886.0]), vec!["0", "200", "400", "600", "800"]),
            (axis(true, false, [2e6, 9e6]), vec!["2M", "5M", "10M"]),
            (axis(false, false, [0.0, 150.0]), vec!["0", "50", "100", "150"]),
            (axis(false, false, [1.0, 64.0]), vec!["0", "20", "40", "60"]),
        ];
        for (axis, expected) in cases {
            assert_eq!(texts(&axis), expected, "{axis:?}");
        }
        // All values the same, or nothing: still an axis.
        assert!(
            !texts(&axis(false, false, [0.0, 0.0])).is_empty()
                && !texts(&axis(true, false, [5.0, 5.0])).is_empty()
        );
    }

    #[test]
    fn a_point_has_its_place_its_interval_and_its_text() {
        let point = |x: f64, y: f64| Point {
            at: [x, y],
            interval: Some([y / 2.0, y * 2.0]),
            text: "<b>".to_owned(),
            cell: Some((0, 7)),
        };
        let points = vec![point(1.0, 1.0), point(1024.0, 100.0), point(2.0, 0.0)];
        let trace = Trace {
            name: "n".to_owned(),
            curve: Some(COLOURS + 1),
            line: Line::Solid,
            mark: Mark::Hollow,
            points,
        };
        let (x, y) = (axis(true, true, [1.0, 1024.0]), axis(true, false, [1.0, 100.0]));
        let chart = Chart { label: "plot".to_owned(), x, y, traces: vec![trace] };
        let text = chart.markup().into_string();
        assert_eq!(text.matches("<use href=\"#s1\"").count(), 2, "what is nothing has no place: {text}");
        assert!(text.contains("class=\"trace k1 hollow\"") && text.contains("data-cell=\"0,7\""), "{text}");
        assert!(text.contains("<title>&lt;b&gt;</title>") && text.contains("a &lt; b"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    fn spiked() -> Chart {
        let point =
            |x: f64, y: f64, interval| Point { at: [x, y], interval, text: String::new(), cell: None };
        let points = vec![
            point(1.0, 10.0, Some([9.0, 1e5])),
            point(8.0, 1e5, None),
            point(64.0, 20.0, Some([0.001, 21.0])),
        ];
        let trace =
            Trace { name: "n".to_owned(), curve: Some(0), line: Line::Solid, mark: Mark::Full, points };
        let (x, y) = (axis(true, true, [1.0, 64.0]), axis(true, false, [10.0, 20.0]));
        Chart { label: "plot".to_owned(), x, y, traces: vec![trace] }
    }

    /// Goal: what is beyond an axis is drawn at its edge, with its value. Method: a spike, and intervals far beyond either end.
    #[test]
    fn point_beyond_the_axis_is_at_the_edge_with_its_value() {
        let chart = spiked();
        let text = chart.markup().into_string();
        assert!(text.contains(">100,000<") && text.contains("<use href=\"#over\""), "{text}");
        assert_eq!((text.matches("#s0").count(), text.matches("#over").count()), (2, 1));
        assert_eq!(chart.beyond().len(), 1);
        // One arrow up, one arrow down, two caps.
        let bars =
            text.split("class=\"bars\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("bars");
        let count = |part: &str| bars.matches(part).count();
        assert_eq!((count("l3 -5l3 5"), count("l3 5l3 -5"), count("h5")), (1, 1, 2), "{bars}");
        let heights = bars.split(['V', 'M', 'l', 'h', ' ']).filter_map(|word| word.parse::<f64>().ok());
        assert!(heights.clone().count() > 8 && heights.into_iter().all(|v| v < LARGE.width), "{bars}");
    }

    #[test]
    fn small_plot_has_fewer_labels() {
        let sizes = axis(true, true, [1.0, 4_194_304.0]);
        let texts = |steps| sizes.ticks(sizes.ends(0.03), steps).len();
        assert_eq!((texts(LARGE.steps), texts(SMALL.steps)), (8, 4));
        assert!(spiked().small().into_string().contains("viewBox=\"0 0 400 270\""));
    }

    #[test]
    fn on_a_phone_ticks_go_only_where_they_do_not_all_fit() {
        let ticks = |x: Axis| {
            let y = axis(false, false, [0.0, 60.0]);
            Chart { label: "plot".to_owned(), x, y, traces: Vec::new() }.markup().into_string()
        };
        assert!(!ticks(axis(false, false, [0.0, 3.0])).contains("class=\"odd\""), "three bars");
        assert!(ticks(axis(true, true, [8.0, 4_194_304.0])).contains("class=\"odd\""), "sizes");
    }

    #[test]
    fn bars_stand_on_nothing() {
        let point = |x: f64, y: f64| Point { at: [x, y], interval: None, text: String::new(), cell: None };
        let trace = Trace {
            name: "n".to_owned(),
            curve: Some(0),
            line: Line::Bars,
            mark: Mark::No,
            points: vec![point(1.0, 30.0), point(2.0, 60.0)],
        };
        let (x, y) = (axis(false, false, [0.0, 3.0]), axis(false, false, [0.0, 60.0]));
        let text = Chart { label: "plot".to_owned(), x, y, traces: vec![trace] }.markup().into_string();
        let bar =
            text.split("class=\"bar\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("bars");
        let feet: Vec<&str> = bar.split(['M', ' ', 'V']).filter(|word| !word.is_empty()).collect();
        assert_eq!((feet.len(), feet[1]), (6, feet[4]), "two bars on one line: {bar}");
        assert!(!text.contains("class=\"line\""), "{text}");
    }

    #[test]
    fn named_places_stand_beside_an_axis_in_place_of_numbers() {
        let named = |names: &[(f64, &str)]| names.iter().map(|(v, name)| (*v, (*name).to_owned())).collect();
        let x = Axis {
            names: named(&[(1.0, "single rail"), (2.0, "threads")]),
            ..axis(false, false, [0.5, 2.5])
        };
        let y = axis(false, false, [0.0, 60.0]);
        let text = Chart { label: "plot".to_owned(), x, y, traces: Vec::new() }.markup().into_string();
        assert!(text.contains(">single rail<") && text.contains(">threads<"), "{text}");
        assert!(!text.contains(">1<") && !text.contains("class=\"odd\""), "{text}");
        let counts =
            Axis { names: named(&[(4.0, "4"), (8.0, "8"), (32.0, "32")]), ..axis(true, false, [4.0, 32.0]) };
        assert_eq!(texts(&counts), ["4", "8", "32"]);
    }

    #[test]
    fn bars_stand_on_each_other() {
        let point = |low: f64, y: f64| Point {
            at: [1.0, y],
            interval: Some([low, y]),
            text: String::new(),
            cell: None,
        };
        let trace =
            |points| Trace { name: "n".to_owned(), curve: Some(0), line: Line::Bars, mark: Mark::No, points };
        let (x, y) = (axis(false, false, [0.0, 2.0]), axis(false, false, [0.0, 60.0]));
        let traces = vec![trace(vec![point(0.0, 20.0)]), trace(vec![point(20.0, 60.0)])];
        let text = Chart { label: "plot".to_owned(), x, y, traces }.markup().into_string();
        let bars: Vec<&str> = text.split("class=\"bar\" d=\"").skip(1).collect();
        let ends = |bar: &str| bar.split('"').next().map(|d| d.replace('V', " ")).unwrap_or_default();
        let (first, second) = (ends(bars[0]), ends(bars[1]));
        let word = |text: &str, n: usize| text.split(' ').nth(n).map(str::to_owned);
        assert_eq!(word(&first, 2), word(&second, 1), "{first}, {second}");
        assert!(!text.contains("class=\"bars\""), "no intervals: {text}");
    }
}
