//! Peers that are killed at any instant, in every state, on all devices.
//!
//! Everything that the survivor posted must complete soon and in order, and each connection must end once. Messages
//! that the killed side knew to be delivered (it keeps a ledger outside of its process) must have arrived, once and in
//! order.
//!
//! | file | what it holds |
//! |---|---|
//! | `activity` | what a child does when it is killed |
//! | `child_pool` | children that are started in advance |
//! | `victims` | the children's side |
//! | `rounds` | the survivor's side, and its checks |
//! | `atomics` | children that are killed inside an atomic |

mod activity;
mod atomics;
mod child_pool;
mod rounds;
mod victims;

use std::time::Duration;

use anyhow::Result;

use crate::attack::{Attack, Budget, Tally};
use crate::endpoint::{DEVICES, Endpoint};
use crate::resources::ResourceCounts;

use activity::ACTIVITIES;
use child_pool::{AttackedDevice, ChildPool};

pub(crate) use activity::Activity;
pub(crate) use child_pool::ROLE;
pub(crate) use victims::victim;

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "kills",
    about: "kill peers at random times in every state, on all devices",
    weight: 4,
    late_max: Duration::from_millis(100),
    run,
};

/// Attacks until the budget is spent, and counts the results.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    // A process keeps what it opens only once, with its first device.
    drop(Endpoint::open(DEVICES[0])?);
    let bare = ResourceCounts::now();
    let mut fronts = Vec::new();
    for &device in DEVICES {
        let front = AttackedDevice {
            end: Endpoint::open(device)?,
            neighbour: Endpoint::open(device)?,
            child_pool: ChildPool::new(device)?,
            rounds: 0,
            late: Duration::ZERO,
        };
        fronts.push(front);
    }
    let (mut level, mut at) = (None, 0);
    while budget.has_time_left() {
        let front_at = at % fronts.len();
        let front = &mut fronts[front_at];
        let state = ACTIVITIES[at / DEVICES.len() % ACTIVITIES.len()];
        let seed = budget.rng.next_u64();
        tally.tried += 1;
        front.rounds += 1;
        match rounds::round(front, state, seed, tally) {
            Ok(late) => {
                tally.survived += 1;
                tally.record_reaction(late);
                front.late = front.late.max(late);
            }
            Err(why) => {
                tally.add_note(format!("{state:?} on {}, seed {seed}: {why:#}", front.child_pool.device))
            }
        }
        at += 1;
        if at == DEVICES.len() * ACTIVITIES.len() {
            // By now every one-time allocation has been made.
            level = Some(ResourceCounts::now());
        }
    }
    if let Some(level) = level {
        level.report_growth(Duration::from_secs(5), tally);
    }
    for front in fronts {
        let (name, late) = (front.child_pool.device, front.late.as_secs_f64() * 1e3);
        tally.add_note(format!("{name}: {} killed, noticed within {late:.1} ms", front.rounds));
    }
    bare.report_growth(Duration::from_secs(5), tally);
    Ok(())
}
