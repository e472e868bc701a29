//! Ours beside other MPI libraries: the same measuring program (`xtask/peers/probe.c`) under each, turn by turn in one run.
//!
//! | module | what it holds |
//! |---|---|
//! | `libraries` | the libraries: how each is installed, the program built for it, and a job started |
//! | `cells` | what is measured, and the bound of each |
//! | `table` | medians, ratios and the table |
//!
//! A turn is a job under each library, one after the other, so that what disturbs the machine disturbs all alike; cells come in
//! another order in each turn. A ratio is that of one turn; the table has the median of all turns and the least and the most.

mod cells;
mod libraries;
mod table;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::limited::Running;
use crate::python;
use crate::workspace::Workspace;
use cells::{CELLS, Cell, Setting};
use libraries::Library;
use table::Measured;

/// How long a job may run: four of MPICH's ranks on two cores wait for each other most of the time.
const LIMIT: Duration = Duration::from_secs(300);

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many turns.
    #[arg(long, default_value_t = 6, value_name = "N")]
    turns: u32,
    /// Only cells whose names contain this, such as `shm`, `latency` or `tcp 2 latency:8`; may be given more than once.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only install the libraries and build the program for them.
    #[arg(long)]
    install: bool,
    /// Print the cells and their bounds.
    #[arg(long)]
    list: bool,
}

/// Measures, and prints the table.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let wanted = |cell: &&Cell| {
        options.only.is_empty() || options.only.iter().any(|part| cell.to_string().contains(part))
    };
    let wanted: Vec<&Cell> = CELLS.iter().filter(wanted).collect();
    ensure!(!wanted.is_empty(), "no cell has such a name; `cargo xtask peers --list` prints all");
    if options.list {
        wanted.iter().for_each(|cell| println!("{:<32} {}", cell.to_string(), cell.bound()));
        return Ok(());
    }
    let libraries = libraries::provide(workspace)?;
    if options.install {
        println!("installed in {}", python::folder(workspace).display());
        return Ok(());
    }
    let mut measured = Measured::default();
    for turn in 0..options.turns {
        for setting in Setting::ALL {
            let mut cells: Vec<&Cell> =
                wanted.iter().copied().filter(|cell| cell.setting == setting).collect();
            if cells.is_empty() {
                continue;
            }
            let by = turn as usize % cells.len();
            cells.rotate_left(by);
            for library in &libraries {
                eprintln!("turn {} of {}: {setting}, {}", turn + 1, options.turns, library.name);
                for (cell, value) in job(workspace, library, setting, &cells)? {
                    measured.add(cell, library.name, value);
                }
            }
        }
    }
    print!("{}", table::shown(&measured, &wanted, &libraries));
    Ok(())
}

/// Runs the program under a library: of each cell the median of its samples.
fn job<'a>(
    workspace: &Workspace,
    library: &Library,
    setting: Setting,
    cells: &[&'a Cell],
) -> Result<Vec<(&'a Cell, f64)>> {
    let log = python::folder(workspace).join(format!("{}.log", library.name));
    let mut command = library.job(setting);
    command.args(cells.iter().filter(|cell| !cell.is_start_up()).map(|cell| cell.probe));
    let began = std::time::Instant::now();
    let finished = Running::start(&mut command, &log)?.finish(LIMIT)?;
    let took = began.elapsed();
    let all = &finished.output;
    ensure!(finished.is_good(), "{} ended with {:?}: {all}", library.name, finished.status);
    let value = |cell: &&'a Cell| -> Result<(&'a Cell, f64)> {
        if cell.is_start_up() {
            return Ok((*cell, took.as_secs_f64() * 1e9));
        }
        let line = all.lines().find_map(|line| line.strip_prefix(cell.probe)?.strip_prefix(' '));
        let line = line.with_context(|| format!("{} said nothing of {}: {all}", library.name, cell.probe))?;
        let values = line.split(' ').skip(1).map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        Ok((*cell, table::median(values).context("a cell has samples")?))
    };
    cells.iter().map(value).collect()
}
