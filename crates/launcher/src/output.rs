//! Tags and files of the ranks' output: expands the fields of their patterns, and writes the files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::message::Stream;
use crate::options::Output;

/// The values of the fields of a pattern.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) rank: u32,
    /// The ranks of the job, which decides the leading zeros of `%R`.
    pub(super) size: u32,
    pub(super) job: u32,
    pub(super) host: &'a str,
    pub(super) site: usize,
}

/// Expands a pattern; what is no field stays as it is.
pub(super) fn expand(pattern: &str, fields: &Fields<'_>) -> String {
    let mut text = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        text += before;
        let digits = fields.size.saturating_sub(1).to_string().len();
        let value = match after.chars().next() {
            Some('r') => format!("{}{}", job(fields), fields.rank),
            Some('R') => format!("{}{:0digits$}", job(fields), fields.rank),
            Some('h') => fields.host.to_owned(),
            Some('p') => fields.site.to_string(),
            Some('g') => fields.job.to_string(),
            Some('t') => {
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string()
            }
            Some('%') => "%".to_owned(),
            _ => {
                text.push('%');
                rest = after;
                continue;
            }
        };
        text += &value;
        rest = &after[1..];
    }
    text + rest
}

/// What precedes a rank of a job that ranks have started, such as `1.`.
fn job(fields: &Fields<'_>) -> String {
    if fields.job == 0 { String::new() } else { format!("{}.", fields.job) }
}

/// The files that output of ranks goes to.
#[derive(Debug, Default)]
pub(super) struct Files {
    out: Option<String>,
    err: Option<String>,
    is_copied: bool,
    /// Open files by path: streams whose patterns give the same path share a file.
    by_path: BTreeMap<PathBuf, Rc<File>>,
    by_stream: BTreeMap<(u32, Stream), Rc<File>>,
}

impl Files {
    pub(super) fn new(output: &Output) -> Self {
        let Output { out_file: out, err_file: err, is_copied, .. } = output.clone();
        Self { out, err, is_copied, ..Self::default() }
    }

    /// Creates the files of a process.
    ///
    /// # Errors
    /// Which file cannot be created, and why.
    pub(super) fn create(&mut self, number: u32, fields: &Fields<'_>) -> Result<(), String> {
        let patterns = [(Stream::Out, &self.out), (Stream::Err, &self.err)];
        for (stream, pattern) in patterns {
            let Some(pattern) = pattern else { continue };
            let path = PathBuf::from(expand(pattern, fields));
            let file = match self.by_path.get(&path) {
                Some(file) => file.clone(),
                None => {
                    let file = create(&path).map_err(|why| {
                        let shown = path.display();
                        format!("the output of ranks cannot be written to {shown}: {why}; name another file")
                    })?;
                    self.by_path.entry(path).or_insert(Rc::new(file)).clone()
                }
            };
            self.by_stream.insert((number, stream), file);
        }
        Ok(())
    }

    /// Writes output of a process to its file; returns whether mpirun prints it, too.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn write(&self, number: u32, stream: Stream, bytes: &[u8]) -> io::Result<bool> {
        let Some(file) = self.by_stream.get(&(number, stream)) else { return Ok(true) };
        file.as_ref().write_all(bytes)?;
        Ok(self.is_copied)
    }
}

/// Creates a file and its folder.
fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    File::create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields<'_> = Fields { rank: 3, size: 12, job: 1, host: "a", site: 2 };

    #[test]
    fn fields_of_a_pattern_are_expanded() {
        assert_eq!(expand("[%r] ", &FIELDS), "[1.3] ");
        assert_eq!(expand("o.%R.%h-%p-%g%%", &FIELDS), "o.1.03.a-2-1%");
        assert_eq!(expand("%r,%R", &Fields { job: 0, ..FIELDS }), "3,03");
        assert_eq!(expand("%x %", &FIELDS), "%x %");
        assert_eq!(expand("%ä", &FIELDS), "%ä");
        assert!(expand("%t", &FIELDS).parse::<u64>().is_ok_and(|seconds| seconds > 1_000_000_000));
        assert_eq!(expand("%R", &Fields { size: 1, rank: 0, job: 0, ..FIELDS }), "0");
    }

    /// Goal: both streams of a rank may share a file, also with other ranks. Method: one pattern without a rank.
    #[test]
    fn streams_with_the_same_path_share_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new").join("all");
        let pattern = Some(path.display().to_string());
        let output = Output { out_file: pattern.clone(), err_file: pattern, ..Output::default() };
        let mut files = Files::new(&output);
        for rank in 0..2 {
            files.create(rank, &Fields { rank, ..FIELDS }).expect("a file");
        }
        assert_eq!(files.write(0, Stream::Out, b"a\n").ok(), Some(false));
        assert_eq!(files.write(1, Stream::Err, b"b\n").ok(), Some(false));
        assert_eq!(files.write(2, Stream::Err, b"c\n").ok(), Some(true), "it has no file");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "a\nb\n");
    }

    #[test]
    fn file_that_cannot_be_created_is_named() {
        let output = Output { out_file: Some("/proc/nowhere/%r".to_owned()), ..Output::default() };
        let why = Files::new(&output).create(0, &FIELDS).expect_err("no such folder");
        assert!(why.starts_with("the output of ranks cannot be written to /proc/nowhere/1.3: "), "{why}");
    }
}
