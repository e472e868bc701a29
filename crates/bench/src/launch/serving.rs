//! One client's session on the serving side: hello, set-up, cells until it says goodbye.

use std::time::Duration;

use verbs::host::real::{allowed_cores, host, pin_to_core};

use super::fabric;
use super::machine::memory_in_use;
use super::way::Way;
use super::wire::{Frame, WireError};
use crate::experiment::{Cell, Control, Fault, Session, Settings, Word, driver};

/// How long a client may be busy with other ranks between two cells.
const BETWEEN_CELLS: Duration = Duration::from_secs(3600);
/// Beyond its own patience, how long a client may time a round in which this side has no part.
const LONG_ROUND: Duration = Duration::from_secs(120);

/// Which device to open for the one that a client asked for, or why none.
pub(super) type Choice<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Serves one client to its end.
pub(super) fn session(mut way: Way, core: Option<usize>, choice: Choice<'_>) -> Result<(), Fault> {
    let (device, settings, asked) = match way.read().map_err(control)? {
        Frame::Setup { device, settings, core } => (device, settings, core),
        other => return refuse(&mut way, Fault::Control(format!("{other:?} came instead of a set-up"))),
    };
    if let Err(fault) = settings.check() {
        return refuse(&mut way, fault);
    }
    let pinned = pin(core.or(asked));
    let host = host();
    let device = match choice(&device) {
        Ok(device) => device,
        Err(why) => return refuse(&mut way, Fault::Meaningless(why)),
    };
    let device = match fabric::open(&device, &host) {
        Ok(device) => device,
        Err(why) => return refuse(&mut way, why.into()),
    };
    way.write(&Frame::Opened { core: pinned }).map_err(control)?;
    let patience = Duration::from_millis(settings.patience_ms);
    loop {
        way.set_patience(BETWEEN_CELLS).map_err(control)?;
        match way.hear()? {
            Word::Begin { cell, rank } => {
                way.set_patience(patience + LONG_ROUND).map_err(control)?;
                match serve(&host, &device, &mut way, &settings, (&cell, rank)) {
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

fn serve(
    host: &verbs::host::Host,
    device: &verbs::Device,
    way: &mut Way,
    settings: &Settings,
    (cell, rank): (&Cell, u32),
) -> Result<(), Fault> {
    driver::serve_cell(&mut Session {
        host,
        device,
        // Only the client itself is rank 0, whatever it says.
        rank: rank.max(1),
        ways: vec![way],
        cell,
        settings,
        gauge: &memory_in_use,
        failed: Vec::new(),
    })
}

pub(super) fn control(why: WireError) -> Fault {
    Fault::Control(why.to_string())
}

fn refuse(way: &mut Way, fault: Fault) -> Result<(), Fault> {
    // If this does not arrive either, the client sees the connection end.
    let _ = way.write(&Frame::Refused { why: fault.to_string() });
    Err(fault)
}

/// Pins to the core that was asked for, else to the second one allowed: clients take the first.
pub(super) fn pin(asked: Option<usize>) -> Option<usize> {
    let allowed = allowed_cores();
    let usual = allowed.get(1).or(allowed.first()).copied();
    let core = asked.filter(|core| allowed.contains(core)).or(usual)?;
    pin_to_core(core).is_ok().then_some(core)
}
