//! Preloads the checks of MPI programs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use launcher::{Abi, install_paths};

use crate::args::{Level, MpirunArgs, ProgramArgs};
use crate::cmd::record::whole_path;
use crate::error::Failure;

/// The library of the checks, as cargo builds it and as it is installed.
const LIBRARY: &str = "libnicety_mpi_check.so";
/// The loader's list of libraries that come first.
const PRELOAD: &str = "LD_PRELOAD";

/// The name of `NAME=VALUE`, or of `NAME`.
fn name(variable: &OsStr) -> &[u8] {
    variable.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// `NAME=VALUE`.
pub(super) fn variable(name: &str, value: &OsStr) -> OsString {
    let mut variable = OsString::from(name);
    variable.push("=");
    variable.push(value);
    variable
}

/// The variables for all ranks by which they are checked; none if the options do not ask for that.
///
/// # Errors
/// If the library is missing, the programs are of another ABI or preload another library by an option, or the file cannot be written.
pub(super) fn variables(args: &MpirunArgs, programs: &[ProgramArgs]) -> Result<Vec<OsString>, Failure> {
    let Some(level) = args.check.check else { return Ok(Vec::new()) };
    let mut given = programs.iter().flat_map(|program| &program.variables).chain(&args.genv);
    if given.any(|variable| name(variable) == PRELOAD.as_bytes()) {
        return Err(Failure::usage(
            "--check preloads a library, and an option sets LD_PRELOAD for ranks; set it in the environment of this command instead",
        ));
    }
    if args.abi == Some(Abi::Mpich) {
        return Err(Failure::usage(
            "--check is for programs of the standard ABI; compile the program with nicety mpicc, and leave out --abi mpich",
        ));
    }
    let own = install_paths::own_directory()?;
    let library = install_paths::find(&own, &install_paths::LIBRARIES, &[LIBRARY]).ok_or_else(|| {
        Failure::usage(format!("--check: there is no {LIBRARY} with this program; build abi-mpi-check"))
    })?;
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let level = if level == Level::Strict { "strict" } else { "on" };
    let mut variables = vec![variable(PRELOAD, &preload), variable("NICETY_MPI_CHECK", level.as_ref())];
    if let Some(file) = &args.check.check_log {
        let path = whole_path(file, "--check-log")?;
        variables.push(variable("NICETY_MPI_CHECK_LOG", path.as_os_str()));
    }
    if let Some(status) = args.check.check_exit {
        variables.push(variable("NICETY_MPI_CHECK_EXIT", status.to_string().as_ref()));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::super::command_line;
    use super::*;

    #[test]
    fn programs_that_cannot_be_checked_are_refused() {
        let asked = |words: &[&str]| {
            let args = command_line::parsed(words);
            variables(&args, std::slice::from_ref(&args.program))
        };
        let refused = |words: &[&str]| asked(words).expect_err("refused").lines[0].clone();
        assert!(refused(&["--check", "--abi", "mpich", "sh"]).contains("nicety mpicc"));
        assert!(refused(&["--check", "-x", "LD_PRELOAD=a.so", "sh"]).contains("LD_PRELOAD"));
        assert!(refused(&["--check", "--genv", "LD_PRELOAD", "sh"]).contains("LD_PRELOAD"));
        assert_eq!(asked(&["-x", "LD_PRELOAD=a.so", "sh"]), Ok(Vec::new()));
        assert_eq!(variable("A", "b c".as_ref()), "A=b c");
    }
}
