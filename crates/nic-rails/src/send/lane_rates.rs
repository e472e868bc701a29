//! Measures the rate of each lane: bytes of stripes completed in the time that stripes were in flight there, over the
//! last tenth of a second. Stripes are sized in that proportion, with a correction: a lane that finishes before others
//! gets a little more each time. So all lanes finish at about the same time, although the time in flight does not
//! depend on the lane alone.

use host::{Span, Time};

use crate::RAILS_MAX;

/// Minimum number of bytes, and of time in flight, before the rate of a lane counts as known.
const KNOWN_BYTES: u64 = 512 << 10;
const KNOWN_TIME: Span = Span::from_us(500);
/// After this much time in flight, earlier measurements count half. Completions come in bursts, which this averages.
const WINDOW: Span = Span::from_ms(64);
/// Shares are kept until one would change by this fraction: requests to the same memory then use the same lanes, and
/// need not wait for each other.
const STICKY: f64 = 0.05;
/// The factor that a lane gains by finishing before others.
const GAIN: f64 = 1.02;
/// The minimum share of a lane, relative to the fastest; with less it would not be noticed that the lane has become
/// faster.
const SHARE_MIN: f64 = 0.02;

/// Measurements of a lane.
#[derive(Clone, Copy, Debug)]
struct LaneRate {
    /// Stripes in flight, and the time since when their time in flight has not been counted.
    stripes: u32,
    since: Time,
    /// Bytes carried, and the time in flight.
    bytes: u64,
    busy: Span,
    /// Bytes per second; 0 while unknown.
    rate: f64,
    /// Correction factor of the rate.
    gain: f64,
}

impl Default for LaneRate {
    fn default() -> Self {
        Self { stripes: 0, since: Time::ZERO, bytes: 0, busy: Span::ZERO, rate: 0.0, gain: 1.0 }
    }
}

/// All lanes of a queue pair, in one direction.
#[derive(Clone, Debug)]
pub(crate) struct LaneRates {
    lanes: [LaneRate; RAILS_MAX],
    count: usize,
    is_fixed: bool,
    /// The part that each lane carries, relative to the others.
    pub(crate) shares: [f64; RAILS_MAX],
}

impl LaneRates {
    /// For `count` lanes: with shares by `weights`, or measured if these are empty.
    pub(crate) fn new(count: usize, weights: &[f64]) -> Self {
        let shares = std::array::from_fn(|lane| weights.get(lane).copied().unwrap_or(1.0));
        Self { lanes: [LaneRate::default(); RAILS_MAX], count, is_fixed: !weights.is_empty(), shares }
    }

    /// A stripe starts.
    pub(crate) fn start_stripe(&mut self, lane: usize, now: Time) {
        let lane = &mut self.lanes[lane];
        if lane.stripes == 0 {
            lane.since = now;
        }
        lane.stripes += 1;
    }

    /// A stripe of `bytes` bytes has completed.
    pub(crate) fn finish_stripe(&mut self, lane: usize, bytes: u64, now: Time) {
        let others = self.lanes.iter().enumerate().any(|(at, other)| at != lane && other.stripes > 0);
        let lane = &mut self.lanes[lane];
        lane.stripes = lane.stripes.saturating_sub(1);
        lane.busy += now.since(lane.since);
        lane.since = now;
        lane.bytes += bytes;
        if lane.stripes == 0 && others {
            lane.gain *= GAIN;
        }
        if self.is_fixed || lane.bytes < KNOWN_BYTES || lane.busy < KNOWN_TIME {
            return;
        }
        lane.rate = lane.bytes as f64 / lane.busy.to_std().as_secs_f64();
        if lane.busy > WINDOW {
            (lane.bytes, lane.busy) = (lane.bytes / 2, lane.busy / 2);
        }
        self.update_shares();
    }

    /// A lane has failed or been reconnected: discards its measurements.
    pub(crate) fn reset_lane(&mut self, lane: usize) {
        self.lanes[lane] = LaneRate::default();
    }

    /// Adapts the shares to the rates, in steps.
    fn update_shares(&mut self) {
        // Only the ratios of the gains matter.
        let least = self.lanes[..self.count].iter().map(|lane| lane.gain).fold(f64::MAX, f64::min);
        self.lanes[..self.count].iter_mut().for_each(|lane| lane.gain /= least);
        let lanes = &self.lanes[..self.count];
        let found = |lane: &LaneRate| lane.rate * lane.gain;
        let fastest = lanes.iter().map(found).fold(0.0, f64::max);
        let known = lanes.iter().filter(|lane| lane.rate > 0.0).count();
        let sum: f64 = lanes.iter().map(found).sum();
        let mean = sum / known as f64;
        let wanted =
            |lane: &LaneRate| if lane.rate > 0.0 { found(lane).max(SHARE_MIN * fastest) } else { mean };
        let all: f64 = lanes.iter().map(wanted).sum();
        let before: f64 = self.shares[..self.count].iter().sum();
        let moved = |(lane, share): (&LaneRate, &f64)| {
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

    /// Sends messages in sequence over lanes of these rates (bytes per microsecond); returns the shares
    /// afterwards.
    fn shares_after(lanes: &mut LaneRates, rates: &[u64], messages: usize, at: &mut Time) -> Vec<f64> {
        for _ in 0..messages {
            let all: f64 = lanes.shares[..rates.len()].iter().sum();
            let ends: Vec<(Time, u64)> = rates
                .iter()
                .zip(&lanes.shares)
                .map(|(&rate, share)| {
                    let bytes = ((1 << 20) as f64 * share / all) as u64;
                    (*at + Span::from_ns(1000 * bytes / rate), bytes)
                })
                .collect();
            (0..rates.len()).for_each(|lane| lanes.start_stripe(lane, *at));
            let mut order: Vec<usize> = (0..rates.len()).collect();
            order.sort_by_key(|&lane| ends[lane].0);
            order.iter().for_each(|&lane| lanes.finish_stripe(lane, ends[lane].1, ends[lane].0));
            *at = ends.iter().map(|(end, _)| *end).max().expect("lanes");
        }
        let all: f64 = lanes.shares[..rates.len()].iter().sum();
        lanes.shares[..rates.len()].iter().map(|share| share / all).collect()
    }

    #[test]
    fn shares_follow_rates() {
        let (mut rates, mut at) = (LaneRates::new(2, &[]), Time::ZERO);
        let shares = shares_after(&mut rates, &[100, 100], 20, &mut at);
        assert!((shares[0] - 0.5).abs() < 0.03, "{shares:?}");
        let shares = shares_after(&mut rates, &[400, 100], 300, &mut at);
        assert!((shares[0] - 0.8).abs() < 0.03, "{shares:?}");
        let shares = shares_after(&mut rates, &[100, 400], 300, &mut at);
        assert!((shares[0] - 0.2).abs() < 0.03, "{shares:?}");
    }

    #[test]
    fn slow_lane_keeps_a_share_and_new_lane_gets_the_average() {
        let (mut rates, mut at) = (LaneRates::new(2, &[]), Time::ZERO);
        let shares = shares_after(&mut rates, &[1000, 1], 200, &mut at);
        assert!(shares[1] > 0.015, "{shares:?}");
        rates.reset_lane(1);
        let shares = shares_after(&mut rates, &[1000, 1000], 400, &mut at);
        assert!((shares[0] - 0.5).abs() < 0.03, "{shares:?}");
    }

    #[test]
    fn shares_correct_for_time_outside_of_the_lane() {
        let (mut rates, mut at) = (LaneRates::new(2, &[]), Time::ZERO);
        // Both seem equally fast, but the first always finishes before the other.
        for _ in 0..200 {
            (0..2).for_each(|lane| rates.start_stripe(lane, at));
            at = at + Span::from_ms(5);
            rates.finish_stripe(0, 1 << 20, at);
            rates.finish_stripe(1, 1 << 20, at);
        }
        assert!(rates.shares[0] > 3.0 * rates.shares[1], "{:?}", rates.shares);
    }

    #[test]
    fn configured_weights_do_not_change() {
        let (mut rates, mut at) = (LaneRates::new(2, &[3.0, 1.0]), Time::ZERO);
        assert_eq!(shares_after(&mut rates, &[100, 100], 50, &mut at), [0.75, 0.25]);
    }
}
