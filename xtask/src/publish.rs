//! Packages of the crates that are meant for others, under names that are free on the registry (decision 0020).
//!
//! In the repository a crate has a short name, and some are taken on the registry. A copy of the published crates has the
//! names `nicety-NAME` in their manifests; their libraries, and the names by which they use each other, stay as they are. Cargo packages that
//! copy, and builds the packages.

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use toml::{Table, Value};
use xtask::workspace::{Workspace, counted, run};

/// The crates that programs use; what they use is published with them.
const FOR_OTHERS: [&str; 6] = ["conformance", "dapl", "fabric", "mpi", "portals", "transport"];
/// Before the name of a crate.
const PREFIX: &str = "nicety-";
/// What the registry shows and searches, for all crates.
const KEYWORDS: [&str; 5] = ["rdma", "mpi", "iwarp", "infiniband", "hpc"];
const CATEGORIES: [&str; 2] = ["network-programming", "science"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// Folders of a crate that are not published: their programs use crates of higher rows.
const LEFT_OUT: [&str; 2] = ["examples/", "tests/"];

/// Packages the crates and builds the packages; returns a summary.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let names = published(&workspace.metadata);
    let folder = workspace.target().join("publish");
    copy(workspace, &names, &folder)?;
    // Offline: the registry is not asked for these names. It is named, as cargo takes the packages for its own.
    let mut cargo = workspace.cargo(&["package", "--workspace", "--allow-dirty", "--offline"]);
    cargo.args(["--registry", "crates-io"]).current_dir(&folder);
    run(cargo.env("CARGO_TARGET_DIR", workspace.target().join("publish-build")))?;
    Ok(format!("publish: {} can be published, as {PREFIX}NAME", counted(names.len(), "crate")))
}

/// The crates for others, and what they use.
fn published(metadata: &Metadata) -> BTreeSet<String> {
    let packages = metadata.workspace_packages();
    let (mut names, mut left) = (BTreeSet::new(), FOR_OTHERS.map(str::to_owned).to_vec());
    while let Some(name) = left.pop() {
        let package = packages.iter().find(|package| package.name.as_str() == name);
        let used = package.iter().flat_map(|package| &package.dependencies);
        let used = used.filter(|used| used.path.is_some() && used.kind != DependencyKind::Development);
        left.extend(used.map(|used| used.name.clone()));
        names.insert(name);
    }
    names
}

/// Makes a workspace of the published crates in `folder`.
fn copy(workspace: &Workspace, names: &BTreeSet<String>, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let is_published = |path: &str| {
        let (name, file) = path.strip_prefix("crates/").and_then(|path| path.split_once('/'))?;
        let is_left_out = LEFT_OUT.iter().any(|folder| file.starts_with(folder));
        (names.contains(name) && !is_left_out).then_some(())
    };
    for path in workspace.files()?.iter().filter(|path| is_published(path).is_some()) {
        place(&workspace.root.join(path), &folder.join(path))?;
    }
    place(&workspace.root.join("Cargo.lock"), &folder.join("Cargo.lock"))?;
    edit(&workspace.root.join("Cargo.toml"), &folder.join("Cargo.toml"), |manifest| root(manifest, names))?;
    for name in names {
        let (from, to) = (workspace.root.join("crates").join(name), folder.join("crates").join(name));
        edit(&from.join("Cargo.toml"), &to.join("Cargo.toml"), member)?;
        for licence in LICENCES {
            place(&workspace.root.join(licence), &to.join(licence))?;
        }
    }
    Ok(())
}

fn place(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a file in a folder")?;
    fs::create_dir_all(parent)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Writes a changed manifest.
fn edit(from: &Path, to: &Path, change: impl FnOnce(&mut Table) -> Result<()>) -> Result<()> {
    let mut manifest: Table = toml::from_str(&fs::read_to_string(from)?)?;
    change(&mut manifest).with_context(|| format!("{}", from.display()))?;
    fs::write(to, toml::to_string(&manifest)?)?;
    Ok(())
}

/// Changes the manifest of the workspace: its members, and their names and versions in its dependencies.
fn root(manifest: &mut Table, names: &BTreeSet<String>) -> Result<()> {
    // Profiles name crates, and hold for the workspace only.
    manifest.remove("profile");
    let workspace = table(manifest, "workspace")?;
    workspace.remove("default-members");
    let members = names.iter().map(|name| Value::from(format!("crates/{name}")));
    workspace.insert("members".to_owned(), members.collect::<Vec<_>>().into());
    let package = table(workspace, "package")?;
    package.remove("publish");
    let version = package.get("version").context("no version")?.clone();
    let dependencies = table(workspace, "dependencies")?;
    dependencies.retain(|name, dependency| names.contains(name) || dependency.get("path").is_none());
    for name in names {
        let Some(Value::Table(dependency)) = dependencies.get_mut(name) else {
            bail!("the workspace does not list {name} as a dependency");
        };
        dependency.insert("package".to_owned(), format!("{PREFIX}{name}").into());
        dependency.insert("version".to_owned(), version.clone());
    }
    Ok(())
}

/// Changes the manifest of a crate: its name, not that of its library, and what the registry shows.
fn member(manifest: &mut Table) -> Result<()> {
    let package = table(manifest, "package")?;
    let name = package.get("name").and_then(Value::as_str).context("no name")?.to_owned();
    if package.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
        bail!("no description");
    }
    package.insert("name".to_owned(), format!("{PREFIX}{name}").into());
    package.remove("publish");
    package.insert("keywords".to_owned(), KEYWORDS.map(Value::from).to_vec().into());
    package.insert("categories".to_owned(), CATEGORIES.map(Value::from).to_vec().into());
    let library = manifest.entry("lib").or_insert_with(|| Table::new().into());
    let library = library.as_table_mut().context("`lib` is no table")?;
    library.entry("name").or_insert_with(|| name.replace('-', "_").into());
    // Packages are built without their tests, which use crates of higher rows and some that are not published.
    for part in ["dev-dependencies", "test", "example"] {
        manifest.remove(part);
    }
    Ok(())
}

fn table<'a>(of: &'a mut Table, name: &str) -> Result<&'a mut Table> {
    of.get_mut(name).and_then(Value::as_table_mut).with_context(|| format!("no table `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_published_crates_use_is_published() {
        let workspace = Workspace::find().expect("the workspace");
        let names = published(&workspace.metadata);
        assert!(["host", "verbs", "nic-shm", "mpi"].iter().all(|name| names.contains(*name)), "{names:?}");
        assert!(
            ["abi-mpi", "bench", "nicety", "xtask"].iter().all(|name| !names.contains(*name)),
            "{names:?}"
        );
    }

    #[test]
    fn a_crate_gets_a_free_name_and_keeps_that_of_its_library() {
        let text = "[package]\nname = \"nic-shm\"\ndescription = \"a NIC\"\npublish.workspace = true\n\
                    [dependencies]\nverbs.workspace = true\n[dev-dependencies]\nfabric.workspace = true\n";
        let mut manifest: Table = toml::from_str(text).expect("a manifest");
        member(&mut manifest).expect("it is complete");
        assert_eq!(manifest["package"]["name"].as_str(), Some("nicety-nic-shm"));
        assert_eq!(manifest["lib"]["name"].as_str(), Some("nic_shm"));
        assert!(manifest["package"].get("publish").is_none() && manifest.get("dev-dependencies").is_none());
        assert!(manifest["dependencies"].get("verbs").is_some());
        let mut nameless: Table = toml::from_str("[package]\nname = \"a\"\n").expect("a manifest");
        assert!(member(&mut nameless).is_err(), "the registry refuses a crate without a description");
    }

    #[test]
    fn the_workspace_names_published_crates_only() {
        let text = "[workspace]\nmembers = [\"crates/*\"]\n[workspace.package]\nversion = \"1.2.3\"\npublish = false\n\
                    [workspace.dependencies]\nverbs = { path = \"crates/verbs\" }\nbench = { path = \"crates/bench\" }\nlibc = \"0.2\"\n\
                    [profile.release]\ndebug = true\n";
        let mut manifest: Table = toml::from_str(text).expect("a manifest");
        root(&mut manifest, &["verbs".to_owned()].into()).expect("it is complete");
        let dependencies = &manifest["workspace"]["dependencies"];
        assert_eq!(dependencies["verbs"]["package"].as_str(), Some("nicety-verbs"));
        assert_eq!(dependencies["verbs"]["version"].as_str(), Some("1.2.3"));
        assert!(dependencies.get("bench").is_none() && dependencies.get("libc").is_some());
        assert!(manifest.get("profile").is_none());
        assert!(root(&mut manifest, &["bench".to_owned()].into()).is_err());
    }
}
