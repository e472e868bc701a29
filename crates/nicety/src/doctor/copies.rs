//! Checks whether copies take longer at some places of source and target in their pages.

use host::Bytes;
use nic_util::floor::{COPY_LEN, CopyCost, copy_costs};
use nic_util::string_moves::{DistanceCost, costs};

use super::check::Check;

/// From this ratio on, a copy at its worst offsets explains a result that nothing else does.
const RATIO_WORTH_A_WARNING: f64 = 3.0;

/// Whether the offsets of buffers decide how fast this machine copies; measures that.
pub(super) fn offsets() -> Check {
    check_offsets(&copy_costs(), &costs(COPY_LEN))
}

fn check_offsets(ways: &[CopyCost], distances: &[DistanceCost]) -> Check {
    let id = "copies";
    if ways.is_empty() {
        return Check::ok(id, "could not be measured");
    }
    if ways.iter().all(|way| way.ratio() < RATIO_WORTH_A_WARNING) {
        let ratios: Vec<String> = ways.iter().map(|way| format!("{} {:.1}", way.way, way.ratio())).collect();
        let found = format!(
            "equally fast at all offsets: slowest pair over fastest for {}: {}",
            Bytes(COPY_LEN as u64),
            ratios.join(", ")
        );
        return Check::ok(id, found);
    }
    let last = distances.iter().take_while(|cost| cost.is_slow()).last().map(|cost| *cost.distances.end());
    let cause = last.map_or_else(String::new, |last| {
        format!("string moves (rep movsb) are slow if the target begins 1 to {last} bytes behind the source modulo 4096; ")
    });
    let ways: Vec<String> = ways.iter().map(described).collect();
    Check::warn(
        id,
        format!("{cause}{} by {}", Bytes(COPY_LEN as u64), ways.join("; ")),
        "The C library and the kernel copy so: the same transfer takes several times as long for some buffers. The device shm \
         avoids it; iwarp and other programs do not.",
        "let buffers that are copied to each other begin at the same offset in their pages (aligned_alloc(4096, ...)); \
         docs/guides/slow-copies.md",
    )
}

/// `memcpy: 1.30 us, 22.10 us (17.0 times) from offset 0 to 8`.
fn described(way: &CopyCost) -> String {
    let (best, worst) = (way.best.time, way.worst);
    let ratio = way.ratio();
    format!(
        "{}: {best}, {} ({ratio:.1} times) from offset {} to {}",
        way.way, worst.time, worst.source, worst.target
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::*;
    use host::Span;
    use nic_util::floor::PlacedCopy;

    fn cost(way: &'static str, best_ns: u64, worst_ns: u64) -> CopyCost {
        let copy = |ns, target| PlacedCopy { time: Span::from_ns(ns), source: 0, target };
        CopyCost { way, best: copy(best_ns, 0), worst: copy(worst_ns, 8) }
    }

    fn distances(slow: &[bool]) -> Vec<DistanceCost> {
        let groups = [1..=15, 16..=31, 32..=63];
        let of =
            |(distances, slow): (_, &bool)| DistanceCost { distances, ratio: if *slow { 16.0 } else { 1.1 } };
        groups.into_iter().zip(slow).map(of).collect()
    }

    #[test]
    fn slow_offsets_are_a_warning_with_times() {
        let ways = [cost("memcpy", 1300, 22_100), cost("process_vm_readv", 6600, 27_000)];
        let check = check_offsets(&ways, &distances(&[true, true, false]));
        assert_eq!(check.state, Severity::Warn);
        assert!(check.found.contains("1 to 31 bytes behind"), "{}", check.found);
        assert!(
            check.found.contains("64 KiB by memcpy: 1.30 us, 22.10 us (17.0 times) from offset 0 to 8"),
            "{}",
            check.found
        );
    }

    #[test]
    fn equal_offsets_are_ok() {
        let check = check_offsets(&[cost("memcpy", 1000, 1500)], &distances(&[false; 3]));
        assert_eq!((check.state, check.why), (Severity::Ok, None));
        assert!(check.found.ends_with("for 64 KiB: memcpy 1.5"), "{}", check.found);
        assert_eq!(check_offsets(&[], &[]).state, Severity::Ok);
    }

    /// A machine whose kernel is slow for another reason has no slow distances of its own.
    #[test]
    fn unexplained_slow_offsets_give_no_distances() {
        let check = check_offsets(&[cost("process_vm_readv", 1000, 9000)], &distances(&[false; 3]));
        assert!(check.found.starts_with("64 KiB by process_vm_readv"), "{}", check.found);
    }
}
