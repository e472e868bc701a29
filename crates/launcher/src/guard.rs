//! The guard: a process that kills what a crew has started if the crew itself is killed.
//!
//! It reads the id of each process group from its standard input. When that ends without a farewell, it kills the groups.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use host::bounded;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::{OK, Outcome};

const FAREWELL: &str = "done";
/// The longest line, in bytes: a process group or the farewell.
const LINE_MAX: u64 = 64;

/// The crew's handle of the guard.
#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    /// Starts the guard in a process group of its own, so that the terminal's signals do not reach it.
    pub(super) fn start(own: &Path) -> std::io::Result<Self> {
        let mut command = Command::new(own);
        command.args(["mpirun", "--guard"]).process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }

    /// Adds a process group.
    pub(super) fn watch(&mut self, group: Pid) {
        self.send_line(&group.as_raw_pid().to_string());
    }

    /// Ends the guard: nothing is left to kill.
    pub(super) fn dismiss(mut self) {
        self.send_line(FAREWELL);
        drop(self.0.stdin.take());
        // It exits immediately after the farewell, or was killed before.
        let _ = self.0.wait();
    }

    /// Sends a line to the guard.
    fn send_line(&mut self, line: &str) {
        if let Some(to) = &mut self.0.stdin {
            // The guard may have been killed: the ranks run on without it.
            let _ = to.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The guard process: reads process groups from standard input, and kills them if that ends without a farewell.
///
/// # Errors
/// None: a group that cannot be killed has ended.
pub fn run() -> Outcome {
    let (mut groups, mut line, mut orders) = (Vec::new(), Vec::new(), std::io::stdin().lock());
    while bounded::read_line(&mut orders, LINE_MAX, &mut line).is_ok_and(|got| got > 0) {
        let order = String::from_utf8_lossy(&line);
        if order.trim_end() == FAREWELL {
            return Ok(OK);
        }
        groups.extend(order.trim_end().parse().ok().and_then(Pid::from_raw));
        line.clear();
    }
    for group in groups {
        // It may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(OK)
}
