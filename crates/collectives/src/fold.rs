//! Folds a number of ranks to a power of two: in the first pairs of ranks, one gives its vector to the other and waits.

/// The ranks that take part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    /// The largest power of two that is not above the number of ranks.
    pub(crate) participants: usize,
    /// Number of pairs.
    pairs: usize,
}

/// A rank's part in a fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoldRole {
    /// It gives its vector to a rank, and gets the result from that rank.
    Sender(usize),
    /// It takes part under a number, and takes the vector of a rank first.
    Receiver(usize, usize),
    /// It takes part under a number, with its own vector only.
    Unpaired(usize),
}

impl Fold {
    pub(crate) fn new(size: usize) -> Self {
        let participants = 1 << size.ilog2();
        Self { participants, pairs: size - participants }
    }

    /// The lower rank of a pair gives, so that the vectors of each number follow those of the number before.
    pub(crate) fn role(self, rank: usize) -> FoldRole {
        match rank {
            rank if rank >= 2 * self.pairs => FoldRole::Unpaired(rank - self.pairs),
            rank if rank % 2 == 0 => FoldRole::Sender(rank + 1),
            rank => FoldRole::Receiver(rank / 2, rank - 1),
        }
    }

    /// The rank with a number.
    pub(crate) fn rank_of(self, number: usize) -> usize {
        if number < self.pairs { 2 * number + 1 } else { number + self.pairs }
    }

    /// The first rank whose vector belongs to a number; for the count of numbers, the number of ranks.
    pub(crate) fn first_rank(self, number: usize) -> usize {
        number + number.min(self.pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_rank_and_covers_consecutive_ranks() {
        for size in 1..40 {
            let fold = Fold::new(size);
            assert_eq!((fold.first_rank(0), fold.first_rank(fold.participants)), (0, size));
            for number in 0..fold.participants {
                let rank = fold.rank_of(number);
                let expected = match fold.first_rank(number + 1) - fold.first_rank(number) {
                    1 => FoldRole::Unpaired(number),
                    _ => FoldRole::Receiver(number, rank - 1),
                };
                assert_eq!(fold.role(rank), expected, "{size} ranks");
                assert!((fold.first_rank(number)..fold.first_rank(number + 1)).contains(&rank));
            }
        }
    }
}
