//! Folds a number of ranks to a power of two: in the first pairs of ranks, one gives its vector to the other and waits.

/// The ranks that take part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    /// The largest power of two that is not above the number of ranks.
    pub(crate) power: usize,
    /// Number of pairs.
    rest: usize,
}

/// A rank's part in a fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// It gives its vector to a rank, and gets the result from that rank.
    Gives(usize),
    /// It takes part under a number, and takes the vector of a rank first.
    Takes(usize, usize),
    /// It takes part under a number, with its own vector only.
    Alone(usize),
}

impl Fold {
    pub(crate) fn of(size: usize) -> Self {
        let power = 1 << size.ilog2();
        Self { power, rest: size - power }
    }

    /// The lower rank of a pair gives, so that the vectors of each number follow those of the number before.
    pub(crate) fn part(self, rank: usize) -> Part {
        match rank {
            rank if rank >= 2 * self.rest => Part::Alone(rank - self.rest),
            rank if rank % 2 == 0 => Part::Gives(rank + 1),
            rank => Part::Takes(rank / 2, rank - 1),
        }
    }

    /// The rank with a number.
    pub(crate) fn rank(self, number: usize) -> usize {
        if number < self.rest { 2 * number + 1 } else { number + self.rest }
    }

    /// The first rank whose vector belongs to a number; for the count of numbers, the number of ranks.
    pub(crate) fn first(self, number: usize) -> usize {
        number + number.min(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_rank_and_stands_for_ranks_that_follow_each_other() {
        for size in 1..40 {
            let fold = Fold::of(size);
            assert_eq!((fold.first(0), fold.first(fold.power)), (0, size));
            for number in 0..fold.power {
                let rank = fold.rank(number);
                let expected = match fold.first(number + 1) - fold.first(number) {
                    1 => Part::Alone(number),
                    _ => Part::Takes(number, rank - 1),
                };
                assert_eq!(fold.part(rank), expected, "{size} ranks");
                assert!((fold.first(number)..fold.first(number + 1)).contains(&rank));
            }
        }
    }
}
