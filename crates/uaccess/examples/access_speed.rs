//! Measures guarded access: copies compared with memmove(3), range checks, and `arm`. Nanoseconds, medians of
//! interleaved rounds.
#![allow(unsafe_code, reason = "it calls what is measured")]

use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 31;
const SIZES: [usize; 17] =
    [1, 4, 8, 12, 24, 64, 96, 256, 512, 1024, 4096, 4104, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20];
/// Approximate number of bytes that one measurement of a size copies.
const BYTES: usize = 8 << 20;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn mean_time(times: usize, mut body: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..times).for_each(&mut body);
    start.elapsed().as_nanos() as f64 / times as f64
}

/// The medians of two bodies, which run in turns.
fn median_times(times: usize, mut one: impl FnMut(usize), mut other: impl FnMut(usize)) -> (f64, f64) {
    let rounds: Vec<_> =
        (0..ROUNDS).map(|_| (mean_time(times, &mut one), mean_time(times, &mut other))).collect();
    (median(rounds.iter().map(|r| r.0).collect()), median(rounds.iter().map(|r| r.1).collect()))
}

fn main() {
    uaccess::detect_features();
    uaccess::arm().expect("a handler");
    let source = vec![1_u8; (16 << 20) + 4096];
    let mut target = vec![2_u8; (16 << 20) + 4096];
    let (source, target) = (source.as_ptr(), target.as_mut_ptr());
    println!("{:>10} {:>10} {:>10} {:>10} {:>7}", "bytes", "offsets", "memmove", "guarded", "ratio");
    for (from, to) in [(0, 0), (13, 3)] {
        for size in SIZES {
            let times = (BYTES / size).clamp(1, 100_000);
            let offset_of_round = |round: usize| (round & 7) * 64;
            // SAFETY: both have the bytes.
            let (plain, guarded) = unsafe {
                median_times(
                    times,
                    |i| {
                        std::ptr::copy(
                            black_box(source).add(from),
                            target.add(to + offset_of_round(i)),
                            black_box(size),
                        )
                    },
                    |i| {
                        let (source, size) = (black_box(source).add(from), black_box(size));
                        let done =
                            uaccess::copy_last_byte_last(target.add(to + offset_of_round(i)), source, size);
                        assert!(black_box(done).is_ok());
                    },
                )
            };
            let offsets = format!("{from},{to}");
            println!("{size:>10} {offsets:>10} {plain:>10.2} {guarded:>10.2} {:>7.3}", guarded / plain);
        }
    }
    println!("\n{:>10} {:>10} {:>10}", "bytes", "check", "readable");
    for len in [1, 4096, 64 << 10, 256 << 10, (256 << 10) + 1, 1 << 20, 16 << 20] {
        let (check, readable) = median_times(
            1000,
            |_| assert_eq!(uaccess::check(black_box(target), len, true), Ok(())),
            |_| assert!(uaccess::is_readable(black_box(target), len)),
        );
        println!("{len:>10} {check:>10.1} {readable:>10.1}");
    }
    let (arm, nothing) = median_times(1000, |_| uaccess::arm().expect("armed"), |_| {});
    println!("\narm, when armed: {:.1}", arm - nothing);
}
