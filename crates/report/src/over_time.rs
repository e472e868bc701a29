//! What streams moved over time, in columns for people and scripts: a line for each interval.

use results::schema::{Measurement, RateInterval, Run};

use super::number::size;
use super::series::{alone, series};

/// The name of a stream, `bandwidth, write (host -> host), 1 MiB, shm`; without the device if that is empty.
#[must_use]
pub fn stream_name(r: &Measurement) -> String {
    let (s, levels) = (alone(r), !r.variant.is_empty());
    let parts = [Some(s.what()), levels.then(|| s.name()), Some(size(r.size_bytes)), Some(r.device.clone())];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(", ").replace('→', "->")
}

/// The head of the columns, behind a line that names the stream. Lines that are no data begin with `#`.
#[must_use]
pub fn interval_head(stream: &str) -> String {
    format!("# {stream}\n# {:>14} {:>16} {:>14} {:>13}\n", "seconds", "bytes", "MB/s", "messages")
}

/// The columns of an interval: `FROM-TO`, bytes, MB/s and messages, without units and groups of digits.
#[must_use]
pub fn interval_line(interval: &RateInterval) -> String {
    let RateInterval { from_s, to_s, bytes, messages, mb_per_s } = interval;
    let time = format!("{from_s:.2}-{to_s:.2}");
    format!("{time:>16} {bytes:>16} {mb_per_s:>14.2} {messages:>13}\n")
}

/// All streams of a run over time; nothing unless it was measured with `--interval`.
pub(super) fn intervals(run: &Run) -> String {
    let mut text = String::new();
    for s in &series(std::slice::from_ref(run)) {
        for r in &s.points {
            for (number, launch) in r.launches.iter().enumerate().filter(|(_, l)| !l.intervals.is_empty()) {
                let launch_name =
                    if r.launches.len() > 1 { format!(", launch {}", number + 1) } else { String::new() };
                text += &interval_head(&(stream_name(r) + &launch_name));
                text.extend(launch.intervals.iter().map(interval_line));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{point, run};
    use super::*;

    /// Goal: lines that a script can split at spaces, and a head that it can skip. Method: two intervals.
    #[test]
    fn interval_is_a_line_of_plain_numbers() {
        let interval = |from: f64, bytes: u64| RateInterval {
            from_s: from,
            to_s: from + 1.0,
            bytes,
            messages: bytes / 8,
            mb_per_s: bytes as f64 / 1e6,
        };
        let mut run = run(vec![point("bandwidth", "op=write", 8, 9.0)]);
        run.results[0].launches.truncate(1);
        run.results[0].launches[0].intervals = vec![interval(0.0, 12_345_678_904), interval(1.0, 8)];
        let text = intervals(&run);
        let (head, rows): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
        assert_eq!(head[0], "# bandwidth, write, 8 B, shm");
        let columns = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(columns(head[1]), ["#", "seconds", "bytes", "MB/s", "messages"]);
        assert_eq!(columns(rows[0]), ["0.00-1.00", "12345678904", "12345.68", "1543209863"]);
        assert_eq!(columns(rows[1]), ["1.00-2.00", "8", "0.00", "1"]);
        assert!(rows.iter().all(|row| row.len() == head[1].len()), "{text}");
    }

    #[test]
    fn stream_is_named_with_and_without_a_device() {
        let mut r = point("bandwidth", "op=write,source=host,sink=host", 1 << 20, 9.0);
        assert_eq!(stream_name(&r), "bandwidth, write (host -> host), 1 MiB, shm");
        r.device.clear();
        assert_eq!(stream_name(&r), "bandwidth, write (host -> host), 1 MiB");
        r.variant = Default::default();
        assert_eq!(stream_name(&r), "bandwidth, 1 MiB");
    }

    #[test]
    fn run_without_intervals_has_no_lines() {
        assert_eq!(intervals(&run(vec![point("bandwidth", "op=write", 8, 9.0)])), "");
    }
}
