//! Parses the hosts of `--host` and host files, and assigns ranks to them.

use std::net::IpAddr;
use std::path::Path;

use host::bounded;

use crate::failure::Failure;

/// The largest host file, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// A host, and how many ranks it takes before the next host does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) ranks: u32,
}

/// Parses the hosts of `--host`: `a`, `b:2`, `[fe80::1]:4`.
///
/// # Errors
/// The first host that cannot be parsed.
pub(super) fn parse_list(words: &[String]) -> Result<Vec<Host>, Failure> {
    words
        .iter()
        .map(|word| parse_host(word).map_err(|why| Failure::usage(format!("--host: {why}"))))
        .collect()
}

/// Reads the hosts of a file.
///
/// # Errors
/// If the file cannot be read, or the first line that cannot be parsed.
pub(super) fn read_file(path: &Path) -> Result<Vec<Host>, Failure> {
    let shown = path.display();
    let text = bounded::read_text(path, FILE_MAX).map_err(|why| {
        Failure::usage(format!("the host file {shown} cannot be read: {why}; check its path"))
    })?;
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        if !line.trim().is_empty() {
            let host = parse_line(line);
            hosts.push(host.map_err(|why| Failure::usage(format!("line {number} of {shown}: {why}")))?);
        }
    }
    if hosts.is_empty() {
        return Err(Failure::usage(format!("the host file {shown} names no host; write one per line")));
    }
    Ok(hosts)
}

/// Parses a line of a host file.
fn parse_line(line: &str) -> Result<Host, String> {
    let mut words = line.split_whitespace();
    let mut host = parse_host(words.next().unwrap_or_default())?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", number)) => host.ranks = parse_ranks(number)?,
            // Accepted because other launchers use it; it does not set the number of ranks.
            Some(("max_slots" | "max-slots", _)) => {}
            _ => {
                return Err(format!(
                    "'{word}' is not slots=RANKS; write HOST, HOST:RANKS or HOST slots=RANKS"
                ));
            }
        }
    }
    Ok(host)
}

/// Parses `HOST[:RANKS]`. An IPv6 address with a number of ranks is put in brackets: `[fe80::1]:4`.
fn parse_host(word: &str) -> Result<Host, String> {
    let not_a_host = || format!("'{word}' is not a host; write, for example, node1 or node1:4");
    let (name, ranks) =
        if let Some((name, rest)) = word.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            match rest.strip_prefix(':') {
                None if !rest.is_empty() => return Err(not_a_host()),
                ranks => (name, ranks),
            }
        } else if word.matches(':').count() > 1 {
            // An IPv6 address without a number of ranks.
            (word, None)
        } else {
            word.split_once(':').map_or((word, None), |(name, ranks)| (name, Some(ranks)))
        };
    // ssh would take a name that begins with a dash as an option.
    if name.is_empty()
        || name.starts_with('-')
        || name.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']'))
    {
        return Err(not_a_host());
    }
    Ok(Host { name: name.to_owned(), ranks: ranks.map_or(Ok(1), parse_ranks)? })
}

/// Parses how many ranks a host takes, at least one.
fn parse_ranks(number: &str) -> Result<u32, String> {
    let ranks = number.parse().ok().filter(|ranks| *ranks > 0);
    ranks.ok_or_else(|| format!("'{number}' is not a number of ranks; write, for example, node1:4"))
}

/// The host of each of this many ranks: fills each host in turn, and starts again with the first if ranks are left.
pub(super) fn assign_ranks(hosts: &[Host], ranks: usize) -> Vec<usize> {
    let round = hosts.iter().enumerate().flat_map(|(at, host)| std::iter::repeat_n(at, host.ranks as usize));
    round.cycle().take(ranks).collect()
}

/// Whether a name is that of the local host.
pub(super) fn is_here(name: &str) -> bool {
    ["localhost", "127.0.0.1", "::1"].contains(&name) || name == own_name()
}

/// The name of the local host.
pub(super) fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The addresses by which other hosts may reach this one.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    // This cannot fail without a network to select from.
    host::real::addresses(None).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, ranks: u32) -> Host {
        Host { name: name.to_owned(), ranks }
    }

    #[test]
    fn hosts_of_words() {
        for (word, expected) in [
            ("a", named("a", 1)),
            ("user@a.b:12", named("user@a.b", 12)),
            ("[::1]:2", named("::1", 2)),
            ("[::1]", named("::1", 1)),
            ("fe80::1", named("fe80::1", 1)),
        ] {
            assert_eq!(parse_host(word), Ok(expected), "{word}");
        }
        for word in ["", ":2", "a:", "a:0", "a:x", "-oProxyCommand=x", "a b"] {
            assert!(parse_host(word).is_err(), "{word}");
        }
    }

    #[test]
    fn parse_host_rejects_misplaced_brackets() {
        for word in [
            "[::1]junk",
            "[::1]2",
            "[::1]]",
            "[::1",
            "::1]",
            "[a:2",
            "a]:2",
            "a[0]",
            "[[::1]]:2",
            "[]",
            "[]:2",
        ] {
            assert!(parse_host(word).is_err(), "{word}");
        }
    }

    #[test]
    fn hosts_of_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("hosts");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            read_file(&path).map_err(|failure| failure.to_string())
        };
        assert_eq!(
            read("# nodes\na:2\n\nb slots=3 max_slots=4 # two\nc\n"),
            Ok(vec![named("a", 2), named("b", 3), named("c", 1)])
        );
        assert!(read("a\nb 2\n").expect_err("no number").contains("line 2 of"));
        assert!(read("# none\n").expect_err("no hosts").contains("names no host"));
        assert!(read_file(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn hosts_are_filled_in_turn() {
        let hosts = [named("a", 2), named("b", 1)];
        assert_eq!(assign_ranks(&hosts, 2), [0, 0]);
        assert_eq!(assign_ranks(&hosts, 5), [0, 0, 1, 0, 0]);
        assert!(is_here(&own_name()) && is_here("localhost") && !is_here("no-such-host"));
    }
}
