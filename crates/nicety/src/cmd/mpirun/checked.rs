//! Preloads the checks of MPI programs.

use std::ffi::{OsStr, OsString};

use launcher::{Abi, install_paths};

use crate::args::{Level, MpirunArgs};
use crate::cmd::record::whole_path;
use crate::error::Failure;

/// The library of the checks, as cargo builds it and as it is installed.
const LIBRARY: &str = "libnicety_mpi_check.so";
/// The loader's list of libraries that come first.
const PRELOAD: &str = "LD_PRELOAD";

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
/// If the library is missing, the programs are of another ABI, or the file cannot be written.
pub(super) fn variables(args: &MpirunArgs) -> Result<Vec<OsString>, Failure> {
    let Some(level) = args.check.check else { return Ok(Vec::new()) };
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
    fn programs_of_another_abi_are_refused() {
        let asked = variables(&command_line::parsed(&["--check", "--abi", "mpich", "sh"]));
        assert!(asked.expect_err("MPICH's").lines[0].contains("nicety mpicc"));
        assert_eq!(variables(&command_line::parsed(&["sh"])), Ok(Vec::new()));
        assert_eq!(variable("A", "b c".as_ref()), "A=b c");
    }
}
