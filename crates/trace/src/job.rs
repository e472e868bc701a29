//! [`Job`]: traces of several processes on one axis of time.

use crate::read::Trace;
use crate::requests::Requests;

/// A process of a job.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its name for people: `rank 3`, or `pid 4711`.
    pub name: String,
    /// The file that it comes from.
    pub file: String,
    /// What it did.
    pub trace: Trace,
    /// Its requests.
    pub requests: Requests,
    /// How much later than the job it has started, in picoseconds.
    offset_ps: u64,
}

impl Process {
    /// The time on the axis of the job, in picoseconds, of a time of the process's clock.
    #[must_use]
    pub fn axis_ps(&self, time_ps: u64) -> u64 {
        let passed = time_ps.saturating_sub(self.trace.start_ps) as f64 * self.trace.scale;
        self.offset_ps.saturating_add(passed as u64)
    }
}

/// The processes of a job. Its axis of time begins when its first process has started to record.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The processes: by their ranks, then by their start.
    pub processes: Vec<Process>,
}

impl Job {
    /// A job of these traces, each with the name of its file. Clocks of one host are compared exactly, those of several hosts
    /// as well as the hosts agree on the time of day.
    #[must_use]
    pub fn new(traces: Vec<(String, Trace)>) -> Self {
        let is_one_host = traces.windows(2).all(|two| two[0].1.host == two[1].1.host);
        let start = |trace: &Trace| match (trace.is_virtual, is_one_host) {
            (true, _) => trace.start_ps / 1000,
            (false, true) => trace.start_host_ns,
            (false, false) => trace.start_unix_ns,
        };
        let first = traces.iter().map(|(_, trace)| start(trace)).min().unwrap_or(0);
        let process = |(file, trace): (String, Trace)| Process {
            name: trace.rank.map_or_else(|| format!("pid {}", trace.pid), |rank| format!("rank {rank}")),
            file,
            requests: Requests::of(&trace),
            offset_ps: start(&trace).saturating_sub(first).saturating_mul(1000),
            trace,
        };
        let mut processes: Vec<_> = traces.into_iter().map(process).collect();
        processes.sort_by_key(|process| {
            (process.trace.rank.unwrap_or(u32::MAX), process.offset_ps, process.trace.pid)
        });
        Self { processes }
    }

    /// The time of the last record, in picoseconds of the axis.
    #[must_use]
    pub fn end_ps(&self) -> u64 {
        self.processes.iter().map(|process| process.axis_ps(process.trace.last_ps())).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_one_host_are_aligned_and_ranks_sorted() {
        let trace = |rank, start_ps, start_host_ns, scale| Trace {
            rank: Some(rank),
            start_ps,
            start_host_ns,
            scale,
            ..Trace::default()
        };
        let job = Job::new(vec![
            ("b".into(), trace(1, 0, 2_000, 1.0)),
            ("a".into(), trace(0, 5_000_000, 1_500, 1.0005)),
        ]);
        let [zero, one] = &job.processes[..] else { panic!("two processes") };
        assert_eq!((zero.name.as_str(), one.file.as_str()), ("rank 0", "b"));
        assert_eq!(zero.axis_ps(5_000_000), 0);
        assert_eq!(zero.axis_ps(7_000_000), 2_001_000, "the clock of the process is slow");
        assert_eq!(one.axis_ps(7), 500_007);
    }
}
