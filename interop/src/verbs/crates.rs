//! Rust crates that wrap libibverbs and librdmacm: the example programs of `sideway`, built by cargo as published, on
//! our devices. The crate generates bindings from its own headers when it is built, and loads the libraries by name
//! when it runs.

use super::programs::{Clients, ProgramRun, RunEnd, alone, same};
use crate::case::{Case, Verdict};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::workspace::run;

pub(crate) const CASES: &[Case<Clients>] = &[Case {
    name: "verbs-rust",
    shows: "programs of the Rust crate sideway",
    run: |clients| sideway(clients),
}];

/// The crate and its tested version.
const CRATE: [&str; 3] = ["sideway", "--version", "0.4.3"];
/// Generates its bindings.
const CLANG: &str = "libclang-14-dev";
const CLANG_FOLDER: &str = "/usr/lib/llvm-14/lib";

const PROGRAMS: &[ProgramRun] = &[
    alone("ibv_devinfo", "nicety0"),
    alone("show_gids", "nicety0"),
    same("rc_pingpong -p PORT"),
    same("rc_pingpong -p PORT -s 65536 -n 100"),
    same("rc_pingpong_split -p PORT"),
    ProgramRun {
        server: "cmtime -b 127.0.0.1 -p PORT",
        // With -b as well, the crate would pass a dangling address.
        end: RunEnd::ClientOf("cmtime -s 127.0.0.1 -p PORT"),
        says: "Disconnect",
    },
];

fn sideway(clients: &mut Clients) -> Result<Verdict> {
    let programs = install(clients.folder())?;
    clients.run_all_from(programs, PROGRAMS)
}

/// Builds the programs below this folder; returns their folder.
fn install(folder: &Path) -> Result<PathBuf> {
    if !Path::new(CLANG_FOLDER).join("libclang.so").exists() {
        let mut apt = Command::new("apt-get");
        run(apt.args(["install", "-y", "-qq", "--no-install-recommends", CLANG]))
            .with_context(|| format!("as root: apt-get install {CLANG}"))?;
    }
    let root = folder.join("sideway");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--quiet", "--examples"]).args(CRATE).arg("--root").arg(&root);
    run(cargo.arg("--target-dir").arg(folder.join("sideway-build")).env("LIBCLANG_PATH", CLANG_FOLDER))?;
    Ok(root.join("bin"))
}
