//! Recomputes a sample of the stored table, which says which rows each value moves.

use std::sync::atomic::AtomicBool;

use reproduce::{Effect, Move, Moves, Sensitivity, Trial, machines};

/// Cards with few rows, so that a sample is quick to try.
const SAMPLED: [&str; 2] = ["model:myrinet-gm", "model:seastar"];
/// Lines tried of each.
const LINES: usize = 4;

fn alike(a: &Move, b: &Move) -> bool {
    let same = |(a, b): (&(String, Effect), &(String, Effect))| match (a.1, b.1) {
        // The file has four digits.
        (Effect::Factor(x), Effect::Factor(y)) => a.0 == b.0 && (x - y).abs() < 1e-3,
        (x, y) => a.0 == b.0 && x == y,
    };
    a.rows.len() == b.rows.len() && a.rows.iter().zip(&b.rows).all(same)
}

/// Goal: the table agrees with today's model. Method: recomputes lines spread over the entries of two cards, and
/// changes without an entry.
#[test]
fn the_stored_table_is_that_of_the_model() {
    let (stored, stop) = (Moves::stored(), AtomicBool::new(false));
    for card in SAMPLED {
        let all = Sensitivity::new(machines(&[]).expect("the machine files"), &[card], 2, &stop);
        let lines: Vec<&Move> = stored.iter().filter(|line| line.card == card).collect();
        assert!(lines.len() > 2 * LINES, "{} lines of {card}", lines.len());
        for line in lines.iter().step_by(lines.len() / LINES) {
            let (card, key) = (line.card.clone(), line.key.clone());
            let trial = Trial { card, key, to: line.to, assumed: line.assumed };
            let again = all.try_change(&trial, &[line.card.as_str()], &stop).expect("a moved row");
            assert!(alike(line, &again), "{line:?}\nis now {again:?}");
        }
        let missing = |trial: &Trial| !lines.iter().any(|line| line.key == trial.key && line.to == trial.to);
        let unmoved = all.trials(card).into_iter().filter(missing).take(2);
        for trial in unmoved {
            let moved = all.try_change(&trial, &[card], &stop);
            assert!(moved.is_none_or(|moved| moved.rows.is_empty()), "{trial:?} moves rows");
        }
    }
}
