//! The most common questions about a run, as rows: the devices are columns, or the two placements of one device.

use std::slice::from_ref;

use crate::columns::{Column, column_of, columns};
use crate::findings::shape;
use crate::number::{display_unit, sig, size, size_about};
use crate::series::{Series, named_level, series, spread, words};
use results::schema::{ClockKind, Measurement, Run};

/// Size at which times and rates of messages are reported, if it was measured.
const SMALL_BYTES: u64 = 8;
/// The most common questions: experiment and operation, an empty operation for any.
const ASKED: [(&str, &str); 7] = [
    ("latency", "write"),
    ("latency", "send"),
    ("latency", "read"),
    ("bandwidth", "write"),
    ("rate", "write"),
    ("park", ""),
    ("memory", ""),
];
/// Placements shown as columns if there are more than two.
const PLACEMENTS: [&str; 2] = ["nic → nic", "host → host"];

/// Rows under heads.
pub(crate) struct Answers<'a> {
    /// Devices, or placements, each with its annotation.
    pub(crate) heads: Vec<[String; 2]>,
    /// Rows in order of importance.
    pub(crate) rows: Vec<Row<'a>>,
}

impl Answers<'_> {
    /// Number of rows that must be shown: the rows most often asked for, or all if there are none of these.
    pub(crate) fn asked(&self) -> usize {
        match self.rows.iter().filter(|row| row.rank < ASKED.len()).count() {
            0 => self.rows.len(),
            n => n,
        }
    }
}

/// One question, with its answer in each column.
pub(crate) struct Row<'a> {
    /// Kind of experiment, empty if it equals that of the row above.
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) unit: String,
    /// Value, interval and ratio to the floor.
    pub(crate) cells: Vec<[String; 3]>,
    /// Whether the cells are words rather than numbers.
    pub(crate) words: bool,
    /// Whether the row has no placement: then it has a single cell.
    pub(crate) alone: bool,
    /// Explanation, if the name is not sufficient.
    pub(crate) note: Option<String>,
    /// The curve of each column, if it has one.
    pub(crate) curves: Vec<Option<Series<'a>>>,
    rank: usize,
}

/// The meaning of the columns.
enum Heads {
    /// Devices, and the placements that have rows.
    Devices(Vec<Column>, Vec<String>),
    Placements(Vec<String>),
}

impl Heads {
    fn of(run: &Run, all: &[Series<'_>]) -> Self {
        let mut found: Vec<String> = Vec::new();
        for placement in all.iter().filter_map(Series::placement) {
            if !found.contains(&placement) {
                found.push(placement);
            }
        }
        if found.len() > PLACEMENTS.len() {
            let usual = |p: &&str| found.iter().any(|f| f == p);
            let two: Vec<String> = PLACEMENTS.iter().copied().filter(usual).map(str::to_owned).collect();
            found = if two.is_empty() { found[..PLACEMENTS.len()].to_vec() } else { two };
        }
        let devices = columns(from_ref(run));
        if devices.is_empty() { Self::Placements(found) } else { Self::Devices(devices, found) }
    }

    fn names(&self) -> Vec<[String; 2]> {
        let virtually = |c: &Column| match c.is_virtual {
            true => [c.device.trim_start_matches("model:").to_owned(), "(virtual)".to_owned()],
            false => [c.device.clone(), String::new()],
        };
        match self {
            Self::Devices(all, _) => all.iter().map(virtually).collect(),
            Self::Placements(all) if all.is_empty() => vec![Default::default()],
            Self::Placements(all) => all.iter().map(|p| [p.clone(), String::new()]).collect(),
        }
    }

    /// The column of a curve; a curve without a placement is in the first.
    fn column(&self, s: &Series<'_>) -> Option<usize> {
        match (self, s.placement()) {
            (Self::Devices(all, places), placement) => {
                column_of(all, s).filter(|_| placement.is_none_or(|p| places.contains(&p)))
            }
            (Self::Placements(_), None) => Some(0),
            (Self::Placements(all), Some(placement)) => all.iter().position(|p| *p == placement),
        }
    }

    /// The name of a row apart from its size: the levels that no column has.
    fn name(&self, s: &Series<'_>) -> String {
        if let Some(known) = usual(s.experiment) {
            return known.to_owned();
        }
        let placed = matches!(self, Self::Placements(_));
        let shown = |n: &str| !(matches!(n, "device" | "run") || (placed && n == "placement"));
        let levels =
            s.factors().into_iter().filter(|(n, _)| shown(n)).map(|(n, level)| named_level(&n, &level));
        // A transfer within one kind of memory names it only once.
        levels.collect::<Vec<_>>().join(" ").replace(PLACEMENTS[0], "nic").replace(PLACEMENTS[1], "host")
    }
}

/// All rows of a run.
pub(crate) fn answers(run: &Run) -> Answers<'_> {
    let mut all = series(from_ref(run));
    all.retain(|s| !s.is_floor());
    let heads = Heads::of(run, &all);
    let mut asked: Vec<Asked<'_>> = Vec::new();
    for s in all {
        let Some(column) = heads.column(&s) else { continue };
        let (name, place) = (heads.name(&s), s.placement());
        let known = asked.iter_mut().find(|a| {
            (a.of.experiment, a.of.metric, a.of.unit, &a.name) == (s.experiment, s.metric, s.unit, &name)
        });
        match known {
            Some(known) => known.curves.push((column, s)),
            None => {
                asked.push(Asked { name, placed: place.is_some(), of: s.clone(), curves: vec![(column, s)] })
            }
        }
    }
    asked.sort_by_key(|a| rank(&a.of));
    let columns = heads.names().len();
    let mut rows: Vec<Row<'_>> = Vec::new();
    let (mut last, devices) = ("", matches!(heads, Heads::Devices(..)));
    for one in asked {
        let first = one.of.experiment != last;
        last = one.of.experiment;
        rows.extend(one.rows(columns, first, devices));
    }
    Answers { heads: heads.names(), rows }
}

fn rank(s: &Series<'_>) -> usize {
    let asked =
        |(experiment, op): &(&str, &str)| s.experiment == *experiment && (op.is_empty() || s.op() == *op);
    ASKED.iter().position(asked).unwrap_or(ASKED.len())
}

/// Curves of one question.
struct Asked<'a> {
    name: String,
    placed: bool,
    of: Series<'a>,
    curves: Vec<(usize, Series<'a>)>,
}

impl<'a> Asked<'a> {
    /// Its row; a bandwidth has another, with the sizes of the peak and of half of it.
    fn rows(self, columns: usize, first: bool, devices: bool) -> Vec<Row<'a>> {
        let peak = self.of.unit == "MB/s";
        let at = self.at();
        let chosen = |s: &Series<'a>| {
            if peak {
                s.points.iter().copied().max_by(|a, b| a.median.total_cmp(&b.median))
            } else {
                s.points.iter().copied().find(|r| r.size_bytes == at)
            }
        };
        let values = self.curves.iter().filter_map(|(_, s)| chosen(s)).map(|r| r.median);
        let (unit, scale) = display_unit(self.of.unit, values.fold(0.0, f64::max));
        let mut cells = vec![Default::default(); columns];
        let mut sizes: Vec<[String; 3]> = vec![Default::default(); columns];
        for (column, s) in &self.curves {
            if let Some(r) = chosen(s) {
                cells[*column] = cell(r, scale);
            }
            if let Some(shape) = shape(&s.points).filter(|_| peak) {
                let beyond = if shape.rising == Some(true) { "≥ " } else { "" };
                let half = shape
                    .half_bytes
                    .map_or_else(|| format!("below {}", size(s.points[0].size_bytes)), size_about);
                sizes[*column][0] = format!("{beyond}{}; {half}", size(shape.peak.size_bytes));
            }
        }
        let mut curves = vec![None; columns];
        for (column, s) in &self.curves {
            curves[*column] = Some(s.clone());
        }
        let told = if peak {
            "peak".to_owned()
        } else if at > 0 && usual(self.of.experiment).is_none() {
            size(at)
        } else {
            String::new()
        };
        let name = [self.name.as_str(), told.as_str()]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        let (rank, alone) = (rank(&self.of), !self.placed && !devices);
        let group = if first { group(self.of.experiment) } else { String::new() };
        let note = alone.then(|| words(self.of.metric));
        let mut rows = vec![Row { group, name, unit, cells, words: false, alone, note, curves, rank }];
        if sizes.iter().any(|s| !s[0].is_empty()) {
            rows.push(Row {
                group: String::new(),
                name: "at; n½".to_owned(),
                unit: String::new(),
                cells: sizes,
                words: true,
                alone,
                note: None,
                curves: Vec::new(),
                rank,
            });
        }
        rows
    }

    /// The size at which its times and rates are reported.
    fn at(&self) -> u64 {
        let sizes = || self.curves.iter().flat_map(|(_, s)| s.points.iter().map(|r| r.size_bytes));
        if sizes().any(|s| s == SMALL_BYTES) { SMALL_BYTES } else { sizes().min().unwrap_or(0) }
    }
}

/// The name of a single-variant experiment within its group.
fn usual(experiment: &str) -> Option<&'static str> {
    match experiment {
        "park" => Some("a hop"),
        "memory" => Some("queue pair"),
        _ => None,
    }
}

fn group(experiment: &str) -> String {
    match experiment {
        "park" => "wake-up".to_owned(),
        "bibw" => "both ways".to_owned(),
        "bilat" => "both ways".to_owned(),
        "rate" => "messages".to_owned(),
        _ => experiment.to_owned(),
    }
}

/// Value, interval and ratio to the floor as text.
pub(crate) fn cell(r: &Measurement, scale: f64) -> [String; 3] {
    let value = sig(r.median * scale, 3);
    if r.clock == ClockKind::Virtual {
        return [value, String::new(), String::new()];
    }
    // Only significant digits, in few columns.
    let ratio = |ratio: f64| {
        format!(
            "{}×",
            sig(
                ratio,
                if ratio < 0.1 {
                    1
                } else if ratio < 1.0 {
                    2
                } else {
                    3
                }
            )
        )
    };
    [value, spread(r, scale), r.floor.as_ref().map_or_else(String::new, |f| ratio(f.ratio))]
}
