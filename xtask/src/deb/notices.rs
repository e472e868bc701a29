//! The authors and licences of the package's contents: ours, and those of every crate that is built into it.

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use xtask::workspace::Workspace;

/// Debian's `copyright`: our two licences.
pub(super) fn copyright(workspace: &Workspace) -> Result<String> {
    let mut text = "Nicety is licensed under MIT or Apache-2.0, at your choice. What is built into it of others stands in \
                    third-party.gz.\n"
        .to_owned();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let licence =
            fs::read_to_string(workspace.root.join(name)).with_context(|| format!("cannot read {name}"))?;
        write!(text, "\n--- {name}\n\n{licence}")?;
    }
    Ok(text)
}

/// Each third-party crate in cargo's tree: name, version, licence, and its licence files.
pub(super) fn third_party(workspace: &Workspace, tree: &str) -> Result<String> {
    let manifest = workspace.root.join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).exec().context("cargo metadata failed")?;
    let mut text = String::new();
    for (name, version) in others(tree) {
        let package = find(&metadata, name, version)
            .with_context(|| format!("cargo metadata lacks {name} {version}"))?;
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(text, "=== {name} {version}: {licence}\n")?;
        let texts = granted(package)?;
        if texts.is_empty() {
            writeln!(text, "{}", without_file(package)?)?;
        }
        texts.iter().try_for_each(|granted| writeln!(text, "{granted}"))?;
    }
    Ok(text)
}

/// The notice of a package without a licence file, if its licence is one of ours, whose text is in the package.
fn without_file(package: &Package) -> Result<String> {
    let licence = package.license.as_deref().unwrap_or_default();
    if !licence.split(" OR ").any(|one| one == "Apache-2.0") {
        bail!("{} has no licence file, and its licence {licence:?} is not in copyright", package.name);
    }
    let authors = package.authors.join(", ");
    Ok(format!("By {authors}, under Apache-2.0, the text of which stands in copyright.\n"))
}

/// Names and versions of the third-party packages in the tree; our own have a path.
fn others(tree: &str) -> BTreeSet<(&str, &str)> {
    let packages = tree.lines().filter(|line| !line.contains(" (/"));
    packages
        .filter_map(|line| {
            let mut words = line.split(['|', ' ']);
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect()
}

fn find<'a>(metadata: &'a Metadata, name: &str, version: &str) -> Option<&'a Package> {
    let is = |package: &&Package| package.name.as_str() == name && package.version.to_string() == version;
    metadata.packages.iter().find(is)
}

/// The texts of a package's licence files.
fn granted(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    let mut names: Vec<String> = fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"].iter().any(|word| name.starts_with(word))
        })
        .filter(|name| folder.join(name).is_file())
        .collect();
    names.sort();
    let read = |name: &String| {
        fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {folder}/{name}"))
    };
    names.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_those_without_a_path() {
        let tree = "nicety v0.1.0 (/w/crates/nicety)|\nserde v1.0.1|default,std\nserde v1.0.1|default,std (*)\nlibc v0.2.9|";
        assert_eq!(others(tree).into_iter().collect::<Vec<_>>(), [("libc", "0.2.9"), ("serde", "1.0.1")]);
    }

    /// Goal: no notice is missing. Method: every third-party crate that ships has a licence file, or a licence whose
    /// text is ours.
    #[test]
    fn every_crate_that_ships_grants_its_licence() {
        let workspace = Workspace::find().expect("the workspace");
        let tree = crate::ships::tree(&workspace).expect("cargo tree");
        let text = third_party(&workspace, &tree).expect("notices");
        assert!(text.contains("=== clap ") && text.contains("=== libc "), "{}", &text[..200]);
        let (_, without_file) = text.split_once("=== maud ").expect("a section of maud");
        let (_, notice) = without_file.split_once("\n\n").expect("a heading");
        assert!(notice.starts_with("By ") && notice.contains("under Apache-2.0"), "{}", &notice[..200]);
    }
}
