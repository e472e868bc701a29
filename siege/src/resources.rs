//! Counts what a process holds and leaves behind: descriptors, mappings, children, names.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::attack::Tally;

/// The resources of this process: numbers of descriptors by kind, of mapped segments, children and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceCounts(BTreeMap<String, usize>);

impl ResourceCounts {
    /// The current resources.
    pub(crate) fn now() -> Self {
        let mut held = descriptors();
        held.insert("mapped segment".into(), mapped_segments());
        held.insert("child".into(), children());
        held.insert("file".into(), files());
        Self(held)
    }

    /// Counts the resources that are held now in addition, after up to `patience` for their release, and notes their
    /// kinds.
    pub(crate) fn report_growth(&self, patience: Duration, tally: &mut Tally) {
        let began = Instant::now();
        loop {
            let now = Self::now();
            let then = |what| self.0.get(what).copied().unwrap_or(0);
            let more = now.0.iter().map(|(what, count)| (what, count.saturating_sub(then(what))));
            let more: Vec<(&String, usize)> = more.filter(|(_, count)| *count > 0).collect();
            if more.is_empty() {
                return;
            }
            if began.elapsed() > patience {
                tally.left_over += more.iter().map(|(_, count)| *count as u64).sum::<u64>();
                let what: Vec<String> = more.iter().map(|(what, count)| format!("{what}: {count}")).collect();
                return tally.add_note(format!("left over: {}", what.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Descriptors by their targets, without numbers.
fn descriptors() -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        // The descriptor may have been closed meanwhile.
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let kind = target.to_string_lossy().replace(|c: char| c.is_ascii_digit(), "");
        *held.entry(kind).or_insert(0) += 1;
    }
    held
}

/// Mapped segments, each counted once for every range of addresses.
fn mapped_segments() -> usize {
    count_segments(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

/// Ranges of segments in a text like /proc/self/maps. The kernel lists a range in parts where only its beginning may be accessed
/// (`Reserve` in nic-shm): a part that continues the one before it, in addresses and in the file, is not counted.
fn count_segments(maps: &str) -> usize {
    let mut count = 0;
    let mut next = None;
    for line in maps.lines().filter(|line| line.contains("nicety-shm")) {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|word| word.split_once('-'));
        let offset = words.nth(1).and_then(hex);
        let inode = words.nth(1).unwrap_or_default();
        let Some((first, end)) = range.and_then(|(first, end)| Some((hex(first)?, hex(end)?))) else {
            continue;
        };
        count += usize::from(next != Some((first, offset, inode)));
        next = Some((end, offset.map(|offset| offset + (end - first)), inode));
    }
    count
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Memory of this process in bytes: its resident private memory, and the segments that it owns.
pub(crate) fn memory_here() -> u64 {
    memory_in("/proc/self")
}

/// Bytes of memory of another process, as [`memory_here`] counts them.
pub(crate) fn memory_of(process: Pid) -> u64 {
    memory_in(&format!("/proc/{}", process.as_raw_nonzero()))
}

fn memory_in(process: &str) -> u64 {
    resident_bytes(process) + segment_bytes(process)
}

/// Resident private memory of a process in bytes: neither file-backed nor shared.
fn resident_bytes(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

/// The lowest value of a measure within a second; returns early when it falls to `enough`.
pub(crate) fn settled(enough: u64, measure: impl Fn() -> u64) -> u64 {
    let began = Instant::now();
    let mut least = measure();
    while least > enough && began.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(20));
        least = least.min(measure());
    }
    least
}

/// Bytes of shared memory committed in the segments that a process owns.
fn segment_bytes(process: &str) -> u64 {
    let blocks = |entry: std::fs::DirEntry| {
        let name = std::fs::read_link(entry.path()).ok()?;
        let ours = name.to_string_lossy().contains("memfd:nicety-shm");
        let file = ours.then(|| std::fs::File::open(entry.path()).ok()).flatten()?;
        Some(rustix::fs::fstat(file).ok()?.st_blocks as u64 * 512)
    };
    std::fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten().filter_map(blocks).sum()
}

/// Children of this process, dead or alive.
fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .map(|pids| pids.split_whitespace().count())
        .sum()
}

/// Nicety's names in the folders where files of ours could remain.
fn files() -> usize {
    let named = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains("nicety-")).count()
    };
    named("/dev/shm") + named("/tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_segment_count_once() {
        let split = "7f0000000000-7f0000100000 rw-s 00200000 00:01 77 /memfd:nicety-shm (deleted)\n\
                     7f0000100000-7f0004000000 ---s 00300000 00:01 77 /memfd:nicety-shm (deleted)\n";
        assert_eq!(count_segments(split), 1);
        for other in [
            "7f0000100001-7f0004000000 ---s 00300000 00:01 77 /memfd:nicety-shm (deleted)\n",
            "7f0000100000-7f0004000000 ---s 00301000 00:01 77 /memfd:nicety-shm (deleted)\n",
            "7f0000100000-7f0004000000 ---s 00300000 00:01 78 /memfd:nicety-shm (deleted)\n",
        ] {
            let (first, _) = split.split_once('\n').expect("two lines");
            assert_eq!(count_segments(&format!("{first}\n{other}")), 2, "{other}");
        }
        assert_eq!(count_segments("00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/siege\n"), 0);
    }
}
