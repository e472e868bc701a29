//! Checks of time: the frequency of the cores, the clock source, and virtualization.

use super::check::Check;
use super::system::System;

/// Whether the frequency governor keeps the cores at one frequency.
pub(super) fn governor(system: &System, cores: &[usize]) -> Check {
    let id = "governor";
    let of = |core: &usize| {
        let path = format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
        system.read(&path).map(|name| (*core, name))
    };
    let all: Vec<(usize, String)> = cores.iter().filter_map(of).collect();
    let others: Vec<String> = all
        .iter()
        .filter(|(_, name)| name != "performance")
        .map(|(core, name)| format!("{name} on core {core}"))
        .collect();
    if all.is_empty() {
        return Check::ok(id, "the kernel reports none (usual in a virtual machine, where the host decides)");
    }
    match others.as_slice() {
        [] => Check::ok(id, "performance"),
        [first, rest @ ..] => Check::warn(
            id,
            if rest.is_empty() { first.clone() } else { format!("{first} and {} more", rest.len()) },
            "The frequency follows the load, so short and long messages are timed at different speeds.",
            "sudo cpupower frequency-set -g performance",
        ),
    }
}

/// The clock source that times measurements.
pub(super) fn source(system: &System) -> Check {
    let id = "clock";
    let base = "sys/devices/system/clocksource/clocksource0/";
    let kernel = system.read(&format!("{base}current_clocksource")).unwrap_or_else(|| "unknown".to_owned());
    let counter = match host::real::Clock::get().kind() {
        host::ClockKind::Tsc => Some("invariant time-stamp counter"),
        host::ClockKind::Cntvct => Some("virtual counter of the processor"),
        host::ClockKind::Monotonic | host::ClockKind::Virtual => None,
    };
    if let Some(counter) = counter {
        return Check::ok(id, format!("{counter}; the kernel's clock source is {kernel}"));
    }
    let available = system.read(&format!("{base}available_clocksource")).unwrap_or_default();
    let remedy = if available.split_whitespace().any(|name| name == "tsc") {
        format!("echo tsc | sudo tee /{base}current_clocksource")
    } else {
        "none in software: results of this machine have clock=monotonic and time more operations at once"
            .to_owned()
    };
    Check::warn(
        id,
        format!("no reliable counter of the processor; the kernel's clock source is {kernel}"),
        "Reading the system clock takes tens to hundreds of ns, so single short operations cannot be timed.",
        remedy,
    )
}

/// Whether this is a virtual machine. Never a warning, as the user cannot change it; stolen time has a check of its own.
pub(super) fn hypervisor(system: &System) -> Check {
    let id = "hypervisor";
    let text = system.read("proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let kind = system.read("sys/class/dmi/id/product_name").filter(|name| !name.is_empty());
    Check::ok(
        id,
        match (guest, kind) {
            (false, _) => "none detected".to_owned(),
            (true, Some(kind)) => {
                format!("a virtual machine ({kind}): compare its numbers only with its own")
            }
            (true, None) => "a virtual machine: compare its numbers only with its own".to_owned(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    #[test]
    fn governor_that_follows_the_load_is_reported_with_its_cores() {
        let path = |n: usize| format!("sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor");
        let fake = Fake::new(&[(&path(0), "powersave"), (&path(1), "powersave"), (&path(2), "performance")]);
        assert_eq!(governor(&fake.system, &[0, 1]).found, "powersave on core 0 and 1 more");
        assert_eq!(governor(&fake.system, &[0, 1]).state, Severity::Warn);
        assert_eq!(governor(&fake.system, &[2]).state, Severity::Ok);
        assert_eq!(governor(&fake.system, &[7]).state, Severity::Ok);
    }

    #[test]
    fn virtual_machine_is_recognised_by_its_flag() {
        let fake = Fake::new(&[("proc/cpuinfo", "processor : 0\nflags : fpu hypervisor sse\n")]);
        assert!(hypervisor(&fake.system).found.contains("virtual machine"));
        fake.set(&[("proc/cpuinfo", "processor : 0\nflags : fpu sse\n")]);
        assert_eq!(hypervisor(&fake.system).found, "none detected");
    }
}
