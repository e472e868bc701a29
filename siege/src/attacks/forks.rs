//! Parents fork with a device open, in the middle of traffic, and are killed while the forked child lives and uses what
//! it inherited. The peer must notice the death as if there were no such child. Whatever the child does, it must
//! neither die nor hang, nor disturb its parent.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nic_util::lab::fork_and;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use verbs::{Access, Buf, RecvWr, SendOp, SendWr, Wc};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, receive_from_parent, send_to_parent};
use crate::endpoint::{DEVICES, Endpoint, Link, PEERS, within};
use crate::resources::ResourceCounts;
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// The name of the parents' role.
pub(crate) const ROLE: &str = "forking";
/// How long a forked child lives unless it is killed.
const LIFE: Duration = Duration::from_secs(5);

/// What a forked child does with the inherited device.
const DEEDS: &[&str] = &["sleeps", "drops", "exits", "posts", "polls", "registers", "connects", "opens"];

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "forks",
    about: "kill peers that forked in the middle of traffic, while the child lives",
    weight: 2,
    late_max: Duration::from_millis(100),
    run,
};

/// Attacks until the budget is spent, and counts the results.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    // Forked children are reparented to this process when their parents die.
    set_child_subreaper(Some(getpid()))?;
    let mut ends: Vec<Endpoint> = DEVICES.iter().map(|name| Endpoint::open(name)).collect::<Result<_>>()?;
    let (mut at, mut level) = (0, None);
    while budget.has_time_left() {
        let (which, deed) = (at % DEVICES.len(), DEEDS[at / DEVICES.len() % DEEDS.len()]);
        let seed = budget.rng.next_u64();
        tally.tried += 1;
        match round(DEVICES[which], &ends[which], deed, seed, tally) {
            Ok(()) => tally.survived += 1,
            Err(why) => {
                tally.add_note(format!("{deed} on {}, seed {seed}: {why:#}", DEVICES[which]));
                ends[which] = Endpoint::on_device(&ends[which].device)?;
            }
        }
        at += 1;
        if at == 2 * DEVICES.len() {
            level = Some(ResourceCounts::now());
        }
    }
    if let Some(level) = level {
        level.report_growth(Duration::from_secs(5), tally);
    }
    Ok(())
}

/// One parent forks and is killed; the peer must notice.
fn round(name: &str, end: &Endpoint, deed: &str, seed: u64, tally: &mut Tally) -> Result<()> {
    let (mut rng, listener) = (Rng::new(seed), end.listen()?);
    let mut child = Child::start(ROLE)?;
    child.send(format!("{} {deed} {} {name}", listener.addr().port(), rng.next_u64()))?;
    let link = end.accept()?;
    let mut traffic = StressTraffic::new(end, &link, Rng::new(rng.next_u64()))?;
    let (mut forked, mut did) = (None, false);
    let began = Instant::now();
    while forked.is_none() || !did {
        step(end, &link, &mut traffic, tally)?;
        match child.receive_within(Duration::ZERO) {
            Some(line) if line == "did" => did = true,
            Some(line) => {
                forked = Some(ForkedChild(line.parse::<i32>().ok().and_then(Pid::from_raw).context(line)?))
            }
            None => {}
        }
        if began.elapsed() > Duration::from_secs(10) {
            tally.hung += 1;
            bail!(
                "the forked child is {}, and it has {} what it does",
                if forked.is_some() { "there" } else { "not there" },
                if did { "done" } else { "not done" }
            );
        }
    }
    let forked = forked.context("it was forked")?;
    // It does not disturb its parent.
    let goal = traffic.acknowledged + 1 + rng.below(100);
    while traffic.acknowledged < goal {
        step(end, &link, &mut traffic, tally)?;
        ensure!(began.elapsed() < Duration::from_secs(20), "the parent is silent after its fork");
    }
    let gone = child.kill()?;
    let late = traffic.run_until_disconnected(end, &link, true, tally)?.saturating_duration_since(gone);
    tally.record_reaction(late);
    tally.outside += end.count_changed_canaries()?;
    forked.check_and_kill(deed, tally).with_context(|| format!("{late:?} after its parent's death"))
}

fn step(end: &Endpoint, link: &Link, traffic: &mut StressTraffic, tally: &mut Tally) -> Result<()> {
    traffic.post(end, link)?;
    traffic.poll(end, link, tally)?;
    let event = end.event_now();
    ensure!(event.is_none() && !traffic.failed, "the connection failed: {event:?}");
    Ok(())
}

/// A forked child, reparented to this process; dropping this kills it.
struct ForkedChild(Pid);

impl ForkedChild {
    /// Kills the child. It must have lived until now, or have exited successfully if its deed was to exit.
    fn check_and_kill(self, deed: &str, tally: &mut Tally) -> Result<()> {
        if deed != "exits" {
            if let Ok(None) = waitpid(Some(self.0), WaitOptions::NOHANG) {
                return Ok(());
            }
            tally.crashed += 1;
            bail!("the forked child had not lived until its parent's end");
        }
        let (began, mut status) = (Instant::now(), None);
        while status.is_none() && began.elapsed() < Duration::from_secs(2) {
            status = waitpid(Some(self.0), WaitOptions::NOHANG)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let code = status.and_then(|(_, status)| status.exit_status());
        tally.crashed += u64::from(code != Some(0));
        ensure!(code == Some(0), "the forked child ended with {status:?}");
        Ok(())
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        // A child whose deed was to exit is gone already. While its parent lives, this process cannot wait for it; it
        // then ends after its `LIFE`.
        if kill_process(self.0, Signal::KILL).is_ok() {
            let _ = waitpid(Some(self.0), WaitOptions::empty());
        }
    }
}

/// The role: connects, sends, forks, and sends until it is killed.
pub(crate) fn parent() -> Result<()> {
    let Some(line) = receive_from_parent()? else { return Ok(()) };
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [port, deed, seed, name] = words[..] else { bail!("told `{line}`") };
    let (end, mut rng, mut tally) = (Endpoint::open(name)?, Rng::new(seed.parse()?), Tally::default());
    let link = end.connect(port.parse()?)?;
    let mut traffic = StressTraffic::new(&end, &link, Rng::new(rng.next_u64()))?;
    traffic.run_for(&end, &link, Duration::from_micros(rng.below(5000)), &mut tally)?;
    let mut all = Some((end, link));
    let forked = fork_and(|| {
        let Some((end, link)) = all.take() else { return false };
        let done = use_inherited(deed, end, link).and_then(|()| send_to_parent("did"));
        if let Err(why) = &done {
            eprintln!("a forked child that {deed}: {why:#}");
        } else if deed != "exits" {
            std::thread::sleep(LIFE);
        }
        done.is_ok()
    })?;
    send_to_parent(forked.as_raw_nonzero())?;
    let (end, link) = all.context("it is the child that took them")?;
    loop {
        traffic.run_for(&end, &link, Duration::from_millis(10), &mut tally)?;
        ensure!(!traffic.failed && tally.lost + tally.doubled == 0, "the survivor failed the connection");
    }
}

/// In the forked child: calls on what the parent opened must fail without harm.
fn use_inherited(deed: &str, end: Endpoint, link: Link) -> Result<()> {
    let piece = [end.mr.sge(0, 64)];
    let refused = |what: &str, taken: bool| {
        ensure!(!taken, "{what} of the parent's device is possible");
        Ok(())
    };
    match deed {
        "drops" => {
            drop((end, link));
            return Ok(());
        }
        "posts" => {
            for op in
                [SendOp::Send, SendOp::Write(link.peer.offset(PEERS)), SendOp::Read(link.peer.offset(PEERS))]
            {
                refused("posting", link.qp.post_send(&SendWr::new(7, op, &piece)).is_ok())?;
            }
            refused("receiving", link.qp.post_recv(&RecvWr::new(7, &piece)).is_ok())?;
            link.qp.to_error();
        }
        "polls" => {
            let mut wcs = [Wc::default(); 4];
            refused("polling", end.send_cq.poll(&mut wcs).is_ok())?;
            let began = Instant::now();
            refused("waiting", end.recv_cq.wait(within(Duration::from_millis(20))).is_ok())?;
            ensure!(began.elapsed() < Duration::from_secs(1), "waiting took {:?}", began.elapsed());
            ensure!(end.cm.poll_event().is_none(), "an event of the parent's");
        }
        "registers" => {
            refused("registering", end.pd.reg_mr(&Buf::alloc(4096)?, Access::ALL).is_ok())?;
            refused("a queue", end.device.create_cq(16).is_ok())?;
            refused("a queue pair", end.qp(None).is_ok())?;
            refused("NIC memory", end.device.alloc_dm(4096).is_ok())?;
        }
        "connects" => {
            refused("disconnecting", end.cm.disconnect(&link.qp).is_ok())?;
            refused("listening", end.listen().is_ok())?;
        }
        "opens" => {
            // A device that the child opens after the fork works.
            let own = Endpoint::open(end.device.name())?;
            drop(own.listen()?);
        }
        _ => {}
    }
    // The inherited objects stay until the process ends, as in a program that forks and goes on.
    std::mem::forget((end, link));
    Ok(())
}
