//! Checks that what ships contains nothing for tests: no package, no feature, and no symbol in the built files.
//!
//! Cargo lists packages and features for exactly the packages that ship. The built files are searched as well, because
//! a build of more packages in one command could have enabled more features of their libraries.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use xtask::workspace::{Workspace, capture};

/// The packages that ship, and the file that each becomes.
pub(crate) const SHIPPED: [(&str, &str); 8] = [
    ("nicety", "nicety"),
    ("abi-dapl", "libnicety_dat.so"),
    ("abi-mpi", "libmpi_abi.so"),
    ("abi-mpi-check", "libnicety_mpi_check.so"),
    ("abi-mpi-fortran", "libmpi_abi_fortran.so"),
    ("abi-mpich", "libmpi_mpich.so"),
    ("abi-portals", "libnicety_portals.so"),
    ("abi-verbs", "libnicety_verbs.so"),
];

/// Packages for tests.
const PACKAGES: [&str; 4] = ["conformance", "interop", "siege", "xtask"];

/// Features for tests.
const FEATURES: [&str; 2] = ["lab", "testing"];

/// Modules for tests, by package and path.
const MODULES: [(&str, &str); 9] = [
    ("conformance", ""),
    ("iwarp", "fuzzing"),
    ("iwarp", "testing"),
    ("nic-iwarp", "fuzzing"),
    ("nic-shm", "fuzzing"),
    ("nic-shm", "lab"),
    ("nic-util", "lab"),
    ("pmi", "fuzzing"),
    ("results", "stats::draw"),
];

/// Checks packages and features, and then the files of a release build; returns a summary.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let mut wrong = wrong_packages(&tree(workspace)?);
    for (_, file) in SHIPPED {
        let path: PathBuf = workspace.target().join("release").join(file);
        let bytes = std::fs::read(&path)
            .with_context(|| format!("{} is not there: build it first", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        if !text.contains("_ZN") && !text.contains("_RN") {
            bail!("{} has no symbols of Rust's to look at: was it stripped?", path.display());
        }
        wrong
            .extend(traces(&text).map(|(package, module)| format!("{file} has `{package}::{module}` in it")));
    }
    if !wrong.is_empty() {
        bail!(
            "what is for tests would ship:\n  {}\n(after a build of more packages at once, build these alone)",
            wrong.join("\n  ")
        );
    }
    let files = SHIPPED.map(|(_, file)| file).join(" and ");
    Ok(format!("ships: {files}, with nothing in them that is for tests"))
}

/// The dependency tree of the packages that ship, a line each: name, version, path and `|` features.
pub(crate) fn tree(workspace: &Workspace) -> Result<String> {
    let packages = SHIPPED.iter().flat_map(|(package, _)| ["--package", package]);
    capture(
        workspace
            .cargo(&["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}"])
            .args(packages),
    )
}

/// Describes the entries of cargo's tree that are for tests.
fn wrong_packages(tree: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in tree.lines() {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let name = package.split(' ').next().unwrap_or_default();
        // Third-party packages may name their features as they like; ours are those with a path.
        if !package.contains(" (/") {
            continue;
        }
        if PACKAGES.contains(&name) {
            wrong.push(format!("the package `{name}` is for tests: make it a dev-dependency"));
        }
        let features = features.trim_end_matches(" (*)").split(',').filter(|on| FEATURES.contains(on));
        wrong.extend(features.map(|on| {
            format!("the feature `{on}` of `{name}` is for tests: only dev-dependencies may ask for it")
        }));
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

/// The test modules whose symbols or source paths a built file contains.
fn traces(file: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    MODULES.into_iter().filter(|(package, module)| {
        file.contains(&mangled(package, module)) || file.contains(&source(package, module))
    })
}

/// The name of a module in mangled symbols: each part with its length before it.
fn mangled(package: &str, module: &str) -> String {
    let parts = module.split("::").filter(|part| !part.is_empty());
    let package = package.replace('-', "_");
    std::iter::once(package.as_str()).chain(parts).map(|part| format!("{}{part}", part.len())).collect()
}

/// The beginning of the path of a module's source, as panic messages show it.
fn source(package: &str, module: &str) -> String {
    match module {
        "" => format!("crates/{package}/src/"),
        _ => format!("crates/{package}/src/{}", module.replace("::", "/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_packages_have_no_test_features() {
        let workspace = Workspace::find().expect("cargo metadata of this workspace");
        let tree = tree(&workspace).expect("cargo tree");
        assert!(
            tree.lines().any(|line| line.starts_with("nic-shm ")),
            "not the tree that was asked for: {tree}"
        );
        assert_eq!(wrong_packages(&tree), Vec::<String>::new());
    }

    #[test]
    fn packages_and_features_for_tests_are_found() {
        let tree = "nicety v0.1.0 (/w/crates/nicety)|\nconformance v0.1.0 (/w/crates/conformance)|\n\
                    nic-shm v0.1.0 (/w/crates/nic-shm)|lab\nnic-shm v0.1.0 (/w/crates/nic-shm)|lab (*)\n\
                    other v1.0.0|testing\niwarp v0.1.0 (/w/crates/iwarp)|std,testing";
        let wrong = wrong_packages(tree);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(
            wrong[0].contains("`lab` of `nic-shm`") && wrong[1].contains("`testing` of `iwarp`"),
            "{wrong:?}"
        );
        assert!(wrong[2].contains("`conformance`"), "{wrong:?}");
    }

    #[test]
    fn symbols_and_sources_of_modules_for_tests_are_found() {
        let found = |text: &str| traces(text).collect::<Vec<_>>();
        assert_eq!(found("_ZN7nic_shm3lab7TWISTED17h55d72fa3c0ebad47E"), [("nic-shm", "lab")]);
        assert_eq!(found("_RNvNtCs1234_5iwarp7fuzzing10connection"), [("iwarp", "fuzzing")]);
        assert_eq!(found("/w/crates/conformance/src/check.rs"), [("conformance", "")]);
        assert_eq!(found("_ZN5bench9reproduce3lab3Lab7measure crates/nic-model/src/net/slab.rs"), []);
    }

    #[test]
    fn every_module_for_tests_exists() {
        let workspace = Workspace::find().expect("cargo metadata of this workspace");
        for (package, module) in MODULES {
            let path = workspace.root.join(source(package, module));
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{} is gone", path.display());
        }
    }
}
