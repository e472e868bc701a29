//! The third parties that Nicety is tested against: what each needs, its cases, and how they are run.

use anyhow::{Result, bail};
use std::path::PathBuf;
use std::time::Instant;
use xtask::workspace::{Workspace, counted};

use super::case::{Case, Verdict};
use super::dat::Programs;
use super::guest::cards::Cards;
use super::guest::testbed::Testbed;
use super::mpi::launchers::Mpich;
use super::mpi::ring::Ring;
use super::verbs::programs::Clients;
use super::{dat, guest, mpi, portals, tools, verbs};

/// A case, by its party.
#[derive(Clone, Copy)]
enum PartyCase {
    /// Siw, in the guest.
    Siw(&'static Case<Testbed>),
    /// The device `hw` in the guest.
    Card(&'static Case<Cards>),
    /// Programs built against DAT.
    Dat(&'static Case<Programs>),
    /// Programs built for libibverbs and librdmacm.
    Verbs(&'static Case<Clients>),
    /// MPICH's launchers and programs.
    Mpich(&'static Case<Mpich>),
    /// Launchers that start a program of our MPI.
    Ring(&'static Case<Ring>),
    /// Slurm as the launcher.
    Slurm(&'static Case<Ring>),
}

impl PartyCase {
    fn name(self) -> &'static str {
        self.name_and_description().0
    }

    /// The case's name and description.
    fn name_and_description(self) -> (&'static str, &'static str) {
        match self {
            Self::Siw(case) => (case.name, case.shows),
            Self::Card(case) => (case.name, case.shows),
            Self::Dat(case) => (case.name, case.shows),
            Self::Verbs(case) => (case.name, case.shows),
            Self::Mpich(case) => (case.name, case.shows),
            Self::Ring(case) | Self::Slurm(case) => (case.name, case.shows),
        }
    }
}

/// All cases, in order.
fn cases() -> impl Iterator<Item = PartyCase> {
    let mpich = |cases: &'static [Case<Mpich>]| cases.iter().map(PartyCase::Mpich);
    guest::cases::CASES
        .iter()
        .chain(guest::programs::CASES)
        .map(PartyCase::Siw)
        .chain(guest::cards::CASES.iter().map(PartyCase::Card))
        .chain(dat::CASES.iter().map(PartyCase::Dat))
        .chain(
            verbs::programs::CASES
                .iter()
                .chain(verbs::pyverbs::CASES)
                .chain(verbs::crates::CASES)
                .map(PartyCase::Verbs),
        )
        .chain(mpich(mpi::launchers::CASES))
        .chain(mpi::ring::CASES.iter().map(PartyCase::Ring))
        .chain(mpi::ring::SLURM_CASES.iter().map(PartyCase::Slurm))
        .chain(mpich(mpi::header::CASES))
        .chain(mpich(mpi::mpi4py::CASES))
}

/// A party that is tested separately, from a checkout.
#[derive(clap::Subcommand)]
pub(crate) enum Party {
    /// MPICH's C tests, compiled by `nicety mpicc` and run on our library.
    Mpich(mpi::mpich::Options),
    /// Tests of libfabric, with its verbs provider on our libraries.
    Fabtests {
        /// A checkout of github.com/ofiwg/libfabric, in the version of Debian's libfabric-dev.
        #[arg(long, value_name = "DIR")]
        source: PathBuf,
    },
    /// Sandia OpenSHMEM, built on our Portals, and its unit tests.
    Openshmem {
        /// A checkout of github.com/Sandia-OpenSHMEM/SOS, with its submodule modules/tests-sos.
        #[arg(long, value_name = "DIR")]
        source: PathBuf,
    },
    /// The basic and XML tests of the Portals 4 reference, compiled with our header and run on our library.
    Portals {
        /// A checkout of github.com/Portals4/portals4.
        #[arg(long, value_name = "DIR")]
        source: PathBuf,
    },
}

/// Tests against the chosen party.
pub(crate) fn try_party(workspace: &Workspace, party: &Party) -> Result<()> {
    match party {
        Party::Mpich(options) => mpi::mpich::check(workspace, options),
        Party::Fabtests { source } => verbs::fabtests::check(workspace, source),
        Party::Openshmem { source } => portals::openshmem::check(workspace, source),
        Party::Portals { source } => {
            let basic = portals::basic::check(workspace, source);
            portals::xml::check(workspace, source).and(basic)
        }
    }
}

/// Prints the cases.
pub(crate) fn list() {
    cases().map(PartyCase::name_and_description).for_each(|(name, shows)| println!("{name:<18} {shows}"));
}

/// Runs the cases named by `only`, or all. A prefix such as `verbs` selects all cases whose names begin with it.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    let is_meant = |case: PartyCase, name: &str| {
        case.name().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = only.iter().find(|name| !cases().any(|case| is_meant(case, name))) {
        bail!("there is no case {unknown:?}; `cargo xtask interop --list` names all");
    }
    let chosen: Vec<PartyCase> =
        cases().filter(|case| only.is_empty() || only.iter().any(|name| is_meant(*case, name))).collect();
    let began = Instant::now();
    let mut parties = Parties::open(workspace, &chosen)?;
    let (mut shown, mut failed) = (0, Vec::new());
    for &case in &chosen {
        let start = Instant::now();
        let Some(verdict) = parties.run_case(case) else { continue };
        shown += 1;
        let (word, said) = match verdict {
            Ok(Verdict(said)) => ("ok", said),
            Err(why) => ("FAILED", format!("{why:#}")),
        };
        println!("interop: {word:<7} {:<18} {:>5.1} s  {said}", case.name(), start.elapsed().as_secs_f64());
        if word == "FAILED" {
            failed.push(case.name());
        }
    }
    let took = began.elapsed().as_secs_f64();
    drop(parties);
    if !failed.is_empty() {
        let again = failed.iter().map(|name| format!(" --only {name}")).collect::<String>();
        bail!(
            "{} of {} failed after {took:.0} s. Repeat with:\n  cargo xtask interop{again}",
            failed.len(),
            counted(shown, "case")
        );
    }
    println!("interop: {} passed in {took:.0} s", counted(shown, "case"));
    Ok(())
}

/// What the chosen cases need, as far as it is available here.
struct Parties {
    testbed: Option<Testbed>,
    cards: Option<Cards>,
    programs: Option<Programs>,
    clients: Option<Clients>,
    mpich: Option<Mpich>,
    ring: Option<Ring>,
    has_slurm: bool,
}

impl Parties {
    fn open(workspace: &Workspace, chosen: &[PartyCase]) -> Result<Self> {
        let wants = |party: fn(&PartyCase) -> bool| chosen.iter().any(party);
        let can = |what: &str, there: Result<(), String>| {
            there.map_err(|why| println!("interop: SKIPPED, not tested against {what}: {why}")).is_ok()
        };
        let guest = wants(|run| matches!(run, PartyCase::Siw(_))) && can("siw", tools::provide_guest());
        let cards = wants(|run| matches!(run, PartyCase::Card(_)))
            && can("Linux's software cards", tools::provide_guest());
        let dat =
            wants(|run| matches!(run, PartyCase::Dat(_))) && can("DAT's programs", tools::provide_dat());
        let clients =
            wants(|run| matches!(run, PartyCase::Verbs(_))) && can("verbs programs", tools::provide_verbs());
        let mpich = wants(|run| matches!(run, PartyCase::Mpich(_))) && can("MPICH", tools::provide_python());
        let has_slurm =
            wants(|run| matches!(run, PartyCase::Slurm(_))) && can("Slurm", tools::provide_slurm());
        let ring = (has_slurm || wants(|run| matches!(run, PartyCase::Ring(_))))
            && can("launchers of our MPI", tools::provide_python());
        Ok(Self {
            testbed: guest.then(|| Testbed::open(workspace)).transpose()?,
            cards: cards.then(|| Cards::open(workspace)).transpose()?,
            programs: dat.then(|| Programs::open(workspace)).transpose()?,
            clients: clients.then(|| Clients::open(workspace)).transpose()?,
            mpich: mpich.then(|| Mpich::open(workspace)).transpose()?,
            ring: ring.then(|| Ring::open(workspace)).transpose()?,
            has_slurm,
        })
    }

    /// Runs a case; `None` if its party is not available.
    fn run_case(&mut self, case: PartyCase) -> Option<Result<Verdict>> {
        Some(match case {
            PartyCase::Siw(case) => {
                let testbed = self.testbed.as_mut()?;
                testbed.begin(case.name);
                (case.run)(testbed)
            }
            PartyCase::Card(case) => (case.run)(self.cards.as_mut()?),
            PartyCase::Dat(case) => {
                let programs = self.programs.as_mut()?;
                programs.begin(case.name);
                (case.run)(programs)
            }
            PartyCase::Verbs(case) => (case.run)(self.clients.as_mut()?),
            PartyCase::Mpich(case) => {
                let mpich = self.mpich.as_mut()?;
                mpich.begin(case.name);
                (case.run)(mpich)
            }
            PartyCase::Slurm(_) if !self.has_slurm => return None,
            PartyCase::Ring(case) | PartyCase::Slurm(case) => {
                let ring = self.ring.as_mut()?;
                ring.begin(case.name);
                (case.run)(ring)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cases_differ() {
        let mut names: Vec<&str> = cases().map(PartyCase::name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
