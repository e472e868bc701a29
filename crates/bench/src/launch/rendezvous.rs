//! The client finds all other processes of a launch, each ready with its device, or says of all that are not why.

use std::time::Duration;

use super::control_stream::ControlStream;
use super::job::ClientJob;
use super::wire::{Frame, Setup};
use crate::experiment::Fault;
use crate::machine::{now, since};
use results::schema::PeerInfo;

/// Beyond its own patience, for what a peer says at last.
const MARGIN: Duration = Duration::from_secs(5);
/// The first client in the queue is reported as waiting only after this time.
const BUSY: Duration = Duration::from_secs(1);
/// How long a peer may let this client wait for its turn.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The connections to ranks 1, 2, ..., which have all opened the device. They are dialled in parallel, so that
/// finding many takes no longer than finding the slowest; each has its own deadline.
///
/// Calls `told` if it has to wait for a rank.
pub(super) fn gather(job: &ClientJob, told: &(dyn Fn(String) + Sync)) -> Result<Vec<ControlStream>, Fault> {
    let found: Vec<Result<ControlStream, Fault>> = std::thread::scope(|scope| {
        let calls: Vec<_> = job.connect.iter().map(|to| scope.spawn(|| call(to, job, told))).collect();
        let ended = |call: std::thread::ScopedJoinHandle<'_, _>| {
            call.join().unwrap_or_else(|_| Err(Fault::Control("the call to a peer panicked".into())))
        };
        calls.into_iter().map(ended).collect()
    });
    let (all, mut faults) = (found.len(), Vec::new());
    let mut control_streams: Vec<ControlStream> = Vec::new();
    for one in found {
        match one {
            Ok(control_stream) => control_streams.push(control_stream),
            Err(fault) => faults.push(fault),
        }
    }
    match faults.len() {
        0 => distinct(&control_streams).map(|()| control_streams),
        1 => Err(faults.remove(0)),
        n => {
            let each: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Err(Fault::Connection(format!("{n} of {all} peers cannot take part: {}", each.join("; "))))
        }
    }
}

/// Calls one and has it open the device, once it has room.
fn call(to: &str, job: &ClientJob, told: &(dyn Fn(String) + Sync)) -> Result<ControlStream, Fault> {
    let patience = Duration::from_millis(job.settings.patience_ms);
    let control_stream = ControlStream::dial(to, job.token.as_ref(), patience)?;
    let mut control_stream = if job.own { control_stream.unnamed() } else { control_stream };
    control_stream.set_patience(patience + MARGIN);
    let (device, settings) = (job.device.clone(), job.settings.clone());
    control_stream
        .write(&Frame::Setup(Setup { device, settings, core: job.peer_core }))
        .map_err(|e| control_stream.lost(&e))?;
    let (began, mut place, mut said) = (now(), None, false);
    loop {
        match control_stream.read().map_err(|e| control_stream.lost(&e))? {
            Frame::Opened { core, machine } => {
                let pinned_core = core.and_then(|core| u32::try_from(core).ok());
                control_stream.about = PeerInfo { address: control_stream.called(), pinned_core, ..machine };
                return Ok(control_stream);
            }
            Frame::Refused { why } => {
                return Err(Fault::Peer(crate::experiment::with_peer_name(&control_stream, why)));
            }
            Frame::Wait { ahead } if since(began) < WAIT_MAX => {
                // The first word is only that this client was understood.
                let news = place.replace(ahead) != Some(ahead) || !said;
                if news && (ahead > 0 || since(began) > BUSY) {
                    said = true;
                    told(format!("{} is busy; clients before this one: {ahead}", control_stream.called()));
                }
                control_stream.write(&Frame::Still).map_err(|e| control_stream.lost(&e))?;
            }
            Frame::Wait { .. } => {
                return Err(Fault::Connection(format!(
                    "{} is busy; try again later",
                    control_stream.called()
                )));
            }
            other => {
                let what = format!("{}: {other:?} came out of turn", control_stream.called());
                return Err(Fault::Control(results::plain::line(&what)));
            }
        }
    }
}

/// Two names may be one server's.
fn distinct(control_streams: &[ControlStream]) -> Result<(), Fault> {
    for (i, control_stream) in control_streams.iter().enumerate() {
        if let Some(other) = control_streams[..i].iter().find(|other| other.peer() == control_stream.peer()) {
            let (first, second, at) = (other.called(), control_stream.called(), control_stream.peer());
            return Err(Fault::Connection(format!(
                "peers {first} and {second} are the same server, at {at}; give each once, or start another at a port of its own"
            )));
        }
    }
    Ok(())
}
