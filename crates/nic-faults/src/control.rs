//! Rules at run time: a service of the control socket ([`nic_util::control`]) that takes them from processes of the same user.
//!
//! A line is a rule (`on=write nth=3 status=RETRY_EXC_ERR`), `list` or `clear`.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nic_util::control;
use verbs::Result;

use crate::rule::Rule;
use crate::shared::Shared;

/// The devices of this process that take rules.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    LIVE.lock().unwrap_or_else(|e| e.into_inner())
}

fn live() -> Vec<Arc<Shared>> {
    known().iter().filter_map(Weak::upgrade).collect()
}

/// Takes rules for a device over the socket of this process.
///
/// # Errors
/// As [`control::serve`].
pub(crate) fn serve(shared: &Arc<Shared>) -> Result<()> {
    let mut known = known();
    known.retain(|known| known.strong_count() != 0);
    known.push(Arc::downgrade(shared));
    drop(known);
    control::serve(shared.host(), control::Service { line: "", answer: command })
}

/// Executes a line.
fn command(line: &str) -> std::result::Result<String, String> {
    let devices = live();
    if devices.is_empty() {
        return Err("no device of faults is open; open faults(DEVICE) first".into());
    }
    let lines = |device: &Arc<Shared>| device.engine.report();
    match line {
        "list" => Ok(devices.iter().flat_map(lines).map(|line| line + "\n").collect()),
        "clear" => {
            devices.iter().for_each(|device| device.engine.clear());
            Ok(String::new())
        }
        rule => {
            let rule: Rule = rule.parse().map_err(|why: crate::BadRule| why.to_string())?;
            for device in &devices {
                device.add(rule.clone(), "run time".into()).map_err(|why| why.to_string())?;
            }
            Ok(String::new())
        }
    }
}

/// Sends a line to a process of this user; returns its answer.
///
/// # Errors
/// A sentence: the process takes no rules, or what it answers.
pub fn request(pid: i32, line: &str) -> std::result::Result<String, String> {
    let remedy = "start it by nicety run --faults FILE, or with the device faults(shm), as the same user, to give it rules of faults";
    control::request(pid, line, remedy)
}

/// What each rule of the process's devices did, for its end.
#[must_use]
pub fn remaining_report() -> Vec<String> {
    if !control::is_served_here() {
        // A forked child, whose parent reports.
        return Vec::new();
    }
    live().iter().flat_map(|device| device.engine.report()).collect()
}
