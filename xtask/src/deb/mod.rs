//! `cargo xtask deb` builds a Debian package and a tarball of what ships, in the target folder: the command, libraries, what builds of
//! programs need, manual pages, completions, an entry for dat.conf, a unit for systemd, suppressions for valgrind, and licences. `--try`
//! compiles programs against it, and installs it in a minimal Debian.

mod build_tests;
mod development;
mod layout;
mod notices;
mod root;

pub(crate) use root::suite_of_debian;

use crate::ships::{self, SHIPPED};
use anyhow::{Context, Result, bail};
use build_tests::Staged;
use layout::{DOC, LIBRARIES, MPICH, UNIT, VERBS, make_parent, write};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::workspace::{Workspace, capture, run as run_command};

const NAME: &str = "nicety";
/// Files of `share/` that are placed as they are.
const SHARED: [(&str, &str); 2] =
    [("share/nicety.supp", "usr/share/nicety/nicety.supp"), ("share/nicety-serve.service", UNIT)];
/// Stops the service before its command is removed.
const PRERM: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now nicety-serve.service || true
fi
";

/// Completion scripts: the shell, and the path where it finds them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/nicety"),
    ("zsh", "usr/share/zsh/vendor-completions/_nicety"),
    ("fish", "usr/share/fish/vendor_completions.d/nicety.fish"),
];

/// For programs that are started with DAT_OVERRIDE=/etc/nicety/dat.conf. The file /etc/dat.conf belongs to another
/// package, so this one must not change it (Debian policy 10.7.4).
const DAT_CONF: &str = "\
# An adapter for programs built against uDAPL. Start them with DAT_OVERRIDE=/etc/nicety/dat.conf, or add these lines to
# /etc/dat.conf. Another device than shm is a word: \"iwarp\", \"iwarp@10.0.0.1\"; `nicety devices` lists them.
nicety u2.0 nonthreadsafe default /usr/lib/nicety/libnicety_dat.so nicety.2.0 \"shm\" \"\"
nicety u2.0 threadsafe default /usr/lib/nicety/libnicety_dat.so nicety.2.0 \"shm\" \"\"
";

/// Builds the package and, if asked, tries it; returns a report.
///
/// # Errors
/// A failed build step, or a part of the package that does not work.
pub(crate) fn check(workspace: &Workspace, tried: bool) -> Result<String> {
    let (stage, version) = (stage(workspace)?, version(workspace)?);
    let (package, tarball) = (package(workspace, &stage, &version)?, tarball(workspace, &stage, &version)?);
    let size = |file: &Path| Ok::<_, anyhow::Error>(fs::metadata(file)?.len() as f64 / 1e6);
    let built =
        [&package, &tarball].map(|file| Ok(format!("deb: {} ({:.1} MB)", file.display(), size(file)?)));
    let built = built.into_iter().collect::<Result<Vec<String>>>()?.join("\n");
    if !tried {
        return Ok(built);
    }
    let folder = folder(workspace);
    let staged = Staged { root: &workspace.root, stage: &stage, folder: &folder.join("programs") };
    Ok(format!("{built}\n{}\n{}", staged.check()?, root::check(&folder, &package)?))
}

/// The folder of all outputs.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("deb")
}

/// Builds what ships, and places all files as they are installed.
fn stage(workspace: &Workspace) -> Result<PathBuf> {
    let packages = SHIPPED.iter().flat_map(|(package, _)| ["--package", package]);
    run_command(workspace.cargo(&["build", "--release"]).args(packages))?;
    let stage = folder(workspace).join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot empty {}", stage.display()))?;
    }
    programs(workspace, &stage)?;
    development::place(&workspace.root, &stage, &version(workspace)?)?;
    papers(workspace, &stage)?;
    Ok(stage)
}

/// Makes the Debian package of the staged files.
fn package(workspace: &Workspace, stage: &Path, version: &str) -> Result<PathBuf> {
    let architecture = capture(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let control = control(version, &architecture, &depends(workspace, stage)?);
    let scripts = stage.join("DEBIAN");
    write(&scripts.join("control"), &control)?;
    write(&scripts.join("conffiles"), "/etc/nicety/dat.conf\n")?;
    write(&scripts.join("prerm"), PRERM)?;
    fs::set_permissions(scripts.join("prerm"), fs::Permissions::from_mode(0o755))?;
    let package = folder(workspace).join(format!("{NAME}_{version}_{architecture}.deb"));
    run_command(
        Command::new("dpkg-deb").args(["--root-owner-group", "--build", "-Zxz"]).arg(stage).arg(&package),
    )?;
    Ok(package)
}

/// Makes a tarball of the same files, which may be unpacked anywhere. The command finds its libraries relative to itself.
fn tarball(workspace: &Workspace, stage: &Path, version: &str) -> Result<PathBuf> {
    let name = format!("{NAME}-{version}-{}-linux", std::env::consts::ARCH);
    let file = folder(workspace).join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    // The unit names the command by an absolute path. Targets of links (S) stay as they are.
    tar.args(["--exclude=./lib/systemd", "--transform", &format!("s,^[.],{name},S")]);
    tar.arg("--file").arg(&file).arg("--directory").arg(stage.join("usr")).arg(".");
    run_command(&mut tar)?;
    Ok(file)
}

/// The paths of the command and libraries in the staged package, in the order of [`SHIPPED`].
fn placed(workspace: &Workspace, stage: &Path) -> Result<Vec<PathBuf>> {
    let place = |file: &str| match file.starts_with("lib") {
        true => {
            let built = workspace.target().join("release").join(file);
            Ok(stage.join(LIBRARIES).join(name_of(file, &built)?))
        }
        false => Ok(stage.join("usr/bin").join(file)),
    };
    SHIPPED.iter().map(|(_, file)| place(file)).collect()
}

/// Copies the command and libraries to their places, stripped of debug information.
fn programs(workspace: &Workspace, stage: &Path) -> Result<()> {
    for ((_, file), to) in SHIPPED.iter().zip(placed(workspace, stage)?) {
        let from = workspace.target().join("release").join(file);
        make_parent(&to)?;
        run_command(Command::new("strip").args(["--strip-unneeded", "-o"]).arg(&to).arg(&from))?;
        let mode = if file.starts_with("lib") { 0o644 } else { 0o755 };
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
        development::link_for_linker(&to)?;
    }
    Ok(())
}

/// The installed name of a library: its SONAME, if programs find it under that name.
fn name_of(file: &str, library: &Path) -> Result<String> {
    let soname = if [VERBS.0, MPICH.0].contains(&file) { None } else { layout::soname(library)? };
    Ok(soname.unwrap_or_else(|| file.to_owned()))
}

/// Writes the files that are not executable code. The command itself generates its manual pages and completions.
fn papers(workspace: &Workspace, stage: &Path) -> Result<()> {
    let command = workspace.target().join("release").join(NAME);
    for (shell, path) in COMPLETIONS {
        write(&stage.join(path), &capture(Command::new(&command).args(["completions", shell]))?)?;
    }
    let pages = stage.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    run_command(Command::new(&command).arg("man").arg(&pages))?;
    write(&stage.join("etc/nicety/dat.conf"), DAT_CONF)?;
    for (file, place) in SHARED {
        write(&stage.join(place), &fs::read_to_string(workspace.root.join(file))?)?;
    }
    let doc = stage.join(DOC);
    write(&doc.join("copyright"), &notices::copyright(workspace)?)?;
    write(&doc.join("third-party"), &notices::third_party(workspace, &ships::tree(workspace)?)?)?;
    write(&doc.join("changelog"), &fs::read_to_string(workspace.root.join("CHANGELOG.md"))?)?;
    // With their paths, so that links between them work.
    for path in workspace.files()?.iter().filter(|path| is_documentation(path)) {
        write(&doc.join(path), &fs::read_to_string(workspace.root.join(path))?)?;
    }
    let pages = fs::read_dir(&pages)?.collect::<Result<Vec<_>, _>>()?.into_iter().map(|page| page.path());
    let more = ["changelog", "third-party"].map(|name| doc.join(name));
    run_command(Command::new("gzip").arg("-9n").args(pages.chain(more)))
}

/// Whether a file of the repository is installed with the documentation: pages, and the examples and machine files that
/// they name.
fn is_documentation(path: &str) -> bool {
    let name = Path::new(path);
    let has_extension =
        |all: &[&str]| name.extension().is_some_and(|found| all.iter().any(|one| found == *one));
    let is_in = |folder: &str| name.parent().is_some_and(|parent| parent.ends_with(folder));
    ["README.md", "SECURITY.md"].contains(&path)
        || (path.starts_with("docs/") && has_extension(&["md"]))
        || (path.starts_with("crates/abi-") && is_in("examples") && has_extension(&["c", "f90", "py"]))
        || (is_in("crates/nic-model/machines") && has_extension(&["toml"]))
}

fn version(workspace: &Workspace) -> Result<String> {
    let own = workspace.metadata.packages.iter().find(|package| package.name.as_str() == NAME);
    own.map(|package| package.version.to_string()).context("there is no package nicety")
}

/// The packages of the libraries that these files load, with the versions that have the symbols they use.
fn depends(workspace: &Workspace, stage: &Path) -> Result<String> {
    let source = folder(workspace).join("source");
    // Debian's tool requires the description of a source package, and ignores its contents.
    write(&source.join("debian/control"), "Source: nicety\n\nPackage: nicety\nArchitecture: any\n")?;
    let mut find = Command::new("dpkg-shlibdeps");
    // One library needs another one of this package, which that tool finds in no installed package.
    find.args(["-O", "--ignore-missing-info"]).arg(format!("-l{}", stage.join(LIBRARIES).display()));
    find.args(placed(workspace, stage)?).current_dir(&source);
    let said = capture(&mut find)?;
    match said.trim().strip_prefix("shlibs:Depends=") {
        Some(packages) if packages.contains("libc6") => Ok(packages.to_owned()),
        _ => bail!("dpkg-shlibdeps says {said:?}; the command needs libc6 at least"),
    }
}

fn control(version: &str, architecture: &str, depends: &str) -> String {
    format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: The Nicety authors <nicety@localhost>\nDepends: {depends}\n\
         Recommends: libdapl2\nSuggests: dapl2-utils, bash-completion\n\
         Description: RDMA in software on Linux, with every microsecond accounted for\n \
         Network cards in software with the semantics of libibverbs, a benchmark\n \
         suite for interconnects with intervals and floors, models of published\n \
         cards in virtual time, a provider for programs built against uDAPL, a launcher\n \
         and library for programs of MPI's standard ABI, Portals 4, and libibverbs and\n \
         librdmacm for programs built for them.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_dat_conf_name_the_library_where_it_lies() {
        let library =
            SHIPPED.iter().find(|(_, file)| file.ends_with("_dat.so")).expect("the DAT library ships").1;
        let entries: Vec<&str> = DAT_CONF.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(entries.len(), 2);
        assert!(
            entries.iter().all(|entry| entry.contains(&format!(" /{LIBRARIES}/{library} "))),
            "{entries:?}"
        );
    }

    #[test]
    fn description_has_the_fields_that_dpkg_requires() {
        let text = control("0.1.0", "amd64", "libc6 (>= 2.34)");
        for field in [
            "Package: nicety\n",
            "Version: 0.1.0\n",
            "Depends: libc6 (>= 2.34)\n",
            "Maintainer: ",
            "\n Network",
        ] {
            assert!(text.contains(field), "{field}: {text}");
        }
        assert!(text.ends_with('\n') && !text.contains("\n\n"));
    }

    #[test]
    fn pages_examples_and_machine_files_are_documentation() {
        for (path, expected) in [
            ("docs/start/mpi.md", true),
            ("docs/start/card.png", false),
            ("CONTRIBUTING.md", false),
            ("crates/abi-mpi/examples/ring.c", true),
            ("crates/abi-mpi/examples/ring.py", true),
            ("crates/abi-mpi/tests/programs/ring.c", false),
            ("crates/transport/examples/keyvalue.rs", false),
            ("crates/nic-model/machines/seastar.toml", true),
            ("crates/nic-model/Cargo.toml", false),
        ] {
            assert_eq!(is_documentation(path), expected, "{path}");
        }
    }

    #[test]
    fn libraries_with_links_ship() {
        for name in [VERBS.0, MPICH.0] {
            assert!(SHIPPED.iter().any(|(_, file)| *file == name), "{name}");
        }
    }
}
