//! Peers in their own namespaces: process, user and network namespaces, and two sibling namespaces. Where names reach,
//! they connect and work (on the service path where the kernel gives them no process number), and their deaths are
//! noticed as always; where names do not reach, they get an error that says so.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, receive_from_parent, send_to_parent};
use crate::endpoint::{DEVICES, Endpoint, ROUND_MAX};
use crate::resources::ResourceCounts;
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// The name of the children's role.
pub(crate) const ROLE: &str = "resident";

/// A set of namespaces.
struct NamespaceSet {
    name: &'static str,
    /// The options of unshare(1) that create it.
    how: &'static [&'static str],
    /// Whether devices of the kind of shm reach out of it, and whether those of iWARP do.
    reaches: (bool, bool),
}

const PID: &[&str] = &["--pid", "--fork", "--kill-child"];

const NAMESPACE_SETS: &[NamespaceSet] = &[
    NamespaceSet { name: "processes", how: PID, reaches: (true, true) },
    NamespaceSet {
        name: "processes, with their own /proc",
        how: &["--pid", "--fork", "--kill-child", "--mount-proc"],
        reaches: (true, true),
    },
    NamespaceSet { name: "users, the same", how: &["--user", "--map-root-user"], reaches: (true, true) },
    NamespaceSet { name: "users, another", how: &["--user", "--map-user=1234"], reaches: (false, true) },
    NamespaceSet {
        name: "users and processes",
        how: &["--user", "--map-root-user", "--pid", "--fork", "--kill-child"],
        reaches: (true, true),
    },
    NamespaceSet { name: "networks", how: &["--net"], reaches: (false, false) },
];

impl NamespaceSet {
    /// Whether this machine can create it.
    fn is_possible(&self) -> bool {
        let mut command = Command::new("unshare");
        let tried = command.args(self.how).arg("true").stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    }

    /// A child in it.
    fn child(&self) -> Result<Child> {
        let mut command = Command::new("unshare");
        command.args(self.how).arg(std::env::current_exe()?);
        let child = Child::of(command.args(["--role", ROLE]))?;
        ensure!(child.receive()? == "here", "the child did not start");
        Ok(child)
    }

    fn reaches(&self, device: &str) -> bool {
        if device.contains("shm") { self.reaches.0 } else { self.reaches.1 }
    }
}

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "namespaces",
    about: "peers in process, user and network namespaces, also in two sibling ones, and their deaths",
    weight: 2,
    late_max: Duration::from_millis(100),
    run,
};

/// Attacks until the budget is spent, and counts the results.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let (possible, not): (Vec<&NamespaceSet>, Vec<&NamespaceSet>) =
        NAMESPACE_SETS.iter().partition(|place| place.is_possible());
    for place in not {
        tally.add_note(format!("SKIPPED {}: such a namespace cannot be made here", place.name));
    }
    if possible.is_empty() {
        // No namespace can be created; the note says so.
        (tally.tried, tally.survived) = (1, 1);
        return Ok(());
    }
    let mut ends: Vec<Endpoint> = DEVICES.iter().map(|name| Endpoint::open(name)).collect::<Result<_>>()?;
    let (mut at, mut level) = (0, None);
    while budget.has_time_left() {
        let which = at % DEVICES.len();
        // Two sibling namespaces are one more case.
        let place = possible.get(at / DEVICES.len() % (possible.len() + 1));
        let (name, seed) = (DEVICES[which], budget.rng.next_u64());
        tally.tried += 1;
        let result = match place {
            Some(place) if place.reaches(name) => inside(place, name, &ends[which], seed, tally),
            Some(place) => outside(place, name, &ends[which]),
            None => test_siblings(possible[0], name, seed),
        };
        match result {
            Ok(late) => {
                tally.record_reaction(late);
                tally.survived += 1;
            }
            Err(why) => {
                let place = place.map_or("sibling namespaces", |place| place.name);
                tally.add_note(format!("{place} on {name}, seed {seed}: {why:#}"));
                ends[which] = Endpoint::on_device(&ends[which].device)?;
            }
        }
        at += 1;
        if at == DEVICES.len() {
            level = Some(ResourceCounts::now());
        }
    }
    if let Some(level) = level {
        level.report_growth(Duration::from_secs(5), tally);
    }
    Ok(())
}

/// A child in a namespace connects, sends, and is killed; returns how long it took to notice.
fn inside(
    place: &NamespaceSet,
    name: &str,
    end: &Endpoint,
    seed: u64,
    tally: &mut Tally,
) -> Result<Duration> {
    let (mut child, listener, mut rng) = (place.child()?, end.listen()?, Rng::new(seed));
    child.send(format!("connect {} {} {name}", listener.addr().port(), rng.next_u64()))?;
    ensure!(child.receive()? == "open", "the child has no device");
    let link = end.accept()?;
    let mut traffic = StressTraffic::new(end, &link, Rng::new(rng.next_u64()))?;
    let (goal, began) = (1 + rng.below(500), Instant::now());
    while traffic.acknowledged < goal || traffic.messages < goal {
        traffic.post(end, &link)?;
        traffic.poll(end, &link, tally)?;
        ensure!(!traffic.failed, "the connection failed: {:?}", end.event_now());
        ensure!(
            began.elapsed() < ROUND_MAX,
            "{} of {goal} messages",
            traffic.acknowledged.min(traffic.messages)
        );
    }
    let gone = child.kill()?;
    let over = traffic.run_until_disconnected(end, &link, true, tally)?;
    tally.outside += end.count_changed_canaries()?;
    Ok(over.saturating_duration_since(gone))
}

/// A child in an unreachable namespace gets an error, soon.
fn outside(place: &NamespaceSet, name: &str, end: &Endpoint) -> Result<Duration> {
    let (mut child, listener) = (place.child()?, end.listen()?);
    child.send(format!("connect {} 0 {name}", listener.addr().port()))?;
    let mut said = child.receive()?;
    if said == "open" {
        said = child.receive()?;
    }
    let why = said.strip_prefix("failed ").with_context(|| format!("the child said `{said}`"))?;
    ensure!(why.len() > 10 && !why.contains("TimedOut"), "the reason is `{why}`");
    ensure!(end.event_now().is_none(), "something came of it");
    Ok(Duration::ZERO)
}

/// Two children in sibling namespaces: one is killed, the other one must notice.
fn test_siblings(place: &NamespaceSet, name: &str, seed: u64) -> Result<Duration> {
    let (mut near, mut far, mut rng) = (place.child()?, place.child()?, Rng::new(seed));
    near.send(format!("listen 0 {} {name}", rng.next_u64()))?;
    ensure!(near.receive()? == "open", "one child has no device");
    let port = near.receive()?;
    far.send(format!("connect {port} {} {name}", rng.next_u64()))?;
    ensure!(far.receive()? == "open", "the other child has no device");
    for child in [&near, &far] {
        let said = child.receive()?;
        ensure!(said == "storming", "a child said `{said}`");
    }
    std::thread::sleep(Duration::from_millis(rng.below(20)));
    let (mut dead, living) = if rng.below(2) == 0 { (near, far) } else { (far, near) };
    let gone = dead.kill()?;
    let said = living.receive()?;
    let late = gone.elapsed();
    ensure!(said == "over", "the survivor said `{said}`");
    Ok(late)
}

/// The role: connects or listens, sends, and reports when that has ended.
pub(crate) fn resident() -> Result<()> {
    send_to_parent("here")?;
    let Some(line) = receive_from_parent()? else { return Ok(()) };
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [way, port, seed, name] = words[..] else { bail!("told `{line}`") };
    match stay(way, port.parse()?, seed.parse()?, name) {
        Ok(()) => send_to_parent("over")?,
        Err(why) => send_to_parent(format!("failed {}", format!("{why:#}").replace('\n', " ")))?,
    }
    receive_from_parent().map(drop)
}

fn stay(way: &str, port: u16, seed: u64, name: &str) -> Result<()> {
    let (end, mut tally) = (Endpoint::open(name)?, Tally::default());
    send_to_parent("open")?;
    let listener = end.listen()?;
    let link = if way == "listen" {
        send_to_parent(listener.addr().port())?;
        end.accept()?
    } else {
        end.connect(port)?
    };
    let mut traffic = StressTraffic::new(&end, &link, Rng::new(seed))?;
    let mut said = false;
    loop {
        traffic.post(&end, &link)?;
        traffic.poll(&end, &link, &mut tally)?;
        if !said && traffic.messages > 0 && traffic.acknowledged > 0 {
            send_to_parent("storming")?;
            said = true;
        }
        if traffic.failed {
            break;
        }
    }
    traffic.run_until_disconnected(&end, &link, false, &mut tally)?;
    ensure!(
        tally.lost + tally.doubled + tally.outside == 0 && end.count_changed_canaries()? == 0,
        "damage: {tally:?}"
    );
    Ok(())
}
