//! Checks of cores: their number, whether threads can be pinned to them, and whether they share hardware cores.

use report::number::plural;

use super::check::Check;
use super::system::System;

/// The number of cores that the process may use, and the limit on their time.
pub(super) fn count(system: &System, cores: &[usize]) -> Check {
    let id = "cores";
    let n = cores.len();
    let quota = cpu_quota(system);
    let found = match quota {
        Some(share) => format!("{n} usable, limited to the processor time of {share:.1}"),
        None => format!("{n} usable"),
    };
    let limited = quota.is_some_and(|share| share < 2.0);
    match n {
        0 => Check::warn(
            id,
            "the kernel does not report the usable cores",
            "Neither side can be pinned, so the scheduler moves both between cores.",
            "mount /proc and /sys, and allow sched_getaffinity in the container's seccomp profile",
        ),
        1 => Check::warn(
            id,
            found,
            "Both sides of a measurement share one core, so every message waits for a context switch.",
            "give the process a second core (taskset, cpuset of the control group, --cpuset-cpus of a container)",
        ),
        _ if limited => Check::warn(
            id,
            found,
            "The control group stops the process when its quota is used up, in the middle of a measurement.",
            "raise the limit (cpu.max of the control group; --cpus=2 or more of a container)",
        ),
        _ => Check::ok(id, found),
    }
}

/// The limit of the control groups in cores (`cpu.max` of this group and its ancestors), if there is one.
fn cpu_quota(system: &System) -> Option<f64> {
    let of = |group: String| {
        let text = system.read(&format!("sys/fs/cgroup/{group}/cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    };
    system.control_groups().into_iter().filter_map(of).reduce(f64::min)
}

/// Whether threads can be pinned; pins a thread to each core.
pub(super) fn pinning(cores: &[usize]) -> Check {
    let tried: Vec<usize> = cores.to_vec();
    // In a thread of its own, which leaves the affinity of this thread unchanged.
    let refused = std::thread::spawn(move || {
        tried.into_iter().find_map(|core| Some((core, host::real::pin_to_core(core).err()?)))
    });
    match refused.join() {
        Ok(None) => Check::ok("pinning", "works on each of these cores"),
        Ok(Some((core, why))) => Check::warn(
            "pinning",
            format!("core {core} refuses: {why}"),
            "An unpinned side moves between cores in the middle of a measurement.",
            "allow sched_setaffinity in the container's seccomp profile",
        ),
        Err(_) => Check::warn(
            "pinning",
            "the attempt itself failed",
            "An unpinned side moves between cores in the middle of a measurement.",
            "please report this bug",
        ),
    }
}

/// Whether at least two hardware cores are usable, or only two threads of one.
pub(super) fn threads_of_a_core(system: &System, cores: &[usize]) -> Check {
    let id = "smt";
    let siblings = |core: &usize| {
        system.read(&format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
    };
    let mut groups: Vec<String> = cores.iter().filter_map(siblings).collect();
    groups.sort();
    groups.dedup();
    match groups.len() {
        0 => Check::ok(id, "the kernel does not report which processors share a core"),
        1 if cores.len() > 1 => Check::warn(
            id,
            format!("all usable cores are hardware threads of one core ({})", groups[0]),
            "The two sides share its execution units and caches: latency is lower than between two cores, \
             bandwidth worse.",
            "allow the process cores of different groups of \
             /sys/devices/system/cpu/cpu*/topology/thread_siblings_list (taskset, cpuset of the control group)",
        ),
        n => Check::ok(id, format!("{} in total", plural(n, "physical core"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    #[test]
    fn limit_of_an_outer_control_group_counts() {
        let fake = Fake::new(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000"),
        ]);
        assert_eq!(cpu_quota(&fake.system), Some(1.5));
        let check = count(&fake.system, &[0, 1]);
        assert_eq!(check.state, Severity::Warn);
        assert!(check.found.contains("limited to the processor time of 1.5"), "{}", check.found);
    }

    #[test]
    fn two_usable_cores_are_enough_and_one_is_not() {
        let fake = Fake::new(&[("proc/self/cgroup", "0::/\n")]);
        assert_eq!(count(&fake.system, &[0, 1]).state, Severity::Ok);
        assert_eq!(count(&fake.system, &[3]).state, Severity::Warn);
        assert_eq!(count(&fake.system, &[]).state, Severity::Warn);
    }

    #[test]
    fn hardware_threads_of_a_core_are_not_counted_as_cores() {
        let path = |n: usize| format!("sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
        let fake = Fake::new(&[(&path(0), "0-1\n"), (&path(1), "0-1\n"), (&path(2), "2-3\n")]);
        assert_eq!(threads_of_a_core(&fake.system, &[0, 1]).state, Severity::Warn);
        assert_eq!(threads_of_a_core(&fake.system, &[0, 2]).state, Severity::Ok);
        assert_eq!(threads_of_a_core(&fake.system, &[0]).state, Severity::Ok);
    }

    #[test]
    fn pinning_works_where_it_is_allowed() {
        assert_eq!(pinning(&host::real::allowed_cores()).state, Severity::Ok);
        assert_eq!(pinning(&[usize::MAX]).state, Severity::Warn);
    }
}
