//! Tells the program the commit that it is built from, if it is built from a repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A change of the sources is one, and so is a commit or a checkout, each of which is logged.
    for watched in ["../../crates", "../../Cargo.lock"].map(str::to_owned).into_iter().chain(git(&[
        "rev-parse",
        "--git-path",
        "logs/HEAD",
    ])) {
        if Path::new(&watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--", "../../crates", "../../Cargo.lock"]);
        let changes = if changed.is_some_and(|list| !list.is_empty()) { "+changes" } else { "" };
        println!("cargo::rustc-env=NICETY_COMMIT={commit}{changes}");
    }
}

/// What git says; `None` without git or a repository.
fn git(args: &[&str]) -> Option<String> {
    let said = Command::new("git").args(args).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8(said.stdout).ok()?.trim().to_owned())
}
