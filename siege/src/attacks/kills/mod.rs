//! Peers that are killed at any instant, in every state, on all devices.
//!
//! The survivor must see everything that it posted complete, in order, and one end of each connection, soon. What the killed
//! side knew to be delivered (it keeps a ledger outside of itself) must have come, once and in order.
//!
//! | file | what it holds |
//! |---|---|
//! | `victims` | what the children do until they are killed |
//! | `rounds` | what the survivor does meanwhile, and what it checks |
//! | `atomics` | the same for those who are killed inside an atomic |

mod atomics;
mod rounds;
mod victims;

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::attack::{Attack, Budget, Tally};
use crate::attacks::DEVICES;
use crate::child::Child;
use crate::end::End;
use crate::traces::Holdings;

pub(crate) use victims::be_killed;

/// The name of the children's role.
pub(crate) const ROLE: &str = "killed";
/// Children that are started ahead, for each device.
const AHEAD: usize = 3;

/// What a child is doing when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It listens, and nobody connects.
    Listening,
    /// It makes connections, uses them, and ends them in one way or another.
    Connecting,
    /// It accepts connections, uses them, and ends them.
    Accepting,
    /// It registers memory, writes from it, and deregisters it.
    Registering,
    /// Both ends storm; it alone does; the survivor alone does.
    Both,
    Initiator,
    Target,
    /// It carries out atomics on the survivor's memory, which destroys its queue pair at about that time.
    Atomics,
    /// It is connected, and does nothing with it; it sleeps until a message comes.
    Idle,
    Sleeping,
}

/// All of them; those in the middle of much are met more often.
const STATES: &[State] = &[
    State::Both,
    State::Connecting,
    State::Initiator,
    State::Target,
    State::Listening,
    State::Connecting,
    State::Accepting,
    State::Both,
    State::Registering,
    State::Atomics,
    State::Idle,
    State::Accepting,
    State::Sleeping,
];

impl State {
    /// The state of that name.
    fn of(name: &str) -> Result<Self> {
        STATES.iter().copied().find(|state| format!("{state:?}") == name).context("no such state")
    }
}

/// A child with its device open, and the ledger that outlives it.
struct Victim {
    child: Child,
    ledger: Ledger,
}

/// What a victim writes about itself, kept outside of it.
struct Ledger(File);

impl Ledger {
    /// How many messages it knew to be delivered.
    fn acknowledged(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        // What it has never written is nothing.
        let len = self.0.read_at(&mut bytes, 0)?;
        Ok(if len == 8 { u64::from_le_bytes(bytes) } else { 0 })
    }
}

/// Children of one device, started ahead.
struct Nursery {
    device: &'static str,
    born: VecDeque<(Victim, PathBuf)>,
    count: u64,
}

impl Nursery {
    fn new(device: &'static str) -> Result<Self> {
        let mut nursery = Self { device, born: VecDeque::new(), count: 0 };
        for _ in 0..AHEAD {
            nursery.bear()?;
        }
        Ok(nursery)
    }

    fn bear(&mut self) -> Result<()> {
        self.count += 1;
        let name = format!("siege-{}-{}-{}", std::process::id(), self.device.len(), self.count);
        let path = std::env::temp_dir().join(name);
        let ledger = File::options().create_new(true).read(true).write(true).open(&path)?;
        let mut child = Child::start(ROLE)?;
        child.tell(format!("{} {}", self.device, path.display()))?;
        self.born.push_back((Victim { child, ledger: Ledger(ledger) }, path));
        Ok(())
    }

    /// One that is ready.
    fn take(&mut self) -> Result<Victim> {
        self.bear()?;
        let (victim, path) = self.born.pop_front().context("children are started ahead")?;
        let said = victim.child.heard();
        // Both have it open.
        std::fs::remove_file(path)?;
        ensure!(said? == "ready", "the child did not get ready on {}", self.device);
        Ok(victim)
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        for (_, path) in &self.born {
            // It is a file of ours that nobody else removes.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A device under attack.
struct Front {
    end: End,
    /// Somebody else who uses the survivor's memory.
    neighbour: End,
    nursery: Nursery,
    rounds: u64,
    late: Duration,
}

/// What this is, for the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "kills",
    about: "peers killed at random instants in every state, on all devices",
    weight: 4,
    late_max: Duration::from_millis(100),
    run,
};

/// Attacks until the budget is spent, and counts.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    // What a process opens once, with its first device, it keeps.
    drop(End::open(DEVICES[0])?);
    let bare = Holdings::now();
    let mut fronts = Vec::new();
    for &device in DEVICES {
        let front = Front {
            end: End::open(device)?,
            neighbour: End::open(device)?,
            nursery: Nursery::new(device)?,
            rounds: 0,
            late: Duration::ZERO,
        };
        fronts.push(front);
    }
    let (mut level, mut at) = (None, 0);
    while budget.goes_on() {
        let front_at = at % fronts.len();
        let front = &mut fronts[front_at];
        let state = STATES[at / DEVICES.len() % STATES.len()];
        let seed = budget.rng.next();
        tally.tried += 1;
        front.rounds += 1;
        match rounds::round(front, state, seed, tally) {
            Ok(late) => {
                tally.survived += 1;
                tally.noticed(late);
                front.late = front.late.max(late);
            }
            Err(why) => tally.note(format!("{state:?} on {}, seed {seed}: {why:#}", front.nursery.device)),
        }
        at += 1;
        if at == DEVICES.len() * STATES.len() {
            // Everything that is made once has been made.
            level = Some(Holdings::now());
        }
    }
    if let Some(level) = level {
        level.more_now(Duration::from_secs(5), tally);
    }
    for front in fronts {
        let (name, late) = (front.nursery.device, front.late.as_secs_f64() * 1e3);
        tally.note(format!("{name}: {} killed, noticed within {late:.1} ms", front.rounds));
    }
    bare.more_now(Duration::from_secs(5), tally);
    Ok(())
}
