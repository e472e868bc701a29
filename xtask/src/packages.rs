//! Programs of others that builds and tests call, and Debian's packages that have them.

use anyhow::{Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is looked for (a program in the search path, or a file if it has a slash), each with Debian's package that has it.
pub type Needed = [(&'static str, &'static str)];

/// What CI needs in addition to the Rust toolchain.
const FOR_CI: &Needed = &[
    ("cc", "gcc"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("gfortran", "gfortran"),
    ("dapltest", "dapl2-utils"),
    ("/usr/include/dat2/udat.h", "libdapl-dev"),
    ("ibv_rc_pingpong", "ibverbs-utils"),
    ("ib_write_lat", "perftest"),
    ("rping", "rdmacm-utils"),
    ("ucx_perftest", "ucx-utils"),
    ("fi_pingpong", "libfabric-bin"),
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
    ("/usr/include/rdma/rdma_cma.h", "librdmacm-dev"),
    ("chromium", "chromium"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("mmdebstrap", "mmdebstrap"),
    ("ip", "iproute2"),
    ("pkg-config", "pkgconf"),
    ("cmake", "cmake"),
    ("valgrind", "valgrind"),
];

/// Installs what CI needs and this machine lacks; says what it did.
///
/// # Errors
/// The line to type, where this user may not install packages or there is no apt-get.
pub fn setup() -> Result<String> {
    match provide(FOR_CI) {
        Ok(installed) if installed.is_empty() => Ok("setup: everything is here".to_owned()),
        Ok(installed) => Ok(format!("setup: installed {}", installed.join(" "))),
        Err(why) => bail!("setup: {why}"),
    }
}

/// Whether a program is in the search path, or in one that root has.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
}

fn missing(needed: &Needed) -> Vec<&'static str> {
    let is_here = |what: &str| if what.starts_with('/') { Path::new(what).exists() } else { exists(what) };
    let mut packages: Vec<_> =
        needed.iter().filter(|(what, _)| !is_here(what)).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

/// Installs the packages of what is missing, where that is allowed; returns them.
///
/// # Errors
/// Why they cannot be installed, and the line to type.
pub fn provide(needed: &Needed) -> Result<Vec<&'static str>, String> {
    let absent = missing(needed);
    if absent.is_empty() {
        return Ok(absent);
    }
    let wanted = format!("apt-get install --no-install-recommends {}", absent.join(" "));
    if !exists("apt-get") {
        return Err(format!(
            "there is no apt-get here; install by other means what Debian has in {}",
            absent.join(" ")
        ));
    }
    let Some(root) = root() else {
        return Err(format!("packages are missing, and sudo asks for a password; as root: {wanted}"));
    };
    println!("installing {}", absent.join(" "));
    let install: Vec<&str> = ["install", "-qq", "-y", "--no-install-recommends"]
        .into_iter()
        .chain(absent.iter().copied())
        .collect();
    if !quietly(root, &["update", "-qq"]) || !quietly(root, &install) {
        return Err(format!("packages cannot be installed; try: {wanted}"));
    }
    match missing(needed)[..] {
        [] => Ok(absent),
        ref absent => Err(format!("still missing after {wanted}: {}", absent.join(" "))),
    }
}

/// What goes before apt-get for it to be allowed to install.
fn root() -> Option<&'static [&'static str]> {
    const SUDO: &[&str] = &["sudo", "-n"];
    let sudo = || Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status();
    match is_root() {
        true => Some(&[]),
        false => sudo().is_ok_and(|status| status.success()).then_some(SUDO),
    }
}

fn quietly(root: &[&str], arguments: &[&str]) -> bool {
    let line = [root, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], arguments].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether this process may do everything, so packages can be installed and traffic can be captured.
pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_whitespace().nth(1) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_package_is_named_once() {
        let needed =
            [("cargo", "cargo"), ("no-such-program", "a"), ("/no/such/file", "a"), ("no-such-either", "b")];
        assert_eq!(missing(&needed), ["a", "b"]);
    }

    /// Goal: contributors are asked to install what CI needs. Method: both name the same packages.
    #[test]
    fn contributing_names_the_packages() {
        let contributing = include_str!("../../CONTRIBUTING.md");
        let line = contributing
            .lines()
            .find(|line| line.starts_with("apt-get install gcc "))
            .expect("CONTRIBUTING.md has the line");
        let packages: Vec<&str> = FOR_CI.iter().map(|(_, package)| *package).collect();
        assert_eq!(line.trim_start_matches("apt-get install "), packages.join(" "));
    }
}
