//! [`Progress`]: receives the progress of a run, cell by cell.

use crate::experiment::Cell;
use results::schema::RateInterval;

/// Something that happened to a cell.
#[derive(Clone, Copy, Debug)]
pub struct CellEvent<'a> {
    /// Launch, from 1.
    pub launch: u32,
    /// Launches in all.
    pub launches: u32,
    /// Cells done, over all launches, this one included unless it only begins.
    pub done: u64,
    /// Its device, where the run has several.
    pub device: Option<&'a str>,
    /// The cell.
    pub cell: &'a Cell,
    /// What happened.
    pub state: CellState<'a>,
}

/// What happened to a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellState<'a> {
    /// It is being measured.
    Began,
    /// It was measured in this launch.
    Measured {
        /// About the median of this launch, for a display; the result has the real one.
        value: f64,
        /// Its unit.
        unit: &'static str,
    },
    /// It cannot be measured here.
    Skipped {
        /// Why.
        why: &'a str,
    },
}

/// What a stream has moved in an interval of time.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// Launch, from 1.
    pub launch: u32,
    /// Its device, where the run has several.
    pub device: Option<&'a str>,
    /// The stream.
    pub cell: &'a Cell,
    /// How much, and when.
    pub interval: &'a RateInterval,
}

/// Receives the progress of a run.
pub trait Progress {
    /// Announces the number of cells, over all launches.
    fn plan(&mut self, cells: u64);
    /// Something happened to a cell.
    fn cell(&mut self, what: &CellEvent<'_>);
    /// A stream has moved something, if that is reported over time.
    fn moved(&mut self, _what: &Moved<'_>) {}
    /// Shows a remark of a line.
    fn note(&mut self, text: &str);
    /// Shows what a device chose at its start, which the result holds, too.
    fn chosen(&mut self, text: &str) {
        self.note(text);
    }
}

/// Ignores all progress.
impl Progress for () {
    fn plan(&mut self, _cells: u64) {}
    fn cell(&mut self, _what: &CellEvent<'_>) {}
    fn note(&mut self, _text: &str) {}
}
