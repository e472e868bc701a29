//! Sizes as people write them: bytes with an optional K, M or G, commas between, `a..b` for doublings.

use verbs::host::Bytes;

/// Why a text is no list of sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizesError {
    /// A range from 0.
    #[error("{0} doubles from 0 and never ends; start at 1 or more")]
    Endless(String),
    /// A range that ends before it begins.
    #[error("{0} is empty; write the smaller size first")]
    Empty(String),
    /// No size.
    #[error("{0}; for example 8,4K,1M or 1..4M")]
    Size(String),
}

/// Reads a list of sizes and ranges: bytes, ascending, each once.
///
/// # Errors
/// [`SizesError`].
pub fn parse(text: &str) -> Result<Vec<u64>, SizesError> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once("..") {
            Some((first, last)) => all.extend(range(part, one(first)?, one(last)?)?),
            None => all.push(one(part)?),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The first and its doublings, none beyond the last.
fn range(part: &str, first: u64, last: u64) -> Result<Vec<u64>, SizesError> {
    if first == 0 {
        return Err(SizesError::Endless(part.to_owned()));
    }
    if first > last {
        return Err(SizesError::Empty(part.to_owned()));
    }
    let doublings = std::iter::successors(Some(first), |size| size.checked_mul(2));
    Ok(doublings.take_while(|size| *size <= last).collect())
}

/// Parses one size.
fn one(text: &str) -> Result<u64, SizesError> {
    text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|why| SizesError::Size(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_ranges_and_units() {
        let sizes = |text: &str| parse(text).expect(text);
        assert_eq!(sizes("8,4K,1M"), [8, 4096, 1 << 20]);
        assert_eq!(sizes("1..8"), [1, 2, 4, 8]);
        assert_eq!(sizes("1..4M").len(), 23);
        assert_eq!(sizes("3..20"), [3, 6, 12]);
        assert_eq!(sizes("8, 8B,8"), [8]);
        assert_eq!(sizes("1kib,1KiB,1k"), [1024]);
        assert_eq!(sizes("0"), [0]);
        assert_eq!(sizes("1G..1G"), [1 << 30]);
    }

    #[test]
    fn what_is_no_size_says_how_to_write_one() {
        let cases = [
            ("8X", "'8X' is no size"),
            ("", "'' is no size"),
            ("8,,9", "'' is no size"),
            ("K", "'K' is no size"),
            ("-1", "'-1' is no size"),
            ("1.5K", "'1.5K' is no size"),
            ("4KB", "'4KB' is no size"),
            ("0..8", "never ends"),
            ("8..4", "is empty"),
            ("99999999999999999999", "size"),
            ("99999999999G", "too large"),
            ("1...4", "no size"),
            ("8µ", "no size"),
        ];
        for (text, expected) in cases {
            let problem = parse(text).expect_err(text).to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    /// The largest sizes double to the end of 64 bits and stop there.
    #[test]
    fn a_range_to_the_end_of_the_numbers_ends() {
        assert_eq!(parse("1..18446744073709551615").expect("sizes").len(), 64);
    }
}
