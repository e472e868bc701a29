//! What each fitted value is good for: which rows move when it does. A value that moves the rows of one figure only
//! would explain nothing; it would repeat what it was fitted to.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::judge::{Class, Row};
use super::machine::Fitted;
use super::published::Published;

/// A value becomes this share of itself: large enough that one which matters shows, and hardly ever beyond a range.
pub const CHANGE: f64 = 0.5;
/// A row has moved if it did by this share.
const MOVED: f64 = 0.005;

/// What moves with a fitted value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Service {
    /// The value's key.
    pub key: String,
    /// Ids of the rows that move by 0.5 % at least when it is half as large.
    pub rows: Vec<String>,
    /// Where these are in the papers.
    pub figures: Vec<String>,
}

impl Service {
    /// Whether it serves several figures.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.figures.len() > 1
    }
}

/// The rows that can move: numbers that are measured.
pub(super) fn movable(published: &[Published], rows: &[Row]) -> Vec<Published> {
    let can = |id: &str| {
        let row = rows.iter().find(|row| row.id == id);
        row.is_some_and(|row| row.modelled.is_some() && row.class != Class::Input)
    };
    published.iter().filter(|row| can(&row.id)).cloned().collect()
}

/// What moves with each fitted value; `again` computes rows with the value of a key changed. `None` if it was stopped.
pub(super) fn services(
    base: &[Row],
    fitted: &[Fitted],
    stop: &AtomicBool,
    mut again: impl FnMut(&str) -> Option<Vec<Row>>,
) -> Option<Vec<Service>> {
    let keys: BTreeSet<&str> = fitted.iter().map(|one| one.key.as_str()).collect();
    let mut all = Vec::new();
    for key in keys {
        let changed = again(key)?;
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return None;
        }
        let moved: Vec<&Row> = changed.iter().filter(|row| has_moved(row, base)).collect();
        let figures: BTreeSet<(String, u32, String)> = moved.iter().map(|row| place(row)).collect();
        all.push(Service {
            key: key.to_owned(),
            rows: moved.iter().map(|row| row.id.clone()).collect(),
            figures: figures.into_iter().map(|(paper, _, place)| format!("{paper} {place}")).collect(),
        });
    }
    Some(all)
}

fn has_moved(row: &Row, base: &[Row]) -> bool {
    let before = base.iter().find(|before| before.id == row.id);
    let ends = |row: &Row| [row.modelled, row.modelled_low, row.modelled_high];
    before.is_some_and(|before| {
        ends(row).into_iter().zip(ends(before)).any(|pair| match pair {
            (Some(now), Some(then)) => (now - then).abs() > MOVED * then.abs(),
            _ => false,
        })
    })
}

/// Paper, number, and the figure or table; what is in none is told by its experiment.
fn place(row: &Row) -> (String, u32, String) {
    let place = if row.figure.is_empty() { &row.experiment } else { &row.figure };
    let number = place.split(|c: char| !c.is_ascii_digit()).find_map(|digits| digits.parse().ok());
    (row.paper.clone(), number.unwrap_or(u32::MAX), place.clone())
}

#[cfg(test)]
mod tests {
    use super::super::published::select;
    use super::super::{Machine, Origin, Request, Value, reproduce};
    use super::*;

    fn rows(factor: f64, asked: &[Published]) -> Vec<Row> {
        let card = "model:mt23108-nicmem".to_owned();
        let values = vec![Value::new("x.y", 1.0, Origin::Fitted, "NM-055")];
        let measure = move |probe: &super::super::Probe| {
            Ok(if probe.cell.experiment == "bibw" { 1859.0 * factor } else { 900.0 })
        };
        let request = Request {
            rows: asked.to_vec(),
            figures: false,
            machines: vec![Machine { card, values }],
            changes: Vec::new(),
            measure: &measure,
            threads: 1,
        };
        reproduce(request, &mut (), &AtomicBool::new(false)).expect("nobody stops it").rows
    }

    #[test]
    fn rows_that_move_tell_which_figures_a_value_serves() {
        let all = select(Some("mt23108-nicmem")).expect("rows");
        let base = rows(1.0, &all);
        let movable = movable(&all, &base);
        assert!(
            movable.iter().any(|row| row.id == "NM-054") && !movable.iter().any(|row| row.id == "NM-042")
        );
        let fitted = vec![Fitted {
            card: "model:mt23108-nicmem".to_owned(),
            key: "x.y".to_owned(),
            value: 1.0,
            rows: vec!["NM-055".to_owned()],
        }];
        let go = AtomicBool::new(false);
        let served = |factor| {
            let again = |_: &str| Some(rows(factor, &movable));
            services(&base, &fitted, &go, again).expect("not stopped").remove(0)
        };
        let service = served(1.01);
        assert!(service.rows.contains(&"NM-081".to_owned()) && !service.rows.contains(&"NM-043".to_owned()));
        assert_eq!(service.figures, ["mt23108-nicmem Figure 6", "mt23108-nicmem Figure 8"]);
        assert!(service.is_shared());
        assert!(served(1.001).rows.is_empty() && !served(1.001).is_shared());
    }
}
