//! Targets of Rust that CI builds for, in addition to the machine's own.

use anyhow::Result;
use std::path::Path;
use std::process::Command;
use xtask::workspace::{capture, run};

/// Linux on 64-bit ARM.
pub(crate) const ARM64: &str = "aarch64-unknown-linux-gnu";
/// No operating system.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";

/// Whether there is a standard library for this target; rustup installs it if it can.
///
/// # Errors
/// If rustc cannot be asked.
pub(crate) fn provide(target: &str) -> Result<bool> {
    if !is_there(target)? && run(Command::new("rustup").args(["target", "add", target])).is_err() {
        println!("{target} is missing and cannot be fetched");
    }
    is_there(target)
}

fn is_there(target: &str) -> Result<bool> {
    let libraries = capture(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    Ok(Path::new(libraries.trim()).is_dir())
}
