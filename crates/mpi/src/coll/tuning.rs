//! [`Tuning`]: how collective algorithms are chosen. All processes use the tuning of process 0, so that their choices agree.

use std::collections::BTreeMap;
use std::fmt::Write;

use collectives::{Algorithm, Case, Choice, CollKind, Costs, SharedCores, choose};
use verbs::DeviceAttr;

use crate::bootstrap::Bootstrap;
use crate::error::{Class, Error, Result};
use crate::peers::nic::Port;

/// How collective algorithms are chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tuning {
    /// Message costs; `None` derives them from the last device, which is the inter-host one if there are several.
    pub costs: Option<Costs>,
    /// A named algorithm for a kind, used for the calls it can carry out. Other calls are chosen by cost.
    pub algorithms: BTreeMap<CollKind, String>,
}

const KVS_KEY: &str = "mpi-tuning";

/// Costs of a device that reports none: messages through memory. Measured on two cores of an EPYC, in a guest: 8 bytes took 0.3 to
/// 0.5 us, 1 MiB 60 to 120 us. Reduction costs are zero, because they do not decide anything: with two ranks an allreduce of 64 KiB
/// took 11 us by recursive doubling and 39 by Rabenseifner's algorithm, of 1 MiB 160 and 430. The latter reduces half as much, but
/// reads data that another core has just written.
const MEMORY: Costs = Costs { alpha: 0.4e-6, gap: 0.2e-6, beta: 1.0 / 8e9, gamma: 0.0, shared_cores: None };
/// Costs of TCP to a process that sleeps. Four ranks on two cores over the loopback took 50 us for a broadcast
/// of 8 KiB in two rounds and 170 for an allreduce; 1 MiB between two ranks took 220 to 260. A chain and parts cost more than a
/// tree: a broadcast of 1 MiB took 850 us by a binomial tree, 1,680 by scattering, 2,200 by a chain.
const TCP: Costs = Costs { alpha: 40e-6, gap: 20e-6, beta: 1.0 / 5e9, gamma: 0.0, shared_cores: None };
/// Costs of TCP where ranks share cores. Four ranks on two cores over the loopback, medians, us, of 64 KiB and 1 MiB: allgather
/// directly 365 and 3,900, by a ring 594 and 3,700, by doubling 526 and 4,600; allreduce flat 265 and 1,600, by doubling 368 and
/// 1,800, by a ring 874 and 2,000; broadcast flat 128 and 690, binomial 153 and 590, scattered 573 and 1,340; a
/// barrier by doubling 86, directly 103.
const TCP_ON_SHARED_CORES: SharedCores =
    SharedCores { cores: 1.0, turn: 7e-6, long_turn: 45e-6, message: 15e-6, byte: 0.48e-9 };
/// Seconds to reduce a byte received over a link.
const REDUCED: f64 = 1.0 / 6e9;
/// Seconds of latency of a message over a link, independent of its size.
const LINK_ALPHA: f64 = 5e-6;

impl Tuning {
    /// Costs of a device, derived only from its own attributes: jobs that connect to each other must choose alike.
    pub fn costs_of(attr: &DeviceAttr) -> Costs {
        match attr.link_rate {
            None if attr.maps_peers => MEMORY,
            None => TCP,
            Some(rate) => Costs {
                alpha: LINK_ALPHA,
                gap: LINK_ALPHA,
                beta: 1.0 / rate.0,
                gamma: REDUCED,
                shared_cores: None,
            },
        }
    }

    /// Costs of a device where each host's ranks share this number of cores. Only TCP has others then: for other devices they were
    /// not measured.
    pub fn costs_on_cores(attr: &DeviceAttr, cores: usize) -> Costs {
        match Self::costs_of(attr) {
            costs if costs == TCP => Costs { shared_cores: Some(on_cores(cores)), ..costs },
            costs => costs,
        }
    }

    /// The names of a kind's algorithms.
    pub fn algorithms_of(kind: CollKind) -> impl Iterator<Item = &'static str> {
        Algorithm::all_for(kind).map(|algorithm| algorithm.name)
    }

    /// Publishes process 0's tuning, before the first fence; with the number of cores that the host's ranks share, if they do.
    pub(crate) fn publish(
        &self,
        bootstrap: &dyn Bootstrap,
        ports: &[Port],
        shared_cores: Option<usize>,
    ) -> Result<()> {
        for (kind, name) in &self.algorithms {
            if !Algorithm::all_for(*kind).any(|algorithm| algorithm.name == name) {
                let names: Vec<_> = Algorithm::all_for(*kind).map(|algorithm| algorithm.name).collect();
                let text = format!("{} has no algorithm `{name}`: it has {}", kind.name(), names.join(", "));
                return Err(Error::new(Class::ARG, text));
            }
        }
        if bootstrap.rank() > 0 {
            return Ok(());
        }
        let of_port = |port: &Port| match shared_cores {
            Some(cores) => Self::costs_on_cores(port.device.attr(), cores),
            None => Self::costs_of(port.device.attr()),
        };
        let farthest = || ports.last().map_or(MEMORY, of_port);
        let Costs { alpha, gap, beta, gamma, shared_cores } = self.costs.unwrap_or_else(farthest);
        let cores = shared_cores.map_or(0.0, |shared| shared.cores);
        let mut note = format!("{alpha:e};{gap:e};{beta:e};{gamma:e};{cores}");
        for (kind, name) in &self.algorithms {
            write!(note, ";{}={name}", kind.name()).map_err(|error| Error::new(Class::INTERN, error))?;
        }
        bootstrap.put(KVS_KEY, &note)
    }

    /// Reads the tuning that process 0 has published.
    pub(crate) fn read(bootstrap: &dyn Bootstrap) -> Result<Self> {
        let note = bootstrap.get(KVS_KEY)?;
        Self::parse(&note)
            .ok_or_else(|| Error::new(Class::OTHER, format_args!("'{note}' is not a tuning of this version")))
    }

    fn parse(note: &str) -> Option<Self> {
        let mut parts = note.split(';');
        let mut cost = || parts.next()?.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0);
        let (alpha, gap, beta, gamma) = (cost()?, cost()?, cost()?, cost()?);
        let shared_cores = Some(cost()?).filter(|cores| *cores > 0.0).map(|cores| on_cores(cores as usize));
        let costs = Some(Costs { alpha, gap, beta, gamma, shared_cores });
        let algorithm = |part: &str| {
            let (kind, name) = part.split_once('=')?;
            let kind = CollKind::ALL.into_iter().find(|known| known.name() == kind)?;
            Some((kind, name.to_owned()))
        };
        Some(Self { costs, algorithms: parts.map(algorithm).collect::<Option<_>>()? })
    }

    /// The algorithm for a call, and its segment size. Whether ranks share cores is known of the own job only, so that members of
    /// several jobs choose as if they did not.
    pub(crate) fn choose(&self, case: Case, is_of_own_job: impl FnOnce() -> bool) -> Choice {
        let costs = self.costs.unwrap_or(MEMORY);
        let shared_cores = costs.shared_cores.filter(|_| is_of_own_job());
        let choice = choose(case, Costs { shared_cores, ..costs });
        let named = self.algorithms.get(&case.kind).and_then(|name| Algorithm::by_name(name, &case).ok());
        Choice { algorithm: named.unwrap_or(choice.algorithm), ..choice }
    }
}

fn on_cores(cores: usize) -> SharedCores {
    SharedCores { cores: cores as f64, ..TCP_ON_SHARED_CORES }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the explained choice is the real one. Ranks with shared memory always use it, so it must be the cheapest at any size.
    #[test]
    fn shared_memory_is_cheapest_at_all_sizes() {
        let attr = fabric::attr("shm").expect("it opens");
        let kinds = [
            CollKind::Barrier,
            CollKind::Bcast,
            CollKind::Reduce,
            CollKind::Allreduce,
            CollKind::Allgather,
            CollKind::Alltoall,
        ];
        for size in 2..=16 {
            let (costs, shared) = (Tuning::costs_of(&attr), crate::shared_bytes(&attr, size));
            for (kind, bytes) in
                kinds.into_iter().flat_map(|kind| (0..=30).map(move |at| (kind, 1_u64 << at)))
            {
                let size = size as usize;
                let case = Case {
                    kind,
                    size,
                    bytes,
                    commutative: true,
                    equal_blocks: true,
                    segment: 0,
                    shared,
                    hosts: 1,
                };
                assert_eq!(choose(case, costs).algorithm.name, "shared", "{case:?}");
            }
        }
    }

    /// Goal: over TCP, ranks of one host wait for each other no more often than needed. Method: expect the algorithms that were
    /// fastest with four ranks.
    #[test]
    fn few_rounds_are_cheap_over_tcp() {
        let costs = Tuning::costs_of(&fabric::attr("iwarp").expect("it opens"));
        for (kind, bytes, name) in [
            (CollKind::Bcast, 1 << 20, "binomial"),
            (CollKind::Bcast, 64 << 20, "chain"),
            (CollKind::Allreduce, 256 << 10, "recursive-doubling"),
            (CollKind::Allreduce, 1 << 20, "rabenseifner"),
        ] {
            let case = Case {
                kind,
                size: 4,
                bytes,
                commutative: true,
                equal_blocks: true,
                segment: 0,
                shared: 0,
                hosts: 1,
            };
            assert_eq!(choose(case, costs).algorithm.name, name, "{kind:?} of {bytes} bytes");
        }
    }

    /// Goal: ranks that share cores use the algorithms that were fastest with four ranks on two cores.
    #[test]
    fn shared_cores_prefer_few_rounds_over_tcp() {
        let attr = fabric::attr("iwarp").expect("it opens");
        let costs = Tuning::costs_on_cores(&attr, 2);
        for (kind, bytes, name) in [
            (CollKind::Bcast, 64 << 10, "flat"),
            (CollKind::Allreduce, 1 << 20, "flat"),
            (CollKind::Allgather, 64 << 10, "direct"),
            (CollKind::Alltoall, 1 << 20, "direct"),
            (CollKind::Allreduce, 8, "flat"),
        ] {
            let (size, commutative, equal_blocks) = (4, true, true);
            let case = Case { kind, size, bytes, commutative, equal_blocks, segment: 0, shared: 0, hosts: 1 };
            assert_eq!(choose(case, costs).algorithm.name, name, "{kind:?} of {bytes} bytes");
            let tuning = Tuning { costs: Some(costs), ..Tuning::default() };
            let of_several_jobs = tuning.choose(case, || false).algorithm.name;
            assert_eq!(of_several_jobs, choose(case, Tuning::costs_of(&attr)).algorithm.name, "several jobs");
            let two = Case { size: 2, ..case };
            assert_eq!(
                choose(two, costs).algorithm.name,
                choose(two, Tuning::costs_of(&attr)).algorithm.name,
                "two ranks have cores of their own"
            );
        }
    }

    #[test]
    fn two_ranks_exchange_what_they_reduce() {
        let costs = Tuning::costs_of(&fabric::attr("shm").expect("it opens"));
        for bytes in [8, 16 << 10, 1 << 20, 64 << 20] {
            let (kind, equal_blocks) = (CollKind::Allreduce, true);
            let case = Case {
                kind,
                size: 2,
                bytes,
                commutative: true,
                equal_blocks,
                segment: 0,
                shared: 0,
                hosts: 1,
            };
            assert_eq!(choose(case, costs).algorithm.name, "recursive-doubling", "{bytes} bytes");
        }
    }

    #[test]
    fn published_tuning_is_read_back() {
        let kvs = crate::bootstrap::LocalKvs::new(1);
        let bootstrap = kvs.bootstrap(0, &host::real::host());
        let shared_cores = Some(on_cores(2));
        let costs = Some(Costs { alpha: 1.5e-6, gap: 1e-7, beta: 1e-10, gamma: 0.0, shared_cores });
        let algorithms = [(CollKind::Allreduce, "ring".to_owned()), (CollKind::Barrier, "tree".to_owned())];
        let tuning = Tuning { costs, algorithms: algorithms.into() };
        tuning.publish(&*bootstrap, &[], None).expect("known names");
        assert_eq!(Tuning::read(&*bootstrap), Ok(tuning));
        let wrong = Tuning { algorithms: [(CollKind::Bcast, "rign".to_owned())].into(), ..Tuning::default() };
        let error = wrong.publish(&*bootstrap, &[], None).expect_err("no such algorithm");
        assert!(error.class == Class::ARG && error.text.contains("binomial"), "{error}");
        for nonsense in ["", "1;2;0;3", "1;2;0;x;0", "1;2;0;-3;0", "1;2;0;3;0;bcast", "1;2;0;3;0;cast=ring"] {
            assert_eq!(Tuning::parse(nonsense), None, "{nonsense}");
        }
    }
}
