//! From launches to results: intervals, quantiles and what is refused, on data whose truth is known.

use super::*;
use crate::sample::{Calibration, Plan, Sampler, drive};
use results::schema::{ClockKind, Run};
use results::stats::{Draw as _, Rng};

fn head(unit: &str) -> CellHead {
    CellHead {
        experiment: "latency".into(),
        device: "shm".into(),
        size_bytes: 8,
        unit: unit.into(),
        ..CellHead::default()
    }
}

fn launches(count: u64, op_ns: f64, kept_max: usize) -> Vec<Sampled> {
    let clock = Calibration { kind: ClockKind::Tsc, overhead_ns: 2.0, resolution_ns: 0.5 };
    let plan = Plan {
        clock,
        half_width_target: 1e-9,
        samples_max: 3000,
        time_max_ns: f64::INFINITY,
        samples_kept_max: kept_max,
        ..Plan::default()
    };
    let one = |seed| {
        let (mut rng, mut sampler) = (Rng::new(seed), Sampler::new(plan));
        drive(&mut sampler, |batch| op_ns * batch as f64 * rng.log_normal(0.1)).expect("durations");
        sampler.finish().expect("samples")
    };
    (0..count).map(one).collect()
}

fn microseconds(ns: f64) -> f64 {
    ns / 1000.0
}

fn assemble(sampled: &[Sampled]) -> Measurement {
    let floor = CellFloor { value: 0.5, what: "half round trip".into() };
    measurement(head("us"), sampled, microseconds, Some(floor), &Detail::default()).expect("launches")
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a / b - 1.0).abs() < 0.02)
}

#[test]
fn the_result_of_six_launches_has_everything_and_can_be_written() {
    let result = assemble(&launches(6, 1000.0, 1 << 18));
    assert!(near(Some(result.median), 1.0) && near(result.mean, 0.005f64.exp()), "{result:?}");
    assert!(
        result.ci95.is_some_and(|[low, high]| low <= result.median && result.median <= high && low > 0.98)
    );
    assert_eq!((result.ci95_reason.as_deref(), result.launches.len(), result.batch), (None, 6, 1));
    assert!(near(result.floor.as_ref().map(|f| f.ratio), 2.0));
    assert!(result.between_launch < result.within_launch && result.between_launch.is_some());
    let histogram = result.histogram.as_ref().expect("histogram");
    assert_eq!(histogram.bins.iter().map(|b| b.2).sum::<u64>(), result.n);
    assert_eq!(result.launches[0].samples.len(), 500);
    let run = Run { results: vec![result], ..Run::default() };
    assert_eq!(Run::from_json(&run.to_json().expect("json")).expect("read"), run);
}

/// Log-normal with sigma 0.1: p99 is exp(0.1 * 2.326). p99.99 needs 29 956 samples, and there are 18 000.
#[test]
fn quantiles_are_given_as_far_as_the_samples_carry_them() {
    for keep in [1 << 18, 1000] {
        let result = assemble(&launches(6, 1000.0, keep));
        let of = |p: f64| result.quantiles.iter().find(|q| q.p == p).expect("asked");
        assert!(near(of(0.99).value, (0.1 * 2.326_35f64).exp()), "{:?}", of(0.99));
        assert!(of(0.99).ci95.is_some_and(|c| c[0] <= 1.262 && c[1] >= 1.262), "{:?}", of(0.99));
        assert!(of(0.999).value.is_some() && of(0.999).value < result.max, "p99.9 is not the maximum");
        assert_eq!((of(0.9999).value, of(0.9999).needs), (None, Some(29956)));
    }
}

#[test]
fn batched_samples_have_no_quantiles_of_operations() {
    let result = assemble(&launches(6, 20.0, 1 << 18));
    assert_eq!(result.batch, 16);
    assert!(result.quantiles.iter().all(|q| q.value.is_none()));
    assert_eq!(result.quantiles[0].refused.as_deref(), Some("each sample is the mean of 16 operations"));
}

/// 4 KiB in about 1 us: rates fall as times rise, so ends swap, and the mean is bytes over time.
#[test]
fn a_rate_keeps_its_ends_in_order_and_its_mean_harmonic() {
    let sampled = launches(6, 1000.0, 1 << 18);
    let rate = |ns: f64| 4096.0 / ns * 1000.0;
    let result = measurement(head("MB/s"), &sampled, rate, None, &Detail::default()).expect("launches");
    assert!(near(Some(result.median), 4096.0));
    let (bytes, ns) = (result.n as f64 * 4096.0, sampled.iter().map(|l| l.sum_ns).sum::<f64>());
    assert!((result.mean.expect("mean") - bytes / ns * 1000.0).abs() < 1e-6);
    assert!(result.min < Some(result.median) && result.max > Some(result.median));
    assert!(
        result.ci95.is_some_and(|c| c[0] <= c[1]) && result.launches[0].ci95.is_some_and(|c| c[0] <= c[1])
    );
    let p = |p: f64| result.quantiles.iter().find(|q| q.p == p).and_then(|q| q.value);
    assert!(near(p(0.95), 4096.0 * (0.1 * 1.644_85f64).exp()), "{:?}", p(0.95));
    assert!(result.within_launch > Some(0.0) && result.floor.is_none());
}

#[test]
fn few_launches_say_what_they_cannot_carry() {
    let one = assemble(&launches(1, 1000.0, 1 << 18));
    assert!(one.launches[0].ci95.is_some(), "its samples have one");
    assert!(one.ci95.is_none() && one.ci95_reason.as_deref().is_some_and(|r| r.starts_with("one launch")));
    let five = assemble(&launches(5, 1000.0, 1 << 18));
    assert!(five.ci95.is_none() && five.ci95_reason.as_deref().is_some_and(|r| r.contains("95 % needs 6")));
    assert!(measurement(head("us"), &[], microseconds, None, &Detail::default()).is_none());
}

/// A clock that often does not advance gives infinite rates; none may reach the file, which would be refused as a
/// whole.
#[test]
fn times_of_zero_leave_no_infinite_numbers() {
    let sampled = |period: u64| {
        let mut sampler = Sampler::new(Plan { samples_max: 200, batch_max: 4, ..Plan::default() });
        let mut calls = 0;
        let work = |_| {
            calls += 1;
            if calls % period == 0 { 0.0 } else { 1e6 }
        };
        drive(&mut sampler, work).expect("durations");
        [sampler.finish().expect("samples")]
    };
    let rate = |ns: f64| 1e9 / ns;
    let floor = CellFloor { value: 0.0, what: "nothing".into() };
    let some = measurement(head("1/s"), &sampled(10), rate, Some(floor), &Detail::default()).expect("launch");
    assert!(some.max.is_none() && some.mean.is_some() && some.floor.is_none());
    assert!(Run { results: vec![some], ..Run::default() }.to_json().is_ok());
    assert!(measurement(head("1/s"), &sampled(1), rate, None, &Detail::default()).is_none());
}
