//! The workspace: its root, its packages, and calls of cargo and other tools.

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `xtask` builds each thing once: incremental builds gain nothing, and backtraces need only function names. Line
/// numbers take a fifth of the time of building the tests. The environment overrides these values.
const BUILT_ONCE: [(&str, &str); 2] = [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "none")];

/// The workspace that `xtask` was built in.
pub struct Workspace {
    /// Absolute path of its root folder.
    pub root: PathBuf,
    /// Its own packages, without dependencies resolved.
    pub metadata: Metadata,
}

impl Workspace {
    /// Reads `cargo metadata` of the workspace that holds this crate.
    pub fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(&manifest)
            .no_deps()
            .exec()
            .context("cargo metadata failed; does every Cargo.toml parse?")?;
        Ok(Self { root: metadata.workspace_root.clone().into(), metadata })
    }

    /// The folder that cargo builds into.
    pub fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// Calls cargo in the workspace root.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root).stdin(Stdio::null());
        command.envs(BUILT_ONCE.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
        command
    }

    /// Every file that is tracked, or would be after `git add .`: paths from the root, sorted.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listing = capture(git.current_dir(&self.root))?;
        let mut files: Vec<String> =
            listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
        files.retain(|path| self.root.join(path).symlink_metadata().is_ok_and(|found| found.is_file()));
        files.sort();
        files.dedup();
        Ok(files)
    }
}

/// Runs a command that inherits standard output and error; an error if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output; standard error is inherited.
pub fn capture(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed what is not UTF-8"))
}

/// "1 step", "2 steps".
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?} ", name.to_string_lossy(), value?)));
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
    variables.chain([program.to_string_lossy().into_owned()]).chain(arguments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(shown(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn the_workspace_holds_this_file() {
        let files = Workspace::find().and_then(|workspace| workspace.files()).expect("a git work tree");
        assert!(files.contains(&"xtask/src/workspace.rs".to_owned()));
    }

    #[test]
    fn a_failing_command_names_itself() {
        let error = run(&mut Command::new("false")).expect_err("false fails");
        assert!(error.to_string().starts_with("`false` ended with"), "{error}");
    }
}
