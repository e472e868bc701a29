//! Reads the kernel's files, below a root that tests replace.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use host::bounded;

/// The root of /proc and /sys.
#[derive(Debug)]
pub(crate) struct System {
    root: PathBuf,
}

impl System {
    /// The files of this machine.
    pub(crate) fn real() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// A file's text, trimmed; `None` if the file does not exist or cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let bytes = bounded::read(self.root.join(path), bounded::KERNEL_FILE_MAX).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Whether a process runs the same executable file as this one.
    pub(super) fn is_own_program(&self, pid: u32) -> bool {
        let of = |who: &str| std::fs::metadata(self.root.join(format!("proc/{who}/exe"))).ok();
        let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        of(&pid.to_string()).map(id).is_some_and(|theirs| of("self").map(id) == Some(theirs))
    }

    /// The number in a file that contains only a number.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// Names in a directory; empty if it cannot be read.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The process's control group (version 2) and its ancestors, as paths below /sys/fs/cgroup.
    pub(super) fn control_groups(&self) -> Vec<String> {
        let text = self.read("proc/self/cgroup").unwrap_or_default();
        let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
        let above = |group: &String| group.rsplit_once('/').map(|(above, _)| above.to_owned());
        let mut groups: Vec<String> = std::iter::successors(Some(own.to_owned()), above).collect();
        // The root's own directory, which in a container is the container's group.
        groups.push(String::new());
        groups
    }

    /// The value of `Key:   123 kB` in /proc/meminfo, in bytes.
    pub(super) fn meminfo(&self, key: &str) -> Option<u64> {
        let text = self.read("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A machine made of the given files.
    pub(in crate::doctor) struct Fake {
        dir: tempfile::TempDir,
        pub(in crate::doctor) system: System,
    }

    impl Fake {
        pub(in crate::doctor) fn new(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let fake = Self { system: System { root: dir.path().to_owned() }, dir };
            fake.set(files);
            fake
        }

        pub(in crate::doctor) fn set(&self, files: &[(&str, &str)]) {
            for (path, text) in files {
                let path = self.dir.path().join(path);
                std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
                std::fs::write(path, text).expect("file");
            }
        }
    }

    #[test]
    fn files_that_are_not_there_are_no_failure() {
        let fake = Fake::new(&[("a/number", "17\n"), ("a/word", "x\n")]);
        assert_eq!(fake.system.number("a/number"), Some(17));
        assert_eq!(fake.system.number("a/word"), None);
        assert_eq!(fake.system.read("b"), None);
        assert_eq!(fake.system.list("b"), Vec::<String>::new());
        assert_eq!(fake.system.list("a").len(), 2);
    }

    #[test]
    fn meminfo_is_in_bytes() {
        let fake = Fake::new(&[("proc/meminfo", "MemTotal:  8 kB\nMemAvailable:   3 kB\n")]);
        assert_eq!(fake.system.meminfo("MemAvailable"), Some(3072));
        assert_eq!(fake.system.meminfo("Mem"), None);
    }
}
