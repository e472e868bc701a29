//! `--size`: the sizes of one option as one value.

/// What `--size` means: message sizes in bytes, ascending, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

/// Reads a list of sizes and ranges.
///
/// # Errors
/// What is wrong and how to write it.
pub(crate) fn parse(text: &str) -> Result<Sizes, String> {
    bench::plan::sizes::parse(text).map(Sizes)
}
