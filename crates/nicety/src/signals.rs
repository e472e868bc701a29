//! Ctrl-C: the first asks to stop, the second ends the process at once. A terminal that goes away asks to stop, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use host::real::is_ignored;

use crate::error::Failure;

/// What the signals have asked for.
pub(crate) struct Signals {
    /// Set by the first signal.
    pub(crate) stop: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes over SIGINT, SIGTERM and SIGHUP; the last unless whoever started this process has it ignored, as nohup does.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub(crate) fn install() -> Result<Self, Failure> {
        let signals = Self { stop: Arc::default(), which: Arc::default() };
        let register = |signal: i32| -> std::io::Result<()> {
            // In this order: at the first signal the shutdown still finds the flag unset.
            // A terminal's end comes twice, from its shell and from the kernel.
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

    /// Lets the terminal's Ctrl-C and its end pass: a worker is told by its parent when to stop.
    ///
    /// # Errors
    /// As [`Signals::install`].
    pub(crate) fn ignore_interrupt() -> Result<(), Failure> {
        let pass = |signal| flag::register(signal, Arc::default()).map(drop);
        [SIGINT, SIGHUP].into_iter().try_for_each(pass).map_err(|why| {
            Failure::run(format!("cannot handle Ctrl-C: {why}; check the limits of the process"))
        })
    }

    /// The status to end with if a signal came: 130 for Ctrl-C, as shells have it.
    pub(crate) fn status(&self) -> Option<u8> {
        match self.which.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(128 + signal).ok(),
        }
    }
}
