//! Demands that the files of a C interface cite the part of the standard that they implement, as `iwarp` cites its RFCs.

use super::{Finding, Source};

/// Folders whose files implement a standard, and the standard's name.
const STANDARDS: [(&str, &str); 2] =
    [("crates/abi-mpi/src/calls/", "MPI 5.0"), ("crates/abi-portals/src/", "Portals 4.3")];

/// Finds a file whose `//!` lines cite no chapter and no section of its standard.
pub(super) fn check(source: &Source) -> Option<Finding> {
    let (_, standard) = STANDARDS.iter().find(|(folder, _)| source.path.starts_with(folder))?;
    let lines = source.text.lines().map_while(|line| line.strip_prefix("//!"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    if cites(&words.join(" "), standard) {
        return None;
    }
    let what =
        format!("the `//!` lines cite no part of the standard: add `({standard}, section 3.7)` or the like");
    Some(Finding::new(&source.path, 1, "citation", what))
}

/// Whether a text contains the standard's name with the number of a section or of a chapter.
fn cites(text: &str, standard: &str) -> bool {
    [format!("{standard}, section"), format!("{standard}, chapter")].iter().any(|part| {
        let mut rests = text.match_indices(part).map(|(at, _)| &text[at + part.len()..]);
        rests.any(|rest| rest.trim_start_matches('s').trim_start().starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(path: &str, text: &str) -> bool {
        check(&Source::parse(path, text)).is_some()
    }

    #[test]
    fn headers_that_cite_their_standard_pass() {
        for cited in
            ["section 3.8.2", "sections 3.1 and 3.2", "chapter 3", "chapters 3 and 4", "\n//! section 9"]
        {
            let text = format!("//! Probes (MPI 5.0, {cited}).\n\nfn a() {{}}\n");
            assert!(!is_found("crates/abi-mpi/src/calls/p2p/probe.rs", &text), "{cited}");
        }
        assert!(!is_found("crates/abi-portals/src/calls/md.rs", "//! Memory (Portals 4.3, section 3.10).\n"));
    }

    #[test]
    fn headers_without_a_section_of_their_own_standard_are_found() {
        for text in [
            "//! Probes.\n\n/// MPI 5.0, section 3.8.\nfn a() {}\n",
            "//! Probes (MPI 5.0).\n",
            "//! Probes (MPI 5.0, 3.8).\n",
            "//! Probes (MPI 5.0, section).\n",
            "//! Probes (Portals 4.3, section 3.8).\n",
        ] {
            assert!(is_found("crates/abi-mpi/src/calls/p2p/probe.rs", text), "{text}");
            assert!(!is_found("crates/mpi/src/p2p/calls.rs", text), "{text}");
        }
    }
}
