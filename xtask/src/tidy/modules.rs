//! Checks module tables and `//!` lines: the files and folders that they name must exist.

use super::Finding;
use super::docs::quoted;
use std::collections::BTreeSet;

/// First words of a table's header that say that its first column names files or modules.
const HEADERS: [&str; 4] = ["file", "files", "module", "modules"];

/// Findings in the `//!` lines of one Rust file: names in module tables, and paths anywhere, without a file.
pub(super) fn check(tracked: &BTreeSet<String>, path: &str, text: &str) -> Vec<Finding> {
    let Some(place) = Place::from_path(path) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut table = Table::Outside;
    for (index, line) in text.lines().enumerate() {
        let line = line.strip_prefix("//!").unwrap_or_default().trim();
        table = table.next(line);
        let names = if table == Table::OfModules { unlinked(first_cell(line)) } else { Vec::new() };
        let paths = quoted(line).filter(|name| is_path(name)).map(str::to_owned);
        let dead: BTreeSet<String> =
            names.into_iter().chain(paths).filter(|name| !place.has(tracked, name)).collect();
        findings.extend(dead.iter().map(|name| {
            let what = format!("`{name}` is no file, module or folder here: name the one that is meant");
            Finding::new(path, index + 1, "module-name", what)
        }));
    }
    findings
}

/// Where the line being read is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Outside,
    /// In a table whose first column names files or modules, below its header.
    OfModules,
    /// In another table, or in a header.
    Other,
}

impl Table {
    fn next(self, line: &str) -> Self {
        if !line.starts_with('|') {
            return Self::Outside;
        }
        let header = first_cell(line).split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        match self {
            Self::Outside if HEADERS.contains(&header) => Self::OfModules,
            Self::Outside => Self::Other,
            inside => inside,
        }
    }
}

fn first_cell(line: &str) -> &str {
    line.trim_start_matches('|').split('|').next().unwrap_or_default().trim()
}

/// The names in backticks that are no links: rustdoc checks links.
fn unlinked(cell: &str) -> Vec<String> {
    let parts: Vec<&str> = cell.split('`').collect();
    let linked = |index: usize| parts[index - 1].ends_with('[');
    (1..parts.len()).step_by(2).filter(|&index| !linked(index)).map(|index| parts[index].to_owned()).collect()
}

/// Whether a name can only be a file or a folder: `a.rs`, `a/b.rs`, `a/`.
fn is_path(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-/.".contains(c);
    let ends = name.ends_with(".rs") || name.ends_with('/');
    ends && name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// The folders in which the names of a file are searched.
struct Place {
    /// Folders, each with a `/` at its end; the root of the repository is empty.
    folders: Vec<String>,
}

impl Place {
    /// The folder of its submodules, the folder of the file, that of the crate, `crates/` and the root.
    fn from_path(path: &str) -> Option<Self> {
        let (folder, name) = path.strip_suffix(".rs")?.rsplit_once('/')?;
        let parts = match name {
            "lib" | "main" | "mod" => format!("{folder}/"),
            _ => format!("{folder}/{name}/"),
        };
        let package = ["/src/", "/tests/", "/examples/"].iter().find_map(|part| path.find(part));
        let package = package.map(|end| format!("{}/", &path[..end]));
        let folders =
            [Some(parts), Some(format!("{folder}/")), package, Some("crates/".into()), Some("".into())];
        Some(Self { folders: folders.into_iter().flatten().collect() })
    }

    /// Whether a file or a folder of this name is tracked in one of the folders.
    fn has(&self, tracked: &BTreeSet<String>, name: &str) -> bool {
        let name = name.trim_end_matches('/').replace("::", "/");
        self.folders.iter().map(|folder| format!("{folder}{name}")).any(|path| {
            let below = format!("{path}/");
            tracked.contains(&path)
                || tracked.contains(&format!("{path}.rs"))
                || tracked.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(path: &str, text: &str) -> Vec<String> {
        let tracked =
            ["crates/a/functions.txt", "crates/a/src/lib.rs", "crates/a/src/cq.rs", "crates/a/src/cm/id.rs"];
        let tracked = tracked.map(str::to_owned).into();
        let findings = check(&tracked, path, text);
        findings.iter().map(|finding| format!("{} {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn module_table_with_a_name_without_file_is_found() {
        for header in ["file", "modules", "file; a file uses those above it only"] {
            let text =
                format!("//! A.\n//!\n//! | {header} | what |\n//! |---|---|\n//! | `cq`, `link` | both |\n");
            let found = dead("crates/a/src/lib.rs", &text);
            assert!(found.len() == 1 && found[0].starts_with("5 `link`"), "{header}: {found:?}");
        }
    }

    #[test]
    fn module_table_names_files_folders_paths_and_links() {
        let text = "//! | file | what |\n//! |---|---|\n//! | `cq`, `cm`, `cm::id`, `cm/`, `functions.txt` | `gone` |\n\
                    //! | [`Gone`] | a link |\n";
        assert_eq!(dead("crates/a/src/lib.rs", text), [""; 0]);
        let other = "//! | state | what |\n//! |---|---|\n//! | `gone` | no file |\n";
        assert_eq!(dead("crates/a/src/lib.rs", other), [""; 0]);
    }

    #[test]
    fn module_table_names_parts_of_its_own_module() {
        let text = "//! | file | what |\n//! |---|---|\n//! | `id` | ids |\n";
        assert_eq!(dead("crates/a/src/cm/mod.rs", text), [""; 0]);
        assert_eq!(dead("crates/a/src/cm.rs", text), [""; 0]);
        assert_eq!(dead("crates/a/src/lib.rs", text).len(), 1);
    }

    #[test]
    fn path_in_a_header_line_must_exist() {
        assert_eq!(dead("crates/a/src/cq.rs", "//! See `cm/id.rs`, `cm/` and `link`.\n"), [""; 0]);
        let found = dead("crates/a/src/cq.rs", "//! See `link.rs`.\n//! See `gone/`.\n/// See `other.rs`.\n");
        assert!(found.len() == 2 && found[1].starts_with("2 `gone/`"), "{found:?}");
    }
}
