//! Compares our MPI with other MPI libraries: the same measuring programs run under each, alternating.
//! `xtask/peers/probe.c` measures operations, `nas.c` contains two NAS kernels, and `write.c` writes an array into a
//! file.
//!
//! | module | what it holds |
//! |---|---|
//! | `libraries` | the libraries: installation, programs built for each, and the start of a job |
//! | `cells` | what is measured, and the bound of each |
//! | `table` | medians, ratios and the table |
//! | `network` | two hosts as network namespaces, and the cable between them |
//! | `offsets` | latency by the offsets of both buffers |
//! | `output` | a program's output under a library |
//! | `paper` | the experiments of the paper on MPI over iWARP, for `nicety reproduce mpi-iwarp --real` |
//!
//! A turn is one job under each library in succession, so that disturbances of the machine affect all alike; each turn
//! has another order of cells. A ratio is computed within one turn; the table has the median, least and greatest of all
//! turns.

mod cells;
mod libraries;
mod network;
mod offsets;
mod output;
mod paper;
mod table;

use anyhow::{Result, ensure};

use cells::{Cell, Program, Setting};
use libraries::Library;
use network::Network;
use output::{median_of, output_of};
use table::Measurements;
use xtask::python;
use xtask::workspace::Workspace;

/// The options of `cargo xtask peers`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of turns; in each, every library runs every cell once.
    #[arg(long, default_value_t = 6, value_name = "N")]
    turns: u32,
    /// Only cells whose names contain this, such as `shm`, `latency`, `tcp 2 latency:8` or `cg:A`; may be repeated.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only install the libraries and build their programs.
    #[arg(long)]
    install: bool,
    /// Measure the experiments of the paper on MPI over iWARP: three variants of our MPI on iWARP, and the other libraries over TCP. Writes
    /// a file for `nicety reproduce mpi-iwarp --real FILE`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "list", "install"])]
    paper: Option<std::path::PathBuf>,
    /// Measure between two hosts instead, network namespaces with a cable of this rate and delay, such as 10g,50us. Needs the right to
    /// create network namespaces and TUN devices.
    #[arg(long, value_name = "RATE,DELAY", conflicts_with_all = ["paper", "install"])]
    network: Option<network::Cable>,
    /// Measure latency with 16 pairs of offsets of the buffers instead, and print how much depends on them.
    #[arg(long, conflicts_with_all = ["paper", "install", "network", "only", "list"])]
    offsets: bool,
    /// Print the cells and their bounds.
    #[arg(long)]
    list: bool,
}

/// Measures, and prints the table.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let wanted = |cell: &&Cell| {
        options.only.is_empty() || options.only.iter().any(|part| cell.to_string().contains(part))
    };
    let cells = if options.network.is_some() { cells::net_cells() } else { cells::cells() };
    let wanted: Vec<&Cell> = cells.iter().filter(wanted).collect();
    ensure!(!wanted.is_empty(), "no cell has this name; `cargo xtask peers --list` prints all");
    if options.list {
        wanted.iter().for_each(|cell| println!("{:<32} {}", cell.to_string(), cell.bound()));
        return Ok(());
    }
    let libraries = libraries::provide(workspace)?;
    if options.install {
        println!("installed in {}", python::folder(workspace).display());
        return Ok(());
    }
    if let Some(file) = &options.paper {
        return paper::run(workspace, &libraries, options.turns, file);
    }
    if options.offsets {
        return offsets::run(workspace, &libraries, options.turns);
    }
    let network = options.network.map(|cable| Network::new(workspace, &python::folder(workspace), cable));
    let network = network.transpose()?;
    let mut measured = Measurements::default();
    for turn in 0..options.turns {
        for (setting, program) in jobs() {
            let is_one = |cell: &&Cell| cell.setting == setting && cell.program() == program;
            let mut cells: Vec<&Cell> = wanted.iter().copied().filter(is_one).collect();
            if cells.is_empty() {
                continue;
            }
            let by = turn as usize % cells.len();
            cells.rotate_left(by);
            let first = turn as usize % libraries.len();
            for library in libraries[first..].iter().chain(&libraries[..first]) {
                let name = program.name();
                eprintln!("turn {} of {}: {name}, {setting}, {}", turn + 1, options.turns, library.name);
                for (cell, value) in job(workspace, library, network.as_ref(), (setting, program), &cells)? {
                    measured.add(cell, library.name, value);
                }
            }
        }
    }
    print!("{}", table::render(&measured, &wanted, &libraries));
    Ok(())
}

/// All jobs of a turn.
fn jobs() -> impl Iterator<Item = (Setting, Program)> {
    Setting::ALL.into_iter().flat_map(|setting| Program::ALL.map(|program| (setting, program)))
}

/// Runs a program under a library; returns the median of each cell's samples.
fn job<'a>(
    workspace: &Workspace,
    library: &Library,
    network: Option<&Network>,
    (setting, program): (Setting, Program),
    cells: &[&'a Cell],
) -> Result<Vec<(&'a Cell, f64)>> {
    let mut command = match network {
        Some(network) => library.job_across(network, setting, program),
        None => library.job(setting, program),
    };
    command.args(cells.iter().filter(|cell| !cell.is_start_up()).map(|cell| cell.probe));
    let began = std::time::Instant::now();
    let all = output_of(workspace, library.name, &mut command)?;
    let took = began.elapsed();
    let value = |cell: &&'a Cell| -> Result<(&'a Cell, f64)> {
        if cell.is_start_up() {
            return Ok((*cell, took.as_secs_f64() * 1e9));
        }
        Ok((*cell, median_of(library.name, &all, cell.probe)?))
    };
    cells.iter().map(value).collect()
}
