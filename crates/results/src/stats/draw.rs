//! Distributions with known truth, for tests.

use host::Rng;

/// Draws from them.
pub trait Draw {
    /// Standard normal (Box-Muller).
    fn normal(&mut self) -> f64;
    /// Exponential with mean 1.
    fn exponential(&mut self) -> f64;
    /// Log-normal with median 1: the usual shape of latencies.
    fn log_normal(&mut self, sigma: f64) -> f64;
    /// `n` draws.
    fn draws(&mut self, n: usize, draw: impl FnMut(&mut Self) -> f64) -> Vec<f64>;
    /// AR(1) around `mean` with unit variance and lag-1 autocorrelation `rho`.
    fn ar1(&mut self, n: usize, mean: f64, rho: f64) -> Vec<f64>;
}

impl Draw for Rng {
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    fn log_normal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }

    fn draws(&mut self, n: usize, mut draw: impl FnMut(&mut Self) -> f64) -> Vec<f64> {
        (0..n).map(|_| draw(self)).collect()
    }

    fn ar1(&mut self, n: usize, mean: f64, rho: f64) -> Vec<f64> {
        let mut state = self.normal();
        self.draws(n, |rng| {
            state = rho * state + (1.0 - rho * rho).sqrt() * rng.normal();
            mean + state
        })
    }
}
