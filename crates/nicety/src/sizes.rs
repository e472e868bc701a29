//! `--size`: the sizes of one option as one value.

use bench::plan::sizes::{self, SizesError};

/// What `--size` means: message sizes in bytes, ascending, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

/// Reads a list of sizes and ranges.
///
/// # Errors
/// [`SizesError`].
pub(crate) fn parse(text: &str) -> Result<Sizes, SizesError> {
    sizes::parse(text).map(Sizes)
}
