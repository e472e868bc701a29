//! The children's side, until they are killed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};
use verbs::{Access, Buf, CmEvent, RecvWr, SendOp, SendWr, Wc};

use super::activity::Activity;
use super::atomics;
use crate::attack::Tally;
use crate::child::{receive_from_parent, send_to_parent};
use crate::endpoint::{DEPTH, Endpoint, Link, PEERS, RESULT, SENDS, deadline};
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// The role: opens its device and enters the requested state.
pub(crate) fn victim() -> Result<()> {
    let Some(line) = receive_from_parent()? else { return Ok(()) };
    let (device, ledger) = line.split_once(' ').context("a device and a ledger")?;
    let (end, ledger) = (Endpoint::open(device)?, File::options().write(true).open(ledger)?);
    send_to_parent("ready")?;
    let Some(line) = receive_from_parent()? else { return Ok(()) };
    let words: Vec<&str> = line.split(' ').collect();
    let (state, port, seed): (_, u16, u64) =
        (Activity::from_name(words[0])?, words[1].parse()?, words[2].parse()?);
    match state {
        Activity::Listening => {
            let listener = end.listen()?;
            send_to_parent(listener.addr().port())?;
            receive_from_parent().map(drop)
        }
        Activity::Connecting => connect(&end, port, &mut Rng::new(seed), &ledger),
        Activity::Accepting => accept(&end, &mut Rng::new(seed)),
        Activity::Registering => register(&end, &end.connect(port)?),
        Activity::Both | Activity::Initiator | Activity::Target => {
            let link = end.connect(port)?;
            run_traffic(&end, &link, state != Activity::Target, Rng::new(seed), &ledger)
        }
        Activity::Atomics => run_atomics(&end, &end.connect(port)?),
        Activity::Idle => {
            let _link = end.connect(port)?;
            receive_from_parent().map(drop)
        }
        Activity::Sleeping => {
            let link = end.connect(port)?;
            link.qp.post_recv(&RecvWr::new(0, &[end.mr.sge(0, 8)]))?;
            bail!("nothing was to come: {:?}", end.recv_cq.wait(deadline()))
        }
    }
}

/// Sends and receives without pause, and records its progress in the ledger.
fn run_traffic(end: &Endpoint, link: &Link, posts: bool, rng: Rng, ledger: &File) -> Result<()> {
    let (mut traffic, mut tally) = (StressTraffic::new(end, link, rng)?, Tally::default());
    let mut written = 0;
    loop {
        if posts {
            traffic.post(end, link)?;
        }
        traffic.poll(end, link, &mut tally)?;
        ensure!(!traffic.failed, "the survivor failed the connection");
        ensure!(tally.lost + tally.doubled == 0, "messages to the child: {tally:?}");
        if traffic.acknowledged > written {
            written = traffic.acknowledged;
            ledger.write_all_at(&written.to_le_bytes(), 0)?;
        }
    }
}

/// Makes connections, sends a few messages on each, and ends it.
fn connect(end: &Endpoint, port: u16, rng: &mut Rng, ledger: &File) -> Result<()> {
    let mut acknowledged = 0_u64;
    loop {
        let link = end.connect(port)?;
        let messages = rng.below(5);
        for i in 0..messages {
            link.qp.post_send(&SendWr::new(i, SendOp::Send, &[end.mr.sge(SENDS, 8)]))?;
        }
        for i in 0..messages {
            let wc = end.send_cq.wait(deadline())?;
            ensure!(wc.is_ok() && wc.wr_id == i, "message {i} to a living peer: {wc:?}");
            acknowledged += 1;
            ledger.write_all_at(&acknowledged.to_le_bytes(), 0)?;
        }
        match rng.below(3) {
            0 => end.cm.disconnect(&link.qp)?,
            1 => link.qp.to_error(),
            _ => {}
        }
    }
}

/// Accepts connections, waits for a message or for their end, and ends them.
fn accept(end: &Endpoint, rng: &mut Rng) -> Result<()> {
    let listener = end.listen()?;
    send_to_parent(listener.addr().port())?;
    loop {
        let request = end.request()?;
        let qp = end.qp(None)?;
        qp.post_recv(&RecvWr::new(0, &[end.mr.sge(0, 8)]))?;
        end.cm.accept(request, &qp, &end.param())?;
        let event = end.event()?;
        ensure!(matches!(event, CmEvent::Established { .. }), "accepting ended with {event:?}");
        if rng.below(3) > 0 {
            let wc = end.recv_cq.wait(deadline())?;
            ensure!(wc.is_ok(), "a message of a living peer: {wc:?}");
        }
    }
}

/// Registers memory, writes from it, and deregisters it.
fn register(end: &Endpoint, link: &Link) -> Result<()> {
    let buf = Buf::alloc(8192)?;
    loop {
        let mr = end.pd.reg_mr(&buf, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let piece = [mr.sge(0, 4096)];
        link.qp.post_send(&SendWr::new(0, SendOp::Write(link.peer.offset(PEERS)), &piece))?;
        let wc = end.send_cq.wait(deadline())?;
        ensure!(wc.is_ok(), "a write to a living peer: {wc:?}");
        mr.dereg()?;
    }
}

/// Executes as many atomics as fit on the survivor's memory; without support for atomics, reads it.
fn run_atomics(end: &Endpoint, link: &Link) -> Result<()> {
    let (mut posted, mut completed) = (0_u64, 0_u64);
    let mut wcs = [Wc::default(); 16];
    loop {
        while posted - completed < DEPTH {
            let piece = [end.mr.sge(RESULT + posted % DEPTH * 8, 8)];
            link.qp.post_send(&SendWr::new(posted, atomics::op(end, link), &piece))?;
            posted += 1;
        }
        let some = end.send_cq.poll(&mut wcs)?;
        for wc in &wcs[..some] {
            // The survivor destroys its queue pair.
            if !wc.is_ok() {
                return receive_from_parent().map(drop);
            }
            completed += 1;
        }
    }
}
