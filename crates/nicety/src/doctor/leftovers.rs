//! Finds other running processes of this program.

use report::number::plural;

use super::check::Check;
use super::system::System;

/// Subcommands that measure, and therefore disturb other measurements.
const MEASURING: [&str; 3] = ["bench", "reproduce", "worker"];

/// Other processes of this program.
pub(super) fn other_processes(system: &System) -> Check {
    let id = "leftovers";
    let me = std::process::id();
    let pids = system.list("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let mut measuring = Vec::new();
    let mut serving = 0;
    for pid in pids.filter(|pid| *pid != me) {
        match command(system, pid).as_deref() {
            Some("serve") => serving += 1,
            Some(verb) if MEASURING.contains(&verb) => measuring.push(pid),
            _ => {}
        }
    }
    measuring.sort_unstable();
    let served = if serving > 0 {
        format!("; {serving} serving, which is harmless while idle")
    } else {
        String::new()
    };
    if measuring.is_empty() {
        return Check::ok(id, format!("no other nicety is measuring{served}"));
    }
    let list: Vec<String> = measuring.iter().map(u32::to_string).collect();
    Check::warn(
        id,
        format!(
            "{} measuring: {}{served}",
            plural(measuring.len(), "nicety process").replace("processs", "processes"),
            list.join(", ")
        ),
        "Simultaneous measurements disturb each other.",
        format!("wait for them, or kill {}", list.join(" ")),
    )
}

/// The first argument of a process that runs this program, under whatever name it was copied to.
fn command(system: &System, pid: u32) -> Option<String> {
    let line = system.read(&format!("proc/{pid}/cmdline"))?;
    let mut words = line.split('\0');
    let program = words.next()?.rsplit('/').next()?;
    let named = program.starts_with("nicety") || system.is_own_program(pid);
    words.next().filter(|_| named).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    #[test]
    fn only_processes_that_measure_disturb() {
        let fake = Fake::new(&[
            ("proc/10/cmdline", "/usr/bin/nicety\0serve\0"),
            ("proc/11/cmdline", "bash\0bench\0"),
        ]);
        let calm = other_processes(&fake.system);
        assert_eq!(calm.state, Severity::Ok);
        assert!(calm.found.contains("1 serving"));
        fake.set(&[("proc/12/cmdline", "nicety\0worker\0")]);
        fake.set(&[("proc/9/cmdline", "/opt/nicety-0.2\0bench\0latency\0")]);
        let check = other_processes(&fake.system);
        assert_eq!(check.state, Severity::Warn);
        assert_eq!(check.remedy.as_deref(), Some("wait for them, or kill 9 12"));
        assert!(check.found.starts_with("2 nicety processes measuring: 9, 12"), "{}", check.found);
    }
}
