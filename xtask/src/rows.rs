//! The row rule: a crate may use crates of lower rows only.
//!
//! Dev-dependencies may also be of the same row, never of a higher one: a test that needs more belongs to the crate
//! above. Only packages under `crates/` have a row. Packages outside (this crate, cross-crate tests, fuzz targets) may
//! use anything, and nothing under `crates/` may use them.

use anyhow::{Result, bail};
use cargo_metadata::{DependencyKind, Metadata};
use std::path::Path;
use xtask::workspace::Workspace;

/// The crates of each row, lowest first; the index is the row.
const ROWS: [&[&str]; 10] = [
    &["abi-link", "collectives", "datatypes", "host", "iwarp", "mpi-fortran", "rdma-abi", "uaccess"],
    &["auth", "ffi", "findings", "pmi", "results", "trace", "verbs"],
    &["conformance", "nic-util", "report"],
    &["nic-shm", "nic-iwarp", "nic-rails", "nic-model", "nic-hw", "nic-faults", "nic-trace", "nic-check"],
    &["fabric", "transport", "dapl", "rsocket"],
    &["portals"],
    &["mpi"],
    &[
        "abi-verbs",
        "abi-dapl",
        "abi-portals",
        "abi-mpi",
        "abi-mpi-check",
        "abi-mpi-fortran",
        "abi-mpich",
        "bench",
        "launcher",
    ],
    &["bench-server", "reproduce"],
    &["nicety"],
];

/// The row of a crate, if the table has it.
pub(crate) fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name))
}

/// How a crate uses another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CrateUse {
    /// In its library, its program or its build script.
    Build,
    /// In its tests only.
    Test,
}

/// A package of the workspace, and the workspace packages that it uses.
struct Node {
    name: String,
    in_rows: bool,
    uses: Vec<(String, CrateUse)>,
}

/// Checks the actual workspace; returns a summary.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let nodes = graph(&workspace.metadata);
    let wrong = violations(&nodes);
    if !wrong.is_empty() {
        bail!("the row rule does not hold:\n  {}", wrong.join("\n  "));
    }
    let crates = nodes.iter().filter(|node| node.in_rows).count();
    let edges: usize = nodes.iter().map(|node| node.uses.len()).sum();
    Ok(format!("rows: {crates} crates and {edges} dependencies among them, all downwards"))
}

/// The workspace's packages as nodes, with the dependencies among them.
fn graph(metadata: &Metadata) -> Vec<Node> {
    let crates = metadata.workspace_root.join("crates");
    let packages = metadata.workspace_packages();
    let own = |name: &str| packages.iter().any(|package| package.name == name);
    let node = |package: &&cargo_metadata::Package| Node {
        name: package.name.to_string(),
        in_rows: Path::new(&package.manifest_path).starts_with(&crates),
        uses: package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some() && own(&dependency.name))
            .map(|dependency| {
                let kind = if dependency.kind == DependencyKind::Development {
                    CrateUse::Test
                } else {
                    CrateUse::Build
                };
                (dependency.name.clone(), kind)
            })
            .collect(),
    };
    packages.iter().map(node).collect()
}

/// Every breach of the rule, as text.
fn violations(nodes: &[Node]) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in nodes.iter().filter(|node| node.in_rows) {
        let Some(row) = row(&node.name) else {
            wrong.push(format!(
                "crate `{}` has no row: add it to ROWS in xtask/src/rows.rs and to the table in ARCHITECTURE.md",
                node.name
            ));
            continue;
        };
        wrong.extend(
            node.uses.iter().filter_map(|(name, kind)| find_violation(nodes, &node.name, row, name, *kind)),
        );
    }
    wrong
}

/// Describes what is wrong with crate `user` of row `row` using crate `used`, if anything is.
fn find_violation(nodes: &[Node], user: &str, row: usize, used: &str, kind: CrateUse) -> Option<String> {
    if nodes.iter().any(|node| node.name == used && !node.in_rows) {
        return Some(format!(
            "`{user}` uses `{used}`, which is outside crates/: move what it needs into a crate of a lower row"
        ));
    }
    // A crate without a row is reported once, on its own.
    let used_row = self::row(used)?;
    match kind {
        CrateUse::Build if used_row >= row => Some(format!(
            "`{user}` (row {row}) uses `{used}` (row {used_row}): only lower rows are allowed; \
             move the code down, or pass it in as a trait object"
        )),
        CrateUse::Test if used_row > row => Some(format!(
            "the tests of `{user}` (row {row}) use `{used}` (row {used_row}): move the test to `{used}` or above"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, uses: &[(&str, CrateUse)]) -> Node {
        let uses = uses.iter().map(|&(name, kind)| (name.to_owned(), kind)).collect();
        Node { name: name.to_owned(), in_rows: name != "xtask", uses }
    }

    fn only_violation(nodes: &[Node]) -> String {
        let mut wrong = violations(nodes);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        wrong.remove(0)
    }

    #[test]
    fn the_real_workspace_holds_the_rule() {
        let workspace = Workspace::find().expect("cargo metadata of this workspace");
        check(&workspace).expect("dependencies go down only");
    }

    #[test]
    fn downwards_is_allowed() {
        let nodes = [
            node("host", &[]),
            node("verbs", &[("host", CrateUse::Build)]),
            node("nic-shm", &[("verbs", CrateUse::Build), ("host", CrateUse::Build)]),
            node("xtask", &[("nicety", CrateUse::Build)]),
            node("nicety", &[("host", CrateUse::Build)]),
        ];
        assert_eq!(violations(&nodes), Vec::<String>::new());
    }

    #[test]
    fn upwards_is_refused() {
        let nodes = [node("verbs", &[("nic-shm", CrateUse::Build)]), node("nic-shm", &[])];
        assert!(only_violation(&nodes).contains("`verbs` (row 1) uses `nic-shm` (row 3)"));
    }

    #[test]
    fn the_same_row_is_refused_except_in_tests() {
        let nodes = [node("transport", &[("dapl", CrateUse::Build)]), node("dapl", &[])];
        assert!(only_violation(&nodes).contains("only lower rows"));
        let nodes = [node("transport", &[("dapl", CrateUse::Test)]), node("dapl", &[])];
        assert!(violations(&nodes).is_empty());
    }

    #[test]
    fn tests_may_not_use_a_higher_row() {
        let nodes = [node("verbs", &[("fabric", CrateUse::Test)]), node("fabric", &[])];
        assert!(only_violation(&nodes).contains("the tests of `verbs`"));
    }

    #[test]
    fn unknown_crate_is_refused_with_the_file_to_edit() {
        assert!(only_violation(&[node("gadget", &[])]).contains("add it to ROWS in xtask/src/rows.rs"));
    }

    #[test]
    fn crates_in_rows_use_none_outside() {
        let nodes = [node("nicety", &[("xtask", CrateUse::Build)]), node("xtask", &[])];
        assert!(only_violation(&nodes).contains("outside crates/"));
    }
}
