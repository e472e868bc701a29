//! Ctrl-C: the first one requests a stop, the second ends the process immediately. A hangup of the terminal requests a stop
//! too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use host::real::is_ignored;

use crate::error::Failure;

/// The stop that signals have requested.
pub(crate) struct Signals {
    /// Set by the first signal.
    pub(crate) stop: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs handlers of SIGINT, SIGTERM and SIGHUP; SIGHUP stays ignored if it was ignored at the start, as by nohup.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub(crate) fn install() -> Result<Self, Failure> {
        let signals = Self { stop: Arc::default(), which: Arc::default() };
        let register = |signal: i32| -> std::io::Result<()> {
            // In this order: at the first signal, the conditional shutdown still finds the flag unset.
            // A terminal's hangup arrives twice, from its shell and from the kernel.
            if signal != SIGHUP {
                flag::register_conditional_shutdown(signal, 128 + signal, signals.stop.clone())?;
            }
            flag::register_usize(signal, signals.which.clone(), signal.unsigned_abs() as usize)?;
            flag::register(signal, signals.stop.clone())?;
            Ok(())
        };
        let hangup = Some(SIGHUP).filter(|signal| !is_ignored(*signal));
        [SIGINT, SIGTERM].into_iter().chain(hangup).try_for_each(register).map_err(|why| {
            Failure::run(format!("cannot handle Ctrl-C: {why}; check the limits of the process"))
        })?;
        Ok(signals)
    }

    /// Ignores the terminal's Ctrl-C and hangup in a worker, which its parent stops.
    ///
    /// # Errors
    /// As [`Signals::install`].
    pub(crate) fn ignore_interrupt() -> Result<(), Failure> {
        let pass = |signal| flag::register(signal, Arc::default()).map(drop);
        [SIGINT, SIGHUP].into_iter().try_for_each(pass).map_err(|why| {
            Failure::run(format!("cannot handle Ctrl-C: {why}; check the limits of the process"))
        })
    }

    /// The exit status if a signal was received: 130 for Ctrl-C, as in shells.
    pub(crate) fn status(&self) -> Option<u8> {
        match self.which.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(128 + signal).ok(),
        }
    }
}
