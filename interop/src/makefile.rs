//! Parses the makefiles of third-party programs.

/// The values of a variable in a makefile with joined lines; empty if it is not set.
pub(super) fn values<'a>(makefile: &'a str, variable: &str) -> Vec<&'a str> {
    let of_it = |line: &'a str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == variable).then_some(value)
    };
    makefile.lines().find_map(of_it).map_or_else(Vec::new, |value| value.split_whitespace().collect())
}

/// The text of a makefile with continued lines joined.
pub(super) fn joined(makefile: &str) -> String {
    makefile.replace("\\\n", " ")
}

/// The macros that a program's preprocessor flags define.
pub(super) fn defines(makefile: &str, program: &str) -> Vec<String> {
    let flags = values(makefile, &format!("{program}_CPPFLAGS"));
    flags.into_iter().filter(|flag| flag.starts_with("-D")).map(str::to_owned).collect()
}
