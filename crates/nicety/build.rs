//! Sets `NICETY_COMMIT` to the commit that the program is built from, if it is built from a repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Rerun after a change of the sources, and after a commit or a checkout, which git logs.
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

/// The output of git; `None` without git or a repository.
fn git(args: &[&str]) -> Option<String> {
    let said = Command::new("git").args(args).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8(said.stdout).ok()?.trim().to_owned())
}
