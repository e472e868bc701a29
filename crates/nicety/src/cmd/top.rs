//! `nicety top`: live counters of a process.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use host::{EventCount, Host, Span};

use crate::args::TopArgs;
use crate::error::{Failure, OK, Outcome};
use crate::term::Stream;

/// Samples by their names with labels.
type Samples = BTreeMap<String, f64>;

/// Prints a table after each interval, until the process ends.
///
/// # Errors
/// If the process counts nothing.
pub(crate) fn run(args: &TopArgs) -> Outcome {
    let first = fabric::request_counters(args.pid).map_err(Failure::usage)?;
    if args.prometheus {
        Stream::Out.data(&first)?;
        return Ok(OK);
    }
    let host = host::real::host();
    let mut before = (host.now(), samples(&first));
    let mut printed = 0;
    while args.times.is_none_or(|times| printed < times) {
        pause(&host, args.interval);
        let now = host.now();
        // The process has ended.
        let Ok(text) = fabric::request_counters(args.pid) else { return Ok(OK) };
        let found = samples(&text);
        let clear = if Stream::Out.is_terminal() { "\x1b[H\x1b[J" } else { "" };
        let table = table(args.pid, &found, &before.1, now.since(before.0));
        Stream::Out.print(&format!("{clear}{table}"))?;
        before = (now, found);
        printed += 1;
    }
    Ok(OK)
}

/// Lets time pass.
fn pause(host: &Host, span: Span) {
    let _ = host.wait("the next reading", &EventCount::new(), host.after(span), || None::<()>);
}

/// The samples of a text for Prometheus.
fn samples(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(sample).collect()
}

/// The value of a label of a sample.
fn label<'a>(sample: &'a str, name: &str) -> Option<&'a str> {
    let start = sample.find(&format!("{name}=\""))? + name.len() + 2;
    let rest = &sample[start..];
    Some(&rest[..rest.find('"')?])
}

/// A device, and its queue pairs with their labels.
type Devices<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, &'a str>>;

fn devices(samples: &Samples) -> Devices<'_> {
    let mut found = Devices::new();
    for sample in samples.keys() {
        let (Some(device), Some(number)) = (label(sample, "device"), label(sample, "number")) else {
            continue;
        };
        let qps = found.entry((number, device)).or_default();
        if let (Some(qp), Some(peer)) = (label(sample, "qp"), label(sample, "peer")) {
            qps.insert(qp, peer);
        }
    }
    found
}

/// The table of all devices.
fn table(pid: i32, now: &Samples, before: &Samples, passed: Span) -> String {
    let seconds = (passed.as_ps() as f64 / 1e12).max(1e-9);
    let mut text = String::new();
    for ((number, device), qps) in devices(now) {
        let own = format!("device=\"{device}\",number=\"{number}\"");
        let of = |samples: &Samples, name: &str, more: &str| {
            samples.get(&format!("{name}{{{own}{more}}}")).copied().unwrap_or(0.0)
        };
        let rate = |name: &str, more: &str| (of(now, name, more) - of(before, name, more)).max(0.0) / seconds;
        let objects: Vec<String> = ["pd", "mr", "cq", "qp", "srq"]
            .into_iter()
            .map(|kind| format!("{} {kind}", of(now, "nicety_objects", &format!(",kind=\"{kind}\""))))
            .collect();
        let _ = writeln!(
            text,
            "pid {pid}  {device}  {}  registered {}  failed calls {}  waits {}/s  events {}/s",
            objects.join("  "),
            bytes(of(now, "nicety_registered_bytes", "")),
            of(now, "nicety_failed_calls_total", ""),
            short(rate("nicety_waits_total", "")),
            short(rate("nicety_events_total", "")),
        );
        if !qps.is_empty() {
            let _ = writeln!(
                text,
                "{:10} {:21} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
                "qp", "peer", "posts/s", "bytes/s", "done/s", "recv/s", "sends", "recvs", "refused", "errors"
            );
        }
        for (qp, peer) in qps {
            let more = |rest: &str| format!(",qp=\"{qp}\",peer=\"{peer}\"{rest}");
            let posts = rate("nicety_requests_total", &more(",signaled=\"yes\""))
                + rate("nicety_requests_total", &more(",signaled=\"no\""));
            let used = |queue: &str| {
                let more = more(&format!(",queue=\"{queue}\""));
                format!(
                    "{}/{}",
                    of(now, "nicety_outstanding_requests", &more),
                    of(now, "nicety_queue_entries", &more)
                )
            };
            let _ = writeln!(
                text,
                "{qp:10} {peer:21} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
                short(posts),
                bytes(rate("nicety_request_bytes_total", &more(""))),
                short(rate("nicety_completions_total", &more(",queue=\"send\""))),
                short(rate("nicety_completions_total", &more(",queue=\"recv\""))),
                used("send"),
                used("recv"),
                of(now, "nicety_refused_total", &more("")),
                of(now, "nicety_failed_completions_total", &more("")),
            );
        }
    }
    text
}

/// A rate in at most six characters.
fn short(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.1}k", v / 1e3),
        v => format!("{:.1}M", v / 1e6),
    }
}

/// Bytes with a decimal prefix.
fn bytes(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0}B"),
        v if v < 1e6 => format!("{:.1}kB", v / 1e3),
        v if v < 1e9 => format!("{:.1}MB", v / 1e6),
        v => format!("{:.1}GB", v / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_rates_and_used_entries() {
        let text = |posted: u32| {
            let qp = "device=\"shm\",number=\"0\",qp=\"0x5d0000\",peer=\"127.0.0.1:7\"";
            format!(
                "# HELP x\nnicety_objects{{device=\"shm\",number=\"0\",kind=\"qp\"}} 1\n\
                 nicety_requests_total{{{qp},signaled=\"yes\"}} {posted}\n\
                 nicety_request_bytes_total{{{qp}}} {}\n\
                 nicety_outstanding_requests{{{qp},queue=\"send\"}} 3\n\
                 nicety_queue_entries{{{qp},queue=\"send\"}} 16\n",
                u64::from(posted) * 8
            )
        };
        let table = table(42, &samples(&text(5000)), &samples(&text(1000)), Span::from_secs(2));
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("pid 42  shm  0 pd  0 mr  0 cq  1 qp"), "{table}");
        let words: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(words, ["0x5d0000", "127.0.0.1:7", "2.0k", "16.0kB", "0", "0", "3/16", "0/0", "0", "0"]);
    }
}
