//! Named baselines: result files that are saved below the user's data folder, to compare later runs with.

use std::path::{Path, PathBuf};

use bench::plan::did_you_mean;
use results::schema::Run;

use crate::config::folder;
use crate::error::Failure;

/// The longest name, in characters.
const NAME_MAX: usize = 64;

/// The path of a baseline, which need not exist.
///
/// # Errors
/// If the name is invalid, or the user has no home folder.
pub(super) fn path(name: &str) -> Result<PathBuf, Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with(['.', '-']) || !name.chars().all(fits) {
        return Err(Failure::usage(format!(
            "'{name}' is no name of a baseline; give up to {NAME_MAX} letters, digits, `.`, `_` and `-`"
        )));
    }
    Ok(all()?.join(format!("{name}.json")))
}

/// The folder of all baselines.
fn all() -> Result<PathBuf, Failure> {
    let data = folder("XDG_DATA_HOME", ".local/share");
    let none =
        || Failure::usage("there is no place for baselines: neither HOME nor XDG_DATA_HOME is set; set one");
    Ok(data.ok_or_else(none)?.join("baselines"))
}

/// The file of an existing baseline.
///
/// # Errors
/// As [`path`]; also if the baseline does not exist, with a list of the existing ones.
pub(super) fn find(name: &str) -> Result<PathBuf, Failure> {
    let path = path(name)?;
    if path.is_file() {
        return Ok(path);
    }
    let known = names(&all()?);
    let hint = did_you_mean(name, known.iter().map(String::as_str));
    let there = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    Err(Failure::usage(format!(
        "there is no baseline '{name}'{hint}; there are: {there}; `nicety compare --save-baseline {name} RUN.json` keeps one"
    )))
}

/// The names of the baselines in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .filter(|name| path(name).is_ok())
        .collect();
    names.sort();
    names
}

/// Saves a run under a name, and replaces the old one of this name.
///
/// # Errors
/// As [`path`]; also errors of the file system.
pub(super) fn keep(name: &str, run: &Run) -> Result<PathBuf, Failure> {
    let path = path(name)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|why| {
        Failure::run(format!("cannot make {}: {why}; set XDG_DATA_HOME to another place", folder.display()))
    })?;
    run.write(&path).map_err(Failure::run)?;
    Ok(path)
}
