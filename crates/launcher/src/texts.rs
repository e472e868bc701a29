//! The texts of mpirun's messages.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use report::number::plural;
use rustix::io::Errno;

use super::{hosts, topology};

/// A signal by number and name.
pub(super) fn signal_name(number: u8) -> String {
    let name = signal_hook::low_level::signal_name(i32::from(number));
    name.map_or_else(|| format!("signal {number}"), |name| format!("signal {number} ({name})"))
}

/// What happens to the ranks that still run.
pub(super) fn ending_others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "; ending the other rank".to_owned(),
        count => format!("; ending the other {count} ranks"),
    }
}

/// The line that reports the expiry of `--timeout`.
pub(super) fn timed_out(given: Duration, running: usize) -> String {
    let are = if running == 1 { "runs" } else { "run" };
    format!("--timeout {} has expired, and {} still {are}", given.as_secs_f64(), plural(running, "rank"))
}

/// The remedy for a system error, after a semicolon, if the error shows which limit was reached.
pub(super) fn remedy(why: &io::Error) -> &'static str {
    match why.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => "; raise `ulimit -u`, or pids.max of the control group",
        Some(Errno::MFILE) => "; raise `ulimit -n`",
        Some(Errno::NFILE) => "; raise fs.file-max, the limit of this host",
        Some(Errno::NOMEM) => "; free memory, or raise `ulimit -v`",
        Some(Errno::NOENT) => "; check whether it was moved after mpirun was started",
        _ => "",
    }
}

/// The remark about more ranks than cores.
pub(super) fn oversubscribed(ranks: usize, cores: usize, host: &str) -> String {
    format!(
        "{ranks} ranks share {} of {host}: timings are unreliable (oversubscribed)",
        plural(cores, "core")
    )
}

/// The MPI calls that ranks waited in when `--timeout` expired. Of many ranks, some are named.
pub(super) fn waits_in(calls: &str, ranks: &[String]) -> String {
    const NAMED_MAX: usize = 16;
    let mut names = ranks.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if ranks.len() > NAMED_MAX {
        names += &format!(" and {} others", ranks.len() - NAMED_MAX);
    }
    if calls.is_empty() {
        format!("{names} waited in no MPI call")
    } else {
        format!("{names} waited in {calls}")
    }
}

/// What a rank is bound to, for `--report-bindings`.
pub(super) fn bound(rank: &str, host: &str, processors: &[u32]) -> String {
    match processors {
        [] => format!("{rank} on {host} is not bound"),
        [one] => format!("{rank} on {host} is bound to processor {one}"),
        all => format!("{rank} on {host} is bound to processors {}", topology::list_text(all)),
    }
}

/// The name of a job's key-value space, which is unique over all hosts and time.
pub(super) fn job_name(number: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host: String = hosts::own_name().chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    format!("nicety_{host}_{}_{}_{number}", std::process::id(), now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        assert_eq!(signal_name(9), "signal 9 (SIGKILL)");
        assert_eq!(signal_name(64), "signal 64");
        assert_eq!(
            (ending_others(0), ending_others(1)),
            (String::new(), "; ending the other rank".to_owned())
        );
        assert_eq!(ending_others(3), "; ending the other 3 ranks");
        assert_eq!(
            timed_out(Duration::from_millis(500), 1),
            "--timeout 0.5 has expired, and 1 rank still runs"
        );
        assert_eq!(
            oversubscribed(4, 2, "vm"),
            "4 ranks share 2 cores of vm: timings are unreliable (oversubscribed)"
        );
        let ranks = |count: usize| (0..count).map(|rank| format!("rank {rank}")).collect::<Vec<_>>();
        assert_eq!(waits_in("MPI_Recv", &ranks(2)), "rank 0, rank 1 waited in MPI_Recv");
        assert_eq!(waits_in("", &ranks(1)), "rank 0 waited in no MPI call");
        assert!(waits_in("MPI_Recv", &ranks(20)).contains("rank 15 and 4 others waited"));
        assert_eq!(bound("rank 0", "a", &[]), "rank 0 on a is not bound");
        assert_eq!(bound("rank 0", "a", &[3]), "rank 0 on a is bound to processor 3");
        assert_eq!(bound("rank 0", "a", &[0, 1, 4]), "rank 0 on a is bound to processors 0-1,4");
        assert_ne!(job_name(0), job_name(1));
        let remedy = |errno: Errno| remedy(&errno.into());
        assert!(remedy(Errno::MFILE).contains("ulimit -n") && remedy(Errno::AGAIN).contains("ulimit -u"));
        assert_eq!(remedy(Errno::IO), "");
    }
}
