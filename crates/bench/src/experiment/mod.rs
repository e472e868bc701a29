//! Experiments: what to do with a device so that one number comes out. One file each, written once against `verbs`
//! and `host`, so that they run in real and in virtual time: no clock but the host's, no threads, no sockets.
//!
//! An [`Experiment`] lists its variants and prepares a [`Side`] at each end of a [`Session`]; [`driver`] runs rounds
//! of it, as the sampler asks. To add one: a file, and a line in [`all`].
//!
//! | file | what it holds |
//! |---|---|
//! | `latency`, `bilat`, `bandwidth`, `bibw`, `rate`, `park`, `memory` | the experiments of an overview |
//! | `nicmem`, `hotspot`, `pack`, `chain` | what NIC memory is good for |
//! | `reg`, `post`, `poll`, `connect` | single calls |
//! | `pingpong`, `stream`, `calls` | what latency and bilat, streams, and post and poll have in common |
//! | `link`, `hub`, `edge` | connections and registered memory, between two ranks and among many |
//! | `timing`, `pattern` | samples of a round; contents that can be checked |
//! | `cell`, `session`, `driver` | what to measure, the words between the sides, rounds |

mod bandwidth;
mod bibw;
mod bilat;
mod calls;
mod cell;
mod chain;
mod connect;
pub mod driver;
mod edge;
mod hotspot;
mod hub;
mod latency;
mod link;
mod memory;
mod nicmem;
mod pack;
mod park;
mod pattern;
mod pingpong;
mod poll;
mod post;
mod rate;
mod reg;
mod session;
mod stream;
pub(crate) mod timing;

pub use cell::{Cell, MAX_SIZE, Metric, Scale, Settings, Variant, variant};
pub use session::{Control, Fault, Gauge, Round, Session, Word, peer_failed};

/// One kind of measurement.
pub trait Experiment: Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;
    /// One line for people.
    fn about(&self) -> &'static str;
    /// Its variants, most interesting first. `quick` leaves out those of an overview that must be short.
    fn variants(&self, quick: bool) -> Vec<Variant>;
    /// The one size that it, or this variant of it, makes sense for; `None` for all sizes.
    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        None
    }
    /// What is measured.
    fn metric(&self, variant: &Variant) -> Metric;
    /// Sizes unless others are asked for; `None` for the usual ones of all experiments.
    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        None
    }
    /// How many processes take part.
    fn ranks(&self, _variant: &Variant) -> u32 {
        2
    }
    /// How its operations can be sampled.
    fn sampling(&self) -> Sampling {
        Sampling::default()
    }
    /// Sets up this side: connections, memory. Both sides run it at the same time.
    ///
    /// # Errors
    /// [`Fault`]; with [`Fault::is_local`] the cell is left out and the run goes on.
    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault>;
}

/// How operations can be sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// An operation is long enough to be a sample by itself: no search for a batch.
    pub long: bool,
    /// Samples of a launch, where they take so long that this many are enough; `None` leaves it to the stop rule.
    pub samples: Option<u64>,
}

impl Sampling {
    /// Every operation is a sample.
    pub const LONG: Self = Self { long: true, samples: None };
}

/// One prepared side of a cell.
pub trait Side {
    /// Makes memory present and fills it, after the first operation has shown what it costs without.
    ///
    /// # Errors
    /// [`Fault`].
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Does the round. The client pushes one reading for each sample: picoseconds of a batch, or the quantity itself.
    /// `readings` has room: nothing may be allocated in the timed part.
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

    /// Messages in one operation.
    fn messages(&self) -> u64 {
        1
    }

    /// A remark for the result: what was chosen, what is special.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Every experiment, in the order of an overview.
#[must_use]
pub fn all() -> &'static [&'static dyn Experiment] {
    &[
        &latency::Latency,
        &bilat::Bilat,
        &bandwidth::Bandwidth,
        &bibw::Bibw,
        &rate::Rate,
        &park::Park,
        &memory::Memory,
        &nicmem::Nicmem,
        &hotspot::Hotspot,
        &pack::Pack,
        &chain::Chain,
        &reg::Reg,
        &post::Post,
        &poll::Poll,
        &connect::Connect,
        &crate::floor::MachineFloor,
    ]
}

/// The experiment of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    all().iter().copied().find(|e| e.name() == name)
}

/// Variants of one operation over placements of source and sink.
fn placements(op: &str, pairs: &[(&str, &str)]) -> Vec<Variant> {
    pairs.iter().map(|(source, sink)| variant(&[("op", op), ("source", source), ("sink", sink)])).collect()
}

/// The same variant with another factor.
fn with(one: &Variant, key: &str, level: &str) -> Variant {
    let mut more = one.clone();
    more.insert(key.to_owned(), level.to_owned());
    more
}

/// Writes of which each goes half over one port of the device, half over another.
fn over_two_ports() -> Vec<Variant> {
    placements("write", &FOUR).iter().map(|one| with(one, "ports", "2")).collect()
}

/// All four placements, and the two that a short overview shows.
const FOUR: [(&str, &str); 4] = [("host", "host"), ("nic", "nic"), ("host", "nic"), ("nic", "host")];
const TWO: [(&str, &str); 2] = [("host", "host"), ("nic", "nic")];

/// The placements of an operation: all four, or two where an overview is short.
fn usual(op: &str, quick: bool) -> Vec<Variant> {
    placements(op, if quick { &TWO } else { &FOUR })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_quick_variants_are_among_all() {
        let names: BTreeSet<_> = all().iter().map(|e| e.name()).collect();
        assert_eq!(names.len(), all().len());
        for experiment in all() {
            let every: BTreeSet<_> = experiment.variants(false).into_iter().collect();
            assert_eq!(every.len(), experiment.variants(false).len(), "{}", experiment.name());
            assert!(experiment.variants(true).iter().all(|v| every.contains(v)), "{}", experiment.name());
            assert!(!every.is_empty() && !experiment.about().is_empty());
            assert!(find(experiment.name()).is_some());
        }
        assert!(find("nonsense").is_none());
    }
}
