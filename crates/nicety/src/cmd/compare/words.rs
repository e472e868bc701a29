//! The names of cells, and the order of verdicts.

use host::Bytes;
use results::schema::Cell;
use results::stats::Verdict;

/// The verdicts, most urgent first.
pub(super) const VERDICTS: [Verdict; 4] =
    [Verdict::Worse, Verdict::CannotTell, Verdict::Better, Verdict::Same];

/// The name of a cell: `latency one_way_latency on shm, op=write sink=nic, 8 B`.
pub(super) fn name(cell: &Cell) -> String {
    format!("{}, {}", series(cell), Bytes(cell.size_bytes))
}

/// The name of a cell without its size.
pub(super) fn series(cell: &Cell) -> String {
    let mut text = format!("{} {} on {}", cell.experiment, cell.metric, cell.device);
    let levels: Vec<String> = cell.variant.iter().map(|(key, level)| format!("{key}={level}")).collect();
    if !levels.is_empty() {
        text += ", ";
        text += &levels.join(" ");
    }
    text
}
