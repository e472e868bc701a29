//! Checks of load: watches for a while how much other processes use the cores.

use std::time::Duration;

use report::number::plural;

use super::check::Check;
use super::system::System;

/// The tolerated load by other processes, in cores.
const BUSY_TOLERATED: f64 = 0.2;
/// The tolerated share of time stolen by the hypervisor.
const STOLEN_TOLERATED: f64 = 0.02;

/// Ticks of one core since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    all: f64,
    idle: f64,
    stolen: f64,
}

/// Measures the load of the usable cores, and the time stolen from them.
pub(super) fn watch(system: &System, cores: &[usize], span: Duration) -> [Check; 2] {
    let before = read_ticks(system, cores);
    std::thread::sleep(span);
    let after = read_ticks(system, cores);
    let spent: Vec<Ticks> = before.iter().zip(&after).map(|(a, b)| ticks_between(*a, *b)).collect();
    [check_load(&spent, &load_average_text(system)), check_stolen_time(&spent, &after)]
}

/// The ticks of each core since boot.
fn read_ticks(system: &System, cores: &[usize]) -> Vec<Ticks> {
    let text = system.read("proc/stat").unwrap_or_default();
    let of = |core: &usize| {
        let name = format!("cpu{core}");
        text.lines().find_map(|line| line.strip_prefix(name.as_str())?.strip_prefix(' ')).map(parse)
    };
    cores.iter().filter_map(of).collect()
}

/// Ticks of user nice system idle iowait irq softirq steal (proc_stat(5)); guest time is part of user time.
fn parse(line: &str) -> Ticks {
    let fields: Vec<f64> = line.split_whitespace().map_while(|field| field.parse().ok()).take(8).collect();
    let at = |i: usize| fields.get(i).copied().unwrap_or(0.0);
    Ticks { all: fields.iter().sum(), idle: at(3) + at(4), stolen: at(7) }
}

/// The ticks from `a` to `b`.
fn ticks_between(a: Ticks, b: Ticks) -> Ticks {
    Ticks { all: b.all - a.all, idle: b.idle - a.idle, stolen: b.stolen - a.stolen }
}

/// The load averages, as text.
fn load_average_text(system: &System) -> String {
    let text = system.read("proc/loadavg").unwrap_or_default();
    let numbers: Vec<&str> = text.split(' ').take(3).collect();
    if numbers.len() == 3 { format!("; load average {}", numbers.join(", ")) } else { String::new() }
}

/// Whether enough cores are free of other programs.
fn check_load(spent: &[Ticks], average: &str) -> Check {
    let share = |t: &Ticks| if t.all > 0.0 { (1.0 - t.idle / t.all).clamp(0.0, 1.0) } else { 0.0 };
    let busy: f64 = spent.iter().map(share).sum();
    let n = spent.len();
    let found = format!("other programs use {busy:.1} of {}{average}", plural(n, "core"));
    let needed = n.min(2) as f64;
    if n as f64 - busy >= needed - BUSY_TOLERATED {
        return Check::ok("load", found);
    }
    Check::warn(
        "load",
        found,
        "A measurement keeps two cores busy; other programs interrupt it. Stop those that need not run.",
        "ps -eo pcpu,pid,comm --sort=-pcpu | head",
    )
}

/// Whether the host of this virtual machine has taken processor time from it.
fn check_stolen_time(spent: &[Ticks], since_boot: &[Ticks]) -> Check {
    let share = |ticks: &[Ticks]| {
        let sum = |part: fn(&Ticks) -> f64| ticks.iter().map(part).sum::<f64>();
        let all = sum(|t| t.all);
        if all > 0.0 { (sum(|t| t.stolen) / all).max(0.0) } else { 0.0 }
    };
    let (now, ever) = (share(spent), share(since_boot));
    let found = format!("{:.1} % now, {:.1} % since boot", 100.0 * now, 100.0 * ever);
    if now.max(ever) <= STOLEN_TOLERATED {
        return Check::ok("stolen-time", found);
    }
    Check::warn(
        "stolen-time",
        found,
        "The hypervisor runs other machines on these cores, which lengthens samples at random.",
        "measure while the host is idle, or on a machine with dedicated cores; use more --launches",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    #[test]
    fn ticks_of_the_usable_cores_only() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 99 99\ncpu1 1 0 0 1\ncpu10 5 5 5 5\nintr 1\n";
        let fake = Fake::new(&[("proc/stat", stat)]);
        assert_eq!(read_ticks(&fake.system, &[0]), [Ticks { all: 72.0, idle: 45.0, stolen: 8.0 }]);
        assert_eq!(read_ticks(&fake.system, &[1, 2]), [Ticks { all: 2.0, idle: 1.0, stolen: 0.0 }]);
    }

    #[test]
    fn two_free_cores_are_enough() {
        let core = |busy: f64| Ticks { all: 30.0, idle: 30.0 * (1.0 - busy), stolen: 0.0 };
        assert_eq!(check_load(&[core(0.0), core(0.1)], "").state, Severity::Ok);
        assert_eq!(check_load(&[core(1.0), core(0.0)], "").state, Severity::Warn);
        assert_eq!(check_load(&[core(1.0), core(1.0), core(0.0), core(0.0)], "").state, Severity::Ok);
        assert_eq!(check_load(&[core(0.0)], "").state, Severity::Ok);
        assert_eq!(check_load(&[], "").state, Severity::Ok);
    }

    #[test]
    fn stolen_time_counts_now_and_since_boot() {
        let some = [Ticks { all: 100.0, idle: 50.0, stolen: 5.0 }];
        let none = [Ticks { all: 100.0, idle: 50.0, stolen: 0.0 }];
        assert_eq!(check_stolen_time(&none, &none).state, Severity::Ok);
        assert_eq!(check_stolen_time(&some, &none).state, Severity::Warn);
        assert_eq!(check_stolen_time(&none, &some).state, Severity::Warn);
    }
}
