//! Evaluates measurements: medians, ratios by turn, and whether each bound holds.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cells::{Bound, Cell, ComparedWith};
use super::libraries::Library;

/// For each cell and library, a value per turn.
#[derive(Default)]
pub(crate) struct Measurements(BTreeMap<(String, &'static str), Vec<f64>>);

impl Measurements {
    pub(crate) fn add(&mut self, cell: &Cell, library: &'static str, value: f64) {
        self.0.entry((cell.to_string(), library)).or_default().push(value);
    }

    fn values(&self, cell: &Cell, library: &'static str) -> &[f64] {
        self.0.get(&(cell.to_string(), library)).map_or(&[], Vec::as_slice)
    }
}

/// The median; for an even number of values, the mean of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

/// A cell's verdict: the median, least and greatest of the value that the bound limits, and whether the bound holds.
struct Verdict {
    median_value: f64,
    least: f64,
    most: f64,
    holds: bool,
}

fn verdict(measured: &Measurements, cell: &Cell) -> Option<Verdict> {
    let ours = measured.values(cell, "Nicety");
    let theirs = |name| measured.values(cell, name);
    let compared_with = match cell.compared_with {
        ComparedWith::Nothing => &[],
        ComparedWith::Mpich => theirs("MPICH"),
        ComparedWith::OpenMpi => theirs("Open MPI"),
        ComparedWith::Better => {
            let both = ["MPICH", "Open MPI"].map(theirs);
            let [a, b] = both.map(|values| median(values.to_vec()).unwrap_or(f64::INFINITY));
            if a <= b { both[0] } else { both[1] }
        }
    };
    let values: Vec<f64> = match cell.bound {
        Bound::Least(_) | Bound::Most(_) => ours.to_vec(),
        Bound::Time(_) => ours.iter().zip(compared_with).map(|(ours, theirs)| ours / theirs).collect(),
        Bound::Speed(_) => ours.iter().zip(compared_with).map(|(ours, theirs)| theirs / ours).collect(),
    };
    let median_value = median(values.clone())?;
    let holds = match cell.bound {
        Bound::Time(most) | Bound::Most(most) => median_value <= most,
        Bound::Speed(least) | Bound::Least(least) => median_value >= least,
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    Some(Verdict { median_value, least, most, holds })
}

/// The table, as Markdown.
pub(crate) fn render(measured: &Measurements, cells: &[&Cell], libraries: &[Library]) -> String {
    let mut text = String::from("| cell |");
    for library in libraries {
        let _ = write!(text, " {} |", library.name);
    }
    text += " compared with the bound | bound | holds |\n|---|";
    text += &"---|".repeat(libraries.len() + 3);
    text.push('\n');
    for cell in cells {
        let _ = write!(text, "| {cell} |");
        for library in libraries {
            let value = median(measured.values(cell, library.name).to_vec());
            let _ = write!(text, " {} |", value.map_or_else(String::new, |value| with_unit(cell, value)));
        }
        let (found, holds) = verdict(measured, cell).map_or((String::new(), ""), |v| {
            (
                format!("{:.2} ({:.2} to {:.2})", v.median_value, v.least, v.most),
                if v.holds { "yes" } else { "**no**" },
            )
        });
        let _ = writeln!(text, " {found} | {} | {holds} |", cell.bound());
    }
    text
}

/// A value with its unit, as text.
fn with_unit(cell: &Cell, value: f64) -> String {
    match cell.probe.split(':').next().unwrap_or_default() {
        "overlap" => format!("{value:.2}"),
        "memory" => format!("{:.1} MiB", value / 1024.0),
        _ if value >= 1e9 => format!("{:.2} s", value / 1e9),
        _ if value >= 1e6 => format!("{:.1} ms", value / 1e6),
        _ if value >= 1e3 => format!("{:.2} us", value / 1e3),
        _ => format!("{value:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::cells;
    use super::*;

    fn measured(cell: &Cell, ours: [f64; 3], mpich: [f64; 3], open_mpi: [f64; 3]) -> Measurements {
        let mut measured = Measurements::default();
        for (name, values) in [("Nicety", ours), ("MPICH", mpich), ("Open MPI", open_mpi)] {
            values.into_iter().for_each(|value| measured.add(cell, name, value));
        }
        measured
    }

    fn cell(name: &str) -> Cell {
        cells().into_iter().find(|cell| cell.to_string() == name).expect("a cell of this name")
    }

    #[test]
    fn ratios_are_those_of_turns() {
        let latency = &cell("shm 2 latency:1024");
        // The machine was half as fast in the second turn, for all libraries.
        let found = verdict(
            &measured(latency, [70.0, 140.0, 70.0], [300.0, 600.0, 300.0], [100.0, 200.0, 100.0]),
            latency,
        );
        let found = found.expect("a verdict");
        assert!((found.least, found.median_value, found.most) == (0.7, 0.7, 0.7) && found.holds);
    }

    #[test]
    fn speed_is_the_reciprocal_of_time() {
        let rate = &cell("shm 2 rate:8");
        let found = verdict(&measured(rate, [100.0; 3], [1.0; 3], [140.0; 3]), rate).expect("a verdict");
        assert!(found.median_value == 1.4 && !found.holds, "{}", found.median_value);
    }

    #[test]
    fn names_of_cells_differ() {
        let all = cells();
        let mut names: Vec<String> = all.iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn median_of_an_even_number_is_the_mean_of_two() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
