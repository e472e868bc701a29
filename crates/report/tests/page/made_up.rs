//! A synthetic run in the shape of a real one: a shared-memory card with the usual features and faults.

use results::schema::{
    AaNoise, Bin, ClockInfo, ClockKind, Environment, Floor, Histogram, Launch, Measurement, NoiseSummary,
    Origin, Parameter, Quantile, Run, Stop, Warning,
};
use results::variant::Variant;

const PLACES: [&str; 2] = ["nic", "host"];
const LAUNCHES: usize = 6;

/// A whole run; the same seed makes the same run.
pub(crate) fn run(seed: u64) -> Run {
    let mut dice = Dice(seed);
    let mut results = floors(&mut dice);
    for op in ["send", "write", "write_imm", "read", "cas", "faa"] {
        for (source, sink) in PLACES.iter().flat_map(|a| PLACES.map(|b| (*a, b))) {
            let variant = variant(&[("op", op), ("source", source), ("sink", sink)]);
            let sizes: Vec<u64> = if op.len() == 3 { vec![8] } else { (0..=22).map(|s| 1 << s).collect() };
            for size in sizes {
                results.extend(cell(&mut dice, &variant, op, source, sink, size));
            }
        }
    }
    let mut run = Run { environment: environment(), parameters: parameters(seed), results, ..Run::default() };
    spoil(&mut run);
    run
}

/// Strings that would be elements or code if they were not escaped.
pub(crate) fn hostile() -> Run {
    let evil = "</script><img src=http://evil.invalid/x onerror=alert(1)><script>alert(2)</script>\"'&amp;";
    let mut run = run(7);
    run.environment.host = evil.to_owned();
    run.environment.warnings.push(Warning { what: evil.to_owned(), advice: evil.to_owned() });
    run.parameters.push(Parameter { key: evil.to_owned(), value: evil.to_owned(), ..Parameter::default() });
    for r in &mut run.results {
        r.device = evil.to_owned();
        r.variant = [("<b>key</b>", evil)].into_iter().collect();
        r.note = Some(evil.to_owned());
        r.launches[0].flags.push(evil.to_owned());
        if let Some(floor) = &mut r.floor {
            floor.what = format!("<a href='javascript:alert(3)'>{evil}</a>");
        }
    }
    run
}

struct Dice(u64);

impl Dice {
    /// Evenly from -1 to 1 (xorshift).
    fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn variant(pairs: &[(&str, &str)]) -> Variant {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Seconds of memcpy would be: 20 ns and 11 GB/s, slower beyond the cache.
fn memcpy_us(size: f64) -> f64 {
    0.02 + size / if size > 1_048_576.0 { 7_800.0 } else { 11_500.0 }
}

/// The time of one message: start-up, copying, and a protocol switch beyond 16 KiB for sends.
fn time_us(op: &str, source: &str, sink: &str, size: f64) -> f64 {
    let start = match op {
        "send" => 0.27,
        "read" => 0.16,
        "cas" | "faa" => 0.14,
        _ => 0.125,
    };
    let foreign = |place: &str| if place == "host" { 0.34 } else { 0.0 };
    let switch = if op == "send" && size > 16_384.0 { 2.9 } else { 0.0 };
    start
        + foreign(source) * 0.3
        + foreign(sink)
        + switch
        + memcpy_us(size) * if sink == "host" { 1.16 } else { 1.03 }
}

fn cell(
    dice: &mut Dice,
    variant: &Variant,
    op: &str,
    source: &str,
    sink: &str,
    size: u64,
) -> Vec<Measurement> {
    let us = time_us(op, source, sink, size as f64);
    let bytes = size as f64;
    let line = if size <= 64 { ("cache-line half round trip", 0.104) } else { ("memcpy", memcpy_us(bytes)) };
    let mut out = vec![result(dice, "latency", variant, size, "one_way_latency", "us", us, Some(line))];
    if op.len() == 3 {
        return out;
    }
    out.push(result(dice, "bilat", variant, size, "one_way_latency", "us", us * 1.3, Some(line)));
    if op == "write" || op == "send" {
        let copy = ("memcpy", bytes / memcpy_us(bytes));
        let rate = bytes / (us - 0.08);
        out.push(result(dice, "bandwidth", variant, size, "bandwidth", "MB/s", rate, Some(copy)));
        out.push(result(dice, "bibw", variant, size, "bandwidth", "MB/s", rate * 1.24, Some(copy)));
        let messages = 1e6 / (us - 0.08);
        out.push(result(dice, "bandwidth", variant, size, "message_rate", "1/s", messages, None));
    }
    out
}

fn floors(dice: &mut Dice) -> Vec<Measurement> {
    let mut out = Vec::new();
    for (what, us) in
        [("cache-line half round trip", 0.104), ("futex wake-up", 5.3), ("empty system call", 0.09)]
    {
        out.push(result(dice, "floor", &variant(&[("what", what)]), 0, "time", "us", us, None));
    }
    for size in (0..=22).map(|s| 1u64 << s) {
        let bytes = size as f64;
        for (what, us) in [("memcpy", memcpy_us(bytes)), ("process_vm_writev", 0.31 + memcpy_us(bytes) * 1.1)]
        {
            out.push(result(
                dice,
                "floor",
                &variant(&[("what", what)]),
                size,
                "bandwidth",
                "MB/s",
                bytes / us,
                None,
            ));
        }
    }
    out
}

#[allow(clippy::too_many_arguments, reason = "a table of made-up cells reads best with all factors in a row")]
fn result(
    dice: &mut Dice,
    experiment: &str,
    variant: &Variant,
    size_bytes: u64,
    metric: &str,
    unit: &str,
    truth: f64,
    floor: Option<(&str, f64)>,
) -> Measurement {
    let median = truth * (1.0 + 0.012 * dice.roll());
    let half = 0.004 + 0.012 * dice.roll().abs();
    let launch = |m: f64| Launch {
        n: 20_000,
        median: m,
        ci95: Some([m * 0.997, m * 1.003]),
        lag1: Some(0.04),
        n_eff: Some(19_000.0),
        batch: 1,
        stop: Stop { state: "reached".to_owned(), half_width: Some(0.003), target: 0.01, because: None },
        ..Launch::default()
    };
    let launches = (0..LAUNCHES).map(|_| launch(median * (1.0 + half * dice.roll()))).collect();
    let p99 = Quantile { p: 0.99, value: Some(median * 1.31), ..Quantile::default() };
    Measurement {
        experiment: experiment.to_owned(),
        device: if experiment == "floor" { "machine" } else { "shm" }.to_owned(),
        variant: variant.clone(),
        size_bytes,
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        clock: ClockKind::Tsc,
        n: 20_000 * LAUNCHES as u64,
        median,
        ci95: Some([median * (1.0 - half), median * (1.0 + half)]),
        floor: floor.map(|(what, value)| Floor {
            value,
            unit: unit.to_owned(),
            what: what.to_owned(),
            ratio: median / value,
        }),
        mean: Some(median * 1.05),
        min: Some(median * 0.94),
        max: Some(median * 40.0),
        histogram: Some(histogram(median)),
        quantiles: if unit == "us" { vec![p99] } else { Vec::new() },
        batch: 1,
        launches,
        ..Measurement::default()
    }
}

/// Most samples around the median, a tail above.
fn histogram(median: f64) -> Histogram {
    let bin = |i: u32| {
        let low = median * 0.9 * 1.01_f64.powi(i as i32);
        Bin(low, low * 1.01, if i < 20 { 100 * u64::from(i.min(20 - i)) } else { 3 })
    };
    Histogram { relative_error: 0.01, bins: (0..80).map(bin).collect() }
}

/// Some results that were hard to measure, as there always are.
fn spoil(run: &mut Run) {
    for (i, r) in run.results.iter_mut().enumerate() {
        if i % 41 == 7 {
            r.ci95 = Some([r.median * 0.93, r.median * 1.08]);
            for launch in &mut r.launches[..2] {
                let state = "not reached: 7.4 %".to_owned();
                launch.stop = Stop {
                    state,
                    half_width: Some(0.074),
                    target: 0.01,
                    because: Some("maximum time".to_owned()),
                };
            }
            r.launches[0].flags = vec!["context switches".to_owned()];
        }
        if i % 97 == 13 {
            r.ci95 = None;
            r.ci95_reason = Some("4 launches were completed; an interval needs six".to_owned());
        }
    }
}

fn environment() -> Environment {
    let noise = NoiseSummary {
        quanta: 20_000,
        quantum_ns: 1013.0,
        stolen: 0.0061,
        detours: 41,
        detour_max_ns: 88_000.0,
        p99_ratio: Some(1.02),
    };
    Environment {
        commit: None,
        peers: Vec::new(),
        devices: Vec::new(),
        nicety_version: "0.1.0".to_owned(),
        date: "2026-03-01T12:00:00Z".to_owned(),
        host: "node1".to_owned(),
        kernel: "Linux 6.8.0".to_owned(),
        cpu: "Example CPU at 2.50 GHz".to_owned(),
        cores: 2,
        memory_bytes: 8_245_284_864,
        governor: None,
        tsc_invariant: Some(true),
        clock: ClockInfo { kind: ClockKind::Tsc, overhead_ns: 9.53, resolution_ns: 0.4 },
        pinned_cores: vec![0, 1],
        noise_before: Some(noise),
        noise_after: Some(NoiseSummary { stolen: 0.0184, ..noise }),
        aa_noise: Some(AaNoise { floor: 0.021, ratio: 1.003, launches: 6 }),
        warnings: vec![Warning {
            what: "2 cores for 2 busy processes".to_owned(),
            advice: "leave a core for the system, or expect detours".to_owned(),
        }],
    }
}

fn parameters(seed: u64) -> Vec<Parameter> {
    let of = |key: &str, value: &str, unit: Option<&str>, origin| Parameter {
        key: key.to_owned(),
        value: value.to_owned(),
        unit: unit.map(str::to_owned),
        origin,
    };
    vec![
        of("device", "shm", None, Origin::Flag),
        of("seed", &seed.to_string(), None, Origin::Flag),
        of("launches", "6", None, Origin::Default),
        of("precision", "0.01", None, Origin::Default),
        of("min-time", "100", Some("ms"), Origin::Default),
        of("window", "64", None, Origin::Derived),
        of("max-inline", "64", Some("B"), Origin::Derived),
    ]
}
