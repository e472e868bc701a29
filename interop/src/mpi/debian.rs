//! Sources of Debian's packages, unmodified, for programs that are compiled against our MPI.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::workspace::run;

/// The files that list Debian's package sources for apt-get, in either format.
const SOURCES: [&str; 2] = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];

/// The folder with the unpacked sources of a package, which are fetched if missing.
pub(crate) fn source(folder: &Path, package: &str) -> Result<PathBuf> {
    let root = folder.join("source");
    if !root.exists() {
        fs::create_dir_all(folder)?;
        fetch(folder, package)?;
        let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
        let is_archive = |path: &PathBuf| {
            let name = path.to_string_lossy();
            name.contains(".orig.tar.") && !name.ends_with(".asc")
        };
        let archive = files.filter(is_archive).max().context("apt-get has fetched the sources")?;
        // Only a complete copy gets this name.
        let partly = folder.join("unpacking");
        fs::create_dir_all(&partly)?;
        let mut tar = Command::new("tar");
        run(tar.args(["--strip-components=1", "-xf"]).arg(archive).arg("-C").arg(&partly))?;
        fs::rename(partly, &root)?;
    }
    Ok(root)
}

/// Lets apt-get fetch only the sources, from this machine's Debian mirrors, with package lists of its own.
fn fetch(folder: &Path, package: &str) -> Result<()> {
    let (lists, parts) = (folder.join("lists"), folder.join("sources.list.d"));
    fs::create_dir_all(lists.join("partial"))?;
    fs::create_dir_all(&parts)?;
    let known =
        SOURCES.map(Path::new).into_iter().filter_map(|path| Some((path, fs::read_to_string(path).ok()?)));
    for (path, text) in known {
        let name = path.file_name().context("a file has a name")?;
        fs::write(
            parts.join(name).with_extension(if name == "sources.list" { "list" } else { "sources" }),
            of_sources(&text),
        )?;
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-o", "Dir::Etc::sourcelist=-", "-o"]);
        apt.arg(format!("Dir::Etc::sourceparts={}", parts.display())).arg("-o");
        apt.arg(format!("Dir::State::lists={}", lists.display())).current_dir(folder);
        apt
    };
    run(apt().arg("update"))?;
    run(apt().args(["--tar-only", "--download-only", "source", package]))
}

/// Converts a list of binary package sources into one of source packages.
fn of_sources(text: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some(("deb", rest)) => format!("deb-src {rest}\n"),
        Some(("Types:", _)) => "Types: deb-src\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_from_where_packages_do() {
        let (list, block) = ("# Debian\ndeb http://x y main\n", "Types: deb\nURIs: http://x\n");
        assert_eq!(of_sources(list), "# Debian\ndeb-src http://x y main\n");
        assert_eq!(of_sources(block), "Types: deb-src\nURIs: http://x\n");
    }
}
