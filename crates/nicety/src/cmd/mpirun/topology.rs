//! Which processors a rank is bound to.

use std::collections::BTreeMap;

use crate::args::MapBy;

/// The processors of the rank with this place among those of its host: those of one core, which the ranks take in turn. None if the
/// kernel does not say which there are.
pub(super) fn binding(order: MapBy, place: u32) -> Vec<usize> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let mut cores = cores(&host::real::allowed_cores(), read, order);
    if cores.is_empty() { Vec::new() } else { cores.swap_remove(place as usize % cores.len()) }
}

/// The processors of each core, in the order in which ranks take them.
fn cores(allowed: &[usize], read: impl Fn(&str) -> Option<String>, order: MapBy) -> Vec<Vec<usize>> {
    let number = |processor: usize, name: &str| {
        let text = read(&format!("/sys/devices/system/cpu/cpu{processor}/topology/{name}"))?;
        text.trim().parse::<i64>().ok()
    };
    let mut sockets: BTreeMap<i64, BTreeMap<i64, Vec<usize>>> = BTreeMap::new();
    for &processor in allowed {
        let socket = number(processor, "physical_package_id").unwrap_or(0);
        // Without a core's number, each processor is one.
        let core = number(processor, "core_id").unwrap_or(-1 - processor as i64);
        sockets.entry(socket).or_default().entry(core).or_default().push(processor);
    }
    let mut placed: Vec<_> =
        sockets.into_values().flat_map(|cores| cores.into_values().enumerate()).collect();
    if order == MapBy::Socket {
        // The first core of each socket, then the second of each: sockets stay in their order.
        placed.sort_by_key(|(index, _)| *index);
    }
    placed.into_iter().map(|(_, processors)| processors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores of two threads; core numbers begin anew in each socket.
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
        assert_eq!(binding(MapBy::Core, 0), binding(MapBy::Core, count as u32));
    }
}
