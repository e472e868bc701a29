//! Measures at which distances between source and target the string moves of this processor are slow.
//!
//! The kernel copies to and from user memory by `rep movsb` where the processor announces it as fast (ERMS, FSRM). AMD's run it
//! at a sixteenth of its speed if the target begins 1 to 15 bytes after the source, modulo 4096; some do so up to 31 bytes.
//! Code that lets the kernel copy long blocks asks [`is_slow_distance`], and copies in two steps if so. Copies by
//! [`uaccess::copy`] have no slow distances.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use host::real::Clock;

const PAGE: usize = 4096;
/// The groups of distances that are known to differ on some processor.
const GROUPS: [RangeInclusive<usize>; 3] = [1..=15, 16..=31, 32..=63];
/// A group is slow if it takes this many times as long as distance 0. Where two copies pay, it is 8 to 20 times.
const SLOW_RATIO: f64 = 4.0;
/// Bytes of each measured copy, and how often it is repeated; the fastest counts. All copies together take a few tens of us.
const DECIDING_LEN: usize = PAGE;
const REPETITIONS: usize = 5;

/// What a group of distances costs.
#[derive(Clone, Debug, PartialEq)]
pub struct DistanceCost {
    /// Bytes from the source to the target, modulo 4096.
    pub distances: RangeInclusive<usize>,
    /// The time of a string move, relative to one at distance 0.
    pub ratio: f64,
}

impl DistanceCost {
    /// Whether a kernel copy at these distances is worth avoiding.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.ratio >= SLOW_RATIO
    }
}

/// Measures each group of distances, at its middle, with copies of `len` bytes. Empty where the processor has no string moves.
#[must_use]
pub fn costs(len: usize) -> Vec<DistanceCost> {
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let mut memory = vec![1_u8; 2 * (len.next_multiple_of(PAGE) + PAGE)];
    let base = time(&mut memory, len, 0).max(1.0);
    let cost = |distances: RangeInclusive<usize>| {
        let ratio = time(&mut memory, len, distances.start().midpoint(*distances.end())) / base;
        DistanceCost { distances, ratio }
    };
    GROUPS.into_iter().map(cost).collect()
}

/// The shortest time of a string move from the first half of `memory` to the second, in ns.
fn time(memory: &mut [u8], len: usize, distance: usize) -> f64 {
    let half = memory.len() / 2;
    let (source, target) = memory.split_at_mut(half);
    // Both halves are whole pages long.
    let (source, target) = (&source[..len], &mut target[distance..][..len]);
    let clock = Clock::get();
    let once = |target: &mut [u8]| {
        let begin = clock.now();
        string_move(source, target);
        string_move(source, target);
        clock.now().since(begin).as_ns_f64()
    };
    (0..REPETITIONS).map(|_| once(target)).fold(f64::INFINITY, f64::min)
}

#[cfg(target_arch = "x86_64")]
fn string_move(source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len());
    // SAFETY: both have the bytes, and do not overlap; the direction flag is clear by the ABI. Test:
    // string_move_copies_all.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") source.len() => _,
            inout("rsi") source.as_ptr() => _,
            inout("rdi") target.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn string_move(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

/// The number of slow distances, from 1; 0 before [`detect`].
static SLOW_DISTANCES: AtomicUsize = AtomicUsize::new(0);

/// Measures which distances are slow, once per process. Called when a device is opened whose payloads the kernel copies.
pub fn detect() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| SLOW_DISTANCES.store(slow_distances(&costs(DECIDING_LEN)), Ordering::Relaxed));
}

/// The number of slow distances, from 1, according to these costs.
fn slow_distances(costs: &[DistanceCost]) -> usize {
    costs.iter().take_while(|cost| cost.is_slow()).last().map_or(0, |cost| *cost.distances.end())
}

/// Whether a string move between these addresses is slow. False before [`detect`].
#[inline]
#[must_use]
pub fn is_slow_distance(target: usize, source: usize) -> bool {
    is_within(target, source, SLOW_DISTANCES.load(Ordering::Relaxed))
}

/// Whether the target begins 1 to `most` bytes after the source, modulo the page size.
#[inline]
fn is_within(target: usize, source: usize, most: usize) -> bool {
    (target.wrapping_sub(source) % PAGE).wrapping_sub(1) < most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_move_copies_all() {
        let source: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let mut target = vec![0; 5000];
        string_move(&source, &mut target);
        assert_eq!(source, target);
    }

    #[test]
    fn costs_have_one_ratio_for_each_group() {
        let costs = costs(DECIDING_LEN);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(costs.iter().map(|cost| cost.distances.clone()).collect::<Vec<_>>(), GROUPS);
        }
        assert!(costs.iter().all(|cost| cost.ratio.is_finite() && cost.ratio >= 0.0), "{costs:?}");
    }

    #[test]
    fn slow_distances_end_before_the_first_fast_group() {
        let costs = |ratios: [f64; 3]| -> Vec<DistanceCost> {
            let cost = |(distances, ratio)| DistanceCost { distances, ratio };
            GROUPS.into_iter().zip(ratios).map(cost).collect()
        };
        assert_eq!(slow_distances(&[]), 0);
        assert_eq!(slow_distances(&costs([1.1, 1.0, 1.0])), 0);
        assert_eq!(slow_distances(&costs([16.5, 2.5, 1.4])), 15);
        assert_eq!(slow_distances(&costs([16.5, 15.9, 1.4])), 31);
        assert_eq!(slow_distances(&costs([16.5, 15.9, 8.0])), 63);
        assert_eq!(slow_distances(&costs([1.0, 15.9, 8.0])), 0);
    }

    #[test]
    fn distances_are_counted_modulo_the_page() {
        for page in [0, PAGE, 10 * PAGE] {
            for (distance, wanted) in [(0, false), (1, true), (15, true), (16, false), (4095, false)] {
                assert_eq!(is_within(page + 100 + distance, 100, 15), wanted, "{distance}");
                assert_eq!(is_within(5000 + distance, page + 5000, 15), wanted, "{distance}");
                assert!(!is_within(page + 100 + distance, 100, 0), "none is slow");
            }
        }
    }
}
