//! Checks of noise: time that a busy loop loses, and throttled cores.

use std::time::Duration;

use bench::launch::watch_noise;
use report::number::percent;
use results::schema::NoiseSummary;

use super::check::Check;
use super::system::System;

/// The number of watched cores: one for each side.
const CORES_WATCHED: usize = 2;
/// The tolerated share of lost time of a core.
const LOST_TOLERATED: f64 = 0.02;
/// The longest unremarkable interruption in ns: a timer tick or an interrupt.
const DETOUR_TOLERATED_NS: f64 = 1e6;

/// Times equal pieces of work on the first two cores, one core after the other; `span` is the total time.
pub(super) fn watch(cores: &[usize], span: Duration) -> Check {
    let watched = &cores[..cores.len().min(CORES_WATCHED)];
    let each = span / u32::try_from(watched.len().max(1)).unwrap_or(1);
    let found = watched.iter().filter_map(|core| Some((*core, watch_noise(Some(*core), each)?)));
    check_lost_time(&found.collect::<Vec<_>>(), cores)
}

/// Suggests cores that are usually less disturbed than the first two, if there are any.
fn suggest_quieter_cores(cores: &[usize]) -> String {
    match cores {
        [_, _, .., a, b] => format!(" and measure on them: --set cores={a},{b}"),
        _ => String::new(),
    }
}

/// Whether a program that only computes loses time to other activity.
fn check_lost_time(found: &[(usize, NoiseSummary)], cores: &[usize]) -> Check {
    let id = "noise";
    let worst = found.iter().max_by(|(_, a), (_, b)| a.stolen.total_cmp(&b.stolen));
    let Some((core, noise)) = worst else { return Check::ok(id, "not measured: pinning fails on all cores") };
    let longest = found.iter().map(|(_, noise)| noise.detour_max_ns).fold(0.0, f64::max);
    let summary = format!(
        "{} of the time lost on core {core}, longest interruption {:.0} us",
        percent(noise.stolen),
        longest / 1e3
    );
    if noise.stolen <= LOST_TOLERATED && longest <= DETOUR_TOLERATED_NS {
        return Check::ok(id, summary);
    }
    Check::warn(
        id,
        summary,
        "Other activity interrupted a program that only computes this long within a second, and so interrupts measurements.",
        format!(
            "stop other programs; keep interrupts and kernel threads off two cores (isolcpus, irqaffinity){}",
            suggest_quieter_cores(cores)
        ),
    )
}

/// How often the cores were throttled since boot because of their temperature.
fn thermal_throttle_count(system: &System, cores: &[usize]) -> Option<u64> {
    let count_of = |core: &usize| {
        let base = format!("sys/devices/system/cpu/cpu{core}/thermal_throttle/");
        let counts = ["core_throttle_count", "package_throttle_count"];
        counts.iter().filter_map(|name| system.number(&format!("{base}{name}"))).reduce(u64::max)
    };
    cores.iter().filter_map(count_of).reduce(u64::saturating_add)
}

/// Microseconds for which the control group has stopped this process because its quota was used up.
fn quota_stop_us(system: &System) -> Option<u64> {
    let of = |group: String| {
        let text = system.read(&format!("sys/fs/cgroup/{group}/cpu.stat"))?;
        text.lines().find_map(|line| line.strip_prefix("throttled_usec ")?.parse::<u64>().ok())
    };
    system.control_groups().into_iter().filter_map(of).reduce(u64::max)
}

/// Counters of throttling, read before and after some work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThrottleCounters {
    hot: Option<u64>,
    held: Option<u64>,
}

impl ThrottleCounters {
    /// Reads the counters.
    pub(super) fn read(system: &System, cores: &[usize]) -> Self {
        Self { hot: thermal_throttle_count(system, cores), held: quota_stop_us(system) }
    }

    /// Reports throttling since `before`, and a limit of the frequency.
    pub(super) fn since(self, before: Self, system: &System, cores: &[usize]) -> Check {
        let id = "throttling";
        let more = |now: Option<u64>, then: Option<u64>| now.unwrap_or(0).saturating_sub(then.unwrap_or(0));
        let (hot, held) = (more(self.hot, before.hot), more(self.held, before.held));
        if hot > 0 {
            return Check::warn(
                id,
                format!("too hot: slowed down {hot} times just now, {} since boot", self.hot.unwrap_or(hot)),
                "Cores slow down during a run, so the last results are the worst.",
                "cool the machine, or lower the frequency to a sustainable one (cpupower frequency-set -u)",
            );
        }
        if held > 0 {
            return Check::warn(
                id,
                format!("the control group stopped this process for {held} us just now"),
                "Its quota of processor time was used up; this also happens in the middle of measurements.",
                "raise the limit (cpu.max of the control group; --cpus=2 or more of a container)",
            );
        }
        let limit = |core: &usize| {
            let of = |name: &str| system.number(&format!("sys/devices/system/cpu/cpu{core}/cpufreq/{name}"));
            of("scaling_max_freq").zip(of("cpuinfo_max_freq")).filter(|(limit, able)| limit < able)
        };
        if let Some((limit, able)) = cores.iter().find_map(limit) {
            let found = format!("frequency limited to {} of {} MHz", limit / 1000, able / 1000);
            return Check::ok(id, found);
        }
        Check::ok(
            id,
            match self.hot {
                Some(0) => "never since boot".to_owned(),
                Some(ever) => format!("not now, {ever} times since boot"),
                None => "not now (no counters, as in most virtual machines)".to_owned(),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    #[test]
    fn lost_time_and_long_interruptions_are_warned_of() {
        let noise = |stolen, detour_max_ns| NoiseSummary { stolen, detour_max_ns, ..NoiseSummary::default() };
        let two = &[0, 1];
        assert_eq!(
            check_lost_time(&[(0, noise(0.001, 5e3)), (1, noise(0.01, 9e5))], two).state,
            Severity::Ok
        );
        let busy = check_lost_time(&[(0, noise(0.001, 5e3)), (1, noise(0.3, 5e3))], two);
        assert_eq!(busy.state, Severity::Warn);
        assert!(busy.found.contains("30 % of the time lost on core 1"), "{}", busy.found);
        assert_eq!(check_lost_time(&[(0, noise(0.001, 4e6))], two).state, Severity::Warn);
        assert_eq!(check_lost_time(&[], two).state, Severity::Ok);
    }

    /// A remedy names only cores that `--set cores` accepts.
    #[test]
    fn remedy_names_only_existing_cores() {
        let remedy = |cores: &[usize]| {
            let noise = NoiseSummary { stolen: 0.3, ..NoiseSummary::default() };
            check_lost_time(&[(0, noise)], cores).remedy.expect("a remedy")
        };
        assert!(!remedy(&[0, 1]).contains("--set") && !remedy(&[0, 1, 5]).contains("--set"));
        assert!(remedy(&[0, 1, 5, 9]).ends_with("--set cores=5,9"), "{}", remedy(&[0, 1, 5, 9]));
    }

    #[test]
    fn a_second_on_real_cores_is_measured() {
        let cores = host::real::allowed_cores();
        let check = watch(&cores, Duration::from_millis(20));
        assert!(check.found.contains("of the time lost on core"), "{}", check.found);
    }

    #[test]
    fn overheated_cores_and_used_up_quotas_are_warned_of() {
        let heat = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";
        let stat = "sys/fs/cgroup/a/cpu.stat";
        let fake = Fake::new(&[
            ("proc/self/cgroup", "0::/a\n"),
            (heat, "3"),
            (stat, "nr_throttled 1\nthrottled_usec 70\n"),
        ]);
        let read = || ThrottleCounters::read(&fake.system, &[0]);
        let before = read();
        assert_eq!(before, ThrottleCounters { hot: Some(3), held: Some(70) });
        let calm = read().since(before, &fake.system, &[0]);
        assert_eq!((calm.state, calm.found.as_str()), (Severity::Ok, "not now, 3 times since boot"));
        fake.set(&[(stat, "throttled_usec 90\n")]);
        assert!(read().since(before, &fake.system, &[0]).found.contains("for 20 us"));
        fake.set(&[(heat, "5")]);
        let hot = read().since(before, &fake.system, &[0]);
        assert_eq!(hot.state, Severity::Warn);
        assert!(hot.found.contains("2 times just now, 5 since boot"), "{}", hot.found);
    }

    #[test]
    fn limit_of_the_frequency_is_shown() {
        let base = "sys/devices/system/cpu/cpu1/cpufreq/";
        let fake = Fake::new(&[
            (&format!("{base}scaling_max_freq"), "2000000"),
            (&format!("{base}cpuinfo_max_freq"), "3000000"),
        ]);
        let check = ThrottleCounters::default().since(ThrottleCounters::default(), &fake.system, &[1]);
        assert_eq!(check.found, "frequency limited to 2000 of 3000 MHz");
    }
}
