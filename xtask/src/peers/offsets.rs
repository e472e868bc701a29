//! Latency by the offsets of both buffers from the beginning of a page: how much of a library's time depends on where the
//! program's buffers are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::cells::{Program, Setting};
use super::libraries::Library;
use super::output::{median_of, output_of};
use super::table::median;
use xtask::workspace::Workspace;

/// Offsets of either buffer, in bytes.
const OFFSETS: [u32; 4] = [0, 8, 16, 32];
/// Sizes of messages, in bytes.
const SIZES: [u32; 7] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];

/// Measures two ranks on shared memory and over TCP, in turns, and prints a table for each.
pub(super) fn run(workspace: &Workspace, libraries: &[Library; 3], turns: u32) -> Result<()> {
    for setting in [Setting::Shm2, Setting::Tcp2] {
        let mut times: BTreeMap<(u32, usize), Vec<Vec<f64>>> = BTreeMap::new();
        for turn in 1..=turns {
            for size in SIZES {
                for (number, library) in libraries.iter().enumerate() {
                    eprintln!("turn {turn} of {turns}: {setting}, {size} B, {}", library.name);
                    let of_pairs = pairs_of_offsets(workspace, library, setting, size)?;
                    let all = times.entry((size, number)).or_insert_with(|| vec![Vec::new(); of_pairs.len()]);
                    all.iter_mut().zip(of_pairs).for_each(|(values, value)| values.push(value));
                }
            }
        }
        print!("{}", table(setting, libraries, &times)?);
    }
    Ok(())
}

/// The latency of each of the 16 pairs of offsets, in ns.
fn pairs_of_offsets(
    workspace: &Workspace,
    library: &Library,
    setting: Setting,
    size: u32,
) -> Result<Vec<f64>> {
    let pairs = OFFSETS.into_iter().flat_map(|source| OFFSETS.map(|sink| (source, sink)));
    let cells: Vec<String> = pairs.map(|(source, sink)| format!("latency:{size}+{source}+{sink}")).collect();
    let mut command = library.job(setting, Program::Probe);
    let all = output_of(workspace, library.name, command.args(&cells))?;
    cells.iter().map(|cell| median_of(library.name, &all, cell)).collect()
}

/// A row for each size: for each library the median over all offsets and, in brackets, the worst over the best; then the ratio of
/// medians to the better of the others. The value of a pair of offsets is the median of the turns.
fn table(
    setting: Setting,
    libraries: &[Library; 3],
    times: &BTreeMap<(u32, usize), Vec<Vec<f64>>>,
) -> Result<String> {
    let mut text = format!("| {setting}: latency, us (worst / best offsets) |");
    libraries.iter().for_each(|library| text += &format!(" {} |", library.name));
    text += " to the better |\n|---|---|---|---|---|\n";
    for size in SIZES {
        let mut medians = Vec::new();
        let _ = write!(text, "| {} KiB |", size >> 10);
        for number in 0..libraries.len() {
            let pairs = times.get(&(size, number)).context("each size was measured")?;
            let of_pairs: Vec<f64> = pairs.iter().filter_map(|values| median(values.clone())).collect();
            let best = of_pairs.iter().copied().fold(f64::INFINITY, f64::min);
            let worst = of_pairs.iter().copied().fold(0.0, f64::max);
            let middle = median(of_pairs).context("each pair was measured")?;
            let _ = write!(text, " {:.2} ({:.2}) |", middle / 1e3, worst / best);
            medians.push(middle);
        }
        let _ = writeln!(text, " {:.2} |", medians[0] / medians[1].min(medians[2]));
    }
    Ok(text)
}
