//! Which programs of others are needed, and where they come from.

use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Each program that the guest needs, with Debian's package that has it.
const FOR_GUEST: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("strip", "binutils"),
    ("xz", "xz-utils"),
    ("tshark", "tshark"),
    ("dumpcap", "wireshark-common"),
];
/// Libraries that something there needs: the kernel's build, and C programs.
const LIBRARIES: &[(&str, &str)] =
    &[("usr/lib/x86_64-linux-gnu/libelf.so.1", "libelf1"), ("usr/include/stdio.h", "libc6-dev")];
/// Programs built against DAT.
const FOR_DAT: &[(&str, &str)] =
    &[("dtest", "dapl2-utils"), ("dapltest", "dapl2-utils"), ("stdbuf", "coreutils")];

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
}

type Needed = [(&'static str, &'static str)];

fn missing(programs: &Needed, libraries: &Needed) -> Vec<&'static str> {
    let programs = programs.iter().filter(|(program, _)| !exists(program));
    let libraries = libraries.iter().filter(|(path, _)| !Path::new("/").join(path).exists());
    let mut packages: Vec<_> = programs.chain(libraries).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn quietly(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Why there can be no guest here, if there cannot; packages that are missing are installed where that is allowed.
pub(crate) fn provide_guest() -> Result<(), String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("the guest is made for Linux on x86-64".into());
    }
    if !exists("apt-get") {
        return Err("the guest is made of Debian's packages, and there is no apt-get here".into());
    }
    // An image that is there already needs none of this, but the lists age, and versions in them then cannot be fetched.
    provide(FOR_GUEST, LIBRARIES)
}

/// Why Debian's programs for uDAPL cannot be had here, if they cannot.
pub(crate) fn provide_dat() -> Result<(), String> {
    provide(FOR_DAT, &[])
}

fn provide(programs: &Needed, libraries: &Needed) -> Result<(), String> {
    let absent = missing(programs, libraries);
    if absent.is_empty() {
        return Ok(());
    }
    let wanted = format!("apt-get install --no-install-recommends {}", absent.join(" "));
    if !is_root() {
        return Err(format!("programs are missing; as root: {wanted}"));
    }
    println!("interop: installing {}", absent.join(" "));
    let install: Vec<&str> =
        ["install", "-qq", "-y", "--no-install-recommends"].into_iter().chain(absent).collect();
    if !quietly("apt-get", &["update", "-qq"]) || !quietly("apt-get", &install) {
        return Err(format!("packages cannot be installed; try: {wanted}"));
    }
    match missing(programs, libraries)[..] {
        [] => Ok(()),
        ref absent => Err(format!("still missing after {wanted}: {}", absent.join(" "))),
    }
}

/// Whether this process may do everything, so packages can be installed and traffic can be captured.
pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_whitespace().nth(1) == Some("0")
}
