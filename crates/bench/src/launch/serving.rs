//! One client's session on the serving side: hello, set-up, cells until it says goodbye.

use std::time::Duration;

use verbs::host::Span;
use verbs::host::real::{allowed_cores, host, pin_to_core};

use super::control_stream::ControlStream;
use super::wire::{Frame, Setup, WireError};
use crate::experiment::{Bounds, Control, Fault, Session, Word, driver};
use crate::machine::memory_in_use;

/// How long a client may be busy with other ranks between two cells.
const BETWEEN_CELLS: Duration = Duration::from_secs(3600);
/// Beyond its own patience, how long a client may time a round in which this side has no part.
const LONG_ROUND: Duration = Duration::from_secs(120);
/// How long this side works between two words of a client.
const WORK_MAX: Span = Span::from_secs(1800);
/// Seconds of a processor that one client may use.
const PROCESSOR_MAX: u64 = 6 * 3600;

/// Serves the client of this run to its end, which names the device.
pub(super) fn session(control_stream: ControlStream, setup: Setup, core: Option<usize>) -> Result<(), Fault> {
    let core = core.or(setup.core);
    serve_as(control_stream, &Setup { core, ..setup }, Bounds::default())
}

/// Serves a client of `nicety serve`, a stranger: within bounds.
pub(super) fn guest(control_stream: ControlStream, setup: &Setup) -> Result<(), Fault> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let most = Rlimit { current: Some(PROCESSOR_MAX), maximum: Some(PROCESSOR_MAX) };
    setrlimit(Resource::Cpu, most).map_err(|e| Fault::Machine(format!("cannot limit this process: {e}")))?;
    // Others are to have as much.
    let bytes = crate::machine::limits().memory.map(|bytes| bytes / 2);
    serve_as(control_stream, setup, Bounds { work: Some(WORK_MAX), bytes })
}

/// Opens the device, and measures cells until the client ends the session.
fn serve_as(mut control_stream: ControlStream, setup: &Setup, bounds: Bounds) -> Result<(), Fault> {
    let Setup { device, settings, core } = setup;
    // Once it is pinned, this process sees one core.
    let machine = crate::machine::as_peer();
    let pinned = pin(*core);
    let host = host();
    let device = match fabric::open(device, &host) {
        Ok(device) => device,
        Err(why) => return refuse(&mut control_stream, why.into()),
    };
    let rails = super::device::rails(device.name());
    control_stream.write(&Frame::Opened { core: pinned, machine }).map_err(control)?;
    let patience = Duration::from_millis(settings.patience_ms);
    loop {
        control_stream.set_patience(BETWEEN_CELLS);
        match control_stream.receive()? {
            Word::Begin { cell, rank } => {
                control_stream.set_patience(patience + LONG_ROUND);
                let mut session = Session {
                    host: &host,
                    device: &device,
                    rails: &rails,
                    // Only the client itself is rank 0, whatever it says.
                    rank: rank.max(1),
                    controls: vec![&mut control_stream],
                    cell: &cell,
                    settings,
                    against: None,
                    gauge: &memory_in_use,
                    failed: Vec::new(),
                    bounds,
                    until: None,
                };
                match driver::serve_cell(&mut session) {
                    Err(fault) if !fault.is_local() => return Err(fault),
                    _ => {}
                }
            }
            Word::Bye => return Ok(()),
            // The client gave up a cell that never began here.
            Word::Failed { why, local: false } => return Err(Fault::Peer(why)),
            Word::Failed { .. } | Word::Ready => {}
            other => return Err(Fault::Control(format!("{other:?} came out of turn"))),
        }
    }
}

/// An error of the control connection as a fault.
pub(super) fn control(why: WireError) -> Fault {
    Fault::Control(why.to_string())
}

/// Reports to the client why nothing can be measured.
fn refuse(control_stream: &mut ControlStream, fault: Fault) -> Result<(), Fault> {
    // If this does not arrive either, the client sees the connection end.
    let _ = control_stream.write(&Frame::Refused { why: fault.to_string() });
    Err(fault)
}

/// Pins to the core that was asked for, else to the second one allowed: clients take the first.
pub(super) fn pin(asked: Option<usize>) -> Option<usize> {
    let allowed = allowed_cores();
    let usual = allowed.get(1).or(allowed.first()).copied();
    let core = asked.filter(|core| allowed.contains(core)).or(usual)?;
    pin_to_core(core).is_ok().then_some(core)
}
