//! A uniform sample of a stream of unknown length, in fixed memory (rule 2; Vitter's algorithm R).

use host::Rng;

/// Reservoir; everything is kept until the capacity is passed. Seeded, so repeatable.
#[derive(Clone, Debug)]
pub struct Reservoir {
    kept: Vec<f64>,
    // Times of arrival; only needed once the order of `kept` is no longer that of time.
    index: Vec<u64>,
    capacity: usize,
    seen: u64,
    rng: Rng,
}

impl Reservoir {
    /// A reservoir of `capacity` values (at least one), allocated at once.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        let capacity = capacity.max(1);
        Self {
            kept: Vec::with_capacity(capacity),
            index: Vec::with_capacity(capacity),
            capacity,
            seen: 0,
            rng: Rng::new(seed),
        }
    }

    /// Offers a value; does not allocate.
    pub fn push(&mut self, value: f64) {
        if self.kept.len() < self.capacity {
            self.kept.push(value);
            self.index.push(self.seen);
        } else {
            let place = self.rng.below(self.seen + 1) as usize;
            if place < self.capacity {
                self.kept[place] = value;
                self.index[place] = self.seen;
            }
        }
        self.seen += 1;
    }

    /// Values kept at most.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many values have been offered.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether every value offered is still there.
    #[must_use]
    pub const fn complete(&self) -> bool {
        self.seen <= self.capacity as u64
    }

    /// Values kept; in time order as long as [`complete`](Self::complete).
    #[must_use]
    pub fn kept(&self) -> &[f64] {
        &self.kept
    }

    /// Removes the first `count` values, as if they had never been offered; only while [`complete`](Self::complete),
    /// returns whether it did.
    pub fn forget_first(&mut self, count: usize) -> bool {
        if !self.complete() || count > self.kept.len() {
            return false;
        }
        self.kept.drain(..count);
        self.index.truncate(self.kept.len());
        self.seen = self.kept.len() as u64;
        true
    }

    /// The values kept, in the order they came, each with its index in the stream.
    #[must_use]
    pub fn into_time_order(self) -> Vec<(u64, f64)> {
        let mut pairs: Vec<(u64, f64)> = self.index.into_iter().zip(self.kept).collect();
        pairs.sort_unstable_by_key(|(index, _)| *index);
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_its_capacity_it_keeps_everything_in_order() {
        let mut reservoir = Reservoir::new(10, 1);
        (0..10).for_each(|i| reservoir.push(f64::from(i)));
        assert!(reservoir.complete());
        assert!(reservoir.forget_first(4) && !reservoir.forget_first(7));
        assert_eq!((reservoir.seen(), reservoir.kept()), (6, &[4.0, 5.0, 6.0, 7.0, 8.0, 9.0][..]));
        reservoir.push(10.0);
        assert_eq!(reservoir.into_time_order().last(), Some(&(6, 10.0)));
    }

    /// Each of 100 values stays with probability 1/10, early or late.
    #[test]
    fn every_value_is_equally_likely_to_stay() {
        let mut counts = [0u32; 100];
        for seed in 0..5000 {
            let mut reservoir = Reservoir::new(10, seed);
            (0..100).for_each(|i| reservoir.push(f64::from(i)));
            let kept = reservoir.into_time_order();
            assert!(kept.windows(2).all(|w| w[0].0 < w[1].0));
            assert!(kept.iter().all(|(i, v)| *i as f64 == *v));
            kept.iter().for_each(|(i, _)| counts[*i as usize] += 1);
        }
        assert!(counts.iter().all(|c| (400..600).contains(c)), "{counts:?}");
    }

    #[test]
    fn it_never_grows() {
        let mut reservoir = Reservoir::new(100, 1);
        let before = (reservoir.kept.as_ptr(), reservoir.index.as_ptr(), reservoir.kept.capacity());
        (0..10_000).for_each(|i| reservoir.push(f64::from(i)));
        assert_eq!(before, (reservoir.kept.as_ptr(), reservoir.index.as_ptr(), reservoir.kept.capacity()));
        assert!(!reservoir.complete() && !reservoir.forget_first(1));
        assert_eq!((reservoir.seen(), reservoir.kept().len()), (10_000, 100));
    }
}
