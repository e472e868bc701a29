//! The options of `nicety trace` and `nicety top`, and those by which other commands record and count.

use std::path::PathBuf;

use clap::Args;
use host::{Bytes, Span};

use super::target::Target;

/// How the use of devices is recorded.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RecordArgs {
    /// Record every call, request, completion, wait and event in a file; `nicety trace FILE` shows them
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Size of the ring of latest records in the file
    #[arg(long, value_name = "SIZE", default_value = "16M", requires = "trace")]
    pub(crate) trace_size: Bytes,
    /// Capture the traffic of iwarp in a file for Wireshark; a trace of any device can become one, too (nicety trace --pcap)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Count objects, requests and bytes for `nicety top`, without a file
    #[arg(long)]
    pub(crate) count: bool,
}

/// `nicety trace`
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Files of `--trace`; those of further processes (FILE.PID) are found
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Only this queue pair, by its number
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) qp: Option<u32>,
    /// Only this rank
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Option<u32>,
    /// Only failures
    #[arg(long)]
    pub(crate) failures: bool,
    /// From this time on, such as 1.5ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<Span>,
    /// Until this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) to: Option<Span>,
    /// Only the latest N records
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Write a page with a timeline of each queue pair and thread; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<Target>,
    /// Write a capture for Wireshark: RoCE v2 packets made up from the requests, without their data
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write JSON for Perfetto (ui.perfetto.dev) and chrome://tracing; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) chrome: Option<Target>,
}

pub(super) const TRACE: &str = "\
Times count from the start of the first process. A request lasts from its posting to the poll of its completion; one without completion \
of its own ends with the next request that has one. The files of the processes of one host are aligned by its clock. A process that runs, \
or that was killed, has a trace, too.

EXAMPLES
  nicety trace put.trace                          every record as a line
  nicety trace put.trace --failures               what failed, and why
  nicety trace put.trace --qp 0x5d0004 --last 20  the end of one queue pair
  nicety trace put.trace --html put.html          timelines, depths of queues and waits
  nicety trace job.trace --rank 1 --from 2ms --to 3ms
  nicety trace job.trace --chrome job.json        for ui.perfetto.dev
  nicety trace put.trace --pcap put.pcapng        for Wireshark";

/// `nicety top`
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The process, of the same user, whose devices record or count
    #[arg(value_name = "PID")]
    pub(crate) pid: i32,
    /// Time between two readings, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) interval: Span,
    /// End after N tables, instead of with the process
    #[arg(long, value_name = "N")]
    pub(crate) times: Option<u32>,
    /// Print the counters once, in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["times", "interval"])]
    pub(crate) prometheus: bool,
}

pub(super) const TOP: &str = "\
The process was started by `nicety run --count`, `nicety run --trace FILE`, or with a device such as trace(shm). Rates are those between \
two readings. Outstanding are signaled requests without completion, and requests since the last signaled one.

EXAMPLES
  nicety top 4711                         a table each second, until the process ends
  nicety top 4711 --times 1               one table, for a script
  nicety top 4711 --prometheus            for the textfile collector of its node exporter

EXIT STATUS
  0  the process has ended, or N tables were printed    2  the process counts nothing";

/// Parses a number of a queue pair: `0x5d0004` or `6094852`.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a number of a queue pair; write, for example, 0x5d0004"))
}

/// Parses a time: a number, which may have a fraction, and a unit.
fn time(text: &str) -> Result<Span, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)];
    let of = |(unit, ps): &(&str, f64)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * ps);
    let ps = UNITS.iter().find_map(of).filter(|ps| (0.0..1e19).contains(ps));
    ps.map(|ps| Span::from_ps(ps as u64))
        .ok_or_else(|| format!("'{text}' is not a time; write, for example, 1.5ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_parsed() {
        assert_eq!(time("1.5ms"), Ok(Span::from_us(1500)));
        assert_eq!(time("20 ns"), Ok(Span::from_ns(20)));
        assert_eq!(time("2s"), Ok(Span::from_secs(2)));
        for wrong in ["", "1", "ms", "-1s", "nans", "1e99s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!((number("0x5d0004"), number("12")), (Ok(0x5d_0004), Ok(12)));
        assert!(number("5d0004").is_err());
    }
}
