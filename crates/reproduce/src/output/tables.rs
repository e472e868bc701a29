//! The papers' tables, as they are printed: operations down, systems across, in each cell the paper's number and the
//! model's.

use serde::Serialize;

use crate::papers::published::{MULTIRAIL, THESIS};
use crate::verdicts::judge::Row;

/// A table of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperTable {
    /// Key of the paper.
    pub paper: &'static str,
    /// As in the paper.
    pub number: &'static str,
    /// The quantity, with the unit.
    pub title: &'static str,
    /// Systems.
    pub columns: &'static [&'static str],
    /// Operations.
    pub lines: Vec<TableLine>,
}

/// A line of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableLine {
    /// The operation.
    pub operation: &'static str,
    /// For each system the printed and the modelled value; `None` where the paper has a dash.
    pub cells: Vec<Option<[f64; 2]>>,
}

/// An operation with the rows of its cells.
type Operation = (&'static str, &'static [Option<&'static str>]);

const TITLE: &str = "Operations that transfer no data (us: paper, model)";

const PEAKS_TITLE: &str = "Peaks and their bounds (bounds in GB/s, peaks in MB/s: paper, model)";

/// Equations (3), (2) and (1) for the three rail configurations, and the measured values.
const PEAKS: &[Operation] = &[
    ("bound, by the equation", &[Some("MR-044"), Some("MR-043"), Some("MR-042")]),
    ("one way, one thread", &[Some("MR-064"), None, Some("MR-075")]),
    ("one way, a thread for each", &[None, Some("MR-070"), Some("MR-076")]),
    ("both ways, one thread", &[Some("MR-082"), None, Some("MR-089")]),
    ("both ways, a thread for each", &[None, Some("MR-086"), Some("MR-092")]),
];

const COSTS: &[Operation] = &[
    ("register 4 KiB", &[Some("MT-061"), Some("MT-062")]),
    ("deregister 4 KiB", &[Some("MT-063"), Some("MT-064")]),
    ("post a receive", &[Some("MT-065"), Some("MT-066")]),
    ("post a send", &[Some("MT-067"), Some("MT-068")]),
    ("poll, a completion there", &[Some("MT-069"), Some("MT-070")]),
    ("poll, queue empty", &[Some("MT-071"), Some("MT-072")]),
    ("create a connection", &[Some("MT-073"), Some("MT-074")]),
    ("tear a connection down", &[Some("MT-075"), Some("MT-076")]),
];

const THREE: &[Operation] = &[
    ("register 4 KiB", &[Some("MT-148"), Some("MT-149"), None]),
    ("deregister 4 KiB", &[Some("MT-151"), Some("MT-152"), None]),
    ("post a receive", &[Some("MT-154"), Some("MT-155"), Some("MT-156")]),
    ("post a send", &[Some("MT-157"), Some("MT-158"), Some("MT-159")]),
    ("poll", &[Some("MT-160"), Some("MT-161"), Some("MT-162")]),
];

/// The tables whose cells are all among the rows, and were computed.
pub(crate) fn tables(rows: &[Row]) -> Vec<PaperTable> {
    type Plan = (&'static str, [&'static str; 2], &'static [&'static str], &'static [Operation]);
    let all: [Plan; 3] = [
        (THESIS, ["3.1", TITLE], &["VAPI", "IBAL"], COSTS),
        (THESIS, ["4.1", TITLE], &["InfiniBand", "Myrinet", "Quadrics"], THREE),
        (
            MULTIRAIL,
            ["of equations (1) to (3)", PEAKS_TITLE],
            &["one rail (3)", "two ports (2)", "two cards (1)"],
            PEAKS,
        ),
    ];
    all.into_iter()
        .filter_map(|(paper, [number, title], columns, operations)| {
            let lines = operations.iter().map(|of| line(of, rows)).collect::<Option<_>>()?;
            Some(PaperTable { paper, number, title, columns, lines })
        })
        .collect()
}

/// The line of an operation; `None` if a row has no value.
fn line((operation, ids): &Operation, rows: &[Row]) -> Option<TableLine> {
    let cell = |id: &Option<&str>| match id {
        None => Some(None),
        Some(id) => {
            let row = rows.iter().find(|row| row.id == *id)?;
            Some(Some([row.published?, row.modelled?]))
        }
    };
    Some(TableLine { operation, cells: ids.iter().map(cell).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::published::dataset;

    /// Goal: every cell is the row that the paper has there. Method: its row's figure column names the table, and the ids of
    /// a table are different.
    #[test]
    fn cells_are_rows_of_their_table() {
        let data = dataset();
        for (number, operations) in [("Table 3.1", COSTS), ("Table 4.1", THREE)] {
            let ids: Vec<&str> =
                operations.iter().flat_map(|(_, ids)| ids.iter().flatten().copied()).collect();
            for id in &ids {
                let row = data.iter().find(|row| row.id == *id).expect("a row");
                assert_eq!((row.figure.as_str(), row.unit.as_str()), (number, "us"), "{id}");
            }
            let mut once = ids.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), ids.len());
        }
        for id in PEAKS.iter().flat_map(|(_, ids)| ids.iter().flatten()) {
            let row = data.iter().find(|row| row.id == *id).expect("a row");
            assert!(row.paper == MULTIRAIL && row.unit.ends_with("B/s"), "{id}");
        }
        assert!(tables(&[]).is_empty(), "no table of nothing");
    }
}
