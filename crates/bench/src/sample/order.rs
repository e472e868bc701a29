//! The order of measurements: so that drift of the machine falls on all cells alike (rule 8).

use results::stats::Rng;

/// The numbers `0..cells` in random order; the seed goes into the result file.
#[must_use]
pub fn shuffled(cells: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    Rng::new(seed).shuffle(&mut order);
    order
}

/// `repetitions` passes over `0..cells`: each pair of passes is a fresh shuffle and its reverse (A B B A), so that
/// within a pair a linear drift is the same for every cell.
#[must_use]
pub fn interleaved(cells: usize, repetitions: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed);
    let mut pass: Vec<usize> = (0..cells).collect();
    let mut order = Vec::with_capacity(cells.saturating_mul(repetitions));
    for repetition in 0..repetitions {
        if repetition % 2 == 0 {
            rng.shuffle(&mut pass);
        } else {
            pass.reverse();
        }
        order.extend_from_slice(&pass);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_cell_once_and_the_seed_repeats_it() {
        let mut order = shuffled(50, 7);
        assert_eq!(order, shuffled(50, 7));
        assert_ne!(order, shuffled(50, 8));
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }

    /// The sum of positions is the same for all cells: a linear drift cancels.
    #[test]
    fn a_linear_drift_falls_on_all_cells_alike() {
        let order = interleaved(9, 6, 3);
        let sum = |cell| order.iter().enumerate().filter(|(_, c)| **c == cell).map(|(i, _)| i).sum::<usize>();
        assert!((1..9).all(|cell| sum(cell) == sum(0)));
        assert_eq!(order[..2], [order[17], order[16]]);
        assert_eq!(order.len(), 54);
    }

    #[test]
    fn nothing_is_in_no_order() {
        assert!(
            interleaved(0, 5, 1).is_empty() && interleaved(5, 0, 1).is_empty() && shuffled(0, 1).is_empty()
        );
    }
}
