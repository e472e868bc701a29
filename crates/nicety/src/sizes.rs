//! Parses the value of `--size`.

use bench::plan::sizes::{self, SizesError};

/// The value of `--size`: message sizes in bytes, ascending, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

/// Parses a list of sizes and ranges.
///
/// # Errors
/// [`SizesError`].
pub(crate) fn parse(text: &str) -> Result<Sizes, SizesError> {
    sizes::parse(text).map(Sizes)
}
