//! The case of MPI's header: against MPICH's of the same ABI.

use super::case::{Case, Verdict};
use super::launchers::Mpich;
use crate::workspace::{capture, run};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const CASES: &[Case<Mpich>] = &[Case {
    name: "mpi-header",
    shows: "mpi.h against MPICH's of the same ABI",
    run: |mpich| header(mpich),
}];

/// Prototypes in which MPICH and the standard differ: a count is `int` there since an erratum, and `MPI_Count` in MPICH.
const DIFFERENT: [&str; 2] = ["MPI_Psend_init(", "MPI_Precv_init("];

/// Lines of a table of the face that are no comments.
fn table(mpich: &Mpich, name: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(mpich.root.join("crates/abi-mpi").join(name))?;
    let is_line = |line: &&str| !line.is_empty() && !line.starts_with('#');
    Ok(text.lines().filter(is_line).map(str::to_owned).collect())
}

/// What constants.c prints with a header.
fn facts(source: &Path, folder: &Path, include: &Path, options: &[&str]) -> Result<String> {
    let program = folder.join("constants");
    let mut cc = Command::new("cc");
    cc.args(options).arg("-Werror").arg("-I").arg(folder).arg("-I").arg(include);
    run(cc.arg(source).arg("-o").arg(&program))?;
    capture(&mut Command::new(program))
}

fn header(mpich: &Mpich) -> Result<Verdict> {
    let folder = mpich.target.join("interop/mpi-header");
    fs::create_dir_all(&folder)?;
    let constants = table(mpich, "constants.txt")?;
    let mut lines = String::new();
    for line in &constants {
        let (name, _) = line.split_once(' ').context("a constant has a value")?;
        writeln!(lines, "FACT({name})")?;
    }
    fs::write(folder.join("facts.h"), lines)?;
    let mut prototypes = String::new();
    let mut count = 0;
    for line in table(mpich, "functions.txt")? {
        let prototype =
            line.split(';').next().and_then(|line| line.split_once(' ')).context("a prototype")?.1;
        if !DIFFERENT.iter().any(|name| prototype.contains(name)) {
            writeln!(prototypes, "extern {};", prototype.trim())?;
            count += 1;
        }
    }
    fs::write(folder.join("prototypes.h"), prototypes)?;
    let source = mpich.root.join("xtask/interop/constants.c");
    let ours = facts(&source, &folder, &mpich.root.join("crates/abi-mpi/include"), &[])?;
    let theirs = facts(&source, &folder, &mpich.program("../include"), &["-DMPI_ABI", "-DTHEIRS"])?;
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        ensure!(ours == theirs, "ours: {ours}; theirs: {theirs}");
    }
    ensure!(ours.lines().count() == theirs.lines().count(), "one of the two printed less");
    Ok(Verdict(format!("{} constants and {count} prototypes are the same", constants.len())))
}
