//! [`Intervals`]: what a stream moves in each interval of time, reported while it runs.
//!
//! Time begins with the first round of samples. All that moves counts, also the untimed operations at the beginning of a round, and so does
//! the time between rounds: the rate is that of the wire, as a user sees it.

use verbs::host::{Span, Time};

use super::{Metric, Round, Scale};
use results::schema::RateInterval;

/// Intervals that are kept for the results; later ones are only reported.
const KEPT_MAX: usize = 1 << 16;

/// The intervals of a cell in a launch.
pub struct Intervals<'a> {
    every: Span,
    report: &'a mut dyn FnMut(&RateInterval),
    stream: Stream,
    /// When the first interval began.
    began: Option<Time>,
    /// Since then: the start of the current interval, and the end of the last operation.
    start: Span,
    last: Span,
    /// Messages of the current interval.
    messages: u64,
    kept: Vec<RateInterval>,
}

/// What an operation of a stream moves.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Messages of an operation, in all directions.
    messages: u64,
    /// Bytes of a message.
    size: u64,
}

/// Whether a metric is a rate that can be reported over time.
#[must_use]
pub fn is_stream(metric: &Metric) -> bool {
    matches!(metric.scale, Scale::Bandwidth(_) | Scale::Rate)
}

impl<'a> Intervals<'a> {
    /// Intervals of length `every` of a stream with `messages` messages of `size` bytes in an operation. `report` is called at the end of each.
    pub fn new(
        every: Span,
        metric: &Metric,
        (messages, size): (u64, u64),
        report: &'a mut dyn FnMut(&RateInterval),
    ) -> Self {
        let directions = match metric.scale {
            Scale::Bandwidth(times) if times > 1.0 => times as u64,
            _ => 1,
        };
        let stream = Stream { messages: messages.max(1) * directions, size };
        let (start, last, kept) = (Span::ZERO, Span::ZERO, Vec::new());
        Self { every, report, stream, began: None, start, last, messages: 0, kept }
    }

    /// Counts a round from `began` to `ended`, whose samples took these readings, in picoseconds, one after the other.
    pub fn round(&mut self, [began, ended]: [Time; 2], round: Round, readings: &[f64]) {
        let origin = *self.began.get_or_insert(began);
        let timed = readings.iter().sum::<f64>();
        // Untimed operations come first.
        let mut at = (ended - origin).as_ps() as f64 - timed;
        self.operations(at, round.lead_in);
        for reading in readings {
            at += reading;
            self.operations(at, round.batch);
        }
    }

    /// Counts operations that ended `at` picoseconds after the beginning.
    fn operations(&mut self, at: f64, count: u64) {
        let at = Span::from_ps(at.max(0.0) as u64).max(self.last);
        while at > self.start + self.every {
            self.close(self.start + self.every);
        }
        self.last = at;
        self.messages += count * self.stream.messages;
    }

    fn close(&mut self, end: Span) {
        let [from_s, to_s] = [self.start, end].map(|span| span.as_ps() as f64 / 1e12);
        let bytes = self.messages * self.stream.size;
        let mb_per_s = bytes as f64 / 1e6 / (to_s - from_s);
        let interval = RateInterval { from_s, to_s, bytes, messages: self.messages, mb_per_s };
        (self.report)(&interval);
        if self.kept.len() < KEPT_MAX {
            self.kept.push(interval);
        }
        (self.start, self.messages) = (end, 0);
    }

    /// All intervals; the last one may be shorter than the others.
    #[must_use]
    pub fn finish(mut self) -> Vec<RateInterval> {
        if self.messages > 0 && self.last > self.start {
            self.close(self.last);
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRIC: Metric =
        Metric { name: "bandwidth", unit: "MB/s", about: "", scale: Scale::Bandwidth(1.0) };

    fn ms(n: u64) -> f64 {
        1e9 * n as f64
    }

    fn at(n: u64) -> Time {
        Time::ZERO + Span::from_ms(n)
    }

    fn round(lead_in: u64, samples: u64) -> Round {
        Round { lead_in, samples, batch: 1 }
    }

    /// Goal: every message is in the interval in which it ended, none is lost, and time between rounds counts. Method: operations of
    /// 400 ms in two rounds, with a gap between.
    #[test]
    fn operations_count_where_they_end_and_gaps_take_their_time() {
        let mut told = Vec::new();
        let mut report = |interval: &RateInterval| told.push(interval.clone());
        let mut all = Intervals::new(Span::from_secs(1), &METRIC, (10, 1000), &mut report);
        // From 5 s: an untimed operation of 200 ms, then ends at 0.6 and 1.0 s.
        all.round([at(5000), at(6000)], round(1, 2), &[ms(400); 2]);
        // Ends at 3.4, 3.8 and 4.2 s: nothing in the second and the third second.
        all.round([at(8000), at(9200)], round(0, 3), &[ms(400); 3]);
        let kept = all.finish();
        assert_eq!(kept, told);
        let messages: Vec<u64> = kept.iter().map(|interval| interval.messages).collect();
        assert_eq!(messages, [30, 0, 0, 20, 10]);
        assert_eq!((kept[0].from_s, kept[0].to_s, kept[0].bytes), (0.0, 1.0, 30_000));
        assert!((kept[0].mb_per_s - 0.03).abs() < 1e-12);
        let last = kept.last().expect("five");
        assert!(last.from_s == 4.0 && (last.to_s - 4.2).abs() < 1e-9, "{last:?}");
    }

    #[test]
    fn both_directions_count() {
        let both = Metric { scale: Scale::Bandwidth(2.0), ..METRIC };
        let mut ignore = |_: &RateInterval| ();
        let mut all = Intervals::new(Span::from_secs(1), &both, (8, 100), &mut ignore);
        all.round([at(0), at(500)], round(0, 1), &[ms(500)]);
        let kept = all.finish();
        assert_eq!((kept[0].messages, kept[0].bytes), (16, 1600));
    }

    #[test]
    fn times_are_no_stream() {
        assert!(is_stream(&METRIC) && is_stream(&Metric { scale: Scale::Rate, ..METRIC }));
        assert!(!is_stream(&Metric { scale: Scale::Time(2.0), ..METRIC }));
    }
}
