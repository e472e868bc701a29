//! Finds a silent program among the descendants of a process in /proc, describes it, and kills it.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

/// A process that descends from another.
struct Descendant {
    id: u32,
    /// Its command, and the kernel function in which it waits.
    description: String,
}

/// Kills all descendants of a process, and returns a description of each. The process itself goes on.
pub(crate) fn kill_descendants(of: u32) -> Vec<String> {
    let all = descendants(of);
    let ids = all.iter().map(|one| one.id.to_string());
    // A process that has just exited needs no signal.
    let _ = Command::new("kill").arg("-KILL").args(ids).stdin(Stdio::null()).stderr(Stdio::null()).status();
    all.into_iter().map(|one| one.description).collect()
}

fn descendants(of: u32) -> Vec<Descendant> {
    let children = children_of_all();
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(parent) = next.pop() {
        let own = children.get(&parent).into_iter().flatten().copied();
        next.extend(own.clone());
        found.extend(own.map(|id| Descendant { id, description: describe(id) }));
    }
    found
}

/// The processes of this machine by their parents.
fn children_of_all() -> BTreeMap<u32, Vec<u32>> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    for id in names.filter_map(|name| name.to_str()?.parse().ok()) {
        if let Some(parent) = parent(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    children
}

/// The parent's id is the second word after the name, which is in parentheses and may contain anything.
fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn describe(id: u32) -> String {
    let read = |what: &str| fs::read_to_string(format!("/proc/{id}/{what}")).unwrap_or_default();
    let (command, waits) = (read("cmdline").replace('\0', " "), read("wchan"));
    format!("{id}: {} (waits in {})", command.trim_end(), if waits.is_empty() { "?" } else { &waits })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the descendants of a program are killed, and no other process is.
    #[test]
    fn children_and_grandchildren_are_killed() {
        let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        let (mut stays, mut parent) = (shell("exec sleep 300"), shell("sh -c 'sleep 301; :'; exit 7"));
        // The innermost process must exist.
        while descendants(parent.id()).len() < 2 {
            std::thread::yield_now();
        }
        let ended = kill_descendants(parent.id());
        assert!(ended.iter().any(|description| description.contains("sleep 301")), "{ended:?}");
        assert_eq!(parent.wait().expect("it ends").code(), Some(7), "it goes on behind its child");
        assert!(stays.try_wait().expect("it is ours").is_none());
        stays.kill().expect("it runs");
        stays.wait().expect("it ends");
    }
}
