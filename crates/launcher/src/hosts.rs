//! Parses the hosts of `--host`, of host files and of rank files, and assigns ranks to them.

pub(super) mod rankfile;

use std::net::IpAddr;
use std::path::Path;

use host::bounded;

use crate::failure::Failure;

/// The largest host file, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// A host of a job, with the number of ranks that it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    /// How many ranks it takes before the next host does.
    pub(super) slots: u32,
    /// How many ranks it takes at all.
    pub(super) slots_max: u32,
}

impl Host {
    /// A host that takes any number of ranks.
    pub(super) fn new(name: impl Into<String>, slots: u32) -> Self {
        Self { name: name.into(), slots, slots_max: u32::MAX }
    }
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

/// Parses a line of a host file. Blanks may surround an equals sign.
fn parse_line(line: &str) -> Result<Host, String> {
    let line = line.trim();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let mut host = parse_host(name)?;
    let mut rest = rest.trim();
    let (mut slots, mut user) = (split_slots(name).1.map(|_| host.slots), None);
    while !rest.is_empty() {
        let wrong = || {
            let word = rest.split_whitespace().next().unwrap_or_default();
            format!("'{word}' is not slots=RANKS; write HOST, HOST:RANKS or HOST slots=RANKS")
        };
        let (key, value) = rest.split_once('=').ok_or_else(wrong)?;
        let value = value.trim_start();
        let (value, others) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
        match key.trim() {
            "slots" | "count" | "cpus" => slots = Some(parse_slots(value)?),
            "max_slots" | "max-slots" | "slots_max" | "slots-max" => host.slots_max = parse_slots(value)?,
            "user" | "username" | "user_name" | "user-name" => user = Some(parse_name(value)?),
            _ => return Err(wrong()),
        }
        rest = others.trim();
    }
    // With a limit alone, the slots are as many.
    let unsaid = if host.slots_max < u32::MAX { host.slots_max } else { host.slots };
    host.slots = slots.unwrap_or(unsaid).min(host.slots_max);
    if let Some(user) = user {
        host.name = format!("{user}@{}", host.name);
    }
    Ok(host)
}

/// Parses `HOST[:RANKS]`. An IPv6 address with a number of ranks is put in brackets: `[fe80::1]:4`.
fn parse_host(word: &str) -> Result<Host, String> {
    let (name, number) = split_slots(word);
    let slots = number.map_or(Ok(1), parse_slots)?;
    Ok(Host::new(parse_name(name).map_err(|_| not_a_host(word))?, slots))
}

/// Splits `HOST[:RANKS]`.
fn split_slots(word: &str) -> (&str, Option<&str>) {
    match word.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) if rest.is_empty() || rest.starts_with(':') => (name, rest.strip_prefix(':')),
        // Its brackets make it no name.
        Some(_) => (word, None),
        // An IPv6 address without a number of ranks.
        None if word.matches(':').count() > 1 => (word, None),
        None => word.split_once(':').map_or((word, None), |(name, number)| (name, Some(number))),
    }
}

/// Checks the name of a host. ssh would take a name that begins with a dash as an option.
fn parse_name(name: &str) -> Result<String, String> {
    let is_invalid = name.is_empty()
        || name.starts_with('-')
        || name.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']'));
    if is_invalid { Err(not_a_host(name)) } else { Ok(name.to_owned()) }
}

fn not_a_host(word: &str) -> String {
    format!("'{word}' is not a host; write, for example, node1 or node1:4")
}

fn parse_slots(number: &str) -> Result<u32, String> {
    let slots = number.parse().ok().filter(|slots| *slots > 0);
    slots.ok_or_else(|| format!("'{number}' is not a number of ranks; write, for example, node1:4"))
}

/// The host of each of this many ranks: fills the slots of each host in turn (`by_node`: gives each host one rank in turn, up to its
/// slots), and starts over if ranks are left.
///
/// # Errors
/// If all hosts have as many ranks as they take at all.
pub(super) fn assign_ranks(hosts: &[Host], ranks: usize, by_node: bool) -> Result<Vec<usize>, Failure> {
    let mut counts = vec![0_u32; hosts.len()];
    let mut placed = Vec::with_capacity(ranks);
    for turn in 1_u32.. {
        let before = placed.len();
        loop {
            let pass = placed.len();
            for (at, host) in hosts.iter().enumerate() {
                let limit = host.slots.saturating_mul(turn).min(host.slots_max);
                let free = limit.saturating_sub(counts[at]).min(if by_node { 1 } else { u32::MAX });
                let taken = (free as usize).min(ranks - placed.len());
                placed.extend(std::iter::repeat_n(at, taken));
                counts[at] += taken as u32;
            }
            if placed.len() == pass {
                break;
            }
        }
        if placed.len() == ranks {
            break;
        }
        if placed.len() == before {
            return Err(Failure::usage(format!(
                "{ranks} ranks are more than the {before} that the hosts take by their max_slots; start fewer, or raise it"
            )));
        }
    }
    Ok(placed)
}

/// Numbers placed ranks anew: by host, or (`by_node`) one of each host in turn.
pub(super) fn renumber(placed: &[usize], by_node: bool) -> Vec<usize> {
    let mut counts = vec![0; placed.iter().max().map_or(0, |last| last + 1)];
    let mut numbered: Vec<(usize, usize)> = Vec::with_capacity(placed.len());
    for &host in placed {
        numbered.push((counts[host], host));
        counts[host] += 1;
    }
    numbered.sort_by_key(|&(turn, host)| if by_node { (turn, host) } else { (host, turn) });
    numbered.into_iter().map(|(_, host)| host).collect()
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

    fn named(name: &str, slots: u32) -> Host {
        Host::new(name, slots)
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
        let limited = |name, slots, slots_max| Host { slots_max, ..named(name, slots) };
        assert_eq!(
            read("# nodes\na:2\n\nb slots=3 max_slots=4 # two\nc\n"),
            Ok(vec![named("a", 2), limited("b", 3, 4), named("c", 1)])
        );
        assert_eq!(
            read("a slots = 2\nb max-slots =4\nc:1 max_slots=4\nd\tslots= 9 max_slots = 2\n"),
            Ok(vec![named("a", 2), limited("b", 4, 4), limited("c", 1, 4), limited("d", 2, 2)])
        );
        assert_eq!(read("a user=me slots=2\n"), Ok(vec![named("me@a", 2)]));
        for text in
            ["a slots=\n", "a slots=0\n", "a colour=2\n", "a user=-o slots=1\n", "a = 2\n", "a slots 2\n"]
        {
            assert!(read(text).is_err_and(|why| why.contains("; ")), "{text}");
        }
        assert!(read("a\nb 2\n").expect_err("no number").contains("line 2 of"));
        assert!(read("# none\n").expect_err("no hosts").contains("names no host"));
        assert!(read_file(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn hosts_are_filled_in_turn() {
        let hosts = [named("a", 2), named("b", 1)];
        let placed = |hosts: &[Host], ranks, by_node| assign_ranks(hosts, ranks, by_node).expect("places");
        assert_eq!(placed(&hosts, 2, false), [0, 0]);
        assert_eq!(placed(&hosts, 5, false), [0, 0, 1, 0, 0]);
        assert_eq!(placed(&hosts, 7, true), [0, 1, 0, 0, 1, 0, 0]);
        assert!(placed(&hosts, 0, true).is_empty());
        assert!(is_here(&own_name()) && is_here("localhost") && !is_here("no-such-host"));
    }

    #[test]
    fn hosts_take_no_more_than_their_limit() {
        let limited = |name, slots, slots_max| Host { slots_max, ..named(name, slots) };
        let hosts = [limited("a", 1, 2), limited("b", 3, 3)];
        assert_eq!(assign_ranks(&hosts, 5, false).ok(), Some(vec![0, 1, 1, 1, 0]));
        let why = assign_ranks(&hosts, 6, true).expect_err("one too many").to_string();
        assert!(why.contains("6 ranks are more than the 5 that the hosts take"), "{why}");
    }

    #[test]
    fn placed_ranks_are_numbered_by_host_or_in_turn() {
        assert_eq!(renumber(&[0, 0, 0, 1, 1, 2], true), [0, 1, 2, 0, 1, 0]);
        assert_eq!(renumber(&[0, 1, 2, 0, 1, 0], false), [0, 0, 0, 1, 1, 2]);
        assert!(renumber(&[], true).is_empty());
    }
}
