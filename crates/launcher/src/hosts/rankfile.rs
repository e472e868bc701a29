//! Rank files: the host and the cores of each rank, one per line, as `rank 0=node1 slot=0-1`.

use std::collections::BTreeMap;
use std::path::Path;

use host::bounded;

use super::{FILE_MAX, Host, parse_name};
use crate::failure::Failure;
use crate::message::CoreRange;
use pmi::mapping::RANKS_MAX;

/// The place of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RankPlace {
    host: HostName,
    /// Its cores; none if it is not bound.
    pub(crate) cores: Vec<CoreRange>,
}

/// How a line names its host.
#[derive(Clone, PartialEq, Eq, Debug)]
enum HostName {
    Name(String),
    /// The host of this index in the host list.
    Index(usize),
}

/// The places of ranks by number.
pub(crate) type RankPlaces = BTreeMap<u32, RankPlace>;

impl RankPlace {
    /// The name of the host.
    ///
    /// # Errors
    /// If the host list has no such host.
    pub(crate) fn host<'a>(&'a self, hosts: &'a [Host]) -> Result<&'a str, Failure> {
        match &self.host {
            HostName::Name(name) => Ok(name),
            HostName::Index(at) => hosts.get(*at).map(|host| host.name.as_str()).ok_or_else(|| {
                let count = hosts.len();
                Failure::usage(format!(
                    "the rank file names +n{at}, but the first of {count} hosts is +n0; give more by --host"
                ))
            }),
        }
    }
}

/// Reads a rank file.
///
/// # Errors
/// If the file cannot be read, or the first line that cannot be parsed.
pub(crate) fn read(path: &Path) -> Result<RankPlaces, Failure> {
    let shown = path.display();
    let text = bounded::read_text(path, FILE_MAX).map_err(|why| {
        Failure::usage(format!("the rank file {shown} cannot be read: {why}; check its path"))
    })?;
    let mut places = RankPlaces::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |why: String| Failure::usage(format!("line {number} of {shown}: {why}"));
        let (rank, place) = parse_line(line).map_err(wrong)?;
        if places.insert(rank, place).is_some() {
            return Err(wrong(format!("rank {rank} has a line already; remove one")));
        }
    }
    if places.is_empty() {
        return Err(Failure::usage(format!(
            "the rank file {shown} names no rank; write lines such as rank 0=node1 slot=0-1"
        )));
    }
    Ok(places)
}

/// Parses `rank N=HOST [slot=CORES]`.
fn parse_line(line: &str) -> Result<(u32, RankPlace), String> {
    let how = || format!("'{line}' is not rank N=HOST slot=CORES; write, for example, rank 0=node1 slot=0-1");
    let rest =
        line.strip_prefix("rank").filter(|rest| rest.starts_with(char::is_whitespace)).ok_or_else(how)?;
    let (rank, rest) = rest.split_once('=').ok_or_else(how)?;
    let rank = rank.trim().parse().ok().filter(|rank| *rank < RANKS_MAX).ok_or_else(how)?;
    let (host, rest) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let host = match host.strip_prefix("+n").and_then(|index| index.parse().ok()) {
        Some(index) => HostName::Index(index),
        None => HostName::Name(parse_name(host)?),
    };
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok((rank, RankPlace { host, cores: Vec::new() }));
    }
    let cores = rest.strip_prefix("slots").or_else(|| rest.strip_prefix("slot")).map(str::trim_start);
    let cores = cores.and_then(|rest| rest.strip_prefix('=')).ok_or_else(how)?;
    Ok((rank, RankPlace { host, cores: parse_cores(cores.trim())? }))
}

/// Parses `0-1,4`, or `1:0-1,3` for cores of socket 1; `*` are all cores.
fn parse_cores(text: &str) -> Result<Vec<CoreRange>, String> {
    let how = || format!("'{text}' names no cores; write, for example, 0-1,4 or, in socket 1, 1:0-1");
    let mut socket = None;
    let mut ranges = Vec::new();
    for part in text.split([',', ';']) {
        let mut range = part.trim();
        if let Some((number, rest)) = range.split_once(':') {
            socket = Some(number.trim().parse().map_err(|_| how())?);
            range = rest.trim();
        }
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < u32::MAX);
        let (first, last) = match range {
            "*" => (0, u32::MAX),
            _ => (number(first).ok_or_else(how)?, number(last).ok_or_else(how)?),
        };
        if first > last {
            return Err(how());
        }
        ranges.push(CoreRange { socket, first, last });
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str) -> Vec<(Option<u32>, u32, u32)> {
        let ranges = parse_cores(text).expect("cores");
        ranges.into_iter().map(|range| (range.socket, range.first, range.last)).collect()
    }

    #[test]
    fn cores_of_a_line() {
        assert_eq!(cores("2"), [(None, 2, 2)]);
        assert_eq!(cores("0-1,4"), [(None, 0, 1), (None, 4, 4)]);
        assert_eq!(cores("1:0,2-3"), [(Some(1), 0, 0), (Some(1), 2, 3)]);
        assert_eq!(cores("0:1;1:*"), [(Some(0), 1, 1), (Some(1), 0, u32::MAX)]);
        for text in ["", "x", "1-", "2-1", ":1", "p1:0", "1:", "4294967295"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rank_file_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ranks");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            super::read(&path).map_err(|failure| failure.to_string())
        };
        let places =
            read("# two\nrank 1=b slot=0-1 # here\nrank  0 = +n1\nrank 2=c slots = 3\n").expect("places");
        let hosts = [Host::new("x", 1), Host::new("y", 1)];
        let shown: Vec<_> =
            places.iter().map(|(rank, place)| (*rank, place.host(&hosts).ok(), place.cores.len())).collect();
        assert_eq!(shown, [(0, Some("y"), 0), (1, Some("b"), 1), (2, Some("c"), 1)]);
        let why = places[&0].host(&hosts[..1]).expect_err("one host").to_string();
        assert!(why.contains("names +n1, but the first of 1 hosts is +n0; "), "{why}");
        for (text, hint) in [
            ("rank 0=a\nrank 0=b\n", "line 2 of"),
            ("rank x=a\n", "is not rank N=HOST"),
            ("rank0=a\n", "is not rank N=HOST"),
            ("rank 0=a cores=1\n", "is not rank N=HOST"),
            ("rank 0=-oProxy slot=0\n", "is not a host"),
            ("rank 0=a slot=z\n", "names no cores"),
            ("\n", "names no rank"),
        ] {
            let why = read(text).expect_err(hint);
            assert!(why.contains(hint) && why.contains("; "), "{why}");
        }
        assert!(super::read(Path::new("/nowhere")).is_err());
    }
}
