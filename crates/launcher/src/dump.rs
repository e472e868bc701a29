//! Detects processes whose core the kernel is writing. They count as ended, though it may take minutes until they are gone.
//!
//! SIGKILL is the only signal that still affects them, and it cuts the core short.

use host::bounded;
use rustix::process::{Pid, Signal, kill_process};

/// Fields of /proc/PID/stat after the name, counted from the state (proc(5)).
const STATE: usize = 0;
const GROUP: usize = 2;
const EXIT_CODE: usize = 49;

/// The signal that ended a process, if the kernel is writing its core. `None` where the kernel does not report the signal, as
/// before Linux 5.17 or so: then the process counts as running until its core is written.
pub(super) fn signal(pid: Pid) -> Option<u8> {
    let fields = fields(pid.as_raw_nonzero().get())?;
    let code = fields.get(EXIT_CODE)?.parse::<u32>().ok()?;
    // The exit code is 0 while a process runs; while it is stopped, it is the signal that stopped it.
    let signal = u8::try_from(code & 0x7f).ok().filter(|signal| *signal != 0 && fields[STATE] != "T")?;
    let status = bounded::kernel_text(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let is_dumped = |line: &str| line.strip_prefix("CoreDumping:").is_some_and(|value| value.trim() == "1");
    status.lines().any(is_dumped).then_some(signal)
}

/// Sends a signal to all processes of a group except its leader.
pub(super) fn signal_others(group: Pid, signal: Signal) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    let number = group.as_raw_nonzero().get().to_string();
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in numbers.filter_map(Pid::from_raw).filter(|pid| *pid != group) {
        if fields(pid.as_raw_nonzero().get()).is_some_and(|fields| fields.get(GROUP) == Some(&number)) {
            // It may have ended in the meantime.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The fields after the name, which may contain any characters.
fn fields(pid: i32) -> Option<Vec<String>> {
    let stat = bounded::kernel_text(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_dumped() {
        let own = rustix::process::getpid();
        assert_eq!(signal(own), None);
        let fields = fields(own.as_raw_nonzero().get()).expect("it is there");
        assert_eq!((fields[STATE].len(), fields[EXIT_CODE].as_str()), (1, "0"));
        let group = rustix::process::getpgrp().as_raw_nonzero().to_string();
        assert_eq!(fields[GROUP], group);
    }
}
