//! [`Real`]: the experiments of the paper on MPI over iWARP on real devices, compared with the printed results: our
//! MPI on iWARP as its three variants, and other libraries over TCP. `cargo xtask peers --paper FILE` measures it.

use std::collections::BTreeMap;

use results::plain;
use serde::{Deserialize, Serialize};

use super::papers::published::{IWARP, dataset};

/// Our MPI as MVAPICH2-R, -SR and -1SC, by their names in the file.
pub const OURS: [(&str, &str); 3] =
    [("ring", "fast path"), ("send", "send and receive"), ("one-sided", "one-sided by RDMA")];
/// The libraries over TCP.
pub const OTHERS: [(&str, &str); 2] = [("mpich", "MPICH"), ("open-mpi", "Open MPI")];

/// How the paper compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gain {
    /// By how many per cent of the others' time ours is less.
    Less,
    /// By how many per cent our bandwidth is above the others'.
    More,
    /// Our bandwidth as a multiple of the others'.
    Times,
}

/// A comparison of the paper: its words, the row that prints it, the kind of gain, and the cells; the least time per
/// byte counts.
const COMPARISONS: [(&str, &str, Gain, &[&str]); 9] = [
    ("latency of 4 B", "IW-027", Gain::Less, &["latency:4"]),
    ("largest bandwidth", "IW-035", Gain::More, &["bandwidth:65536", "bandwidth:1048576"]),
    ("put of 4 B and its epoch", "IW-040", Gain::Less, &["putepoch:4"]),
    ("largest bandwidth of puts", "IW-047", Gain::More, &["putwindow:65536", "putwindow:1048576"]),
    ("get of 4 B and its epoch", "IW-051 IW-050", Gain::Less, &["getepoch:4"]),
    ("largest bandwidth of gets", "IW-058", Gain::Times, &["getwindow:65536", "getwindow:1048576"]),
    ("allreduce of 4 B", "IW-063", Gain::Less, &["allreduce:4"]),
    ("allgather of 4 B", "IW-066", Gain::Less, &["allgather:4"]),
    ("barrier", "IW-067", Gain::Less, &["barrier:0"]),
];

/// A line of the file.
#[derive(Deserialize)]
struct CsvLine {
    library: String,
    cell: String,
    turn: u32,
    ns: f64,
}

/// One of today's measurements compared with the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The compared quantity.
    pub what: &'static str,
    /// The paper's value: MVAPICH2-R against MPICH2.
    pub paper: String,
    /// For each of the other libraries, our gain in the paper's terms, by variant; the median of all turns.
    pub today: Vec<Vec<Option<String>>>,
    /// The values of each library, ours first: microseconds, or 10^6 bytes per second.
    pub values: Vec<Option<String>>,
}

/// Real measurements of the paper's experiments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Real {
    /// Where and how the measurements were made.
    pub conditions: String,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
}

/// Mistakes in a file of real measurements.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// Its first line does not contain the conditions of the measurement.
    #[error("it does not begin with the conditions; write it by `cargo xtask peers --paper FILE`")]
    Conditions,
    /// A line that cannot be read.
    #[error(transparent)]
    Line(#[from] csv::Error),
    /// No time that anything can take.
    #[error("{library} has an invalid time of {ns} ns for {cell} in turn {turn}")]
    Time {
        /// The library's name.
        library: String,
        /// The measured cell, and its size.
        cell: String,
        /// The turn.
        turn: u32,
        /// Nanoseconds.
        ns: f64,
    },
    /// A library name that is not in the comparison.
    #[error("there is no library '{0}'")]
    Library(String),
    /// Nothing was measured.
    #[error("it has no measurements")]
    Empty,
}

/// Nanoseconds of each cell of a library, by turn.
type Times = BTreeMap<(String, String), BTreeMap<u32, f64>>;

impl Real {
    /// Reads a file of `cargo xtask peers --paper`.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn read(text: &str) -> Result<Self, RealError> {
        let conditions = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let conditions = plain::line(conditions.ok_or(RealError::Conditions)?);
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let mut times = Times::new();
        for line in reader.deserialize() {
            let CsvLine { library, cell, turn, ns } = line?;
            if !(ns.is_finite() && ns > 0.0) {
                return Err(RealError::Time { library, cell, turn, ns });
            }
            let known = OURS.iter().chain(&OTHERS).any(|(word, _)| *word == library);
            if !known {
                return Err(RealError::Library(library));
            }
            times.entry((library, cell)).or_default().insert(turn, ns);
        }
        if times.is_empty() {
            return Err(RealError::Empty);
        }
        Ok(Self { conditions, comparisons: COMPARISONS.iter().map(|one| compared(one, &times)).collect() })
    }
}

/// A library's time per byte in each turn, or a single time without turns, for its best cell.
fn best(times: &Times, library: &str, cells: &[&str]) -> BTreeMap<u32, f64> {
    let mut best = BTreeMap::new();
    for cell in cells {
        let bytes: f64 = cell.split_once(':').and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(1.0);
        let share = if cells.len() > 1 { bytes } else { 1.0 };
        for (turn, ns) in times.get(&(library.to_owned(), (*cell).to_owned())).into_iter().flatten() {
            let least = best.entry(*turn).or_insert(f64::INFINITY);
            *least = f64::min(*least, ns / share);
        }
    }
    best
}

/// The median; `None` of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// How a library compares with the others in these cells, today and as published.
fn compared((what, rows, gain, cells): &(&'static str, &str, Gain, &[&str]), times: &Times) -> Comparison {
    let of = |library: &str| best(times, library, cells);
    let today = |other: &BTreeMap<u32, f64>, own: &BTreeMap<u32, f64>| {
        let ratios = own.iter().filter_map(|(turn, own)| Some(own / other.get(turn)?));
        median(ratios.collect()).map(|ratio| gain.ratio_text(ratio))
    };
    let by_other = |(other, _): &(&str, &str)| {
        let other = of(other);
        OURS.iter().map(|(word, _)| today(&other, &of(word))).collect()
    };
    let value = |(word, _): &(&str, &str)| {
        let ns = median(of(word).into_values().collect())?;
        Some(if *gain == Gain::Less {
            format!("{:.2} us", ns / 1e3)
        } else {
            format!("{:.0} MB/s", 1e3 / ns)
        })
    };
    Comparison {
        what,
        paper: paper(rows, *gain),
        today: OTHERS.iter().map(by_other).collect(),
        values: OURS.iter().chain(&OTHERS).map(value).collect(),
    }
}

/// The printed value: a gain, or the gain of the first of two rows over the second.
fn paper(rows: &str, gain: Gain) -> String {
    let data = dataset();
    let printed = |id: &str| {
        let row = data.iter().find(|row| row.paper == IWARP && row.id == id);
        row.and_then(|row| row.value.or(row.low))
    };
    let mut values = rows.split(' ').filter_map(printed);
    match (values.next(), values.next()) {
        (Some(own), Some(other)) => gain.ratio_text(own / other),
        (Some(value), None) if gain == Gain::Times => format!("{value:.1} x"),
        (Some(value), None) => format!("{value:.0} %"),
        (None, _) => String::new(),
    }
}

impl Gain {
    /// A ratio of times, ours to theirs, in the paper's terms.
    fn ratio_text(self, ratio: f64) -> String {
        match self {
            Self::Less => format!("{:.0} %", (1.0 - ratio) * 100.0),
            Self::More => format!("{:.0} %", (1.0 / ratio - 1.0) * 100.0),
            Self::Times => format!("{:.1} x", 1.0 / ratio),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# two processes somewhere\nlibrary,cell,turn,ns\n\
                        ring,latency:4,1,6000\nring,latency:4,2,30000\nring,latency:4,3,6000\n\
                        mpich,latency:4,1,24000\nmpich,latency:4,2,120000\nmpich,latency:4,3,12000\n\
                        ring,bandwidth:65536,1,65536\nring,bandwidth:1048576,1,524288\nmpich,bandwidth:65536,1,65536\n";

    #[test]
    fn gains_are_those_of_turns_in_the_papers_words() {
        let real = Real::read(TEXT).expect("a file");
        assert_eq!(real.conditions, "two processes somewhere");
        let [latency, bandwidth] = &real.comparisons[..2] else { panic!("two comparisons") };
        assert_eq!((latency.paper.as_str(), latency.today[0][0].as_deref()), ("75 %", Some("75 %")));
        assert_eq!(latency.today[0][1], None, "not measured");
        assert_eq!(latency.values[0].as_deref(), Some("6.00 us"));
        assert_eq!((bandwidth.paper.as_str(), bandwidth.today[0][0].as_deref()), ("37 %", Some("100 %")));
        assert_eq!(bandwidth.values[0].as_deref(), Some("2000 MB/s"));
        assert!(real.comparisons.iter().all(|one| !one.paper.is_empty()));
        let of =
            |what: &str| real.comparisons.iter().find(|one| one.what == what).map(|one| one.paper.as_str());
        assert_eq!(
            [of("get of 4 B and its epoch"), of("largest bandwidth of gets")],
            [Some("53 %"), Some("3.6 x")]
        );
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        for (text, why) in [
            ("", "conditions"),
            ("library,cell\n", "conditions"),
            ("# here\nlibrary,cell,turn,ns\n", "no measurements"),
            ("# here\nlibrary,cell,turn,ns\nring,latency:4,1,0\n", "0 ns"),
            ("# here\nlibrary,cell,turn,ns\nlam,latency:4,1,5\n", "lam"),
            ("# here\nlibrary,cell,turn,ns\nring,latency:4,one,5\n", "one"),
        ] {
            let said = Real::read(text).expect_err(text).to_string();
            assert!(said.contains(why) || why == "one", "{said}");
        }
    }
}
