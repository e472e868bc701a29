//! [`Experiment`] and [`Side`]: the interface of an experiment, and its self-description.

use crate::experiment::{Cell, Fault, Metric, Round, Session, Settings};
use results::variant::{Factor, Variant};

/// One kind of measurement.
pub trait Experiment: Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;
    /// One line of description.
    fn about(&self) -> &'static str;
    /// The text of `nicety explain`, in the five sections of [`EXPLAINED`].
    fn explain(&self) -> &'static str;
    /// Its variants, most interesting first. `quick` omits variants that a short overview does not need.
    fn variants(&self, quick: bool) -> Vec<Variant>;
    /// The only size at which it, or this variant of it, is meaningful; `None` for all sizes.
    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        None
    }
    /// Factors with numbers as levels, which `--set FACTOR=LIST` changes.
    fn axes(&self) -> &'static [Axis] {
        &[]
    }
    /// Factors with numbers as levels that variants have only if `--set FACTOR=LIST` gives levels; without them, the level is
    /// the lowest.
    fn added_axes(&self) -> &'static [Axis] {
        &[]
    }
    /// The factor that decides how many processes take part, if any.
    fn crowd(&self) -> Option<&'static Axis> {
        None
    }
    /// Resources of this machine needed to measure a cell.
    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        // Most have a source and a sink at either side.
        Needs { bytes: 4 * cell.size, processes: u64::from(self.ranks(&cell.variant)), ..Needs::default() }
    }
    /// Whether a device has the measured feature; called before anything is measured, for devices of this machine.
    ///
    /// # Errors
    /// The device's own error text.
    fn possible(&self, _device: &verbs::Device) -> Result<(), Fault> {
        Ok(())
    }
    /// The variants that a C program measures under another MPI library, and under ours for comparison; empty if
    /// none.
    fn outside(&self, _quick: bool) -> Vec<Variant> {
        Vec::new()
    }
    /// The measured quantity.
    fn metric(&self, variant: &Variant) -> Metric;
    /// Default sizes; `None` for the usual ones of all experiments.
    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        None
    }
    /// How many processes take part.
    fn ranks(&self, _variant: &Variant) -> u32 {
        2
    }
    /// How the operations of a variant can be sampled.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::default()
    }
    /// Sets up this side: connections, memory. Both sides run it at the same time.
    ///
    /// # Errors
    /// [`Fault`]; with [`Fault::is_local`] the cell is left out and the run continues.
    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault>;
}

/// The sections of an experiment's text, in their order.
pub const EXPLAINED: [&str; 5] =
    ["What it measures", "How", "What moves it", "How to read it", "Where it comes from"];

/// All factors with numbers as levels that `--set FACTOR=LIST` changes or adds.
pub fn all_axes(of: &dyn Experiment) -> impl Iterator<Item = &'static Axis> + use<> {
    of.axes().iter().chain(of.added_axes())
}

/// A factor with numeric levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The factor.
    pub factor: Factor,
    /// The smallest level.
    pub low: u64,
    /// The largest.
    pub high: u64,
    /// One line of description.
    pub about: &'static str,
}

/// Resources of its machine needed to measure a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Memory of all processes together, in bytes.
    pub bytes: u64,
    /// Processes.
    pub processes: u64,
    /// Connections that one process has open simultaneously.
    pub connections: u64,
}

/// How operations can be sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Each operation is long enough to be a sample: no search for a batch.
    pub long: bool,
    /// Samples of a launch, if they take so much time that this number suffices; `None` leaves it to the stop rule.
    pub samples: Option<u64>,
}

impl Sampling {
    /// Every operation is a sample.
    pub const LONG: Self = Self { long: true, samples: None };
    /// A single sample in a launch, which is found by a search.
    pub const ONCE: Self = Self { long: true, samples: Some(1) };
}

/// One prepared side of a cell.
pub trait Side {
    /// Touches and fills memory, after the first operation has shown the cost without.
    ///
    /// # Errors
    /// [`Fault`].
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Runs the round. The client pushes one reading for each sample: picoseconds of a batch, or the quantity itself.
    /// `readings` has capacity: nothing may be allocated in the timed part.
    ///
    /// # Errors
    /// [`Fault`].
    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault>;

    /// Compares contents, outside of timed rounds.
    ///
    /// # Errors
    /// [`Fault::Corrupt`].
    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Messages per operation.
    fn messages(&self) -> u64 {
        1
    }

    /// A remark for the result: choices made, peculiarities.
    fn note(&self) -> Option<String> {
        None
    }
}

/// A number among the factors of a cell.
pub(crate) fn level<T: std::str::FromStr>(cell: &Cell, axis: &Axis) -> Result<T, Fault> {
    let text = cell.factor(axis.factor)?;
    let inside = text.parse::<u64>().is_ok_and(|n| (axis.low..=axis.high).contains(&n));
    let Axis { factor, low, high, .. } = axis;
    text.parse()
        .ok()
        .filter(|_| inside)
        .ok_or_else(|| Fault::Meaningless(format!("{factor} {text}; it takes {low} to {high}")))
}
