//! Counts what processes leave behind: descriptors, mappings, names, children.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::fs::fstat;

/// Number of descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Number of segments that this process maps.
pub(crate) fn mapped_segments() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    maps.lines().filter(|line| line.contains("nicety-shm")).count()
}

/// Bytes of private writable memory of this process, as RLIMIT_DATA counts them.
pub(crate) fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("its line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Bytes of shared memory committed in the segments of this process.
pub(crate) fn segment_bytes() -> u64 {
    let blocks = |entry: std::fs::DirEntry| {
        let name = std::fs::read_link(entry.path()).ok()?;
        let ours = name.to_string_lossy().contains("memfd:nicety-shm");
        let stat = ours.then(|| std::fs::File::open(entry.path()).ok()).flatten();
        Some(fstat(stat?).ok()?.st_blocks as u64 * 512)
    };
    std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten().filter_map(blocks).sum()
}

/// Names that a shared-memory device might have left in file systems.
pub(crate) fn files() -> BTreeSet<String> {
    let list = |dir: &str| {
        let entries = std::fs::read_dir(Path::new(dir)).into_iter().flatten().flatten();
        entries.map(|e| e.path().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    ["/dev/shm", "/tmp"].iter().flat_map(|dir| list(dir)).filter(|name| name.contains("nicety")).collect()
}

/// Whether a listener of this user exists at `port`.
pub(crate) fn is_listening(port: u16) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let name = format!("@nicety-shm/{uid}/{port}");
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("sockets");
    sockets.lines().any(|line| line.split_whitespace().last() == Some(&name))
}

/// Number of children of this process, dead or alive.
pub(crate) fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let of = |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("children")).unwrap_or_default();
    tasks.map(|t| of(t).split_whitespace().count()).sum()
}
