//! What a makefile of somebody else's says of its programs.

/// The values of a variable of a makefile whose lines are joined; none if it is not set there.
pub(super) fn values<'a>(makefile: &'a str, variable: &str) -> Vec<&'a str> {
    let of_it = |line: &'a str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == variable).then_some(value)
    };
    makefile.lines().find_map(of_it).map_or_else(Vec::new, |value| value.split_whitespace().collect())
}

/// The text of a makefile, a statement a line.
pub(super) fn joined(makefile: &str) -> String {
    makefile.replace("\\\n", " ")
}

/// What a program's preprocessor flags define.
pub(super) fn defines(makefile: &str, program: &str) -> Vec<String> {
    let flags = values(makefile, &format!("{program}_CPPFLAGS"));
    flags.into_iter().filter(|flag| flag.starts_with("-D")).map(str::to_owned).collect()
}
