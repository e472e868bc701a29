//! The guest image: made of Debian's packages, with siw built from Debian's kernel source, as Debian ships no siw
//! module.
//!
//! Everything is stored in one folder, and made again when this recipe changes. Nothing is installed on the host.

use super::archive::{entries_of, unpack, unwrap_kernel, write_archive};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use xtask::workspace::{capture, run};

/// The package that names the kernel.
const KERNEL: &str = "linux-image-amd64";
/// The programs in the guest, with all their dependencies. Add the packages of other test programs here.
const PACKAGES: &[&str] =
    &["busybox-static", "ibverbs-providers", "libgcc-s1", "rdmacm-utils", "perftest", "iproute2"];
/// Headers for compiling our programs for the guest.
const HEADERS: &[&str] = &["libibverbs-dev", "librdmacm-dev"];
/// Loaded in this order, each after its dependencies.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "qemu_fw_cfg",
    "crc32c_generic",
    "crc32c_intel",
    "crc32_generic",
    "dummy",
    "ib_uverbs",
    "rdma_ucm",
    "siw",
    "rdma_rxe",
];
/// Not needed, and most of the archive's size.
const LEFT_OUT: &[&str] =
    &["usr/share", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl-base", "var"];

/// Compile-time constants of siw that tests change: (file, declaration, replacement). The default values stay, and
/// nothing else of siw is changed.
const TURNABLE: &[(&str, &str, &str)] = &[
    (
        "siw_main.c",
        "const bool mpa_crc_required;",
        "bool mpa_crc_required; module_param(mpa_crc_required, bool, 0644);",
    ),
    ("siw_main.c", "const bool peer_to_peer;", "bool peer_to_peer; module_param(peer_to_peer, bool, 0644);"),
    (
        "siw_main.c",
        "u_char mpa_version = MPA_REVISION_2;",
        "u_char mpa_version = MPA_REVISION_2; module_param(mpa_version, byte, 0644);",
    ),
    ("siw.h", "extern const bool mpa_crc_required;", "extern bool mpa_crc_required;"),
    ("siw.h", "extern const bool peer_to_peer;", "extern bool peer_to_peer;"),
    ("siw_cm.c", "#include \"siw_cm.h\"\n", "#include \"siw_cm.h\"\n#include <linux/module.h>\n"),
    (
        "siw_cm.c",
        "static __be16 rtr_type = MPA_V2_RDMA_READ_RTR | MPA_V2_RDMA_WRITE_RTR;",
        "static __be16 rtr_type = MPA_V2_RDMA_READ_RTR | MPA_V2_RDMA_WRITE_RTR; module_param(rtr_type, ushort, 0644);",
    ),
];

/// The files that a guest boots from.
pub(crate) struct Image {
    /// The folder with all files.
    pub(crate) folder: PathBuf,
    /// The versions of the contents, as `name version`.
    pub(crate) versions: Vec<String>,
}

impl Image {
    /// The path of the guest's kernel.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.folder.join("kernel")
    }

    /// The archive of its initial files, without our own.
    pub(crate) fn base(&self) -> PathBuf {
        self.folder.join("base.cpio")
    }

    /// Compiles a C program for the guest.
    pub(crate) fn compile(&self, source: &Path, to: &Path) -> Result<()> {
        let libraries = self.folder.join("root/usr/lib/x86_64-linux-gnu");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(to).arg(source);
        gcc.arg("-I").arg(self.folder.join("headers/usr/include"));
        for library in ["librdmacm.so.1", "libibverbs.so.1"] {
            gcc.arg(libraries.join(library));
        }
        gcc.arg(format!("-Wl,-rpath-link,{}", libraries.display()));
        run(&mut gcc)
    }

    /// The guest in `folder`; made if it does not exist or was made by another recipe.
    pub(crate) fn find_or_make(folder: &Path) -> Result<(Self, bool)> {
        let mut hasher = DefaultHasher::new();
        (KERNEL, PACKAGES, HEADERS, MODULES, LEFT_OUT, TURNABLE, 1).hash(&mut hasher);
        let recipe = format!("recipe {:016x}", hasher.finish());
        let stamp = folder.join("made");
        let read = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let made = fs::read_to_string(&stamp).map(read).unwrap_or_default();
        if made.first() == Some(&recipe) {
            return Ok((Self { folder: folder.to_owned(), versions: made[1..].to_vec() }, false));
        }
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let versions = build_image(folder)?;
        fs::write(&stamp, [&[recipe][..], &versions].concat().join("\n"))?;
        Ok((Self { folder: folder.to_owned(), versions }, true))
    }
}

fn build_image(folder: &Path) -> Result<Vec<String>> {
    let work = folder.join("work");
    let blank = work.to_string_lossy().contains(char::is_whitespace);
    ensure!(!blank, "the kernel's makefiles cannot live with blanks in a path: {}", work.display());
    fs::create_dir_all(&work)?;
    let (kernel, root, headers) = (work.join("kernel"), folder.join("root"), folder.join("headers"));
    let release = fetch_kernel(&work, &kernel)?;
    fetch_programs(&work, &root, &headers)?;
    let siw = build_siw(&work, &kernel, &release)?;
    let order = put_modules(&kernel, &siw, &root)?;
    fs::write(root.join("modules/order"), order.join("\n") + "\n")?;
    let image = kernel.join("boot").join(format!("vmlinuz-{release}"));
    unwrap_kernel(&image, &folder.join("kernel"))?;
    write_archive(
        &entries_of(&root)?,
        &mut std::io::BufWriter::new(fs::File::create(folder.join("base.cpio"))?),
    )?;
    fs::remove_dir_all(&work)?;
    let mut versions =
        vec![format!("Linux {release} (siw from {})", field(&source_package(&release), "Version")?)];
    for package in ["rdmacm-utils", "libibverbs1", "ibverbs-providers"] {
        versions.push(format!("{package} {}", field(package, "Version")?));
    }
    Ok(versions)
}

/// A field of apt's record of a package's candidate.
fn field(package: &str, name: &str) -> Result<String> {
    let text = capture(Command::new("apt-cache").args(["show", "--no-all-versions", package]))?;
    let mark = format!("{name}: ");
    let line = text.lines().find_map(|line| line.strip_prefix(&mark));
    line.map(str::to_owned).with_context(|| format!("apt knows no {name} of {package}; run apt-get update"))
}

/// The package names in a list of dependencies.
fn names(dependencies: &str) -> Vec<String> {
    let words = dependencies.split([',', '|']).filter_map(|part| part.split_whitespace().next());
    words.map(str::to_owned).collect()
}

fn source_package(release: &str) -> String {
    let number = release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".");
    format!("linux-source-{number}")
}

/// Downloads packages into a folder, without installing anything.
pub(crate) fn download(packages: &[String], to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut apt = Command::new("apt-get");
    apt.args(["-qq", "-o", "APT::Sandbox::User=root", "download"]).args(packages).current_dir(to);
    run(apt.stdout(Stdio::null()))
}

fn unpack_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            unpack(&path, to)?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Downloads the kernel, its headers and its source, all of one version; returns the release.
fn fetch_kernel(work: &Path, kernel: &Path) -> Result<String> {
    let image = names(&field(KERNEL, "Depends")?).into_iter().find(|name| name.starts_with("linux-image-"));
    let image = image.with_context(|| format!("{KERNEL} names no kernel"))?;
    let release = image.trim_start_matches("linux-image-").to_owned();
    let version = field(&image, "Version")?;
    let headers = format!("linux-headers-{release}");
    let mut packages = vec![
        format!("{image}={version}"),
        format!("{}={version}", source_package(&release)),
        headers.clone(),
    ];
    let needed = names(&field(&headers, "Depends")?);
    packages.extend(
        needed
            .into_iter()
            .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-")),
    );
    let debs = work.join("kernel-debs");
    download(&packages, &debs)?;
    unpack_all(&debs, kernel)?;
    Ok(release)
}

/// Downloads the guest's programs with all their dependencies, as on a machine that has none.
fn fetch_programs(work: &Path, root: &Path, headers: &Path) -> Result<()> {
    let (debs, nothing) = (work.join("debs"), work.join("nothing-installed"));
    fs::create_dir_all(debs.join("partial"))?;
    fs::write(&nothing, "")?;
    let mut apt = Command::new("apt-get");
    apt.args(["-qqy", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1"]);
    apt.arg("-o").arg(format!("Dir::State::status={}", nothing.display()));
    apt.arg("-o").arg(format!("Dir::Cache::archives={}", debs.display()));
    apt.args(["--no-install-recommends", "--download-only", "install"]).args(PACKAGES);
    run(apt.stdout(Stdio::null()).stderr(Stdio::null()))?;
    unpack_all(&debs, root)?;
    let other = work.join("header-debs");
    download(&HEADERS.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), &other)?;
    unpack_all(&other, headers)?;
    for path in LEFT_OUT {
        let path = root.join(path);
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        if !root.join(name).exists() {
            std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
        }
    }
    ensure!(root.join("bin/busybox").exists(), "busybox-static has no /bin/busybox any more");
    for name in ["dev", "proc", "sys", "tmp", "run", "root", "modules"] {
        fs::create_dir_all(root.join(name))?;
    }
    Ok(())
}

/// Builds siw from the kernel's source against its headers.
fn build_siw(work: &Path, kernel: &Path, release: &str) -> Result<PathBuf> {
    let usr = kernel.join("usr/src");
    let package = source_package(release);
    let source = work.join("siw");
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(usr.join(format!("{package}.tar.xz"))).arg("-C").arg(work);
    run(tar.arg(format!("{package}/drivers/infiniband/sw/siw")))?;
    fs::rename(work.join(&package).join("drivers/infiniband/sw/siw"), &source)?;
    for (file, from, to) in TURNABLE {
        let path = source.join(file);
        let text = fs::read_to_string(&path)?;
        ensure!(
            text.matches(from).count() == 1,
            "this siw has no `{}` in {file}: another version?",
            from.trim()
        );
        fs::write(&path, text.replace(from, to))?;
    }
    // The headers refer to their second package by an absolute path.
    let headers = usr.join(format!("linux-headers-{release}"));
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile)?.replace("/usr/src/", &format!("{}/", usr.display()));
    fs::write(&makefile, text)?;
    let jobs = available_parallelism().map_or(1, |n| n.get());
    let mut make = Command::new("make");
    make.arg(format!("-j{jobs}")).arg("-C").arg(&headers).arg(format!("M={}", source.display()));
    // BTF type information would need another program; the compiler need not be the exact version that built the
    // kernel.
    make.args(["CONFIG_RDMA_SIW=m", "CONFIG_DEBUG_INFO_BTF_MODULES=", "CC=gcc", "modules"]);
    let output = make.stdin(Stdio::null()).output().context("make does not start")?;
    if !output.status.success() {
        bail!("siw does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let module = source.join("siw.ko");
    run(Command::new("strip").arg("--strip-debug").arg(&module))?;
    Ok(module)
}

/// Copies `MODULES` and the modules that they depend on; returns the order for loading.
fn put_modules(kernel: &Path, siw: &Path, root: &Path) -> Result<Vec<String>> {
    let name_of = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().replace('-', "_")).unwrap_or_default();
        name.split_once(".ko").map(|(name, _)| name.to_owned())
    };
    let mut tree = BTreeMap::new();
    let mut builtin = BTreeSet::new();
    let mut folders = vec![kernel.join("lib/modules"), kernel.join("usr/lib/modules")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            if path.symlink_metadata()?.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name == "modules.builtin") {
                let list = fs::read_to_string(&path)?;
                builtin.extend(list.lines().filter_map(|line| name_of(Path::new(line))));
            } else if let Some(name) = name_of(&path) {
                tree.insert(name, path);
            }
        }
    }
    tree.insert("siw".to_owned(), siw.to_owned());
    let mut order = Vec::new();
    for name in MODULES {
        put_module(name, &tree, &builtin, root, &mut order)?;
    }
    Ok(order)
}

fn put_module(
    name: &str,
    tree: &BTreeMap<String, PathBuf>,
    builtin: &BTreeSet<String>,
    root: &Path,
    order: &mut Vec<String>,
) -> Result<()> {
    if builtin.contains(name) || order.iter().any(|known| known == name) {
        return Ok(());
    }
    let path = tree.get(name).with_context(|| format!("the kernel has no module {name}"))?;
    let bytes = if path.extension().is_some_and(|extension| extension == "xz") {
        Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output()?.stdout
    } else {
        fs::read(path)?
    };
    let mark = b"\0depends=";
    let at = bytes
        .windows(mark.len())
        .position(|window| window == mark)
        .context("a module without dependencies")?;
    let depends: Vec<u8> = bytes[at + mark.len()..].iter().copied().take_while(|&byte| byte != 0).collect();
    for needed in String::from_utf8_lossy(&depends).split(',').filter(|needed| !needed.is_empty()) {
        put_module(&needed.replace('-', "_"), tree, builtin, root, order)?;
    }
    fs::write(root.join("modules").join(format!("{name}.ko")), bytes)?;
    order.push(name.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_names() {
        let found = names("linux-image-6.1.0-49-amd64 (= 6.1.192-2), kmod | busybox (>= 1:1.0), x");
        assert_eq!(found, ["linux-image-6.1.0-49-amd64", "kmod", "busybox", "x"]);
        assert_eq!(source_package("6.1.0-49-amd64"), "linux-source-6.1");
        assert_eq!(source_package("6.12-amd64"), "linux-source-6.12");
    }
}
