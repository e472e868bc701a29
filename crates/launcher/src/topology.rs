//! Selects the processors that a rank is bound to.

use std::collections::BTreeMap;

use super::message::{Binding, CoreRange, ProcessSpec, Turn};
use crate::options::Resource;

/// Where the kernel lists the memories with processors.
const NODES: &str = "/sys/devices/system/node";

/// A processor, and what it belongs to. Sockets have memories, which have cores, which have threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Processor {
    socket: i64,
    numa: i64,
    core: i64,
    number: usize,
}

/// The processors that a process is bound to; empty if it is not bound, or if the kernel does not report the topology.
///
/// # Errors
/// If the rank file names cores that this host does not have.
pub(super) fn processors(start: &ProcessSpec) -> Result<Vec<usize>, String> {
    let (place, count) = (start.local_rank as usize, start.local_size as usize);
    match &start.bind {
        Binding::None => Ok(Vec::new()),
        Binding::Share => {
            let all = own_processors();
            Ok(numbers(share(&units(&all, Resource::Core), place, count).concat()))
        }
        Binding::Turn(turn) => Ok(numbers(in_turn(&own_processors(), turn, place))),
        Binding::Cores(ranges) => listed(&own_processors(), ranges).map(numbers),
    }
}

/// How many units of a resource this host allows; at least one.
pub(super) fn count(resource: Resource) -> u32 {
    units(&own_processors(), resource).len().max(1) as u32
}

/// The processors that this process may use.
fn own_processors() -> Vec<Processor> {
    describe(&host::real::allowed_cores(), |path| host::bounded::kernel_text(path).ok())
}

/// The numbers of processors in ascending order.
fn numbers(processors: Vec<Processor>) -> Vec<usize> {
    let mut numbers: Vec<usize> = processors.into_iter().map(|processor| processor.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The share of the cores of one of `count` processes: no core is shared, and a rank's threads may use its whole share. Empty
/// if there are fewer cores than processes: two processes bound to one core would stay there even when another is idle.
fn share<T>(cores: &[T], place: usize, count: usize) -> &[T] {
    if count > cores.len() || place >= count {
        return &[];
    }
    let begin = |place: usize| place * cores.len() / count;
    &cores[begin(place)..begin(place + 1)]
}

/// The processors of the process that is the `place`-th on its host. Units of `turn.by` take processes in turn. A process is
/// bound to the units of `turn.to` that follow those of the process before it on the same unit, or that contain it.
fn in_turn(all: &[Processor], turn: &Turn, place: usize) -> Vec<Processor> {
    let (by, width, ranks) = (units(all, turn.by), turn.width as usize, turn.ranks.max(1) as usize);
    if by.is_empty() {
        return Vec::new();
    }
    let (round, at) = (place / (ranks * by.len()), place / ranks % by.len());
    let unit = &by[at];
    let (units, first) = if turn.to < turn.by {
        (units(unit, turn.to), (place % ranks + ranks * round) * width)
    } else {
        let units = units(all, turn.to);
        let containing = units.iter().position(|wide| wide.contains(&unit[0])).unwrap_or(0);
        (units, if turn.to == turn.by { at * width } else { containing })
    };
    (first..first + width.min(units.len())).flat_map(|at| units[at % units.len()].iter().copied()).collect()
}

/// The processors of cores of a rank file.
fn listed(all: &[Processor], ranges: &[CoreRange]) -> Result<Vec<Processor>, String> {
    let mut found = Vec::new();
    for range in ranges {
        let (cores, of) = match range.socket {
            None => (units(all, Resource::Core), String::new()),
            Some(socket) => {
                let sockets = units(all, Resource::Socket);
                let count = sockets.len();
                let processors = sockets.into_iter().nth(socket as usize).ok_or_else(|| {
                    format!(
                        "the rank file names socket {socket}, but the first of {count} is 0; change the file"
                    )
                })?;
                (units(&processors, Resource::Core), format!(" of socket {socket}"))
            }
        };
        let last = range.last.min(u32::MAX - 1);
        let wanted = match last {
            // `*` in a rank file.
            _ if range.last == u32::MAX => cores.get(range.first as usize..),
            _ => cores.get(range.first as usize..=last as usize),
        };
        let wanted = wanted.ok_or_else(|| {
            let count = cores.len();
            format!("the rank file names core {last}{of}, but the first of {count} is 0; change the file")
        })?;
        found.extend(wanted.concat());
    }
    Ok(found)
}

/// The units of a resource with their processors, adjacent units first. `all` is sorted.
fn units(all: &[Processor], resource: Resource) -> Vec<Vec<Processor>> {
    let unit = |processor: &Processor| {
        let Processor { socket, numa, core, number } = *processor;
        match resource {
            Resource::Socket => (socket, 0, 0, 0),
            Resource::Numa => (socket, numa, 0, 0),
            Resource::Core => (socket, numa, core, 0),
            Resource::Thread => (socket, numa, core, number),
        }
    };
    all.chunk_by(|one, other| unit(one) == unit(other)).map(<[Processor]>::to_vec).collect()
}

/// What these processors belong to, sorted.
fn describe(allowed: &[usize], read: impl Fn(&str) -> Option<String>) -> Vec<Processor> {
    let number = |processor: usize, name: &str| {
        let text = read(&format!("/sys/devices/system/cpu/cpu{processor}/topology/{name}"))?;
        text.trim().parse::<i64>().ok()
    };
    let list = |path: &str| read(path).map(|text| parse_list(&text)).unwrap_or_default();
    let mut nodes = BTreeMap::new();
    for node in list(&format!("{NODES}/online")) {
        for processor in list(&format!("{NODES}/node{node}/cpulist")) {
            nodes.insert(processor, node as i64);
        }
    }
    let describe = |&processor: &usize| Processor {
        socket: number(processor, "physical_package_id").unwrap_or(0),
        numa: nodes.get(&processor).copied().unwrap_or(0),
        // Without a core number, each processor counts as a core.
        core: number(processor, "core_id").unwrap_or(-1 - processor as i64),
        number: processor,
    };
    let mut all: Vec<Processor> = allowed.iter().map(describe).collect();
    all.sort_unstable();
    all
}

/// Parses the kernel's form of a set of numbers, such as `0-3,8`; parts that are malformed are left out.
fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Writes a sorted set of numbers in the kernel's form.
pub(super) fn list_text(numbers: &[u32]) -> String {
    let ranges = numbers.chunk_by(|one, next| one + 1 == *next);
    let texts = ranges.map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(u32::to_string).collect(),
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Resource::{Core, Numa, Socket, Thread};

    /// Two sockets with two cores of two threads each; core numbers restart in each socket. Each core of the second socket has
    /// a memory of its own.
    fn machine(path: &str) -> Option<String> {
        let text = match path.strip_prefix(NODES) {
            Some("/online") => "0-2\n",
            Some("/node0/cpulist") => "0-3\n",
            Some("/node1/cpulist") => "4-5\n",
            Some("/node2/cpulist") => "6,7\n",
            _ => {
                let (_, rest) = path.split_once("/cpu/cpu")?;
                let (processor, name) = rest.split_once("/topology/")?;
                let processor: usize = processor.parse().ok()?;
                let value = if name == "core_id" { processor / 2 % 2 } else { processor / 4 };
                return Some(format!("{value}\n"));
            }
        };
        Some(text.to_owned())
    }

    fn all() -> Vec<Processor> {
        describe(&(0..8).collect::<Vec<_>>(), machine)
    }

    /// The processors of the first ranks, in the kernel's form.
    fn bound(to: Resource, width: u32, by: Resource, ranks: u32, count: usize) -> Vec<String> {
        let turn = Turn { to, width, by, ranks };
        let text =
            |place| numbers(in_turn(&all(), &turn, place)).iter().map(|n| *n as u32).collect::<Vec<_>>();
        (0..count).map(|place| list_text(&text(place))).collect()
    }

    #[test]
    fn units_are_sockets_memories_cores_and_threads() {
        let count = |resource| units(&all(), resource).len();
        assert_eq!((count(Socket), count(Numa), count(Core), count(Thread)), (2, 3, 4, 8));
        let without = describe(&[3, 1], |_| None);
        assert_eq!((units(&without, Core).len(), units(&without, Socket).len()), (2, 1));
        assert!(units(&[], Core).is_empty());
        assert_eq!(units(&describe(&[1, 6], machine), Core).len(), 2);
    }

    #[test]
    fn ranks_take_units_in_turn() {
        assert_eq!(bound(Core, 1, Core, 1, 5), ["0-1", "2-3", "4-5", "6-7", "0-1"]);
        assert_eq!(bound(Core, 1, Socket, 1, 5), ["0-1", "4-5", "2-3", "6-7", "0-1"]);
        assert_eq!(bound(Core, 2, Core, 1, 3), ["0-3", "4-7", "0-3"]);
        assert_eq!(bound(Thread, 1, Thread, 1, 3), ["0", "1", "2"]);
        assert_eq!(bound(Thread, 1, Core, 1, 5), ["0", "2", "4", "6", "1"]);
        assert_eq!(bound(Socket, 1, Socket, 1, 3), ["0-3", "4-7", "0-3"]);
        assert_eq!(bound(Numa, 1, Numa, 1, 4), ["0-3", "4-5", "6-7", "0-3"]);
        assert_eq!(
            bound(Socket, 1, Core, 1, 4),
            ["0-3", "0-3", "4-7", "4-7"],
            "the sockets of cores in turn"
        );
        assert_eq!(bound(Core, 9, Core, 1, 1), ["0-7"], "more than there are");
    }

    #[test]
    fn units_take_several_ranks_each() {
        assert_eq!(bound(Socket, 1, Socket, 2, 5), ["0-3", "0-3", "4-7", "4-7", "0-3"]);
        assert_eq!(bound(Core, 1, Socket, 2, 5), ["0-1", "2-3", "4-5", "6-7", "0-1"]);
        assert_eq!(bound(Core, 1, Core, 2, 3), ["0-1", "0-1", "2-3"]);
        assert_eq!(bound(Core, 1, Socket, 0, 2), ["0-1", "4-5"], "none is as one");
    }

    #[test]
    fn processor_set_without_processors_binds_nothing() {
        let turn = Turn { to: Core, width: 1, by: Socket, ranks: 1 };
        assert!(in_turn(&[], &turn, 3).is_empty());
    }

    #[test]
    fn cores_of_a_rank_file_are_found_or_refused() {
        let range = |socket, first, last| CoreRange { socket, first, last };
        let found = |ranges: &[CoreRange]| listed(&all(), ranges).map(numbers);
        assert_eq!(found(&[range(None, 1, 2)]), Ok(vec![2, 3, 4, 5]));
        assert_eq!(found(&[range(Some(1), 0, 0), range(None, 0, 0)]), Ok(vec![0, 1, 4, 5]));
        assert_eq!(found(&[range(Some(1), 0, u32::MAX)]), Ok(vec![4, 5, 6, 7]));
        for (range, hint) in [
            (range(None, 0, 4), "names core 4, but the first of 4 is 0; "),
            (range(Some(2), 0, 0), "names socket 2, but the first of 2 is 0; "),
            (range(Some(0), 2, 2), "names core 2 of socket 0, but the first of 2 is 0; "),
            (range(None, 3, 1), "names core 1"),
        ] {
            let why = found(&[range]).expect_err(hint);
            assert!(why.contains(hint), "{why}");
        }
    }

    #[test]
    fn more_ranks_than_cores_begin_anew() {
        let count = count(Core);
        let bound = |local_rank| {
            let turn = Turn { to: Core, width: 1, by: Core, ranks: 1 };
            let (bind, local_size) = (Binding::Turn(turn), count + 1);
            processors(&ProcessSpec { bind, local_rank, local_size, ..ProcessSpec::default() })
                .expect("cores")
        };
        assert!(!bound(0).is_empty());
        assert_eq!(bound(0), bound(count));
    }

    #[test]
    fn processor_lists_are_read_and_written() {
        assert_eq!(parse_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_list("x,3-y,4"), [4]);
        assert_eq!(list_text(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list_text(&[]), "");
    }

    /// Goal: shares are disjoint if there are enough cores, and together they contain every core.
    #[test]
    fn shares_are_apart_and_all_there_is() {
        for cores in 1..9 {
            let all: Vec<Vec<usize>> = (0..cores).map(|core| vec![2 * core, 2 * core + 1]).collect();
            for count in 1..=cores {
                let shares: Vec<_> = (0..count).map(|place| share(&all, place, count)).collect();
                assert!(shares.iter().all(|share| share.len() >= cores / count), "{shares:?}");
                assert_eq!(shares.concat(), all);
            }
            assert!(share(&all, 0, cores + 1).is_empty(), "they are too many");
        }
    }
}
