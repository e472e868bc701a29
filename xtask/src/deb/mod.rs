//! `cargo xtask deb` builds a Debian package of what ships, in the target folder: the command, libraries, manual pages,
//! completions, an entry for dat.conf, the headers of MPI and Portals, suppressions for valgrind, and licences. `--try`
//! installs it in a minimal Debian.

mod notices;
mod root;

pub(crate) use root::suite_of_debian;

use crate::ships::{self, SHIPPED};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::workspace::{Workspace, capture, run as run_command};

const NAME: &str = "nicety";
/// The folder of libraries that no program links with: the DAT registry gets the path of ours.
const LIBRARIES: &str = "usr/lib/nicety";
const DOC: &str = "usr/share/doc/nicety";
/// The folder of the C headers, and the headers.
const INCLUDE: &str = "usr/include/nicety";
const HEADERS: [&str; 2] = ["crates/abi-mpi/include/mpi.h", "crates/abi-portals/include/portals4.h"];
/// Suppressions for valgrind, and the folder in which the package has them.
const SUPPRESSIONS: (&str, &str) = ("share/nicety.supp", "usr/share/nicety");

/// The library for verbs programs, and the subfolder with links of the names that programs load, which `nicety run`
/// puts on their search path. No other program searches that folder, as Debian's own libraries have these names.
const VERBS: (&str, &str, [&str; 2]) =
    ("libnicety_verbs.so", "nicety-verbs", ["libibverbs.so.1", "librdmacm.so.1"]);

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
    let package = build(workspace)?;
    let size = fs::metadata(&package)?.len() as f64 / 1e6;
    let built = format!("deb: {} ({size:.1} MB)", package.display());
    if !tried {
        return Ok(built);
    }
    Ok(format!("{built}\n{}", root::check(&folder(workspace), &package)?))
}

/// The folder of all outputs.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("deb")
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    let packages = SHIPPED.iter().flat_map(|(package, _)| ["--package", package]);
    run_command(workspace.cargo(&["build", "--release"]).args(packages))?;
    let stage = folder(workspace).join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot empty {}", stage.display()))?;
    }
    let programs = programs(workspace, &stage)?;
    papers(workspace, &stage)?;
    let version = version(workspace)?;
    let architecture = capture(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let control = control(&version, &architecture, &depends(workspace, &programs)?);
    write(&stage.join("DEBIAN/control"), &control)?;
    write(&stage.join("DEBIAN/conffiles"), "/etc/nicety/dat.conf\n")?;
    let package = folder(workspace).join(format!("{NAME}_{version}_{architecture}.deb"));
    run_command(
        Command::new("dpkg-deb").args(["--root-owner-group", "--build", "-Zxz"]).arg(&stage).arg(&package),
    )?;
    Ok(package)
}

/// Copies the command and libraries to their places, stripped of debug information.
fn programs(workspace: &Workspace, stage: &Path) -> Result<Vec<PathBuf>> {
    let mut placed = Vec::new();
    for (_, file) in SHIPPED {
        let is_library = file.starts_with("lib");
        let from = workspace.target().join("release").join(file);
        let to = match is_library {
            true => stage.join(LIBRARIES).join(name_of(file, &from)?),
            false => stage.join("usr/bin").join(file),
        };
        make_parent(&to)?;
        run_command(Command::new("strip").args(["--strip-unneeded", "-o"]).arg(&to).arg(&from))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(if is_library { 0o644 } else { 0o755 }))?;
        link_for_linker(&to)?;
        placed.push(to);
    }
    let (library, folder, names) = VERBS;
    for name in names {
        let link = stage.join(LIBRARIES).join(folder).join(name);
        make_parent(&link)?;
        symlink(Path::new("..").join(library), link)?;
    }
    Ok(placed)
}

/// The installed name of a library: its SONAME, if programs find it under that name.
fn name_of(file: &str, library: &Path) -> Result<String> {
    let soname = if file == VERBS.0 { None } else { soname(library)? };
    Ok(soname.unwrap_or_else(|| file.to_owned()))
}

/// Links `libNAME.so`, which the linker finds by `-lNAME`, to a library that has a version in its name.
fn link_for_linker(library: &Path) -> Result<()> {
    let name = library.file_name().and_then(|name| name.to_str()).context("a library with a name")?;
    match name.split_once(".so.") {
        Some((stem, _)) => Ok(symlink(name, library.with_file_name(format!("{stem}.so")))?),
        None => Ok(()),
    }
}

/// The SONAME of a library, if it has one.
fn soname(library: &Path) -> Result<Option<String>> {
    let headers = capture(Command::new("objdump").arg("-p").arg(library))?;
    Ok(headers.lines().find_map(|line| line.trim().strip_prefix("SONAME")).map(|name| name.trim().to_owned()))
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
    for (file, folder) in HEADERS.map(|header| (header, INCLUDE)).into_iter().chain([SUPPRESSIONS]) {
        let name = Path::new(file).file_name().context("a file with a name")?;
        write(&stage.join(folder).join(name), &fs::read_to_string(workspace.root.join(file))?)?;
    }
    let doc = stage.join(DOC);
    write(&doc.join("copyright"), &notices::copyright(workspace)?)?;
    write(&doc.join("third-party"), &notices::third_party(workspace, &ships::tree(workspace)?)?)?;
    write(&doc.join("changelog"), &fs::read_to_string(workspace.root.join("CHANGELOG.md"))?)?;
    // With their paths, so that links between them work.
    for path in workspace.files()? {
        let is_page = path.starts_with("docs/") && path.ends_with(".md");
        if is_page || ["README.md", "SECURITY.md"].contains(&path.as_str()) {
            write(&doc.join(&path), &fs::read_to_string(workspace.root.join(&path))?)?;
        }
    }
    let pages = fs::read_dir(&pages)?.collect::<Result<Vec<_>, _>>()?.into_iter().map(|page| page.path());
    let more = ["changelog", "third-party"].map(|name| doc.join(name));
    run_command(Command::new("gzip").arg("-9n").args(pages.chain(more)))
}

fn version(workspace: &Workspace) -> Result<String> {
    let own = workspace.metadata.packages.iter().find(|package| package.name.as_str() == NAME);
    own.map(|package| package.version.to_string()).context("there is no package nicety")
}

/// The packages of the libraries that these files load, with the versions that have the symbols they use.
fn depends(workspace: &Workspace, files: &[PathBuf]) -> Result<String> {
    let source = folder(workspace).join("source");
    // Debian's tool requires the description of a source package, and ignores its contents.
    write(&source.join("debian/control"), "Source: nicety\n\nPackage: nicety\nArchitecture: any\n")?;
    let said = capture(Command::new("dpkg-shlibdeps").arg("-O").args(files).current_dir(&source))?;
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
         Description: RDMA on any machine, measured so that one can believe the numbers\n \
         Network cards in software with the semantics of libibverbs, a benchmark\n \
         suite for interconnects with intervals and floors, models of published\n \
         cards in virtual time, a provider for programs built against uDAPL, a launcher\n \
         and library for programs of MPI's standard ABI, Portals 4, and libibverbs and\n \
         librdmacm for programs built for them.\n"
    )
}

/// Writes a file, and makes the folders above it.
fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path with a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_dat_conf_name_the_library_where_it_lies() {
        let library = SHIPPED.iter().find(|(_, file)| file.ends_with("_dat.so")).expect("it ships").1;
        let entries: Vec<&str> = DAT_CONF.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(entries.len(), 2);
        assert!(
            entries.iter().all(|entry| entry.contains(&format!(" /{LIBRARIES}/{library} "))),
            "{entries:?}"
        );
    }

    #[test]
    fn the_description_has_what_dpkg_asks_for() {
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
    fn the_library_for_verbs_programs_ships() {
        assert!(SHIPPED.iter().any(|(_, file)| *file == VERBS.0));
    }
}
