//! The real clock: the invariant TSC (on aarch64, CNTVCT_EL0) calibrated against CLOCK_MONOTONIC_RAW, or that clock itself.
//!
//! The frequency in /proc/cpuinfo is never used: it is the momentary clock of the core, not that of the counter.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::{ClockKind, Time};

/// Duration of the calibration.
const CALIBRATION_NS: u64 = 20_000_000;
/// Fraction bits of the picoseconds-per-cycle factor.
const SHIFT: u32 = 24;

/// A raw reading of the counter, in cycles (or nanoseconds where there is no such counter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CycleStamp(pub u64);

/// The clock of the process. All hosts share it, so their times are comparable.
#[derive(Debug)]
pub struct Clock {
    kind: ClockKind,
    start_cycles: u64,
    /// Picoseconds per cycle, times 2^SHIFT.
    ps_per_cycle: u64,
}

impl Clock {
    /// The clock, calibrated on first use (20 ms).
    pub fn get() -> &'static Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(|| counter().map_or_else(Self::of_the_system, Self::calibrate))
    }

    /// The clock of a machine without a reliable counter, such as some virtual machines: it counts nanoseconds.
    fn of_the_system() -> Self {
        Self { kind: ClockKind::Monotonic, start_cycles: monotonic_ns(), ps_per_cycle: 1_000 << SHIFT }
    }

    fn calibrate(kind: ClockKind) -> Self {
        let start_cycles = cycles();
        let (t0, c0) = paired_reading();
        let (t1, c1) = loop {
            let (t, c) = paired_reading();
            if t - t0 >= CALIBRATION_NS {
                break (t, c);
            }
            std::hint::spin_loop();
        };
        let ps_per_cycle = ((u128::from(t1 - t0) * 1_000) << SHIFT) / u128::from((c1 - c0).max(1));
        Self { kind, start_cycles, ps_per_cycle: ps_per_cycle as u64 }
    }

    /// What the clock counts.
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// The current time, in picoseconds since the first use of the clock in this process.
    #[inline]
    pub fn now(&self) -> Time {
        self.time_of(self.stamp())
    }

    /// A raw reading, the cheapest way to read the clock.
    #[inline]
    pub fn stamp(&self) -> CycleStamp {
        CycleStamp(if self.kind == ClockKind::Monotonic { monotonic_ns() } else { cycles() })
    }

    /// The time of a raw reading.
    #[inline]
    pub fn time_of(&self, stamp: CycleStamp) -> Time {
        let cycles = stamp.0.saturating_sub(self.start_cycles);
        Time::from_ps(((u128::from(cycles) * u128::from(self.ps_per_cycle)) >> SHIFT) as u64)
    }
}

/// Both clocks read as close together as possible: the narrowest of 16 tries.
fn paired_reading() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..16 {
        let before = cycles();
        let ns = monotonic_ns();
        let width = cycles() - before;
        if width < best.0 {
            best = (width, ns, before + width / 2);
        }
    }
    (best.1, best.2)
}

fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::MonotonicRaw);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn cycles() -> u64 {
    // SAFETY: RDTSC reads a counter and touches no memory; every x86-64 has it. Test: clock_agrees_with_the_system.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn cycles() -> u64 {
    let count: u64;
    // SAFETY: reads a counter that Linux lets programs read, as its own vDSO does. Without the barrier the processor could read it
    // ahead of earlier instructions. Test: clock_agrees_with_the_system.
    unsafe {
        std::arch::asm!("isb", "mrs {count}, cntvct_el0", count = out(reg) count, options(nostack, preserves_flags));
    }
    count
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn cycles() -> u64 {
    monotonic_ns()
}

/// Spins without touching memory until `n` cycles have passed since `since`, or `n / 2` cycles from now if `since` is
/// 0; returns the current cycle count.
#[inline]
pub(super) fn spin_until(since: u64, n: u64) -> u64 {
    if cfg!(target_arch = "x86_64") {
        let mut now = cycles();
        let since = if since == 0 { now.wrapping_sub(n / 2) } else { since };
        while now.wrapping_sub(since) < n {
            now = cycles();
        }
        now
    } else {
        std::hint::spin_loop();
        0
    }
}

/// The processor's counter, if it can time measurements.
#[cfg(target_arch = "x86_64")]
fn counter() -> Option<ClockKind> {
    use std::arch::x86_64::__cpuid;
    // Intel SDM vol. 3, 18.17.1: CPUID.80000007H:EDX[8]. Hypervisors often hide this bit, but the kernel still selects
    // the TSC as its clock source only where it is reliable; so that counts as well.
    let leaves = __cpuid(0x8000_0000).eax;
    let by_cpuid = leaves >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
    (by_cpuid || is_clock_source("tsc")).then_some(ClockKind::Tsc)
}

/// The processor's counter, if it can time measurements.
#[cfg(target_arch = "aarch64")]
fn counter() -> Option<ClockKind> {
    // Linux uses another source where an erratum makes this counter unreliable. An emulator shows the source of its host.
    is_clock_source("arch_sys_counter").then_some(ClockKind::Cntvct)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> Option<ClockKind> {
    None
}

/// Whether this is the kernel's clock source.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn is_clock_source(name: &str) -> bool {
    crate::bounded::kernel_text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|source| source.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_agrees_with_the_system() {
        let (system, counter) = (Clock::of_the_system(), Clock::calibrate(ClockKind::Cntvct));
        let mut clocks = vec![Clock::get(), &system];
        // An emulator has the counter, but not the clock source.
        if cfg!(target_arch = "aarch64") {
            clocks.push(&counter);
        }
        for clock in clocks {
            let (ns0, t0) = (monotonic_ns(), clock.now());
            std::thread::sleep(std::time::Duration::from_millis(100));
            let (ns1, t1) = (monotonic_ns(), clock.now());
            let (theirs, ours) = ((ns1 - ns0) as f64, (t1 - t0).as_ns_f64());
            // The two reads of a pair may be far apart on a busy machine; a wrong factor would be much further off.
            assert!((ours / theirs - 1.0).abs() < 0.05, "{:?}: {ours} ns against {theirs} ns", clock.kind());
        }
    }

    #[test]
    fn clock_never_goes_backwards() {
        let clock = Clock::get();
        let mut last = clock.now();
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
