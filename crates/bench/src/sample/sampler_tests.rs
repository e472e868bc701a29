//! The sampler on operations with known times: batches, stop rule, limits, invalid input.

use super::*;
use results::schema::ClockKind;
use results::stats::{Draw as _, Rng};

fn clock() -> Calibration {
    Calibration { kind: ClockKind::Tsc, overhead_ns: 2.0, resolution_ns: 0.5 }
}

fn plan() -> Plan {
    Plan { clock: clock(), time_min_ns: 0.0, time_max_ns: f64::INFINITY, ..Plan::default() }
}

/// Runs a plan over independent operations of about `op_ns`, with relative noise.
fn run(plan: Plan, seed: u64, mut op_ns: impl FnMut(&mut Rng, u64) -> f64) -> (Sampled, Vec<Round>) {
    let (mut rng, mut sampler, mut rounds, mut done) = (Rng::new(seed), Sampler::new(plan), Vec::new(), 0);
    while let Some(round) = sampler.next_round() {
        assert_eq!(sampler.next_round(), Some(round), "a round stays open until it is pushed");
        assert!(round.samples >= 1 && round.samples <= sampler.round_max());
        let mut sample = || {
            (0..round.batch)
                .map(|_| {
                    done += 1;
                    op_ns(&mut rng, done)
                })
                .sum::<f64>()
        };
        let durations: Vec<f64> = (0..round.samples).map(|_| sample()).collect();
        sampler.push(&durations).expect("durations");
        rounds.push(round);
    }
    (sampler.finish().expect("samples"), rounds)
}

/// Goal: long operations do not take many times their time. Method: operations of a fifth and of twice the time that a cell has.
#[test]
fn first_round_of_long_operations_fits_the_time() {
    let of = |op_ns: f64| {
        let limited = Plan { batch: Some(1), time_max_ns: 1e7, ..plan() };
        let (_, rounds) = run(limited, 1, noisy(op_ns, 0.01));
        rounds[1..].iter().map(|round| round.samples).collect::<Vec<_>>()
    };
    assert_eq!(of(2e6)[0], 5, "the fewest, as four would fit");
    assert_eq!(of(2e7), [5]);
    assert_eq!(of(1e5)[0], 16);
}

#[test]
fn round_takes_no_longer_than_it_may() {
    let limited = Plan { half_width_target: 1e-9, samples_max: 5000, round_time_ns: Some(1e5), ..plan() };
    let (all, rounds) = run(limited, 1, noisy(1000.0, 0.05));
    let main = || rounds.iter().filter(|round| round.kind == RoundKind::Main).map(|round| round.samples);
    assert_eq!(all.n + all.warm_up_cut() as u64, main().sum::<u64>());
    assert!(main().all(|samples| samples <= 101) && main().any(|samples| samples >= 95), "{rounds:?}");
    let slow = Plan { half_width_target: 1e-9, samples_max: 40, round_time_ns: Some(1.0), ..plan() };
    let (_, rounds) = run(slow, 1, noisy(1e6, 0.05));
    assert!(
        rounds.iter().filter(|round| round.kind == RoundKind::Main).skip(1).all(|round| round.samples == 1)
    );
}

fn noisy(level: f64, sigma: f64) -> impl FnMut(&mut Rng, u64) -> f64 {
    move |rng, _| level * rng.log_normal(sigma)
}

#[test]
fn long_operations_are_timed_one_by_one_and_short_ones_in_batches() {
    let (long, rounds) = run(plan(), 1, noisy(1000.0, 0.05));
    assert_eq!(long.batch, 1);
    assert_eq!((rounds[0].kind, rounds[0].samples, rounds[0].batch), (RoundKind::First, 1, 1));
    assert_eq!(rounds[1].kind, RoundKind::Pilot);
    // 20 overheads of 10 ns are 200 ns: 67 operations of 3 ns, 128 in powers of two.
    let (short, _) = run(plan(), 1, noisy(3.0, 0.05));
    assert_eq!(short.batch, 128);
    assert!((short.median_ns() / 3.0 - 1.0).abs() < 0.01, "{}", short.median_ns());
}

/// The first operations are a thousand times slower: the batch must not come from them.
#[test]
fn a_cold_start_does_not_set_the_batch() {
    let (found, _) = run(plan(), 2, |rng, i| if i < 10 { 5000.0 } else { 5.0 * rng.log_normal(0.02) });
    assert_eq!((found.batch, found.first_ns), (64, Some(5000.0)));
}

#[test]
fn it_stops_when_the_interval_is_narrow_enough_and_not_much_later() {
    let (found, _) = run(plan(), 3, noisy(1000.0, 0.1));
    assert!(found.stop().reached(), "{:?}", found.stop());
    assert!(found.half_width.is_some_and(|w| w <= 0.01));
    // The median's deviation is about 0.125 / sqrt n, so 1 % at 95 % takes about 600.
    assert!((150..2500).contains(&found.n), "{}", found.n);
    assert!((found.median_ns() / 1000.0 - 1.0).abs() < 0.02);
}

/// The rule's guarantee at its stop holds, peeking included: 95 % less a little.
#[test]
fn the_interval_at_the_stop_covers_the_truth() {
    let hits = (0..400).filter(|seed| {
        let (found, _) = run(plan(), *seed, noisy(1000.0, 0.15));
        found.interval.is_some_and(|i| i.covers(1000.0))
    });
    let count = hits.count();
    assert!(count >= 364, "{count} of 400");
}

#[test]
fn checkpoints_grow_and_rounds_fit_the_buffer() {
    let wild = Plan { half_width_target: 1e-9, samples_max: 20_000, round_max: 1000, ..plan() };
    let (found, rounds) = run(wild, 4, noisy(1000.0, 0.5));
    assert!(rounds.iter().all(|r| r.samples <= 1000));
    assert_eq!(rounds.iter().filter(|r| r.kind == RoundKind::Main).map(|r| r.samples).sum::<u64>(), 20_000);
    assert_eq!(found.because, Some("maximum count"));
    let state = found.stop().state;
    assert!(state.starts_with("not reached: 0.") && state.ends_with(" %"), "{state}");
}

#[test]
fn the_time_is_kept_to_within_a_sample() {
    let capped = Plan { half_width_target: 1e-9, time_max_ns: 1e6, ..plan() };
    let (found, _) = run(capped, 5, noisy(1000.0, 0.3));
    assert!((0.9e6..1.1e6).contains(&found.elapsed_ns), "{}", found.elapsed_ns);
    assert_eq!(found.because, Some("maximum time"));
}

/// One operation longer than the whole budget still gives a number, flagged as without an interval.
#[test]
fn a_budget_below_one_operation_gives_five_samples() {
    let (found, _) = run(Plan { time_max_ns: 10.0, ..plan() }, 6, noisy(1e9, 0.01));
    assert_eq!((found.n, found.interval), (5, None));
    assert_eq!(found.stop().state, "not reached: no interval");
    assert!(found.interval_reason.is_some_and(|r| r.contains("fewer than 6")));
}

#[test]
fn a_minimum_time_is_spent() {
    let (found, _) = run(Plan { time_min_ns: 5e6, ..plan() }, 7, noisy(1000.0, 0.001));
    assert!(found.elapsed_ns >= 5e6 && found.stop().reached());
}

#[test]
fn a_warm_up_is_cut_and_a_drift_is_reported() {
    let settle =
        |rng: &mut Rng, i: u64| (1000.0 + 3000.0 * (-(i as f64) / 100.0).exp()) * rng.log_normal(0.05);
    let (found, _) = run(plan(), 8, settle);
    assert!(found.warm_up_cut() >= 150 && found.steady() == Some(true), "{}", found.warm_up_cut());
    assert!((found.median_ns() / 1000.0 - 1.0).abs() < 0.03, "{}", found.median_ns());
    let drift = |rng: &mut Rng, i: u64| (1000.0 + i as f64) * rng.log_normal(0.01);
    let (found, _) = run(Plan { samples_max: 2000, ..plan() }, 9, drift);
    assert_eq!(found.steady(), Some(false));
    assert!(found.flags.iter().any(|f| f == "no steady state") && found.flags.iter().any(|f| f == "trend"));
    // Precise enough immediately, yet no stop before half of the budget: it might still settle.
    let drift = |rng: &mut Rng, i: u64| (1000.0 + i as f64) * rng.log_normal(0.01);
    let (found, _) = run(Plan { samples_max: 2000, half_width_target: 0.5, ..plan() }, 9, drift);
    assert!(found.stop().reached() && found.n >= 1000, "{}", found.n);
}

#[test]
fn dependent_samples_take_longer_and_say_so() {
    let mut state = 0.0;
    let dependent = move |rng: &mut Rng, _| {
        state = 0.9 * state + 0.19f64.sqrt() * rng.normal();
        1000.0 * (1.0 + 0.1 * state).max(0.1)
    };
    let (found, _) = run(plan(), 10, dependent);
    assert!(found.n > 2500, "{}", found.n);
    assert!(found.lag1.is_some_and(|r| r > 0.8) && found.n_eff() < found.n as f64 / 4.0);
    assert!(found.interval_reason.is_some_and(|r| r.contains("depend on each other")));
}

#[test]
fn two_modes_are_flagged() {
    let (found, _) =
        run(plan(), 11, |rng, _| if rng.unit() < 0.4 { 1500.0 } else { 1000.0 } * rng.log_normal(0.02));
    assert!(found.flags.iter().any(|f| f == "bimodal"), "{:?}", found.flags);
}

/// More samples than the buffer holds: memory stays constant, the reservoir and the histogram take over.
#[test]
fn beyond_its_memory_it_keeps_a_reservoir_and_a_histogram_and_never_grows() {
    let mut sampler =
        Sampler::new(Plan { half_width_target: 1e-9, samples_max: 50_000, samples_kept_max: 2000, ..plan() });
    let before = (sampler.kept.kept().as_ptr(), sampler.scratch.as_ptr(), sampler.scratch.capacity());
    let mut rng = Rng::new(12);
    drive(&mut sampler, |batch| 1000.0 * batch as f64 * rng.log_normal(0.2)).expect("durations");
    assert_eq!(before, (sampler.kept.kept().as_ptr(), sampler.scratch.as_ptr(), sampler.scratch.capacity()));
    let found = sampler.finish().expect("samples");
    assert!(!found.complete && found.samples.len() == 2000);
    assert_eq!(found.n + found.warm_up_cut() as u64, 50_000);
    assert_eq!(found.histogram.len(), found.n);
    assert!((found.median_ns() / 1000.0 - 1.0).abs() < 0.03);
    assert!((found.sum_ns / found.n as f64 / 1000.0 / 0.02f64.exp() - 1.0).abs() < 0.02);
}

/// The warm-up is cut for good when the buffer is full: it reaches neither the totals nor the histogram.
#[test]
fn a_warm_up_does_not_outlive_the_buffer() {
    let plan = Plan { half_width_target: 1e-9, samples_max: 20_000, samples_kept_max: 2000, ..plan() };
    let (found, _) = run(plan, 14, |rng, i| if i < 400 { 9000.0 } else { 1000.0 } * rng.log_normal(0.05));
    assert!(!found.complete && found.warm_up_cut() >= 360, "{}", found.warm_up_cut());
    // The block on the border may keep a minority of slow samples.
    assert!(found.histogram.at_rank(found.n - 4).is_some_and(|top| top < 2000.0));
    assert!(found.sum_ns / (found.n as f64) < 1010.0);
    assert_eq!(found.n + found.warm_up_cut() as u64, 20_000);
}

#[test]
fn a_given_batch_is_used_as_it_is() {
    let (found, rounds) = run(Plan { batch: Some(7), ..plan() }, 13, noisy(1000.0, 0.05));
    assert_eq!(found.batch, 7);
    assert!(rounds.iter().all(|r| r.kind != RoundKind::Pilot));
    assert_eq!(Round { samples: 3, batch: 7, kind: RoundKind::Main }.operations(), 21);
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    let mut sampler = Sampler::new(plan());
    assert!(sampler.clone().finish().is_none(), "nothing sampled, no result");
    while sampler.taken() < 100 {
        let round = sampler.next_round().expect("a round");
        let durations: Vec<f64> = (0..round.samples).map(|i| 1000.0 + 400.0 * (i % 2) as f64).collect();
        sampler.push(&durations).expect("durations");
    }
    sampler.interrupt();
    assert_eq!(sampler.next_round(), None);
    let found = sampler.finish().expect("samples");
    assert!(found.n >= 50);
    assert_eq!(found.because, Some("interrupted"));
}

#[test]
fn wrong_durations_are_refused_and_change_nothing() {
    let mut sampler = Sampler::new(plan());
    assert_eq!(sampler.push(&[1.0]), Err(PushError::NoRound));
    let round = sampler.next_round();
    assert_eq!(sampler.push(&[1.0, 2.0]), Err(PushError::WrongCount { expected: 1, got: 2 }));
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(matches!(sampler.push(&[bad]), Err(PushError::BadDuration { index: 0, .. })));
    }
    assert_eq!(sampler.next_round(), round);
    assert_eq!(sampler.push(&[5.0]), Ok(()));
}

/// Any plan and any durations end.
#[test]
fn nonsense_plans_and_clocks_that_stand_still_end() {
    let nonsense = Plan {
        half_width_target: f64::NAN,
        samples_min: u64::MAX,
        samples_max: 0,
        growth: f64::NAN,
        samples_kept_max: 0,
        round_max: 0,
        batch_max: 0,
        time_max_ns: f64::NAN,
        ..plan()
    };
    for plan in [nonsense, Plan { samples_max: 1000, batch_max: 64, ..plan() }] {
        let mut sampler = Sampler::new(plan);
        drive(&mut sampler, |_| 0.0).expect("durations");
        let found = sampler.finish().expect("samples");
        assert_eq!(found.median_ns(), 0.0);
    }
}
