//! The few special functions that exact ranks and tests need.

use std::f64::consts::{PI, SQRT_2};

/// Natural logarithm of the gamma function, x > 0 (Lanczos, g = 7); relative error near 1e-14.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let series = C.iter().enumerate().skip(1).fold(C[0], |sum, (i, c)| sum + c / (x + i as f64));
    0.5 * (2.0 * PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// Regularised incomplete beta function I_x(a, b), by Lentz's continued fraction (DLMF 8.17.22).
pub(crate) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast only below the mean; above it the reflected one does.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    front.exp() / a * beta_fraction(a, b, x)
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    // Needs about sqrt(max(a, b)) steps; the bound only ends a hopeless case.
    for step in 1..100_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// P(X <= k) for X binomial with `n` trials of probability `p`.
pub(crate) fn binomial_cdf(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    incomplete_beta((n - k) as f64, (k + 1) as f64, 1.0 - p)
}

/// Upper tail P(T > t) of Student's t with `df` degrees of freedom (any positive number).
pub(crate) fn student_upper(t: f64, df: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t));
    if t >= 0.0 { tail } else { 1.0 - tail }
}

/// Upper tail P(Z > z) of the standard normal (Abramowitz & Stegun 7.1.26, absolute error below 1e-7).
pub(crate) fn normal_upper(z: f64) -> f64 {
    let x = z.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .iter()
        .fold(0.0, |sum, c| (sum + c) * t);
    let tail = 0.5 * poly * (-x * x).exp();
    if z >= 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not {b}");
    }

    #[test]
    fn ln_gamma_gives_factorials() {
        close(ln_gamma(1.0), 0.0, 1e-13);
        close(ln_gamma(0.5), PI.sqrt().ln(), 1e-13);
        close(ln_gamma(11.0), 3_628_800f64.ln(), 1e-12);
    }

    #[test]
    fn the_binomial_is_the_sum_of_its_terms() {
        let (n, p) = (20u64, 0.3f64);
        let choose = |k: u64| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
        let mut sum = 0.0;
        for k in 0..n {
            sum += choose(k) * p.powf(k as f64) * (1.0 - p).powf((n - k) as f64);
            close(binomial_cdf(k, n, p), sum, 1e-12);
        }
        close(binomial_cdf(n, n, p), 1.0, 0.0);
        close(binomial_cdf(58, 59, 0.95), 1.0 - 0.95f64.powf(59.0), 1e-12);
        // The median of a large symmetric binomial.
        close(binomial_cdf(5_000_000, 10_000_000, 0.5), 0.5 + 0.5 * (2.0 / (PI * 1e7)).sqrt(), 1e-6);
    }

    /// Values from printed tables.
    #[test]
    fn tails_match_the_tables() {
        close(student_upper(2.228, 10.0), 0.025, 1e-5);
        close(student_upper(-2.228, 10.0), 0.975, 1e-5);
        close(student_upper(6.314, 1.0), 0.05, 1e-5);
        close(normal_upper(1.959_964), 0.025, 1e-6);
        close(normal_upper(-1.0), 0.841_345, 1e-6);
    }
}
