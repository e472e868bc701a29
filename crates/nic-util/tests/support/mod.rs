//! Test support that several NICs share: child processes, connected endpoints, network namespaces.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

pub(crate) mod child;
pub(crate) mod endpoint;
pub(crate) mod netns;
pub(crate) mod traces;

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) use host::Rng;

/// How long any wait may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Serialises tests that count descriptors or stop processes.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    GATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Calls `look` until it returns something; fails with `what` after [`PATIENCE`].
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A checksum that detects any changed byte almost certainly (FNV-1a over words).
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let word = |c: &[u8]| c.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |h, c| (h ^ word(c)).wrapping_mul(0x0000_0100_0000_01b3))
}
