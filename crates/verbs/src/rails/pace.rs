//! How fast each lane is: bytes of stripes completed in the time that stripes were in flight there, smoothed. Stripes are cut
//! in that proportion, so that all lanes are done at about the same time.

use host::{Span, Time};

use super::RAILS_MAX;

/// What makes a sample: so many bytes, and so much time in flight.
const SAMPLE_BYTES: u64 = 512 << 10;
const SAMPLE_TIME: Span = Span::from_us(500);
/// What a sample counts beside all before it.
const NEWS: f64 = 0.25;
/// Boundaries stay where they are until a share would change by so much of itself: requests to the same memory are on the
/// same lanes then, and need not wait for each other.
const STICKY: f64 = 0.05;
/// No lane gets less than this part of the fastest one's share, or nobody would notice that it has become faster.
const LEAST: f64 = 0.02;

/// A lane, as it has been found.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Stripes in flight, and since when they have not been counted.
    stripes: u32,
    since: Time,
    /// The sample in the making.
    bytes: u64,
    busy: Span,
    /// Bytes per second; 0 as long as nothing is known.
    rate: f64,
}

/// All lanes of a queue pair, in one direction.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    lanes: [Lane; RAILS_MAX],
    count: usize,
    is_fixed: bool,
    /// What each lane carries, relative to the others.
    pub(super) shares: [f64; RAILS_MAX],
}

impl Pace {
    /// For so many lanes: shares by `weights`, or measured if there are none.
    pub(super) fn new(count: usize, weights: &[f64]) -> Self {
        let shares = std::array::from_fn(|lane| weights.get(lane).copied().unwrap_or(1.0));
        Self { lanes: [Lane::default(); RAILS_MAX], count, is_fixed: !weights.is_empty(), shares }
    }

    /// A stripe goes out.
    pub(super) fn begin(&mut self, lane: usize, now: Time) {
        let lane = &mut self.lanes[lane];
        if lane.stripes == 0 {
            lane.since = now;
        }
        lane.stripes += 1;
    }

    /// A stripe of so many bytes has ended.
    pub(super) fn end(&mut self, lane: usize, bytes: u64, now: Time) {
        let lane = &mut self.lanes[lane];
        lane.stripes = lane.stripes.saturating_sub(1);
        lane.busy += now.since(lane.since);
        lane.since = now;
        lane.bytes += bytes;
        if self.is_fixed || lane.bytes < SAMPLE_BYTES || lane.busy < SAMPLE_TIME {
            return;
        }
        let rate = lane.bytes as f64 / lane.busy.to_std().as_secs_f64();
        lane.rate = if lane.rate == 0.0 { rate } else { lane.rate + NEWS * (rate - lane.rate) };
        (lane.bytes, lane.busy) = (0, Span::ZERO);
        self.share();
    }

    /// A lane has died or come back: what is known of it is worth nothing.
    pub(super) fn forget(&mut self, lane: usize) {
        self.lanes[lane] = Lane::default();
    }

    /// Shares follow the rates, once all are known, in steps.
    fn share(&mut self) {
        let lanes = &self.lanes[..self.count];
        let fastest = lanes.iter().map(|lane| lane.rate).fold(0.0, f64::max);
        let known = lanes.iter().filter(|lane| lane.rate > 0.0).count();
        let sum: f64 = lanes.iter().map(|lane| lane.rate).sum();
        let mean = sum / known as f64;
        let wanted = |lane: &Lane| if lane.rate > 0.0 { lane.rate.max(LEAST * fastest) } else { mean };
        let all: f64 = lanes.iter().map(wanted).sum();
        let before: f64 = self.shares[..self.count].iter().sum();
        let moved = |(lane, share): (&Lane, &f64)| {
            let (new, old) = (wanted(lane) / all, share / before);
            (new - old).abs() > STICKY * old
        };
        if lanes.iter().zip(&self.shares).any(moved) {
            let shares: [f64; RAILS_MAX] =
                std::array::from_fn(|lane| lanes.get(lane).map_or(0.0, |lane| wanted(lane) / all));
            self.shares = shares;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages, one after the other, over lanes of these rates (bytes per microsecond); the shares afterwards.
    fn after(pace: &mut Pace, rates: &[u64], messages: usize, at: &mut Time) -> Vec<f64> {
        for _ in 0..messages {
            let all: f64 = pace.shares[..rates.len()].iter().sum();
            let ends: Vec<(Time, u64)> = rates
                .iter()
                .zip(&pace.shares)
                .map(|(&rate, share)| {
                    let bytes = ((1 << 20) as f64 * share / all) as u64;
                    (*at + Span::from_ns(1000 * bytes / rate), bytes)
                })
                .collect();
            (0..rates.len()).for_each(|lane| pace.begin(lane, *at));
            ends.iter().enumerate().for_each(|(lane, &(end, bytes))| pace.end(lane, bytes, end));
            *at = ends.iter().map(|(end, _)| *end).max().expect("lanes");
        }
        let all: f64 = pace.shares[..rates.len()].iter().sum();
        pace.shares[..rates.len()].iter().map(|share| share / all).collect()
    }

    #[test]
    fn shares_follow_rates_and_stay_while_these_do() {
        let (mut pace, mut at) = (Pace::new(2, &[]), Time::ZERO);
        assert_eq!(after(&mut pace, &[100, 100], 20, &mut at), [0.5, 0.5]);
        let shares = after(&mut pace, &[400, 100], 60, &mut at);
        assert!((shares[0] - 0.8).abs() < 0.03, "{shares:?}");
        assert_eq!(after(&mut pace, &[404, 100], 60, &mut at), shares, "nothing to speak of has changed");
        let shares = after(&mut pace, &[100, 400], 200, &mut at);
        assert!((shares[0] - 0.2).abs() < 0.03, "{shares:?}");
    }

    #[test]
    fn a_slow_lane_is_not_forgotten_and_a_new_one_is_average() {
        let (mut pace, mut at) = (Pace::new(2, &[]), Time::ZERO);
        let shares = after(&mut pace, &[1000, 1], 200, &mut at);
        assert!(shares[1] > 0.015, "{shares:?}");
        pace.forget(1);
        let shares = after(&mut pace, &[1000, 1000], 100, &mut at);
        assert!((shares[0] - 0.5).abs() < 0.03, "{shares:?}");
    }

    #[test]
    fn given_weights_stay() {
        let (mut pace, mut at) = (Pace::new(2, &[3.0, 1.0]), Time::ZERO);
        assert_eq!(after(&mut pace, &[100, 100], 50, &mut at), [0.75, 0.25]);
    }
}
