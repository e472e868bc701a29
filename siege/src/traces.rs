//! What a process holds and leaves behind: descriptors, mappings, children, names.

use std::time::{Duration, Instant};

/// What this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    descriptors: usize,
    segments: usize,
    children: usize,
    files: usize,
}

impl Holdings {
    /// As it is now.
    pub(crate) fn now() -> Self {
        Self {
            descriptors: entries("/proc/self/fd"),
            segments: mapped_segments(),
            children: children(),
            files: files(),
        }
    }

    /// How many more things are held now than then, once things have had `patience` to go away.
    pub(crate) fn more_now(&self, patience: Duration) -> u64 {
        let began = Instant::now();
        loop {
            let now = Self::now();
            let more = now.descriptors.saturating_sub(self.descriptors)
                + now.segments.saturating_sub(self.segments)
                + now.children.saturating_sub(self.children)
                + now.files.saturating_sub(self.files);
            if more == 0 || began.elapsed() > patience {
                return more as u64;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

fn mapped_segments() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.contains("nicety-shm")).count()
}

/// Bytes of this process's own memory that are resident: not of files, and not shared.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

/// Bytes of shared memory committed in the segments that this process owns.
pub(crate) fn segment_bytes() -> u64 {
    let blocks = |entry: std::fs::DirEntry| {
        let name = std::fs::read_link(entry.path()).ok()?;
        let ours = name.to_string_lossy().contains("memfd:nicety-shm");
        let file = ours.then(|| std::fs::File::open(entry.path()).ok()).flatten()?;
        Some(rustix::fs::fstat(file).ok()?.st_blocks as u64 * 512)
    };
    std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().filter_map(blocks).sum()
}

/// Children of this process, dead or alive.
fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .map(|pids| pids.split_whitespace().count())
        .sum()
}

/// Names of ours where a file system could keep them.
fn files() -> usize {
    let named = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains("nicety-")).count()
    };
    named("/dev/shm") + named("/tmp")
}
