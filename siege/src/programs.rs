//! C programs that attack or are attacked. They use a library that cargo has built with this program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::attack::{Budget, Tally};

/// A C program.
pub(crate) struct Source<'a> {
    /// The program's name.
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    /// The names and texts of headers that it includes.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The library's file, as cargo names it.
    pub(crate) file: &'a str,
    /// The names under which programs search for the library.
    pub(crate) names: &'a [&'a str],
}

/// Compiles a program, and runs rounds with it, at least one: the compiler may take longer than the budget. If it
/// cannot be compiled, a note says that the attack is skipped.
pub(crate) fn with_program(
    source: &Source<'_>,
    budget: &mut Budget,
    tally: &mut Tally,
    mut round: impl FnMut(&Path, &mut Budget, &mut Tally),
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = match compile(source, folder.path()) {
        Ok(program) => program,
        Err(why) => {
            tally.add_note(format!("SKIPPED: {why:#}"));
            (tally.tried, tally.survived) = (1, 1);
            return Ok(());
        }
    };
    loop {
        round(&program, budget, tally);
        if !budget.has_time_left() {
            return Ok(());
        }
    }
}

/// Compiles a program into a folder, with links to its library, where the program finds it.
fn compile(source: &Source<'_>, folder: &Path) -> Result<PathBuf> {
    let library = library(source.file);
    let library = library.with_context(|| format!("{} is not next to this program", source.file))?;
    let names: Vec<PathBuf> = source.names.iter().map(|name| folder.join(name)).collect();
    for name in &names {
        std::os::unix::fs::symlink(&library, name)?;
    }
    let text = folder.join(format!("{}.c", source.name));
    std::fs::write(&text, source.text)?;
    for (name, text) in source.headers {
        std::fs::write(folder.join(name), text)?;
    }
    let program = folder.join(source.name);
    let mut cc = Command::new("cc");
    cc.arg("-I").arg(folder).arg("-o").arg(&program).arg(&text).args(&names);
    let output = cc.arg(format!("-Wl,-rpath,{}", folder.display())).output();
    let output = output.context("there is no cc; install gcc")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc fails for {}: {said}", source.name);
    Ok(program)
}

/// The newest library of this name that cargo has built with this program.
fn library(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let places = [folder.join(name), folder.join("deps").join(name)];
    places
        .into_iter()
        .max_by_key(|path| path.metadata().and_then(|found| found.modified()).ok())
        .filter(|path| path.exists())
}
