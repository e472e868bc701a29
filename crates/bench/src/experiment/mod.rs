//! Experiments: what to do with a device so that one number comes out. One file each, written once against `verbs`
//! and `host`, so that they run in real and in virtual time: no clock and no threads but the host's, no sockets.
//!
//! An [`Experiment`] lists its variants and prepares a [`Side`] at each end of a [`Session`]; [`driver`] runs rounds
//! of it, as the sampler asks. To add one: a file, and a line in [`all`].
//!
//! | file | what it holds |
//! |---|---|
//! | `latency`, `bilat`, `bandwidth`, `bibw`, `rate`, `park`, `memory` | the experiments of an overview |
//! | `nicmem`, `hotspot`, `pack`, `chain` | what NIC memory is good for |
//! | `reg`, `post`, `poll`, `connect` | single calls |
//! | `overhead`, `availability`, `notify`, `blocking` | what communication costs the processor |
//! | `reuse`, `connections`, `maxsge`, `segments`, `mtu` | what else a latency and a bandwidth depend on |
//! | `multirail` | several rails over uDAPL: bandwidth, latency, where the time goes |
//! | `pingpong`, `stream`, `traffic`, `calls` | what latency and bilat, streams, the row before, and post and poll share |
//! | `compute` | work for the processor that is no communication |
//! | `link`, `hub`, `edge` | connections and registered memory, between two ranks and among many |
//! | `timing`, `pattern` | samples of a round; contents that can be checked |
//! | `cell`, `session`, `driver` | what to measure, the words between the sides, rounds |
//! | `limits` | what numbers from the other side may be |

mod availability;
mod bandwidth;
mod bibw;
mod bilat;
mod blocking;
mod calls;
mod cell;
mod chain;
mod compute;
mod connect;
mod connections;
pub mod driver;
mod edge;
mod hotspot;
mod hub;
mod latency;
mod limits;
mod link;
mod maxsge;
mod memory;
mod mtu;
pub mod multirail;
mod nicmem;
mod notify;
mod overhead;
mod pack;
mod park;
mod pattern;
mod pingpong;
mod poll;
mod post;
mod rate;
mod reg;
mod reuse;
mod segments;
mod session;
mod stream;
pub(crate) mod timing;
mod traffic;

pub use cell::{Cell, MAX_SIZE, Metric, Scale, Settings, Variant, variant};
pub use session::{Bounds, Control, Fault, Gauge, Round, Session, Word, peer_failed, said_by};

/// One kind of measurement.
pub trait Experiment: Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;
    /// One line for people.
    fn about(&self) -> &'static str;
    /// The text of `nicety explain`, in the five sections of [`EXPLAINED`].
    fn explain(&self) -> &'static str;
    /// Its variants, most interesting first. `quick` leaves out those of an overview that must be short.
    fn variants(&self, quick: bool) -> Vec<Variant>;
    /// The one size that it, or this variant of it, makes sense for; `None` for all sizes.
    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        None
    }
    /// Factors with numbers as levels, which `--set FACTOR=LIST` changes.
    fn axes(&self) -> &'static [Axis] {
        &[]
    }
    /// The factor that decides how many processes take part, if there is one.
    fn crowd(&self) -> Option<&'static Axis> {
        None
    }
    /// What measuring a cell takes from this machine.
    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        // Most have a source and a sink at either side.
        Needs { bytes: 4 * cell.size, processes: u64::from(self.ranks(&cell.variant)), ..Needs::default() }
    }
    /// Whether a device has at all what this measures; asked before anything is measured, of devices of this machine.
    ///
    /// # Errors
    /// The device's own words.
    fn possible(&self, _device: &verbs::Device) -> Result<(), Fault> {
        Ok(())
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
    /// How the operations of a variant can be sampled.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::default()
    }
    /// Sets up this side: connections, memory. Both sides run it at the same time.
    ///
    /// # Errors
    /// [`Fault`]; with [`Fault::is_local`] the cell is left out and the run goes on.
    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault>;
}

/// The sections of an experiment's text, in their order.
pub const EXPLAINED: [&str; 5] =
    ["What it measures", "How", "What moves it", "How to read it", "Where it comes from"];

/// A factor whose levels are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The factor.
    pub factor: &'static str,
    /// The smallest level.
    pub low: u64,
    /// The largest.
    pub high: u64,
    /// One line for people.
    pub about: &'static str,
}

/// What measuring a cell takes from the machine that it runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Memory of all processes together, in bytes.
    pub bytes: u64,
    /// Processes.
    pub processes: u64,
    /// Connections that one process has open at a time.
    pub connections: u64,
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
    /// A single sample in a launch, which is found by a search.
    pub const ONCE: Self = Self { long: true, samples: Some(1) };
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
        &overhead::Overhead,
        &availability::Availability,
        &notify::Notify,
        &blocking::Blocking,
        &reuse::Reuse,
        &connections::Connections,
        &maxsge::MaxSge,
        &segments::Segments,
        &mtu::Mtu,
        &multirail::RAIL_BANDWIDTH,
        &multirail::RAIL_BIBW,
        &multirail::RAIL_LATENCY,
        &multirail::RAIL_BREAKDOWN,
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

/// Each variant with each level of a factor.
fn over(variants: &[Variant], factor: &str, levels: &[&str]) -> Vec<Variant> {
    variants.iter().flat_map(|one| levels.iter().map(|level| with(one, factor, level))).collect()
}

/// A number among the factors of a cell.
fn level<T: std::str::FromStr>(cell: &Cell, axis: &Axis) -> Result<T, Fault> {
    let text = cell.factor(axis.factor)?;
    let inside = text.parse::<u64>().is_ok_and(|n| (axis.low..=axis.high).contains(&n));
    let Axis { factor, low, high, .. } = axis;
    text.parse()
        .ok()
        .filter(|_| inside)
        .ok_or_else(|| Fault::Meaningless(format!("{factor} {text}; it takes {low} to {high}")))
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

    /// Goal: nobody forgets to say what an experiment is. Method: its text begins with its name, has all sections in their
    /// order, none of them empty, and a loop; it names a paper or says that there is none, and no levels that it refuses.
    #[test]
    fn every_experiment_explains_itself() {
        for experiment in all() {
            let (name, text) = (experiment.name(), experiment.explain());
            assert!(text.starts_with(&format!("# {name}\n")), "{name}");
            let sections: Vec<(&str, &str)> =
                text.split("\n## ").skip(1).map(|part| part.split_once('\n').expect("a heading")).collect();
            let headings: Vec<&str> = sections.iter().map(|(heading, _)| *heading).collect();
            assert_eq!(headings, EXPLAINED, "{name}");
            for (heading, body) in &sections {
                assert!(body.trim().len() > 40, "{name}: {heading} says nothing");
            }
            assert!(sections[1].1.contains("\n    "), "{name}: no loop");
            let from = sections[4].1;
            let papers = ["miba-thesis", "mt23108-nicmem", "multirail-udapl", "Not in the thesis"];
            assert!(papers.iter().any(|paper| from.contains(paper)), "{name}: {from}");
            for axis in experiment.axes() {
                assert!(text.contains(axis.factor) && axis.low <= axis.high, "{name}: {}", axis.factor);
                for variant in experiment.variants(false) {
                    let level = variant.get(axis.factor).map(|text| text.parse::<u64>().expect("a number"));
                    assert!(level.is_none_or(|n| (axis.low..=axis.high).contains(&n)), "{name}: {variant:?}");
                }
            }
        }
    }

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
