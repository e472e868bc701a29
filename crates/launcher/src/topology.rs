//! Selects the processors that a rank is bound to.

use std::collections::BTreeMap;

use super::message::{Binding, ProcessSpec};
use crate::options::MapBy;

/// The processors that a process is bound to; empty if it is not bound, or if the kernel does not report the topology.
pub(super) fn processors(start: &ProcessSpec) -> Vec<usize> {
    let order = match start.bind {
        Binding::None => return Vec::new(),
        Binding::Share => MapBy::Core,
        Binding::Core(order) => order,
    };
    let read = |path: &str| host::bounded::kernel_text(path).ok();
    let cores = cores(&host::real::allowed_cores(), read, order);
    let (place, count) = (start.local_rank as usize, start.local_size as usize);
    match start.bind {
        Binding::Share => share(&cores, place, count),
        _ => cores.get(place % cores.len().max(1)).cloned().unwrap_or_default(),
    }
}

/// The share of the cores of one of `count` processes: no core is shared, and a rank's threads may use its whole share. Empty
/// if there are fewer cores than processes: two processes bound to one core would stay there even when another is idle.
fn share(cores: &[Vec<usize>], place: usize, count: usize) -> Vec<usize> {
    if count > cores.len() || place >= count {
        return Vec::new();
    }
    let begin = |place: usize| place * cores.len() / count;
    cores[begin(place)..begin(place + 1)].concat()
}

/// The processors of each core, in the order in which ranks are bound to them.
fn cores(allowed: &[usize], read: impl Fn(&str) -> Option<String>, order: MapBy) -> Vec<Vec<usize>> {
    let number = |processor: usize, name: &str| {
        let text = read(&format!("/sys/devices/system/cpu/cpu{processor}/topology/{name}"))?;
        text.trim().parse::<i64>().ok()
    };
    let mut sockets: BTreeMap<i64, BTreeMap<i64, Vec<usize>>> = BTreeMap::new();
    for &processor in allowed {
        let socket = number(processor, "physical_package_id").unwrap_or(0);
        // Without a core number, each processor counts as a core.
        let core = number(processor, "core_id").unwrap_or(-1 - processor as i64);
        sockets.entry(socket).or_default().entry(core).or_default().push(processor);
    }
    let mut placed: Vec<_> =
        sockets.into_values().flat_map(|cores| cores.into_values().enumerate()).collect();
    if order == MapBy::Socket {
        // The first core of each socket, then the second of each; the sort is stable, so sockets keep their order.
        placed.sort_by_key(|(index, _)| *index);
    }
    placed.into_iter().map(|(_, processors)| processors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets with two cores of two threads each; core numbers restart in each socket.
    fn machine(path: &str) -> Option<String> {
        let (_, rest) = path.split_once("/cpu/cpu")?;
        let (processor, name) = rest.split_once("/topology/")?;
        let processor: usize = processor.parse().ok()?;
        let value = if name == "core_id" { processor / 2 % 2 } else { processor / 4 };
        Some(format!("{value}\n"))
    }

    #[test]
    fn ranks_take_cores_in_turn() {
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(cores(&all, machine, MapBy::Core), [[0, 1], [2, 3], [4, 5], [6, 7]]);
        assert_eq!(cores(&all, machine, MapBy::Socket), [[0, 1], [4, 5], [2, 3], [6, 7]]);
        assert_eq!(cores(&[1, 6], machine, MapBy::Core), [[1], [6]]);
        assert_eq!(cores(&[3, 1], |_| None, MapBy::Core).len(), 2);
        assert!(cores(&[], machine, MapBy::Core).is_empty());
    }

    #[test]
    fn more_ranks_than_cores_begin_anew() {
        let count =
            cores(&host::real::allowed_cores(), |p| std::fs::read_to_string(p).ok(), MapBy::Core).len();
        let bound = |local_rank| {
            let (bind, local_size) = (Binding::Core(MapBy::Core), count as u32 + 1);
            processors(&ProcessSpec { bind, local_rank, local_size, ..ProcessSpec::default() })
        };
        assert!(!bound(0).is_empty());
        assert_eq!(bound(0), bound(count as u32));
    }

    /// Goal: shares are disjoint if there are enough cores, and together they contain every core.
    #[test]
    fn shares_are_apart_and_all_there_is() {
        for cores in 1..9 {
            let all: Vec<Vec<usize>> = (0..cores).map(|core| vec![2 * core, 2 * core + 1]).collect();
            for count in 1..=cores {
                let shares: Vec<_> = (0..count).map(|place| share(&all, place, count)).collect();
                assert!(shares.iter().all(|share| share.len() >= 2 * (cores / count)), "{shares:?}");
                assert_eq!(shares.concat(), all.concat());
            }
            assert!(share(&all, 0, cores + 1).is_empty(), "they are too many");
        }
    }
}
