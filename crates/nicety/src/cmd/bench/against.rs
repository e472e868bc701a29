//! `--against`: compiles the measuring program for MPI's standard ABI, to be run under another library and under ours in turn.

use std::path::Path;
use std::process::Command;

use bench::against::{self, Against};
use tempfile::TempDir;

use crate::error::Failure;
use launcher::install_paths;

/// The other library to measure, and the folder that contains the compiled program.
pub(super) struct Built {
    pub(super) against: Against,
    _folder: TempDir,
}

/// Compiles the measuring program.
///
/// # Errors
/// If the library does not exist, or if there is no compiler or it fails.
pub(super) fn build(library: &Path) -> Result<Built, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "--against {}: {why}; name a library of MPI's standard ABI, such as libmpi_abi.so.1 of MPICH 5",
            library.display()
        ))
    };
    if !library.is_file() {
        return Err(wrong(&"there is no such file"));
    }
    let library = std::path::absolute(library).map_err(|why| wrong(&why))?;
    let here =
        |why: std::io::Error| Failure::run(format!("cannot store the measuring program: {why}; free space"));
    let launcher = install_paths::own_program()?;
    let folder = tempfile::tempdir().map_err(here)?;
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, against::PROGRAM).map_err(here)?;
    let output = Command::new(&launcher).args(["mpicc", "-O2", "-o"]).args([&program, &source]).output();
    let output = output.map_err(here)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let first_line = stderr.lines().next().unwrap_or("the compiler printed nothing");
        let reason = first_line.strip_prefix("nicety: ").unwrap_or(first_line);
        return Err(Failure::run(format!("the measuring program cannot be compiled: {reason}")));
    }
    Ok(Built { against: Against { launcher, program, other: library }, _folder: folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_refused_by_name() {
        let failure = build(Path::new("/no/such/libmpi_abi.so.1")).err().expect("no such file");
        assert!(
            failure.lines[0].starts_with("--against /no/such/libmpi_abi.so.1: there is no such file; "),
            "{failure:?}"
        );
    }
}
