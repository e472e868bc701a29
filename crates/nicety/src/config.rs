//! The user's defaults, `~/.config/nicety/config.toml`, and the location of the user's data.

use std::path::{Path, PathBuf};

use host::bounded;
use serde::Deserialize;

use crate::error::{Failure, one_line};

/// The largest configuration file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The contents of the file; each setting is optional.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// As `--device`.
    pub(crate) device: Option<String>,
    /// As `--set cores`.
    pub(crate) cores: Option<String>,
    /// Seconds, as `--set budget`; not with `--quick`.
    pub(crate) budget: Option<f64>,
    /// How results are shown.
    #[serde(default)]
    pub(crate) output: Output,
    /// Whether the first screen has plots.
    pub(crate) plot: Option<bool>,
}

/// How results are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Output {
    /// The first screen.
    #[default]
    Screen,
    /// All tables.
    Full,
    /// A line for each result.
    Line,
}

impl Config {
    /// Reads the named file, or the default one if it exists.
    ///
    /// # Errors
    /// A named file that cannot be read; mistakes, with the valid settings.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, Failure> {
        let usual = || Some(folder("XDG_CONFIG_HOME", ".config")?.join("config.toml"));
        let Some(path) = named.map(Path::to_owned).or_else(usual) else { return Ok(Self::default()) };
        match bounded::read_text(&path, FILE_MAX) {
            Ok(text) => Self::parse(&text).map_err(|why| {
                let why = one_line(&why);
                Failure::usage(format!("{}: {why}; `nicety bench --help` has an example", path.display()))
            }),
            Err(why) if named.is_none() && why.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(why) => {
                let path = path.display();
                Err(Failure::usage(format!("cannot read the configuration {path}: {why}; check its name")))
            }
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|why| why.to_string())
    }
}

/// The user's folder of a kind: from the variable, else the default below the home folder; `None` without either.
pub(crate) fn folder(variable: &str, usual: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG specification says to ignore a relative path.
    let from_variable = set(variable).filter(|path| path.is_absolute());
    Some(from_variable.or_else(|| Some(set("HOME")?.join(usual)))?.join("nicety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_may_have_some_or_all_settings() {
        assert_eq!(Config::parse(""), Ok(Config::default()));
        let text = "device = \"iwarp\"\ncores = \"2,3\"\nbudget = 60\noutput = \"line\"\nplot = false\n";
        let all = Config {
            device: Some("iwarp".to_owned()),
            cores: Some("2,3".to_owned()),
            budget: Some(60.0),
            output: Output::Line,
            plot: Some(false),
        };
        assert_eq!(Config::parse(text), Ok(all));
    }

    #[test]
    fn invalid_configuration_is_refused_with_valid_settings() {
        let wrong = |text: &str| Config::parse(text).expect_err("refused");
        let unknown = wrong("devise = \"iwarp\"");
        assert!(unknown.contains("devise") && unknown.contains("`device`"), "{unknown}");
        assert!(wrong("output = \"all\"").contains("full"), "{}", wrong("output = \"all\""));
        assert!(wrong("budget = \"much\"").contains("line 1"), "{}", wrong("budget = \"much\""));
    }
}
