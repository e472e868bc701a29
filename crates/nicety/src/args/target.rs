//! [`Target`]: where an option writes its output.

use std::path::{Path, PathBuf};

/// A file, or `-` for standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output.
    Stdout,
    /// A file, replaced as a whole.
    File(PathBuf),
}

impl From<std::ffi::OsString> for Target {
    fn from(text: std::ffi::OsString) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }
}

impl Target {
    /// The path, unless this is standard output.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Stdout => None,
            Self::File(path) => Some(path),
        }
    }
}
