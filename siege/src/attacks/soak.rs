//! Bidirectional traffic on all devices, with every byte checked, on connections that end in the middle of it: messages
//! acknowledged at one end must have arrived at the other, whichever side ends the connection, and memory must not
//! grow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, receive_from_parent, send_to_parent};
use crate::endpoint::{DEVICES, Endpoint, Link};
use crate::resources::ResourceCounts;
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// The name of the children's role.
pub(crate) const ROLE: &str = "soaking";
/// How long a connection lasts at most, in milliseconds.
const LIFE: u64 = 120;
/// Rounds on each device after which all one-time allocations have been made.
const WARM: u64 = 12;
/// How far the memory may vary, in KiB.
const SLACK: u64 = 16 << 10;

/// The role: connects at each order, until there are no more orders.
pub(crate) fn partner() -> Result<()> {
    let Some(device) = receive_from_parent()? else { return Ok(()) };
    let (end, mut tally) = (Endpoint::open(&device)?, Tally::default());
    send_to_parent("ready")?;
    while let Some(line) = receive_from_parent()? {
        let words: Vec<&str> = line.split(' ').collect();
        let (port, seed): (u16, u64) = (words[0].parse()?, words[1].parse()?);
        let link = end.connect(port)?;
        let traffic = stay(&end, &link, seed, words[2] == "ends", &mut tally)?;
        ensure!(tally.lost + tally.doubled + end.count_changed_canaries()? == 0, "at the partner: {tally:?}");
        send_to_parent(format!("{} {} {}", traffic.acknowledged, traffic.messages, resident()?))?;
    }
    Ok(())
}

/// One connection, at either end: one of the two ends it after a while, in the middle of traffic.
pub(super) fn stay(
    end: &Endpoint,
    link: &Link,
    seed: u64,
    ends: bool,
    tally: &mut Tally,
) -> Result<StressTraffic> {
    let mut rng = Rng::new(seed);
    let mut traffic = StressTraffic::new(end, link, Rng::new(rng.next_u64()))?;
    if ends {
        traffic.run_for(end, link, Duration::from_millis(rng.below(LIFE)), tally)?;
        ensure!(!traffic.failed, "the connection failed before its end");
        end.cm.disconnect(&link.qp)?;
    }
    traffic.run_until_disconnected(end, link, !ends, tally)?;
    Ok(traffic)
}

/// A device, and a partner on it.
struct DeviceWithPartner {
    name: &'static str,
    end: Endpoint,
    child: Child,
    bytes: u64,
    rounds: u64,
    /// The partner's resident memory after the warm-up, and now.
    resident: (u64, u64),
}

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "soak",
    about: "checked traffic both ways while connections open and close; memory must not grow",
    weight: 2,
    late_max: Duration::from_secs(1),
    run,
};

/// Attacks until the budget is spent, and counts the results.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let mut pairs = Vec::new();
    for &name in DEVICES {
        let mut child = Child::start(ROLE)?;
        ensure!(child.request(name)? == "ready", "the partner did not get ready on {name}");
        pairs.push(DeviceWithPartner {
            name,
            end: Endpoint::open(name)?,
            child,
            bytes: 0,
            rounds: 0,
            resident: (0, 0),
        });
    }
    let (mut level, mut at) = (None, 0);
    while budget.has_time_left() {
        let pair = &mut pairs[at % DEVICES.len()];
        let seed = budget.rng.next_u64();
        tally.tried += 1;
        round(pair, seed, tally).with_context(|| format!("on {}, seed {seed}", pair.name))?;
        tally.survived += 1;
        at += 1;
        if at as u64 == WARM * DEVICES.len() as u64 {
            level = Some((ResourceCounts::now(), resident()?));
        }
    }
    if let Some((held, before)) = level {
        held.report_growth(Duration::from_secs(5), tally);
        grown("this process", before, resident()?, tally);
    }
    for pair in pairs {
        grown(pair.name, pair.resident.0, pair.resident.1, tally);
        tally.add_note(format!("{}: {} connections, {} MiB sent", pair.name, pair.rounds, pair.bytes >> 20));
        drop(pair.child);
    }
    Ok(())
}

/// A connection, from listening to its end.
fn round(pair: &mut DeviceWithPartner, seed: u64, tally: &mut Tally) -> Result<()> {
    let DeviceWithPartner { end, child, .. } = pair;
    let (listener, mut rng) = (end.listen()?, Rng::new(seed));
    let partner_ends = rng.below(2) == 0;
    let part = if partner_ends { "ends" } else { "waits" };
    child.send(format!("{} {} {part}", listener.addr().port(), rng.next_u64()))?;
    let link = end.accept()?;
    let began = Instant::now();
    let traffic = stay(end, &link, rng.next_u64(), !partner_ends, tally)?;
    let said = child.receive()?;
    let said: Vec<u64> = said.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    // Messages acknowledged at one end must have arrived at the other.
    tally.lost += said[0].saturating_sub(traffic.messages) + traffic.acknowledged.saturating_sub(said[1]);
    tally.outside += end.count_changed_canaries()?;
    tally.record_reaction(began.elapsed().saturating_sub(Duration::from_millis(LIFE)));
    pair.rounds += 1;
    pair.bytes += traffic.bytes;
    pair.resident = (if pair.rounds <= WARM { said[2] } else { pair.resident.0 }, said[2]);
    Ok(())
}

fn grown(whose: &str, before: u64, now: u64, tally: &mut Tally) {
    let more = now.saturating_sub(before);
    if more > SLACK {
        tally.left_over += more >> 10;
        tally.add_note(format!("{whose}: {more} KiB more are resident than at the beginning"));
    }
}

/// Resident memory of this process in KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
}
