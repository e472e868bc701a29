//! Facts about this machine and process: the environment by allow-list, memory in use, whether a peer shares the
//! kernel.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use results::schema::{ClockKind, Environment, NoiseSummary, PeerInfo};
use verbs::host::{self, Host, Span, bounded};

/// Now, on the machine's clock: launches are real whatever time the device lives in.
#[must_use]
pub fn now() -> host::Time {
    host::real::Clock::get().now()
}

/// The time since then, which [`now`] returned.
#[must_use]
pub fn since(then: host::Time) -> std::time::Duration {
    (now() - then).to_std()
}

/// Text of a file of the kernel, trimmed; `None` where there is none.
fn text(path: &str) -> Option<String> {
    bounded::kernel_text(path).ok().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty())
}

/// Which kernel and process namespace this process lives in: equal means that process numbers can be exchanged.
/// Empty where unknown.
pub(crate) fn identity() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY
        .get_or_init(|| {
            let boot = text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let space =
                fs::read_link("/proc/self/ns/pid").map(|p| p.display().to_string()).unwrap_or_default();
            // Only a digest (FNV-1a) travels: a peer is to compare it, not to learn it.
            let mix = |hash: u64, b: u8| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
            let digest = boot.bytes().chain(space.bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
            if boot.is_empty() || space.is_empty() { String::new() } else { format!("{digest:016x}") }
        })
        .clone()
}

/// Bytes of memory that this process holds: its own, and its share of what it shares.
pub(crate) fn memory_in_use() -> Option<u64> {
    let rollup = bounded::kernel_text("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|l| l.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// How often the kernel took this process off its core.
pub(crate) fn involuntary_switches() -> Option<u64> {
    let status = bounded::kernel_text("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// The schema's name of a clock.
pub(crate) fn clock_kind(kind: host::ClockKind) -> ClockKind {
    match kind {
        host::ClockKind::Tsc => ClockKind::Tsc,
        host::ClockKind::Cntvct => ClockKind::Cntvct,
        host::ClockKind::Monotonic => ClockKind::Monotonic,
        host::ClockKind::Virtual => ClockKind::Virtual,
    }
}

/// The environment, but for what only the workers know.
pub(crate) fn environment(pinned: &[usize]) -> Environment {
    let uname = rustix::system::uname();
    let word = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let governor = pinned
        .first()
        .and_then(|core| text(&format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor")));
    Environment {
        nicety_version: env!("CARGO_PKG_VERSION").to_owned(),
        date: utc_now(),
        host: word(uname.nodename()),
        kernel: format!("{} {}", word(uname.sysname()), word(uname.release())),
        cpu: cpu_model().unwrap_or_else(|| "unknown".to_owned()),
        cores: host::real::allowed_cores().len() as u32,
        memory_bytes: memory_bytes().unwrap_or(0),
        governor,
        tsc_invariant: tsc_invariant(),
        pinned_cores: pinned.iter().map(|c| *c as u32).collect(),
        ..Environment::default()
    }
}

/// What a client learns about the machine of its server.
pub(crate) fn as_peer() -> PeerInfo {
    let Environment { host, kernel, cpu, cores, nicety_version, .. } = environment(&[]);
    PeerInfo { host, kernel, cpu, cores, nicety_version, ..PeerInfo::default() }
}

/// The processor's name.
fn cpu_model() -> Option<String> {
    let info = bounded::kernel_text("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("model name") || l.starts_with("CPU part"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The machine's memory.
fn memory_bytes() -> Option<u64> {
    let info = bounded::kernel_text("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Whether the time-stamp counter runs at a constant rate and never stops.
fn tsc_invariant() -> Option<bool> {
    let info = bounded::kernel_text("/proc/cpuinfo").ok()?;
    let flags = info.lines().find(|l| l.starts_with("flags"))?;
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    Some(has("constant_tsc") && has("nonstop_tsc"))
}

/// Now, as RFC 3339 in UTC.
pub(crate) fn utc_now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    utc(since.as_secs())
}

/// A Unix time as RFC 3339; civil-from-days by Howard Hinnant's algorithm.
fn utc(secs: u64) -> String {
    let (days, rest) = ((secs / 86_400) as i64, secs % 86_400);
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// What this machine has; `None` where nothing limits it or nobody says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Memory that can still be had, in bytes.
    pub(crate) memory: Option<u64>,
    /// Descriptors of a process, with its soft limit raised.
    pub(crate) descriptors: Option<u64>,
    /// Queue pairs of the device.
    pub(crate) queue_pairs: Option<u64>,
    /// Processes of this user.
    pub(crate) processes: Option<u64>,
    /// Whether other machines are simulated: there are no processes and no descriptors.
    pub(crate) is_virtual: bool,
}

/// What this machine has for a run.
pub(crate) fn limits() -> Limits {
    use rustix::process::{Resource, getrlimit};
    let group = own_group().unwrap_or_default();
    let within = |file: &str| -> Option<u64> { text(&format!("/sys/fs/cgroup{group}/{file}"))?.parse().ok() };
    let left = |max: &str, now: &str| Some(within(max)?.saturating_sub(within(now)?));
    let least = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
    Limits {
        memory: least(available_memory(), left("memory.max", "memory.current")),
        descriptors: getrlimit(Resource::Nofile).maximum,
        processes: least(getrlimit(Resource::Nproc).current, left("pids.max", "pids.current")),
        queue_pairs: None,
        is_virtual: false,
    }
}

/// Memory that programs can have without others losing theirs.
fn available_memory() -> Option<u64> {
    let text = text("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The control group of this process, as a path below its mount.
fn own_group() -> Option<String> {
    let text = text("/proc/self/cgroup")?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_end_matches('/').to_owned())
}

/// Pieces of work of [`noise`], about a microsecond each.
const QUANTA: usize = 20_000;

/// What is taken from a program that only computes: equal pieces of work of about a microsecond, for 20 ms.
pub(crate) fn noise(host: &Host) -> Option<NoiseSummary> {
    crate::sample::noise_summary(&quanta(host, QUANTA, Span::from_secs(1)))
}

/// Watches noise for about `span` on a core of this machine, or wherever the thread runs; blocks for as long.
///
/// `None` if the thread cannot be started or the clock does not advance.
#[must_use]
pub fn watch_noise(core: Option<usize>, span: Duration) -> Option<NoiseSummary> {
    // In a thread of its own, so that the caller's stays where it may be.
    let watch = move || {
        core.is_none_or(|core| host::real::pin_to_core(core).is_ok()).then_some(())?;
        let host = host::real::host();
        let span = Span::from_ns(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        crate::sample::noise_summary(&quanta(&host, span.as_ns_f64() as usize / 100, span))
    };
    std::thread::Builder::new().spawn(watch).ok()?.join().ok()?
}

/// Times of `most` pieces of work, or of as many as fit into `span`.
fn quanta(host: &Host, most: usize, span: Span) -> Vec<f64> {
    let mut quanta = Vec::with_capacity(most);
    let (mut state, begin) = (1u64, host.now());
    while quanta.len() < most && host.now() - begin < span {
        let began = host.now();
        for _ in 0..250 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        quanta.push((host.now() - began).as_ns_f64());
    }
    quanta
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_772_366_400), "2026-03-01T12:00:00Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn the_environment_holds_what_is_on_the_list() {
        let found = environment(&[0]);
        assert!(found.cores >= 1 && found.memory_bytes > 0 && found.kernel.starts_with("Linux "));
        assert_eq!(found.pinned_cores, [0]);
        assert!(found.date.ends_with('Z') && !found.host.is_empty());
        assert!(!identity().is_empty());
    }

    /// Other tests of this process also allocate and free memory, so this one runs in its own process.
    #[test]
    fn memory_that_is_touched_is_seen() {
        const ALONE: &str = "NICETY_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let mut own = std::process::Command::new(std::env::current_exe().expect("Linux"));
            own.args(["--exact", "machine::tests::memory_that_is_touched_is_seen"]).env(ALONE, "1");
            let ended = own.output().expect("this program starts");
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            return;
        }
        let before = memory_in_use().expect("Linux");
        let held = vec![1u8; 32 << 20];
        let after = memory_in_use().expect("Linux");
        assert!(after > before + (24 << 20), "{before} to {after}");
        drop(std::hint::black_box(held));
    }

    #[test]
    fn switches_and_noise_are_counted() {
        assert!(involuntary_switches().is_some());
        assert!(noise(&host::real::host()).is_some_and(|n| n.quanta == 20_000));
    }
}
