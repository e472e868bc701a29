//! Measures the experiments of the paper on MPI over iWARP: our MPI on iWARP as its three variants, MPICH and Open MPI
//! over TCP, two processes on this machine's loopback interface. A line of the file is one library's median of one cell
//! in one turn.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::cells::{Program, Setting};
use super::libraries::Library;
use super::output::{median_of, output_of};
use xtask::python::{MPICH, OPEN_MPI};
use xtask::workspace::Workspace;

/// Probes for all libraries.
const ALL: &[&str] =
    &["latency:4", "bandwidth:65536", "bandwidth:1048576", "allreduce:4", "allgather:4", "barrier:0"];
/// Additional probes with one-sided operations.
const SIDED: &[&str] = &[
    "putepoch:4",
    "putwindow:65536",
    "putwindow:1048576",
    "getepoch:4",
    "getwindow:65536",
    "getwindow:1048576",
];

/// A library as the paper names it: its name in the file, our variant, and the environment variables that select it.
struct Variant {
    word: &'static str,
    library: usize,
    variables: &'static [(&'static str, &'static str)],
}

const RING: (&str, &str) = ("NICETY_FAST_PATH", "1");
const MESSAGES: (&str, &str) = ("NICETY_ONE_SIDED", "messages");

const VARIANTS: [Variant; 5] = [
    Variant { word: "ring", library: 0, variables: &[RING, MESSAGES] },
    Variant { word: "send", library: 0, variables: &[MESSAGES] },
    Variant { word: "one-sided", library: 0, variables: &[RING] },
    Variant { word: "mpich", library: 1, variables: &[] },
    Variant { word: "open-mpi", library: 2, variables: &[] },
];

/// Measures in turns, with all libraries in each, and writes the file.
pub(super) fn run(workspace: &Workspace, libraries: &[Library; 3], turns: u32, file: &Path) -> Result<()> {
    let mut text = format!("# {}\nlibrary,cell,turn,ns\n", conditions(turns));
    for turn in 1..=turns {
        for Variant { word, library, variables } in VARIANTS {
            eprintln!("turn {turn} of {turns}: {word}");
            let cells = match word {
                "one-sided" => SIDED.to_vec(),
                // Its windows are shared memory within a host, whatever the transport of messages.
                "open-mpi" => ALL.to_vec(),
                _ => [ALL, SIDED].concat(),
            };
            let mut command = libraries[library].job(Setting::Tcp2, Program::Probe);
            command.envs(variables.iter().copied()).args(&cells);
            let output = output_of(workspace, word, &mut command)?;
            for cell in cells {
                writeln!(text, "{word},{cell},{turn},{}", median_of(word, &output, cell)?)?;
            }
        }
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("written: {}; now `nicety reproduce mpi-iwarp --real {0} --html PAGE`", file.display());
    Ok(())
}

/// The conditions of the measurement, in a line.
fn conditions(turns: u32) -> String {
    let said = |program: &str, option: &str| {
        let output = Command::new(program).arg(option).output().ok();
        output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let [mpich, open_mpi] = [MPICH, OPEN_MPI].map(|package| package.replace("==", " "));
    format!(
        "Nicety {} over iwarp, {mpich} and {open_mpi} over TCP; two processes, loopback interface; {}, {cores} cores, Linux {}; {turns} \
         turns, on {}; load at the beginning {}",
        env!("CARGO_PKG_VERSION"),
        model.unwrap_or("a processor without a name"),
        said("uname", "-r"),
        said("date", "-I"),
        load.split(' ').next().unwrap_or_default()
    )
}
