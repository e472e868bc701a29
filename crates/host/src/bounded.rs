//! Bounded reading of files, pipes and lines. All input of this project is read through here, each with a limit, so
//! that none can fill the memory: an endless device, a file that another user has filled, a peer that never ends its
//! line.
//!
//! A regular file beyond the limit is refused before anything is read from it. Pipes and devices are refused at the
//! limit, after at most one byte more than the limit has been read.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

use crate::Bytes;

/// Limit for a file below /proc or /sys. The largest ones grow with processors and mappings, to a few megabytes.
pub const KERNEL_FILE_MAX: u64 = 64 << 20;

/// The content of an [`io::Error`] of the kind [`ErrorKind::FileTooLarge`]: the input exceeds the reader's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// The limit in bytes.
    pub limit: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it exceeds {}, the limit for this kind of input", Bytes(self.limit))
    }
}

impl std::error::Error for TooLarge {}

fn too_large(limit: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, TooLarge { limit })
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// The operating system's error; [`TooLarge`] for a longer file.
pub fn read(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    if about.is_file() && about.len() > limit {
        return Err(too_large(limit));
    }
    let mut bytes = Vec::new();
    if about.is_file() {
        // The length is known and within the limit, so the buffer need not grow.
        bytes.try_reserve_exact(about.len() as usize).map_err(|_| ErrorKind::OutOfMemory)?;
    }
    read_into(&mut file, limit, &mut bytes)?;
    Ok(bytes)
}

/// Reads a text file of at most `limit` bytes.
///
/// # Errors
/// As [`read`]; [`ErrorKind::InvalidData`] for bytes that are not UTF-8.
pub fn read_text(path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|why| io::Error::new(ErrorKind::InvalidData, why))
}

/// Reads a text file below /proc or /sys.
///
/// # Errors
/// As [`read_text`], with [`KERNEL_FILE_MAX`] as limit.
pub fn kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    read_text(path, KERNEL_FILE_MAX)
}

/// Reads a stream to its end, at most `limit` bytes.
///
/// # Errors
/// As [`read`].
pub fn read_all(from: &mut impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(from, limit, &mut bytes)?;
    Ok(bytes)
}

fn read_into(from: &mut impl Read, limit: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    from.take(limit.saturating_add(1)).read_to_end(bytes)?;
    if bytes.len() as u64 > limit { Err(too_large(limit)) } else { Ok(()) }
}

/// Appends the next line with its line feed, at most `limit` bytes, to `line`; returns the number of bytes appended.
/// Only the last line of a stream can lack the line feed. 0 at the end of the stream.
///
/// # Errors
/// The operating system's error; [`TooLarge`] for a longer line, `line` then holds its beginning.
pub fn read_line(from: &mut impl BufRead, limit: u64, line: &mut Vec<u8>) -> io::Result<usize> {
    let got = from.take(limit.saturating_add(1)).read_until(b'\n', line)?;
    if got as u64 > limit { Err(too_large(limit)) } else { Ok(got) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Write as _};

    fn file(len: usize) -> (std::path::PathBuf, impl Drop) {
        struct Remove(std::path::PathBuf);
        impl Drop for Remove {
            fn drop(&mut self) {
                let _ = std::fs::remove_file(&self.0);
            }
        }
        let path = std::env::temp_dir().join(format!("nicety-bounded-{}-{len}", std::process::id()));
        std::fs::write(&path, vec![b'a'; len]).expect("a file");
        (path.clone(), Remove(path))
    }

    fn limit_of(error: &io::Error) -> Option<u64> {
        error.get_ref()?.downcast_ref::<TooLarge>().map(|why| why.limit)
    }

    #[test]
    fn read_accepts_limit_and_refuses_one_more() {
        for len in [0, 1, 99, 100] {
            let (path, _keep) = file(len);
            assert_eq!(read(&path, 100).expect("within the limit").len(), len);
            assert_eq!(read_text(&path, 100).expect("text").len(), len);
        }
        let (path, _keep) = file(101);
        let error = read(&path, 100).expect_err("too large");
        assert_eq!((error.kind(), limit_of(&error)), (ErrorKind::FileTooLarge, Some(100)));
        assert_eq!(error.to_string(), "it exceeds 100 B, the limit for this kind of input");
    }

    /// A sparse file of a terabyte: reading it would take hours.
    #[test]
    fn read_refuses_large_regular_file_without_reading() {
        let (path, _keep) = file(7);
        File::options().write(true).open(&path).expect("a file").set_len(1 << 40).expect("a hole");
        assert_eq!(limit_of(&read(&path, 1 << 39).expect_err("too large")), Some(1 << 39));
    }

    #[test]
    fn read_stops_at_limit_of_endless_device() {
        assert_eq!(limit_of(&read("/dev/zero", 1 << 20).expect_err("endless")), Some(1 << 20));
        assert_eq!(read("/dev/null", 0).expect("empty"), []);
    }

    #[test]
    fn read_accepts_kernel_files_of_length_zero() {
        assert!(kernel_text("/proc/self/status").expect("text").contains("Pid:"));
        assert_eq!(read("/proc/self/status", 10).expect_err("longer").kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn read_all_stops_at_limit_of_endless_stream() {
        assert_eq!(read_all(&mut &b"abc"[..], 3).expect("within"), b"abc");
        assert_eq!(limit_of(&read_all(&mut io::repeat(b'x'), 3).expect_err("endless")), Some(3));
    }

    #[test]
    fn read_text_refuses_what_is_not_utf_8() {
        let (path, _keep) = file(3);
        File::options().append(true).open(&path).expect("a file").write_all(b"\xff").expect("written");
        assert_eq!(read_text(&path, 100).expect_err("no text").kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn read_line_accepts_limit_and_refuses_one_more() {
        let mut input = BufReader::with_capacity(2, &b"123\n\n12"[..]);
        let mut next = || {
            let mut line = Vec::new();
            read_line(&mut input, 4, &mut line).map(|got| (got, line))
        };
        assert_eq!(next().expect("a line"), (4, b"123\n".to_vec()));
        assert_eq!(next().expect("a line"), (1, b"\n".to_vec()));
        assert_eq!(next().expect("the last line"), (2, b"12".to_vec()));
        assert_eq!(next().expect("the end").0, 0);
        let mut line = Vec::new();
        let error = read_line(&mut BufReader::new(io::repeat(b'x')), 4, &mut line).expect_err("endless");
        assert_eq!((limit_of(&error), line.len()), (Some(4), 5));
        assert_eq!(read_line(&mut &b"1234"[..], 4, &mut Vec::new()).expect("the last line"), 4);
    }
}
