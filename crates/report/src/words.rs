//! Sentences of the page: what was measured on which machine, and how to read it.

use super::number::{count, percent, plural, sig, size_about};
use super::series::{EXPERIMENTS, capital, rank, words};
use results::schema::{ClockKind, Environment, Measurement, Run};

/// One paragraph: what was measured on which machine.
pub(super) fn paragraph(run: &Run) -> String {
    let env = &run.environment;
    [measured(run), machine(env), timing(env), simulated(run), noise(env)]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Distinct values in order of appearance.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for v in values {
        if !out.iter().any(|o| o == v) {
            out.push(v.to_owned());
        }
    }
    out
}

/// Devices measured, in order of appearance; the machine's own floor is none.
pub(super) fn devices(run: &Run) -> Vec<&str> {
    let mut out: Vec<&str> = Vec::new();
    for r in run.results.iter().filter(|r| r.experiment != "floor" && !r.device.is_empty()) {
        if !out.contains(&r.device.as_str()) {
            out.push(&r.device);
        }
    }
    out
}

/// The devices and the host.
pub(super) fn headline(run: &Run) -> String {
    let devices = devices(run);
    let what = if devices.is_empty() { "Results".to_owned() } else { devices.join(", ") };
    match run.environment.host.as_str() {
        "" => what,
        host => format!("{what} on {host}"),
    }
}

/// Processor, cores and kernel, in a few words.
pub(super) fn machine_briefly(env: &Environment) -> String {
    let mut parts = vec![or_unknown(&env.cpu).to_owned()];
    if env.cores > 0 {
        parts.push(plural(env.cores as usize, "core"));
    }
    parts.push(or_unknown(&env.kernel).to_owned());
    parts.join(", ")
}

/// Date, machine and program: `2026-03-01 12:00 UTC · Example CPU, 2 cores, Linux 6.8.0 · nicety 0.1.0 (0123abc)`.
pub(super) fn origin(env: &Environment) -> String {
    let commit = env.commit.as_ref().map_or_else(String::new, |commit| format!(" ({commit})"));
    let date = date(&env.date);
    let program = format!("nicety {}{commit}", or_unknown(&env.nicety_version));
    [or_unknown(&date), &machine_briefly(env), &program].join(" · ")
}

fn measured(run: &Run) -> String {
    let devices = devices(run);
    let mut experiments = distinct(run.results.iter().map(|r| r.experiment.as_str()));
    experiments.sort_by_key(|e| (rank(EXPERIMENTS, e), e.clone()));
    let experiments: Vec<String> = experiments.iter().map(|e| words(e)).collect();
    let samples: u64 = run.results.iter().map(|r| r.n).sum();
    let device = if devices.is_empty() {
        String::new()
    } else {
        format!(" on {} {}", if devices.len() == 1 { "device" } else { "devices" }, devices.join(", "))
    };
    format!(
        "{} of {} ({}){device}, from {} samples.",
        plural(run.results.len(), "result"),
        plural(experiments.len(), "experiment"),
        experiments.join(", "),
        count(samples)
    )
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

fn machine(env: &Environment) -> String {
    let how = if env.clock.kind == ClockKind::Virtual { "Simulated" } else { "Measured" };
    let mut text = format!("{how} on {} ({}", or_unknown(&env.host), or_unknown(&env.cpu));
    if env.cores > 0 {
        text += &format!(", {}", plural(env.cores as usize, "core"));
    }
    if env.memory_bytes > 0 {
        text += &format!(", {} of memory", size_about(env.memory_bytes as f64));
    }
    text += &format!(", {})", or_unknown(&env.kernel));
    if !env.date.is_empty() {
        text += &format!(" on {}", date(&env.date));
    }
    if !env.nicety_version.is_empty() {
        let commit = env.commit.as_ref().map_or_else(String::new, |commit| format!(" ({commit})"));
        text += &format!(" by nicety {}{commit}", env.nicety_version);
    }
    text += ".";
    for peer in &env.peers {
        text += &format!(
            " The other side, {}, was {} ({}, {}, {}) by nicety {}.",
            peer.address,
            or_unknown(&peer.host),
            or_unknown(&peer.cpu),
            plural(peer.cores as usize, "core"),
            or_unknown(&peer.kernel),
            or_unknown(&peer.nicety_version)
        );
    }
    text
}

/// `2026-03-01T12:00:00Z` without its letters.
pub(super) fn date(rfc3339: &str) -> String {
    match rfc3339.split_once('T') {
        Some((day, time)) if time.len() >= 5 && time.is_char_boundary(5) => {
            let zone = if time.ends_with('Z') { " UTC" } else { "" };
            format!("{day} {}{zone}", &time[..5])
        }
        _ => rfc3339.to_owned(),
    }
}

fn timing(env: &Environment) -> String {
    let clock = match env.clock.kind {
        ClockKind::Virtual => return "Timed in virtual time: exact, and no overhead.".to_owned(),
        ClockKind::Tsc => "the time-stamp counter",
        ClockKind::Cntvct => "the processor's virtual counter",
        ClockKind::Monotonic => "the system's monotonic clock",
    };
    let mut text = format!("Timed by {clock}");
    if env.clock.overhead_ns > 0.0 {
        text += &format!(" (one reading costs {} ns)", sig(env.clock.overhead_ns, 2));
    }
    text += &match env.pinned_cores.as_slice() {
        [] => ", processes not pinned".to_owned(),
        cores => {
            let names: Vec<String> = cores.iter().map(u32::to_string).collect();
            format!(", processes pinned to cores {}", names.join(" and "))
        }
    };
    match env.governor.as_deref() {
        Some(governor) => text + &format!(", frequency governor {governor}."),
        None => text + ".",
    }
}

/// The simulated devices, if there are real ones, too.
fn simulated(run: &Run) -> String {
    let of = |device: &&str| run.results.iter().any(|r| r.device == *device && r.clock == ClockKind::Virtual);
    let all: Vec<&str> = devices(run).into_iter().filter(|device| of(device)).collect();
    if run.environment.clock.kind == ClockKind::Virtual || all.is_empty() {
        return String::new();
    }
    format!("In virtual time, which is exact and not this machine's: {}.", all.join(", "))
}

fn noise(env: &Environment) -> String {
    if env.clock.kind == ClockKind::Virtual {
        return "A simulation has no noise: the same run gives the same numbers again.".to_owned();
    }
    let share = |n: Option<results::schema::NoiseSummary>| n.map(|n| percent(n.stolen));
    let mut text = match (share(env.noise_before), share(env.noise_after)) {
        (Some(before), Some(after)) => {
            format!("Other work took {before} of the processor time before the run and {after} after it.")
        }
        (Some(one), None) | (None, Some(one)) => format!("Other work took {one} of the processor time."),
        (None, None) => "The machine's noise was not measured.".to_owned(),
    };
    text += &match env.aa_noise {
        Some(aa) => format!(
            " The same thing measured twice can differ by {}: smaller effects are not detectable.",
            percent(aa.floor)
        ),
        None => " No A/A comparison was made, so the smallest visible effect is unknown.".to_owned(),
    };
    text
}

/// How to read the page: term and explanation.
pub(super) fn how_to_read(run: &[Run]) -> Vec<(String, String)> {
    let results = || run.iter().flat_map(|r| &r.results);
    let mut out: Vec<(String, String)> = Vec::new();
    for metric in distinct(results().map(|r| r.metric.as_str())) {
        // For other metrics, the result's note says what is timed, before its first semicolon.
        let noted = || results().filter(|r| r.metric == metric && r.experiment != "floor").find_map(of_note);
        if let Some(text) = explain(&metric).map(str::to_owned).or_else(noted) {
            out.push((words(&metric), text));
        }
    }
    out.extend(GENERAL.iter().map(|(term, text)| ((*term).to_owned(), (*text).to_owned())));
    out
}

fn of_note(r: &Measurement) -> Option<String> {
    let text = r.note.as_deref()?.split(';').next().filter(|text| !text.is_empty())?;
    let better = if r.higher_is_better() { "Higher" } else { "Lower" };
    Some(format!("{}. {better} is better.", capital(text)))
}

/// The meaning of a metric; `None` for one unknown to this version.
fn explain(metric: &str) -> Option<&'static str> {
    Some(match metric {
        "one_way_latency" => {
            "Half of a round trip: from the post of an operation to the moment the other side can use its data, \
             if both directions are alike. Lower is better."
        }
        "latency" => "Time from the post of an operation to its completion. Lower is better.",
        "round_trip" => "From the post of an operation to the arrival of the answer. Lower is better.",
        "bandwidth" => {
            "Payload bytes over time with a window of operations under way; 1 GB is 1000 MB, and 1 MB a million bytes. \
             Headers do not count. Higher is better."
        }
        "message_rate" => "Operations completed per second with a window under way. Higher is better.",
        "operation_latency" => {
            "From the post of an operation to its completion, with the target taking no part. Lower is better."
        }
        "hop_latency" => {
            "A token goes round several processes that sleep while they wait: the time of a round over its hops, \
             most of which is waking up. Lower is better."
        }
        "host_overhead" => {
            "Processor time of a message: its post, and the poll that finds the answer. Lower is better."
        }
        "compute_share" => {
            "The largest share of the time that a program can compute while bandwidth stays what it is without. Higher \
             is better."
        }
        "notification_overhead" => "What notifying the target adds to a write. Lower is better.",
        "blocking_overhead" => "What sleeping until an event adds to polling. Lower is better.",
        "translation_cache" => {
            "Pages that can be in use in turn before their addresses have to be looked up again. Higher is better."
        }
        "round_time" => {
            "One round of a hot spot: until the last answer, or the last message, arrives. Lower is better."
        }
        "call_time" => "Time within one call. Lower is better.",
        _ => return None,
    })
}

const GENERAL: &[(&str, &str)] = &[
    (
        "floor and ratio",
        "What the machine itself does without a network card, measured in the same run: the bound to hold a number \
         against, for times a floor, for rates a ceiling. The ratio is measured / floor: 1.20× is 20 % slower for a time, 0.90× is 10 % slower for a \
         bandwidth.",
    ),
    (
        "virtual time",
        "A modelled card is simulated, with a clock of its own: the same run gives the same numbers again, whatever this \
         machine does meanwhile. Such numbers have no interval and no floor; side by side with measured ones they are \
         marked (virtual), and dashed.",
    ),
    (
        "median and 95 % interval (low..high)",
        "Each launch of the processes gives one median; the median of those is shown. The interval covers the true \
         median in 95 of 100 such runs, by order statistics, without assuming a normal distribution. It needs six \
         launches; with fewer it is absent, or says what it leaves out.",
    ),
    (
        "n and launches",
        "n counts the samples kept after the warm-up was cut. Launches count more than samples: what differs \
         between two starts of a process, no number of samples within one can show.",
    ),
    (
        "imprecise launches",
        "Sampling within a launch stops when that launch's own interval is narrow enough, or at the limit of time or count. \
         A launch that ends at a limit is imprecise; the percentage is the half-width that it reached. The interval next to a \
         median is over launches; that one is marked if it is wider than 5 % to either side.",
    ),
    ("p99", "99 of 100 operations were at most this long. Absent where the samples cannot carry it."),
    ("n½", "The message size that gets half the peak bandwidth: small is good for short messages."),
    (
        "step",
        "A place where a curve jumps more than start-up time plus bytes over rate explains: often a change of \
         protocol, a cache size or a packet boundary.",
    ),
    (
        "flags",
        "trend: the launch drifted. bimodal: two states mixed. no steady state: the warm-up never ended. \
         context switches: the system took the core away.",
    ),
];

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{point, run};
    use super::*;
    use results::schema::{AaNoise, ClockInfo, NoiseSummary, PeerInfo};

    #[test]
    fn the_paragraph_names_device_machine_clock_and_noise() {
        let mut run = run(vec![point("latency", "op=write", 8, 0.1)]);
        run.environment = Environment {
            nicety_version: "0.1.0".to_owned(),
            date: "2026-03-01T12:00:00Z".to_owned(),
            host: "node1".to_owned(),
            kernel: "Linux 6.8.0".to_owned(),
            cpu: "Example CPU".to_owned(),
            cores: 2,
            memory_bytes: 8 << 30,
            clock: ClockInfo { kind: ClockKind::Tsc, overhead_ns: 9.5, resolution_ns: 0.5 },
            pinned_cores: vec![0, 1],
            noise_before: Some(NoiseSummary { stolen: 0.004, ..NoiseSummary::default() }),
            aa_noise: Some(AaNoise { floor: 0.02, ratio: 1.0, launches: 6 }),
            commit: Some("0123abc".to_owned()),
            peers: vec![PeerInfo {
                address: "10.0.0.2:7471".to_owned(),
                host: "node2".to_owned(),
                cores: 1,
                nicety_version: "0.1.0".to_owned(),
                ..PeerInfo::default()
            }],
            ..Environment::default()
        };
        assert_eq!(
            origin(&run.environment),
            "2026-03-01 12:00 UTC · Example CPU, 2 cores, Linux 6.8.0 · nicety 0.1.0 (0123abc)"
        );
        assert_eq!(
            paragraph(&run),
            "1 result of 1 experiment (latency) on device shm, from 6,000 samples. Measured on node1 (Example CPU, \
             2 cores, 8.0 GiB of memory, Linux 6.8.0) on 2026-03-01 12:00 UTC by nicety 0.1.0 (0123abc). The other side, \
             10.0.0.2:7471, was node2 (unknown, 1 core, unknown) by nicety 0.1.0. Timed by the \
             time-stamp counter (one reading costs 9.5 ns), processes pinned to cores 0 and 1. Other work took \
             0.40 % of the processor time. The same thing measured twice can differ by 2.0 %: smaller effects \
             are not detectable."
        );
    }

    #[test]
    fn what_is_unknown_is_said_to_be() {
        let text = paragraph(&Run::default());
        for part in ["unknown", "not pinned", "was not measured", "No A/A comparison"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }

    #[test]
    fn every_metric_of_the_suite_is_explained() {
        let known = ["one_way_latency", "bandwidth", "message_rate"];
        assert!(known.iter().all(|m| explain(m).is_some()));
        let run = run(vec![point("latency", "op=write", 8, 0.1)]);
        assert_eq!(how_to_read(&[run])[0].0, "one-way latency");
    }

    #[test]
    fn a_metric_that_is_new_explains_itself() {
        let mut r = point("latency", "op=write", 8, 0.1);
        r.metric = "idle_share".to_owned();
        r.note = Some("time without work over all time; 12 looks".to_owned());
        let told = how_to_read(&[run(vec![r])]);
        assert_eq!(
            told[0],
            ("idle share".to_owned(), "Time without work over all time. Lower is better.".to_owned())
        );
    }

    #[test]
    fn where_some_devices_are_simulated_the_paragraph_says_which() {
        let text = paragraph(&super::super::sides::tests::three());
        assert!(
            text.contains("In virtual time, which is exact and not this machine's: model:card."),
            "{text}"
        );
    }
}
