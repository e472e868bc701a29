//! Contents that can be checked: bytes that depend on a seed and on their place, so that anything else shows.

use verbs::Buf;
use verbs::host::{Host, Span};

use crate::experiment::Fault;
use results::stats::Rng;

const CHUNK: usize = 1 << 16;
/// Far more than a copy in progress still takes, and far less than a noticeable wait.
const A_MOMENT: Span = Span::from_ms(20);

fn chunks(
    seed: u64,
    len: usize,
    mut each: impl FnMut(usize, &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![0; len.min(CHUNK)];
    for start in (0..len).step_by(CHUNK) {
        let part = (len - start).min(CHUNK);
        for word in bytes[..part].chunks_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
        }
        each(start, &bytes[..part])?;
    }
    Ok(())
}

/// Writes the pattern of `seed` into the first `len` bytes from `offset`.
pub(crate) fn fill(buf: &Buf, offset: usize, len: usize, seed: u64) -> Result<(), Fault> {
    chunks(seed, len, |start, bytes| Ok(buf.write(offset + start, bytes)?))
}

/// Compares `len` bytes from `offset` with the pattern of `seed`.
pub(crate) fn compare(buf: &Buf, offset: usize, len: usize, seed: u64) -> Result<(), Fault> {
    let mut found = vec![0; len.min(CHUNK)];
    chunks(seed, len, |start, bytes| {
        let found = &mut found[..bytes.len()];
        buf.read(offset + start, found)?;
        match found.iter().zip(bytes).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(Fault::Corrupt(format!(
                "byte {} of {len} is {:#04x} and not {:#04x}",
                start + at,
                found[at],
                bytes[at]
            ))),
        }
    })
}

/// Compares data whose bytes may become visible in any order, so that the last one does not imply the others: wrong
/// bytes are compared again for a moment. Returns whether that was necessary.
pub(crate) fn compare_in_a_moment(
    host: &Host,
    buf: &Buf,
    (offset, len): (usize, usize),
    seed: u64,
) -> Result<bool, Fault> {
    let Err(first) = compare(buf, offset, len, seed) else { return Ok(false) };
    let deadline = host.after(A_MOMENT);
    let there = || compare(buf, offset, len, seed).ok();
    host.poll("a message to be wholly there", deadline, there).map_or(Err(first), |()| Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a late byte is distinguished from a wrong one. Method: the byte is corrected by another thread, or
    /// never.
    #[test]
    fn a_byte_that_comes_late_is_no_wrong_byte() {
        let host = verbs::host::real::host();
        let buf = Buf::alloc(512).expect("memory");
        fill(&buf, 0, 512, 7).expect("fits");
        assert_eq!(compare_in_a_moment(&host, &buf, (0, 512), 7), Ok(false));
        let right = buf.to_vec(256..257).expect("inside");
        buf.write(256, &[!right[0]]).expect("fits");
        let why = compare_in_a_moment(&host, &buf, (0, 512), 7).expect_err("it stays wrong").to_string();
        assert!(why.contains("byte 256 of 512"), "{why}");
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let host = verbs::host::real::host();
                (0..100).find_map(|_| compare_in_a_moment(&host, &buf, (0, 512), 7).ok())
            });
            std::thread::sleep(std::time::Duration::from_millis(1));
            buf.write(256, &right).expect("fits");
            assert!(looks.join().expect("no panic").is_some());
        });
    }

    #[test]
    fn a_pattern_is_found_again_and_a_single_changed_byte_is_named() {
        let buf = Buf::alloc(200_000).expect("memory");
        fill(&buf, 100, 150_001, 7).expect("fits");
        compare(&buf, 100, 150_001, 7).expect("the same");
        assert!(compare(&buf, 100, 150_001, 8).is_err());
        let old = buf.to_vec(100_100..100_101).expect("inside")[0];
        buf.write(100_100, &[old ^ 1]).expect("fits");
        let why = compare(&buf, 100, 150_001, 7).expect_err("changed").to_string();
        assert!(why.contains("byte 100000 of 150001"), "{why}");
        assert!(fill(&buf, 100, 200_000, 7).is_err());
    }
}
