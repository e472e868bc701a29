//! A process that outlives a crew by a moment: if the crew is killed, nobody else would end what it has started.
//!
//! It hears of each process group on its standard input. When that ends without a farewell, it kills them.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use host::bounded;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::{OK, Outcome};

const FAREWELL: &str = "done";
/// Bytes of an order at most: a number or the farewell.
const LINE_MAX: u64 = 64;

/// The crew's end.
#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    /// Starts it, out of reach of the terminal's signals.
    pub(super) fn start(own: &Path) -> std::io::Result<Self> {
        let mut command = Command::new(own);
        command.args(["mpirun", "--guard"]).process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }

    /// One more process group.
    pub(super) fn watch(&mut self, group: Pid) {
        self.tell(&group.as_raw_pid().to_string());
    }

    /// Nothing is left to be killed.
    pub(super) fn dismiss(mut self) {
        self.tell(FAREWELL);
        drop(self.0.stdin.take());
        // It ends at once; if somebody killed it, it has.
        let _ = self.0.wait();
    }

    fn tell(&mut self, line: &str) {
        if let Some(to) = &mut self.0.stdin {
            // Somebody may have killed it: ranks run on without.
            let _ = to.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The guard's own side: kills the process groups that it reads from standard input when that ends without a farewell.
///
/// # Errors
/// None: what cannot be killed has ended.
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
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(OK)
}
