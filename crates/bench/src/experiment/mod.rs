//! Experiments: each produces one number about a device. One file each, written once against `verbs` and `host`, so
//! that they run in real and in virtual time: no clock and no threads but the host's, no sockets.
//!
//! An [`Experiment`] lists its variants and prepares a [`Side`] at each end of a [`Session`]; [`driver`] runs rounds
//! of it, as the sampler asks. To add one: a file in its folder, and a line in [`all`].
//!
//! | file | contents |
//! |---|---|
//! | `over_verbs/` | experiments on one device |
//! | `multirail/` | several rails over uDAPL: bandwidth, latency, where the time goes |
//! | `over_portals/` | Portals matched by the NIC: messages, posting, collectives |
//! | `over_mpi/` | our MPI: messages, overlap, each collective |
//! | `nas/` | kernels of the NAS Parallel Benchmarks over our MPI |
//! | `floor/` | the machine's own limits |
//! | `loops/` | the loops that several experiments measure |
//! | `harness/` | the toolkit of experiments: cells, sessions, endpoints, samples |
//! | `driver` | rounds of a prepared side |
//! | `intervals` | what a stream moves over time |
//! | `explain/` | the text of each experiment for `nicety explain` |

pub mod driver;
pub(crate) mod floor;
mod harness;
pub mod intervals;
mod loops;
pub mod multirail;
mod nas;
mod over_mpi;
mod over_portals;
mod over_verbs;

pub use harness::cell::{Cell, Metric, Scale, Settings};
pub use harness::contract::{Axis, EXPLAINED, Experiment, Needs, Sampling, Side, all_axes};
pub use harness::fault::Fault;
pub use harness::limits::MAX_SIZE;
pub use harness::session::{
    Bounds, Control, Gauge, Rails, Round, Session, Word, peer_failed, with_peer_name,
};
pub(crate) use loops::stream::burst;

/// Every experiment, in the order of an overview.
#[must_use]
pub fn all() -> &'static [&'static dyn Experiment] {
    &[
        &over_verbs::latency::Latency,
        &over_verbs::bilat::Bilat,
        &over_verbs::bandwidth::Bandwidth,
        &over_verbs::bibw::Bibw,
        &over_verbs::rate::Rate,
        &over_verbs::park::Park,
        &over_verbs::memory::Memory,
        &over_verbs::nic_memory::nicmem::Nicmem,
        &over_verbs::nic_memory::hotspot::Hotspot,
        &over_verbs::nic_memory::pack::Pack,
        &over_verbs::nic_memory::chain::Chain,
        &over_verbs::reg::Reg,
        &over_verbs::post::Post,
        &over_verbs::poll::Poll,
        &over_verbs::connect::Connect,
        &over_verbs::overhead::Overhead,
        &over_verbs::availability::Availability,
        &over_verbs::notify::Notify,
        &over_verbs::blocking::Blocking,
        &over_verbs::reuse::Reuse,
        &over_verbs::connections::Connections,
        &over_verbs::scaling::Scaling,
        &over_verbs::maxsge::MaxSge,
        &over_verbs::segments::Segments,
        &over_verbs::mtu::Mtu,
        &multirail::RAIL_BANDWIDTH,
        &multirail::RAIL_BIBW,
        &multirail::RAIL_LATENCY,
        &multirail::RAIL_BREAKDOWN,
        &over_mpi::LATENCY,
        &over_mpi::BANDWIDTH,
        &over_mpi::BIBW,
        &over_mpi::RATE,
        &over_mpi::OVERLAP,
        &over_mpi::CONNECT,
        &over_mpi::PUT_LATENCY,
        &over_mpi::GET_LATENCY,
        &over_mpi::PUT_BANDWIDTH,
        &over_mpi::GET_BANDWIDTH,
        &over_mpi::BARRIER,
        &over_mpi::BCAST,
        &over_mpi::GATHER,
        &over_mpi::SCATTER,
        &over_mpi::ALLGATHER,
        &over_mpi::ALLTOALL,
        &over_mpi::REDUCE,
        &over_mpi::ALLREDUCE,
        &over_mpi::REDUCE_SCATTER,
        &over_mpi::SCAN,
        &over_mpi::EXSCAN,
        &nas::IS,
        &nas::CG,
        &over_portals::LATENCY,
        &over_portals::BANDWIDTH,
        &over_portals::POST,
        &over_portals::COLLECTIVE,
        &over_portals::AVAILABILITY,
        &floor::MachineFloor,
    ]
}

/// The experiment of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    all().iter().copied().find(|e| e.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: every experiment has a complete description. Method: its text begins with its name, has all sections in
    /// their order, none empty, and a loop; it names a paper or says that there is none, and no levels that it
    /// refuses.
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
            let papers = [
                "miba-thesis",
                "mt23108-nicmem",
                "multirail-udapl",
                "mpi-iwarp",
                "accel-portals",
                "Not in the thesis",
            ];
            assert!(papers.iter().any(|paper| from.contains(paper)), "{name}: {from}");
            for axis in all_axes(*experiment) {
                assert!(
                    text.contains(axis.factor.name()) && axis.low <= axis.high,
                    "{name}: {}",
                    axis.factor
                );
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
