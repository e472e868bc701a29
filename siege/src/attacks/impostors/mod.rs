//! Impostors, which are programs without the key, at each kind of listener that requires a proof. An attack sends 20,000 impostors to a
//! listener while honest processes connect. The listener must accept no impostor, let none read or write a byte, serve honest processes
//! within a second, and return the memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `tcp` | impostors that connect by TCP |
//! | `shm` | impostors that connect to a listener on `shm` |
//! | `requests` | connect requests under a foreign key, for MPI and Portals, and their MPA frames |
//! | `mpi`, `portals`, `ports`, `serve` | the listeners, and their attacks |

pub(super) mod mpi;
pub(super) mod portals;
pub(super) mod ports;
mod requests;
pub(super) mod serve;
mod shm;
mod tcp;

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use host::Rng;
use rustix::process::Pid;

use crate::attack::{Budget, Tally};
use crate::resources::{memory_of, settled};
use crate::wiretap::Wiretap;

/// The longest time in which an honest process must be served.
const LATE_MAX: Duration = Duration::from_secs(1);
/// Impostors in a round, and in a round of a short siege.
const CROWD: u32 = 20_000;
const SMALL: u32 = 2000;
/// The least time for [`CROWD`] impostors.
const WHOLE: Duration = Duration::from_secs(30);
/// Impostors that connect before memory is measured first: by then tables have their size.
const FIRST: u32 = 500;
/// The most bytes by which the listener's memory may grow in a round, besides the memory of honest connections.
const GROWTH_MAX: u64 = 1 << 20;
/// Honest processes in a round. The first two connect before the crowd, where the second shows the memory of a connection; the
/// third connects among the impostors, the fourth after them.
const HONEST: u32 = 4;
/// Accepted impostors that end a round.
const ENOUGH: u64 = 3;
/// How long a process may take to answer or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How an impostor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Connects, and sends nothing.
    Silent,
    /// Sends what [`Behaviour::Foreign`] does, a byte at a time.
    Slow,
    /// Sends bytes that do not parse.
    Garbage,
    /// Sends the beginning of a valid message.
    Part,
    /// Sends what a process of another job would: everything but the key is valid.
    Foreign,
    /// Sends what an honest process sent before.
    Replay,
    /// Announces a longer message than any may be, and sends much.
    Huge,
}

impl Behaviour {
    const ALL: [Self; 7] =
        [Self::Silent, Self::Slow, Self::Garbage, Self::Part, Self::Foreign, Self::Replay, Self::Huge];
}

/// How a listener treated an impostor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    /// Refused, after the listener checked a message of a valid form.
    Challenged,
    Accepted,
}

/// How a listener treated all impostors so far.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    refused: u64,
    challenged: u64,
    accepted: u64,
    /// Bytes that impostors received and must not get.
    read: u64,
    /// Impostors by behaviour, in the order of [`Behaviour::ALL`].
    ways: [u64; Behaviour::ALL.len()],
}

impl Outcomes {
    /// Counts an impostor that has received `read` bytes which it must not get; an error when [`ENOUGH`] were accepted.
    fn count(&mut self, way: Behaviour, outcome: Outcome, read: u64) -> Result<()> {
        self.read += read;
        self.ways.iter_mut().zip(Behaviour::ALL).for_each(|(count, each)| *count += u64::from(each == way));
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Challenged => self.challenged += 1,
            Outcome::Accepted => self.accepted += 1,
        }
        ensure!(self.accepted < ENOUGH, "{ENOUGH} impostors are accepted, the last one as {way:?}");
        Ok(())
    }

    /// The numbers of impostors by behaviour, as text.
    fn behaviour_counts(&self) -> String {
        let each = self.ways.iter().zip(Behaviour::ALL).filter(|(count, _)| **count > 0);
        let each: Vec<String> = each.map(|(count, way)| format!("{count} {way:?}").to_lowercase()).collect();
        each.join(", ")
    }
}

/// A process with a listener, and honest processes that connect to it.
trait Listener {
    /// The address of the listener.
    fn addr(&self) -> Option<SocketAddr>;

    /// The process with the listener.
    fn process(&self) -> Pid;

    /// Lets the next honest process connect and exchange its first message, without waiting for that.
    fn connect(&mut self) -> Result<()>;

    /// Waits for that process; returns how long it took.
    fn connected(&mut self) -> Result<Duration>;

    /// Ends all processes, and returns what the listener counted.
    fn finish(self) -> Result<ListenerReport>;
}

/// What a listener counted.
#[derive(Clone, Copy, Debug, Default)]
struct ListenerReport {
    /// Refused requests, if it counts them.
    refused: Option<u64>,
    /// Bytes that changed, and reads and writes, that are not of honest processes.
    touched: u64,
}

/// A crowd of impostors at one listener.
trait Impostors {
    /// Another impostor connects.
    fn connect_next(&mut self, rng: &mut Rng) -> Result<()>;

    /// Closes all connections; returns the outcomes so far.
    fn disconnect_all(&mut self, rng: &mut Rng) -> Result<Outcomes>;

    /// Gives the impostors what honest processes sent to the listener by TCP.
    fn set_recorded(&mut self, recorded: Vec<Vec<u8>>);
}

/// The number of impostors for the next rounds.
fn count(budget: &Budget) -> u32 {
    if budget.time_left() > WHOLE { CROWD } else { SMALL }
}

/// Counts a round at the listener called `name`.
fn judge(tally: &mut Tally, name: impl Display, round: Result<Round>) {
    tally.tried += 1;
    let round = match round {
        Ok(round) => round,
        Err(why) => return tally.add_note(format!("{name}: {why:#}")),
    };
    tally.record_reaction(round.slowest);
    let outside = round.outcomes.read + round.touched;
    tally.outside += outside;
    tally.left_over += u64::from(round.grown > GROWTH_MAX);
    let is_good = round.outcomes.accepted == 0 && outside == 0 && round.grown <= GROWTH_MAX;
    tally.survived += u64::from(is_good);
    if !is_good || tally.tried <= 2 {
        tally.add_note(format!("{name}: {round}"));
    }
}

/// The result of a round.
struct Round {
    count: u32,
    outcomes: Outcomes,
    touched: u64,
    grown: u64,
    slowest: Duration,
}

impl Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, outcomes, touched, grown, slowest } = self;
        write!(
            f,
            "{count} impostors ({}): {} accepted, {} refused in a valid form; {} bytes read, {touched} touched; \
             {} KiB of memory stay; the slowest of {HONEST} honest processes took {:.1} ms",
            outcomes.behaviour_counts(),
            outcomes.accepted,
            outcomes.challenged,
            outcomes.read,
            grown >> 10,
            slowest.as_secs_f64() * 1e3
        )
    }
}

/// Sends `count` impostors to a listener, while honest processes connect.
fn attack_listener<L: Listener>(
    mut listener: L,
    impostors: &mut impl Impostors,
    count: u32,
    rng: &mut Rng,
) -> Result<Round> {
    let mut slowest = first(&mut listener, impostors)?;
    for _ in 0..FIRST {
        impostors.connect_next(rng)?;
    }
    impostors.disconnect_all(rng)?;
    let memory = |listener: &L| settled(0, || memory_of(listener.process()));
    let before_honest = memory(&listener);
    listener.connect()?;
    slowest = slowest.max(listener.connected()?);
    let before = memory(&listener);
    let of_connection = before.saturating_sub(before_honest);
    for at in FIRST..count {
        if at == count / 2 {
            listener.connect()?;
        }
        impostors.connect_next(rng)?;
    }
    slowest = slowest.max(listener.connected()?);
    listener.connect()?;
    slowest = slowest.max(listener.connected()?);
    let outcomes = impostors.disconnect_all(rng)?;
    let grown = memory(&listener).saturating_sub(before + 2 * of_connection);
    let report = listener.finish()?;
    ensure!(outcomes.ways.iter().sum::<u64>() == u64::from(count), "{outcomes:?} are not all {count}");
    ensure!(
        outcomes.challenged >= u64::from(count) / 8,
        "only {} of {count} had a valid form",
        outcomes.challenged
    );
    if let Some(refused) = report.refused {
        ensure!(refused >= outcomes.challenged, "{refused} of {} were counted", outcomes.challenged);
    }
    Ok(Round { count, outcomes, touched: report.touched, grown, slowest })
}

/// Lets the first honest process connect while its packets are recorded; returns how long it took.
fn first(listener: &mut impl Listener, impostors: &mut impl Impostors) -> Result<Duration> {
    // Without the permission there are no replays, which the numbers by behaviour show.
    let wiretap = listener.addr().and_then(|addr| Wiretap::new(addr.port()).ok());
    listener.connect()?;
    let took = listener.connected()?;
    if let Some(wiretap) = wiretap {
        impostors.set_recorded(wiretap.recorded()?);
    }
    Ok(took)
}
