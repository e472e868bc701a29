//! Which floor belongs to which result (rule 16).
//!
//! | result of a device in memory | floor |
//! |---|---|
//! | one-way latency into NIC memory, reads from it | cache-line half round trip + memcpy of that size |
//! | the same with private memory, one-sided | process_vm_writev of that size |
//! | send into private memory | the lesser of process_vm_writev, and cache line + two copies |
//! | atomics | two cache-line half round trips |
//! | bandwidth | memcpy or process_vm_writev of that size; both directions: twice that |
//! | message rate | 8-byte memcpy rate |
//! | blocking, connections, maxsge, segments, mtu, reuse, mpi-latency, mpi-bandwidth | those of a send, or of a bandwidth, between private memory |
//! | mpi-bibw | twice that of a bandwidth between private memory |
//! | park | futex wake-up |
//!
//! | result of a device on TCP | floor |
//! |---|---|
//! | one-way latency | half a round trip of that size over plain TCP, spinning |
//! | reads | half a round trip of 8 bytes + half one of that size |
//! | atomics | a round trip of 8 bytes |
//! | bandwidth, message rate | messages of that size one way over plain TCP, in the best way |
//! | both directions | the same in both directions simultaneously |
//! | blocking, connections, maxsge, segments, mtu, reuse, mpi-latency, mpi-bandwidth | those of a latency, or of a bandwidth |
//! | mpi-bibw | that of both directions |
//! | park | half a round trip of 8 bytes over plain TCP, asleep |
//!
//! Results of modelled cards have none.

use results::variant::factor;
use std::collections::BTreeMap;

use fabric::Baseline;

use crate::experiment::floor::{FLOOR, SMALL};
use crate::experiment::{Cell, Metric};
use crate::sample::CellFloor;
use results::schema::Measurement;

/// Whether results of an experiment can have a floor that depends on their size.
#[must_use]
pub fn has_floor(experiment: &str) -> bool {
    let streams = ["latency", "bilat", "bandwidth", "bibw", "rate"];
    streams.contains(&experiment) || is_sends(experiment)
}

/// Whether an experiment's latencies and bandwidths are those of sends between host memory.
pub(super) fn is_sends(experiment: &str) -> bool {
    let traffic = ["blocking", "connections", "maxsge", "segments", "mtu", "reuse"];
    let of_mpi = ["mpi-latency", "mpi-bandwidth", "mpi-bibw"];
    traffic.contains(&experiment) || of_mpi.contains(&experiment)
}

/// Medians of the floor's results, in us for one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floors(BTreeMap<(String, u64), f64>);

/// A floor in us, and what it is; `None` if it was not measured.
type NamedFloor = Option<(f64, &'static str)>;

impl Floors {
    /// From a run's results; others than the floor's are ignored.
    #[must_use]
    pub fn new(results: &[Measurement]) -> Self {
        let floors = results.iter().filter(|r| r.experiment == FLOOR && r.median > 0.0);
        let entry = |r: &Measurement| {
            // Bytes over MB/s are microseconds.
            let us = if r.unit == "us" { r.median } else { r.size_bytes as f64 / r.median };
            Some(((r.variant.get(factor::WHAT)?.to_owned(), r.size_bytes), us))
        };
        Self(floors.filter_map(entry).collect())
    }

    /// The median of a floor at a size, in us for one message.
    fn get(&self, what: &str, size: u64) -> Option<f64> {
        self.0.get(&(what.to_owned(), size)).copied()
    }

    /// The floor of a cell on a device with this baseline, in the unit of the cell's metric; `None` if this run did not
    /// measure it, or if the experiment has none.
    #[must_use]
    pub fn floor_of_cell(&self, baseline: Baseline, cell: &Cell, metric: &Metric) -> Option<CellFloor> {
        let (value, what) = match baseline {
            Baseline::Memory => self.memory_floor(cell, metric)?,
            Baseline::Sockets => self.socket_floor(cell, metric)?,
            Baseline::None => return None,
        };
        Some(CellFloor { value, what })
    }

    /// The floor of a cell on a device in memory, and what it is.
    fn memory_floor(&self, cell: &Cell, metric: &Metric) -> Option<(f64, String)> {
        let op = cell.variant.get(factor::OP).unwrap_or_default();
        // Of a read the data come from the other side's source.
        let far =
            cell.variant.get(if op == "read" { factor::SOURCE } else { factor::SINK }).unwrap_or_default();
        match cell.experiment.as_str() {
            "latency" | "bilat" => own(self.latency(op, far, cell.size)),
            "bandwidth" | "bibw" => {
                let (us, what) = self.copy(far, cell.size)?;
                let directions =
                    if metric.name == "bandwidth" && cell.experiment == "bibw" { 2.0 } else { 1.0 };
                let what = if directions > 1.0 { format!("2 x {what}") } else { what.to_owned() };
                Some((directions * cell.size as f64 / us, what))
            }
            sends if is_sends(sends) => match metric.name {
                "one_way_latency" => own(self.latency("send", "host", cell.size)),
                "bandwidth" => {
                    let (us, what) = self.copy("host", cell.size)?;
                    let (times, what) = if sends == "mpi-bibw" {
                        (2.0, format!("2 x {what}"))
                    } else {
                        (1.0, what.to_owned())
                    };
                    Some((times * cell.size as f64 / us, what))
                }
                _ => None,
            },
            "rate" => own(Some((1e6 / self.get("memcpy", cell.size)?, "memcpy rate of that size"))),
            "park" => own(Some((self.get("futex", 0)?, "futex wake-up"))),
            _ => None,
        }
    }

    /// The floor of a one-way latency; `far` is the kind of memory that the operation reads or writes at the peer.
    fn latency(&self, op: &str, far: &str, size: u64) -> NamedFloor {
        let line = self.get("line", 64)?;
        let (memcpy, vm) = (self.get("memcpy", size), self.get("process_vm_writev", size));
        let both = || Some((line + memcpy?, "cache-line half round trip + memcpy"));
        match (op, far) {
            ("cas" | "fadd", _) => Some((2.0 * line, "2 x cache-line half round trip")),
            (_, "nic") => both(),
            ("send", _) => {
                let twice = memcpy.map(|m| (line + 2.0 * m, "cache-line half round trip + 2 x memcpy"));
                let vm = vm.map(|us| (us, "process_vm_writev"));
                [twice, vm].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0))
            }
            // An immediate travels in a completion, which is a line of its own.
            ("write-imm", _) | (_, "host") => match vm {
                Some(us) => Some((us, "process_vm_writev")),
                None => both(),
            },
            _ => both(),
        }
    }

    /// The floor of one message of a stream: a copy into this kind of memory.
    fn copy(&self, far: &str, size: u64) -> NamedFloor {
        match self.get("process_vm_writev", size) {
            Some(us) if far == "host" => Some((us, "process_vm_writev")),
            _ => Some((self.get("memcpy", size)?, "memcpy")),
        }
    }

    /// The floor of a cell on a device on TCP, and what it is.
    fn socket_floor(&self, cell: &Cell, metric: &Metric) -> Option<(f64, String)> {
        let op = cell.variant.get(factor::OP).unwrap_or_default();
        let size = cell.size as f64;
        own(match (cell.experiment.as_str(), op) {
            ("latency" | "bilat", "cas" | "fadd") => {
                Some((2.0 * self.get("tcp", SMALL)?, "2 x plain TCP half round trip of 8 B"))
            }
            ("latency" | "bilat", "read") => {
                let (asked, answered) = (self.get("tcp", SMALL)?, self.get("tcp", cell.size)?);
                Some((asked + answered, "plain TCP half round trips of 8 B and of that size"))
            }
            ("latency" | "bilat", _) => {
                Some((self.get("tcp", cell.size)?, "plain TCP half round trip of that size"))
            }
            ("bandwidth", _) => Some((size / self.get("tcp-stream", cell.size)?, "plain TCP stream")),
            // Its value counts both directions, its time one message of each.
            ("bibw" | "mpi-bibw", _) => {
                Some((size / self.get("tcp-both", cell.size)?, "plain TCP both ways at once"))
            }
            (sends, _) if is_sends(sends) => match metric.name {
                "one_way_latency" => {
                    Some((self.get("tcp", cell.size)?, "plain TCP half round trip of that size"))
                }
                "bandwidth" => Some((size / self.get("tcp-stream", cell.size)?, "plain TCP stream")),
                _ => None,
            },
            ("rate", _) => Some((1e6 / self.get("tcp-stream", cell.size)?, "plain TCP stream of that size")),
            ("park", _) => Some((self.get("tcp-sleep", SMALL)?, "plain TCP half round trip of 8 B, asleep")),
            _ => None,
        })
    }
}

/// A floor whose name is an owned text.
fn own(floor: NamedFloor) -> Option<(f64, String)> {
    floor.map(|(value, what)| (value, what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::find;
    use results::variant::variant;

    fn floor_result(what: &str, size: u64, median: f64) -> Measurement {
        let times = ["line", "futex", "tcp", "tcp-sleep"];
        Measurement {
            experiment: FLOOR.into(),
            variant: variant(&[("what", what)]),
            size_bytes: size,
            unit: if times.contains(&what) { "us" } else { "MB/s" }.into(),
            median,
            ..Measurement::default()
        }
    }

    fn floors() -> Floors {
        Floors::new(&[
            floor_result("line", 64, 0.1),
            floor_result("futex", 0, 5.0),
            floor_result("memcpy", 1000, 10_000.0),
            floor_result("memcpy", 8, 8_000.0),
            floor_result("process_vm_writev", 1000, 2_000.0),
            floor_result("tcp", 8, 3.0),
            floor_result("tcp", 1000, 4.0),
            floor_result("tcp-sleep", 8, 9.0),
            floor_result("tcp-stream", 1000, 500.0),
            floor_result("tcp-stream", 8, 80.0),
            floor_result("tcp-both", 1000, 800.0),
            Measurement { experiment: "latency".into(), median: 3.0, ..Measurement::default() },
        ])
    }

    fn memory_floor_of(experiment: &str, pairs: &[(&str, &str)], size: u64) -> Option<(f64, String)> {
        of_baseline(Baseline::Memory, experiment, pairs, size)
    }

    fn of_baseline(
        baseline: Baseline,
        experiment: &str,
        pairs: &[(&str, &str)],
        size: u64,
    ) -> Option<(f64, String)> {
        let cell = Cell { experiment: experiment.into(), variant: variant(pairs), size, twin: false };
        let metric = find(experiment).expect("experiment").metric(&cell.variant);
        floors().floor_of_cell(baseline, &cell, &metric).map(|f| ((f.value * 1e6).round() / 1e6, f.what))
    }

    #[test]
    fn latencies_stand_beside_line_and_copy() {
        let to_nic = [("op", "write"), ("source", "host"), ("sink", "nic")];
        assert_eq!(memory_floor_of("latency", &to_nic, 1000).map(|f| f.0), Some(0.2));
        let to_host = [("op", "write"), ("source", "nic"), ("sink", "host")];
        assert_eq!(memory_floor_of("latency", &to_host, 1000), Some((0.5, "process_vm_writev".into())));
        let send = [("op", "send"), ("source", "nic"), ("sink", "host")];
        assert_eq!(memory_floor_of("latency", &send, 1000).map(|f| f.0), Some(0.3));
        let read = [("op", "read"), ("source", "nic"), ("sink", "host")];
        assert_eq!(memory_floor_of("latency", &read, 1000).map(|f| f.0), Some(0.2));
        assert_eq!(memory_floor_of("latency", &[("op", "cas"), ("sink", "nic")], 8).map(|f| f.0), Some(0.2));
        assert_eq!(memory_floor_of("latency", &to_nic, 999), None, "no copy of that size was measured");
    }

    #[test]
    fn rates_and_bandwidths_have_the_unit_of_the_result() {
        let to_nic = [("op", "write"), ("source", "host"), ("sink", "nic")];
        let to_host = [("op", "write"), ("source", "host"), ("sink", "host")];
        assert_eq!(memory_floor_of("bandwidth", &to_nic, 1000), Some((10_000.0, "memcpy".into())));
        assert_eq!(memory_floor_of("bandwidth", &to_host, 1000).map(|f| f.0), Some(2_000.0));
        assert_eq!(memory_floor_of("bibw", &to_nic, 1000), Some((20_000.0, "2 x memcpy".into())));
        assert_eq!(memory_floor_of("rate", &to_nic, 8).map(|f| f.0), Some(1e9));
        assert_eq!(memory_floor_of("park", &[], 8).map(|f| f.0), Some(5.0));
        assert_eq!(memory_floor_of("memory", &[], 0), None);
        let by_mpi = [("layer", "mpi")];
        assert_eq!(
            memory_floor_of("mpi-latency", &by_mpi, 1000),
            Some((0.3, "cache-line half round trip + 2 x memcpy".into()))
        );
        assert_eq!(
            memory_floor_of("mpi-bandwidth", &by_mpi, 1000),
            Some((2_000.0, "process_vm_writev".into()))
        );
        assert_eq!(
            memory_floor_of("mpi-bibw", &by_mpi, 1000),
            Some((4_000.0, "2 x process_vm_writev".into()))
        );
        assert_eq!(memory_floor_of("mpi-bcast", &[("ranks", "2")], 1000), None);
        assert_eq!(memory_floor_of("floor", &[("what", "line")], 64), None);
    }

    #[test]
    fn devices_on_tcp_stand_beside_sockets_and_models_beside_nothing() {
        let at = |experiment: &str, op: &str, size| {
            of_baseline(Baseline::Sockets, experiment, &[("op", op), ("sink", "nic")], size).map(|f| f.0)
        };
        assert_eq!(at("latency", "write", 1000), Some(4.0));
        assert_eq!(at("latency", "read", 1000), Some(7.0));
        assert_eq!(at("latency", "cas", 8), Some(6.0));
        assert_eq!(at("latency", "write", 999), None, "no ping-pong of that size was measured");
        assert_eq!(at("bandwidth", "write", 1000), Some(500.0));
        assert_eq!(at("bibw", "write", 1000), Some(800.0));
        assert_eq!(at("rate", "write", 8), Some(1e7));
        assert_eq!(at("park", "send", 8), Some(9.0));
        assert_eq!((at("mpi-latency", "", 1000), at("mpi-bibw", "", 1000)), (Some(4.0), Some(800.0)));
        assert_eq!(of_baseline(Baseline::None, "latency", &[("op", "cas")], 8), None);
    }
}
