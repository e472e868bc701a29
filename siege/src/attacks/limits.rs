//! Programs under small limits: of descriptors, threads, files' sizes, address space, data and locked memory. They work, or
//! are told what is missing; none dies of it or waits, and whoever serves them goes on serving others and keeps nothing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, Uid, setrlimit};
use verbs::CmEvent;

use super::soak::stay;
use super::stopped::Peer;
use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, die_with_parent, receive_from_parent, send_to_parent};
use crate::endpoint::{DEVICES, Endpoint, Link, ROUND_MAX};
use crate::resources::ResourceCounts;
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// The name of the children's role.
pub(crate) const ROLE: &str = "limited_child";
/// How long traffic lasts at most, with the start of a process on a busy machine.
const BUSY: Duration = Duration::from_millis(200);
/// Who starts threads under a limit: root has none.
const NOBODY: u32 = 54_321;
/// What a Rust program says when malloc(3) has nothing left, before it ends.
const STARVED: &str = "memory allocation of";

/// A limit, and between what values it is tried.
struct ResourceLimit {
    name: &'static str,
    resource: Resource,
    low: u64,
    doublings: u64,
    /// What of it the process has already, in /proc/self/status; the limit is beyond that.
    used: Option<&'static str>,
}

const LIMITS: &[ResourceLimit] = &[
    ResourceLimit { name: "descriptors", resource: Resource::Nofile, low: 3, doublings: 5, used: None },
    ResourceLimit {
        name: "space",
        resource: Resource::As,
        low: 4 << 10,
        doublings: 23,
        used: Some("VmSize:"),
    },
    ResourceLimit { name: "files", resource: Resource::Fsize, low: 1, doublings: 36, used: None },
    ResourceLimit { name: "threads", resource: Resource::Nproc, low: 1, doublings: 3, used: None },
    ResourceLimit {
        name: "data",
        resource: Resource::Data,
        low: 4 << 10,
        doublings: 20,
        used: Some("VmData:"),
    },
    ResourceLimit { name: "locked", resource: Resource::Memlock, low: 1, doublings: 20, used: None },
];

/// What this is, for the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "limits",
    about: "small limits of descriptors, threads, files, address space and data: programs work, or get the reason",
    weight: 2,
    late_max: Duration::from_secs(1),
    run,
};

/// How a program under a limit fared.
#[derive(Default)]
struct Outcomes {
    worked: u64,
    refused: u64,
    starved: u64,
    example: String,
}

/// Attacks until the budget is spent, and counts.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    // What a process opens once, with its first device, it keeps.
    drop(Endpoint::open(DEVICES[0])?);
    let bare = ResourceCounts::now();
    let mut ends: Vec<Endpoint> = DEVICES.iter().map(|name| Endpoint::open(name)).collect::<Result<_>>()?;
    let mut fates: Vec<Outcomes> = LIMITS.iter().map(|_| Outcomes::default()).collect();
    let mut at = 0;
    while budget.has_time_left() {
        let (which, limit) = (at % DEVICES.len(), at / DEVICES.len() % LIMITS.len());
        let (name, end, seed) = (DEVICES[which], &mut ends[which], budget.rng.next_u64());
        let mut rng = Rng::new(seed);
        let low = LIMITS[limit].low << rng.below(LIMITS[limit].doublings);
        let value = low + rng.below(low);
        tally.tried += 1;
        let result =
            Peer::new(name, Endpoint::on_device(&end.device)?, &mut rng).and_then(|mut bystander| {
                round(name, end, &LIMITS[limit], value, &mut rng, &mut fates[limit], tally)?;
                bystander.serve(1, tally).context("a bystander")
            });
        match result {
            Ok(()) => tally.survived += 1,
            Err(why) => {
                tally.add_note(format!("{} of {value} on {name}, seed {seed}: {why:#}", LIMITS[limit].name));
                *end = Endpoint::on_device(&end.device)?;
            }
        }
        at += 1;
    }
    // What devices keep while they live differs with how their last peers ended; what is lost for good shows without them.
    drop(ends);
    bare.report_growth(Duration::from_secs(5), tally);
    for (limit, fates) in LIMITS.iter().zip(fates) {
        let Outcomes { worked, refused, starved, example } = fates;
        tally.add_note(format!(
            "{}: {worked} worked, {refused} refused, {starved} had no memory; {example}",
            limit.name
        ));
    }
    Ok(())
}

/// One program under a limit, which is served meanwhile.
fn round(
    name: &str,
    end: &Endpoint,
    limit: &ResourceLimit,
    value: u64,
    rng: &mut Rng,
    fates: &mut Outcomes,
    tally: &mut Tally,
) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    // Out of memory, the standard library waits for itself when it is to print a backtrace.
    command.args(["--role", ROLE]).env("RUST_BACKTRACE", "0").stderr(Stdio::piped());
    let mut child = Child::of(&mut command)?;
    ensure!(child.receive()? == "here", "the child did not start");
    let listener = end.listen()?;
    let began = Instant::now();
    child.send(format!("{} {value} {} {} {name}", limit.name, listener.addr().port(), rng.next_u64()))?;
    let said = serve(end, &mut child, rng, tally)?;
    let late = began.elapsed().saturating_sub(BUSY);
    tally.record_reaction(late);
    if late > ATTACK.late_max {
        tally.add_note(format!(
            "{} of {value} on {name} took {late:?} longer than its work; it said {said:?}",
            limit.name
        ));
    }
    let (status, stderr) = child.wait_for_exit(Duration::from_secs(5))?;
    match said.as_deref().map(|said| said.split_once(' ')) {
        Some(Some(("worked", _))) if status.success() => fates.worked += 1,
        Some(Some(("refused", why))) if status.success() => {
            ensure!(why.len() > 10 && !why.contains("panic"), "the reason is `{why}`");
            fates.refused += 1;
            fates.example = why.to_owned();
        }
        _ if stderr.contains(STARVED) && limit.used.is_some() => fates.starved += 1,
        _ => {
            tally.crashed += 1;
            bail!("the program ended with {status}; it said {said:?} and `{}`", stderr.trim());
        }
    }
    tally.outside += end.count_changed_canaries()?;
    Ok(())
}

/// Serves a child until it has said how it fared, or has ended, and all is over.
fn serve(end: &Endpoint, child: &mut Child, rng: &mut Rng, tally: &mut Tally) -> Result<Option<String>> {
    let (mut said, mut gone, mut connection, began) = (None, false, None, Instant::now());
    let mut asked = None;
    loop {
        match end.cm.poll_event() {
            Some(CmEvent::ConnectRequest(request)) => {
                let (qp, peer) = (end.qp(None)?, Endpoint::peer_of(&request.private_data)?);
                // Whoever asked may be out of something, or dead, by now.
                if end.cm.accept(request, &qp, &end.param()).is_ok() {
                    asked = Some(Link { qp, peer });
                }
            }
            Some(CmEvent::Established { .. }) => {
                let link = asked.take().context("a connection was established without a request")?;
                let traffic = StressTraffic::new(end, &link, Rng::new(rng.next_u64()))?;
                connection = Some((link, traffic));
            }
            Some(CmEvent::ConnectFailed { .. }) => asked = None,
            Some(CmEvent::Disconnected { .. }) => {
                let (link, mut traffic) = connection.take().context("nothing was connected")?;
                while !traffic.is_settled() {
                    traffic.poll(end, &link, tally)?;
                    ensure!(began.elapsed() < ROUND_MAX, "requests are not flushed");
                }
            }
            Some(other) => bail!("at the server: {other:?}"),
            None if gone && connection.is_none() && asked.is_none() => return Ok(said),
            None => {}
        }
        if let Some((link, traffic)) = &mut connection {
            traffic.post(end, link)?;
            traffic.poll(end, link, tally)?;
        }
        // Once it has ended, what it said comes at once, and then the end of its output.
        let ended = !child.runs();
        let patience = match (ended, &connection) {
            (true, _) => Duration::from_secs(1),
            (false, Some(_)) => Duration::ZERO,
            (false, None) => Duration::from_micros(100),
        };
        match child.receive_within(patience) {
            Some(line) => said = Some(line),
            None => gone = ended,
        }
        if began.elapsed() > ROUND_MAX {
            tally.hung += 1;
            bail!(
                "not over; the program has {}, and said {said:?}",
                if gone { "ended" } else { "not ended" }
            );
        }
    }
}

/// The role: works under a limit, and says how it went.
pub(crate) fn limited_child() -> Result<()> {
    send_to_parent("here")?;
    let Some(line) = receive_from_parent()? else { return Ok(()) };
    let words: Vec<&str> = line.splitn(5, ' ').collect();
    let [limit, value, port, seed, name] = words[..] else { bail!("told `{line}`") };
    let limit = LIMITS.iter().find(|known| known.name == limit).context("no such limit")?;
    let value = value.parse::<u64>()? + limit.used.map_or(Ok(0), used)?;
    if limit.resource == Resource::Nproc {
        rustix::thread::set_thread_uid(Uid::from_raw(NOBODY))?;
        // The kernel forgets it with the user.
        die_with_parent()?;
    }
    setrlimit(limit.resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    match visit(name, port.parse()?, seed.parse()?) {
        Ok(messages) => send_to_parent(format!("worked {messages}")),
        Err(why) => send_to_parent(format!("refused {}", format!("{why:#}").replace('\n', " "))),
    }
}

/// What the process has of something already.
fn used(what: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)).context("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// Opens, connects, storms and ends the connection.
fn visit(name: &str, port: u16, seed: u64) -> Result<u64> {
    let (end, mut tally) = (Endpoint::open(name)?, Tally::default());
    let link = end.connect(port)?;
    let traffic = stay(&end, &link, seed, true, &mut tally)?;
    if tally.lost + tally.doubled + end.count_changed_canaries()? > 0 {
        // Not a reason, but damage: the line is not one that the attack knows.
        send_to_parent(format!("damage {tally:?}"))?;
        std::process::exit(1);
    }
    Ok(traffic.acknowledged)
}
