//! `nas-is` and `nas-cg`: two kernels of the NAS Parallel Benchmarks over our MPI, written from their specification, and checked against the
//! results that it publishes.
//!
//! They compute in real and in virtual time alike. Virtual time does not pass by computing, so it is charged for each operation.
//!
//! | file | contents |
//! |---|---|
//! | `kernel` | the interface of a kernel: its classes, a run, its outcome |
//! | `job` | one rank: exchanges, sums, charged time |
//! | `random` | the random numbers of the specification |
//! | `sort` | IS |
//! | `gradient`, `matrix` | CG, and its matrix |

mod gradient;
mod job;
mod kernel;
mod matrix;
mod random;
mod sort;

use super::harness::contract::level;
use super::harness::variants::over;
use super::over_mpi::join::{join, leave_together};
use super::{Axis, Cell, Experiment, Fault, Metric, Needs, Round, Sampling, Scale, Session, Settings, Side};
use gradient::Gradient;
use job::Job;
use kernel::{CLASSES, Class, Outcome, Solve};
use results::variant::{Variant, factor};
use sort::Sort;

const RANKS: Axis = Axis {
    factor: factor::RANKS,
    low: 1,
    high: 256,
    about: "ranks of the kernel, a power of two; each is really there",
};

/// Bytes that an MPI process takes in addition to the kernel's memory.
const PROCESS: u64 = 1 << 20;

/// The two kernels.
#[derive(Clone, Copy)]
enum Kernel {
    Is,
    Cg,
}

impl Kernel {
    /// Bytes that all ranks together need.
    fn bytes(self, class: Class) -> u64 {
        match self {
            Self::Is => sort::bytes(class),
            Self::Cg => gradient::bytes(class),
        }
    }

    /// Default operations per second that a rank computes in virtual time.
    fn rate(self) -> f64 {
        match self {
            Self::Is => sort::RATE,
            Self::Cg => gradient::RATE,
        }
    }

    /// One rank of it, ready to run.
    fn prepare(self, job: Job, class: Class) -> Result<Box<dyn Solve>, Fault> {
        Ok(match self {
            Self::Is => Box::new(Sort::new(job, class)?),
            Self::Cg => Box::new(Gradient::new(job, class)?),
        })
    }
}

/// One of the experiments.
pub(super) struct Nas {
    name: &'static str,
    about: &'static str,
    explain: &'static str,
    kernel: Kernel,
}

/// IS, which ranks keys.
pub(super) const IS: Nas = Nas {
    name: "nas-is",
    about: "NAS IS over MPI: whole numbers ranked ten times, all ranks sending to all",
    explain: include_str!("../explain/nas-is.md"),
    kernel: Kernel::Is,
};

/// CG, which solves a sparse system.
pub(super) const CG: Nas = Nas {
    name: "nas-cg",
    about: "NAS CG over MPI: the smallest eigenvalue of a sparse matrix, by conjugate gradients",
    explain: include_str!("../explain/nas-cg.md"),
    kernel: Kernel::Cg,
};

impl Experiment for Nas {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn explain(&self) -> &'static str {
        self.explain
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let classes = CLASSES.map(|(name, _)| name);
        let (classes, ranks): (&[_], &[_]) =
            if quick { (&classes[..1], &["2", "4"]) } else { (&classes, &["1", "2", "4"]) };
        over(&over(&[Variant::default()], factor::CLASS, classes), RANKS.factor, ranks)
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(0)
    }

    fn axes(&self) -> &'static [Axis] {
        &[RANKS]
    }

    fn crowd(&self) -> Option<&'static Axis> {
        Some(&RANKS)
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        let ranks = u64::from(self.ranks(&cell.variant));
        let bytes = Class::of(&cell.variant).map_or(0, |class| self.kernel.bytes(class));
        Needs { bytes: bytes + ranks * PROCESS, processes: ranks, ..Needs::default() }
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "time",
            unit: "s",
            about: "the timed part of the kernel at the slowest rank; afterwards its result is checked against the published one",
            scale: Scale::SECONDS,
        }
    }

    fn ranks(&self, variant: &Variant) -> u32 {
        let ranks = variant.get(RANKS.factor).and_then(|text| text.parse().ok());
        ranks.filter(|ranks| (RANKS.low..=RANKS.high).contains(&u64::from(*ranks))).unwrap_or(1)
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::ONCE
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let ranks: u32 = level(session.cell, &RANKS)?;
        if !ranks.is_power_of_two() {
            return Err(Fault::Meaningless(format!(
                "{} with {ranks} ranks, which is no power of two",
                self.name
            )));
        }
        let named = session.cell.factor(factor::CLASS)?;
        let class = Class::of(&session.cell.variant).ok_or_else(|| {
            Fault::Meaningless(format!("class {named} of {}; it has S, W, A and B", self.name))
        })?;
        let rate = match session.settings.mops {
            0 => self.kernel.rate(),
            given => f64::from(given) * 1e6,
        };
        let job = Job::new(join(session, ranks)?, rate)?;
        Ok(Box::new(Run { kernel: self.kernel.prepare(job, class)?, last: None }))
    }
}

/// One rank of a kernel, run as often as requested.
struct Run {
    kernel: Box<dyn Solve>,
    last: Option<Outcome>,
}

impl Side for Run {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        for _ in 0..round.operations() {
            s.go_on()?;
            let outcome = self.kernel.run()?;
            if s.is_client() {
                readings.push(outcome.spent.as_ps() as f64);
            }
            self.last = Some(outcome);
        }
        // If some ranks dropped their process first, ranks still in the last sum would lose them.
        leave_together(s, self.kernel.job().process())
    }

    fn note(&self) -> Option<String> {
        let Outcome { spent, operations } = self.last.as_ref()?;
        // Operations in a microsecond are millions in a second.
        let rate = operations / (spent.as_ps().max(1) as f64 / 1e6);
        Some(format!(
            "{rate:.1} million operations in a second, as NAS counts them; the result is the published one"
        ))
    }
}

#[cfg(test)]
mod tests {
    use mpi::{Config, LocalKvs, Port, Process};
    use verbs::host::real;

    use super::Job;

    /// The only rank of a job.
    pub(super) fn alone(rate: f64) -> Job {
        let host = real::host();
        let device = fabric::open("shm", &host).expect("a device");
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let ports = vec![Port { device, address, fabric: "test".into() }];
        let config = Config { ports, node: "here".into(), ..Config::default() };
        let process = Process::start(&host, &config, LocalKvs::new(1).bootstrap(0, &host)).expect("a job");
        Job::new(process, rate).expect("memory")
    }
}
