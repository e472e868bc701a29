//! Selects the command from the name of the link by which the program was called, such as `mpirun`.

use std::ffi::OsString;
use std::path::Path;

/// Names of links, and the command of each.
const NAMES: [(&str, &str); 14] = [
    ("mpicc", "mpicc"),
    ("mpicc_abi", "mpicc"),
    ("mpicxx", "mpicxx"),
    ("mpic++", "mpicxx"),
    ("mpiCC", "mpicxx"),
    ("mpicxx_abi", "mpicxx"),
    ("mpifort", "mpifort"),
    ("mpif90", "mpifort"),
    ("mpif77", "mpifort"),
    ("mpirun", "mpirun"),
    ("mpiexec", "mpirun"),
    ("mpiexec.hydra", "mpirun"),
    ("orterun", "mpirun"),
    ("prterun", "mpirun"),
];

/// Inserts the command into the command line if the program was called by the name of a link.
pub(crate) fn insert_command(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().and_then(|path| Path::new(path).file_name());
    if let Some((_, command)) = NAMES.into_iter().find(|(known, _)| name.is_some_and(|name| name == *known)) {
        args.insert(1, command.into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_commands() {
        let line = |words: &[&str]| insert_command(words.iter().map(Into::into));
        assert_eq!(
            line(&["/opt/bin/mpiexec", "-n", "2", "./a"]),
            ["/opt/bin/mpiexec", "mpirun", "-n", "2", "./a"]
        );
        assert_eq!(line(&["mpic++", "a.cc"]), ["mpic++", "mpicxx", "a.cc"]);
        assert_eq!(line(&["/bin/mpiCC", "a.cc"]), ["/bin/mpiCC", "mpicxx", "a.cc"]);
        assert_eq!(line(&["mpif77", "a.f"]), ["mpif77", "mpifort", "a.f"]);
        assert_eq!(line(&["mpicc_abi", "a.c"]), ["mpicc_abi", "mpicc", "a.c"]);
        assert_eq!(line(&["target/release/nicety", "mpicc"]), ["target/release/nicety", "mpicc"]);
        assert!(line(&[]).is_empty());
    }
}
