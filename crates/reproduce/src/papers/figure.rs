//! [`Figure`]: a paper's figure from the model, and [`FigurePlan`], the same before it is measured.

use std::collections::BTreeSet;

use serde::Serialize;

use super::published::dataset;
use crate::claims::quantity::{Probe, Quantity, Source};

/// One figure of a paper, from the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Key of the paper.
    pub paper: &'static str,
    /// As in the paper: `7`, `3.1`.
    pub number: &'static str,
    /// The quantity.
    pub title: &'static str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Whether its values are bars, and whether these are stacked.
    pub bars: bool,
    /// See `bars`.
    pub stacked: bool,
    /// The model.
    pub curves: Vec<Curve>,
    /// The paper.
    pub marks: Vec<Mark>,
}

/// An axis of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Quantity and unit.
    pub title: &'static str,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Whether it counts bytes.
    pub bytes: bool,
    /// Labels at 1, 2 and so on for a categorical axis: names of bars.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub names: &'static [&'static str],
}

/// One curve of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Name in the legend.
    pub label: String,
    /// The measured points.
    pub points: Vec<[f64; 2]>,
}

/// A published number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Id of its row.
    pub id: &'static str,
    /// Index of the curve that it belongs to.
    pub curve: usize,
    /// Position on the axis; `None` for a level, such as a peak at an unstated size.
    pub x: Option<f64>,
    /// The number.
    pub y: f64,
}

/// Which number of a row.
#[derive(Clone, Copy, Debug)]
enum MarkedValue {
    Value,
    Low,
    High,
}

/// A figure before it is measured.
#[derive(Clone, Debug)]
pub(crate) struct FigurePlan {
    pub(crate) paper: &'static str,
    pub(crate) number: &'static str,
    title: &'static str,
    /// Experiments whose rows it belongs to.
    pub(crate) experiment: &'static str,
    x: Axis,
    y: Axis,
    bars: bool,
    stacked: bool,
    curves: Vec<(String, Vec<(f64, Quantity)>)>,
    marks: Vec<(&'static str, MarkedValue, usize, Option<f64>)>,
}

impl Axis {
    /// A linear axis of numbers that are not bytes.
    pub(crate) const fn linear(title: &'static str) -> Self {
        Self { title, log: false, bytes: false, names: &[] }
    }

    /// A logarithmic axis of numbers that are not bytes.
    pub(crate) const fn logarithmic(title: &'static str) -> Self {
        Self { log: true, ..Self::linear(title) }
    }

    /// An axis of named bars.
    pub(crate) const fn named(title: &'static str, names: &'static [&'static str]) -> Self {
        Self { names, ..Self::linear(title) }
    }
}

pub(crate) const BYTES: Axis = Axis { bytes: true, ..Axis::logarithmic("message size") };
pub(crate) const MB: Axis = Axis::linear("bandwidth (MB/s)");
pub(crate) const MIB: Axis = Axis::linear("bandwidth (2^20 B/s)");
pub(crate) const US: Axis = Axis::linear("latency (µs)");
pub(crate) const US_LOG: Axis = Axis { log: true, ..US };

impl FigurePlan {
    pub(crate) fn new(
        paper: &'static str,
        number: &'static str,
        experiment: &'static str,
        title: &'static str,
    ) -> Self {
        let (x, y, curves, marks) = (BYTES, US, Vec::new(), Vec::new());
        let (bars, stacked) = (false, false);
        Self { paper, number, title, experiment, x, y, bars, stacked, curves, marks }
    }

    /// Draws bars, like the paper.
    pub(crate) fn bars(self) -> Self {
        Self { bars: true, ..self }
    }

    /// Makes the values stacked bars.
    pub(crate) fn stacked(self) -> Self {
        Self { stacked: true, ..self.bars() }
    }

    /// Sets both axes.
    pub(crate) fn axes(self, x: Axis, y: Axis) -> Self {
        Self { x, y, ..self }
    }

    /// Adds a curve: a quantity at each of these positions.
    pub(crate) fn curve(
        mut self,
        label: impl Into<String>,
        at: impl IntoIterator<Item = u64>,
        of: impl Fn(u64) -> Quantity,
    ) -> Self {
        self.curves.push((label.into(), at.into_iter().map(|x| (x as f64, of(x))).collect()));
        self
    }

    /// Marks a row's published value beside a curve, as a level without a position on the axis.
    pub(crate) fn published_level(mut self, curve: usize, id: &'static str) -> Self {
        self.marks.push((id, MarkedValue::Value, curve, None));
        self
    }

    /// Marks both ends of a row's published range beside a curve, as levels without a position.
    pub(crate) fn published_range(mut self, curve: usize, id: &'static str) -> Self {
        self.marks.extend([MarkedValue::Low, MarkedValue::High].map(|end| (id, end, curve, None)));
        self
    }

    /// Marks a row's published value beside a curve, at `x`.
    pub(crate) fn published_point(mut self, curve: usize, id: &'static str, x: u64) -> Self {
        self.marks.push((id, MarkedValue::Value, curve, Some(x as f64)));
        self
    }

    /// Adds all probes that it needs.
    pub(crate) fn probes(&self, into: &mut BTreeSet<Probe>) {
        self.curves.iter().flat_map(|(_, points)| points).for_each(|(_, q)| q.probes(into));
    }

    /// The figure; unmeasured points are left out.
    pub(crate) fn draw(&self, source: &dyn Source) -> Figure {
        let curve = |(label, points): &(String, Vec<(f64, Quantity)>)| Curve {
            label: label.clone(),
            points: points.iter().filter_map(|(x, q)| Some([*x, q.value(source).ok()?])).collect(),
        };
        let published = dataset();
        let mark = |(id, end, curve, x): &(&'static str, MarkedValue, usize, Option<f64>)| {
            let row = published.iter().find(|row| row.id == *id)?;
            let y = match end {
                MarkedValue::Value => row.value,
                MarkedValue::Low => row.low,
                MarkedValue::High => row.high,
            };
            Some(Mark { id, curve: *curve, x: *x, y: y? })
        };
        Figure {
            paper: self.paper,
            number: self.number,
            title: self.title,
            x: self.x,
            y: self.y,
            bars: self.bars,
            stacked: self.stacked,
            curves: self.curves.iter().map(curve).collect(),
            marks: self.marks.iter().filter_map(mark).collect(),
        }
    }
}
