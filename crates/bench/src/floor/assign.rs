//! Which floor stands beside which result (rule 16).
//!
//! | result | floor |
//! |---|---|
//! | one-way latency into NIC memory, reads from it | cache-line half round trip + memcpy of that size |
//! | the same with private memory, one-sided | process_vm_writev of that size |
//! | send into private memory | the lesser of process_vm_writev, and cache line + two copies |
//! | atomics | two cache-line half round trips |
//! | bandwidth | memcpy or process_vm_writev of that size; both directions: twice that |
//! | message rate | 8-byte memcpy rate |
//! | blocking, connections, maxsge, segments, mtu, reuse | those of a send, or of a bandwidth, between private memory |
//! | park | futex wake-up |

use std::collections::BTreeMap;

use super::FLOOR;
use crate::experiment::{Cell, Metric};
use crate::sample::FloorOf;
use crate::schema::Measurement;

/// Whether results of an experiment can have a floor that depends on their size.
#[must_use]
pub fn has_floor(experiment: &str) -> bool {
    let streams = ["latency", "bilat", "bandwidth", "bibw", "rate"];
    streams.contains(&experiment) || SENDS.contains(&experiment)
}

/// Experiments whose latencies and bandwidths are those of sends between host memory.
const SENDS: [&str; 6] = ["blocking", "connections", "maxsge", "segments", "mtu", "reuse"];

/// Medians of the floor's results, in us.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floors {
    line: Option<f64>,
    futex: Option<f64>,
    memcpy: BTreeMap<u64, f64>,
    vm: BTreeMap<u64, f64>,
}

impl Floors {
    /// From a run's results; others than the floor's are ignored.
    #[must_use]
    pub fn new(results: &[Measurement]) -> Self {
        let mut floors = Self::default();
        for r in results.iter().filter(|r| r.experiment == FLOOR && r.median > 0.0) {
            // Bytes over MB/s are microseconds.
            let us = r.size_bytes as f64 / r.median;
            match r.variant.get("what").map(String::as_str) {
                Some("line") => floors.line = Some(r.median),
                Some("futex") => floors.futex = Some(r.median),
                Some("memcpy") => drop(floors.memcpy.insert(r.size_bytes, us)),
                Some("process_vm_writev") => drop(floors.vm.insert(r.size_bytes, us)),
                _ => {}
            }
        }
        floors
    }

    /// The floor of a cell, in the unit of its metric; `None` where the machine was not measured for it.
    #[must_use]
    pub fn of(&self, cell: &Cell, metric: &Metric) -> Option<FloorOf> {
        let factor = |key: &str| cell.variant.get(key).map(String::as_str).unwrap_or_default();
        // Of a read the data come from the other side's source.
        let far = if factor("op") == "read" { factor("source") } else { factor("sink") };
        let floor = |value: f64, what: &str| Some(FloorOf { value, what: what.to_owned() });
        match cell.experiment.as_str() {
            "latency" | "bilat" => {
                let (us, what) = self.latency(factor("op"), far, cell.size)?;
                floor(us, what)
            }
            "bandwidth" | "bibw" => {
                let (us, what) = self.copy(far, cell.size)?;
                let directions =
                    if metric.name == "bandwidth" && cell.experiment == "bibw" { 2.0 } else { 1.0 };
                let what = if directions > 1.0 { format!("2 x {what}") } else { what.to_owned() };
                floor(directions * cell.size as f64 / us, &what)
            }
            sends if SENDS.contains(&sends) => match metric.name {
                "one_way_latency" => {
                    let (us, what) = self.latency("send", "host", cell.size)?;
                    floor(us, what)
                }
                "bandwidth" => {
                    let (us, what) = self.copy("host", cell.size)?;
                    floor(cell.size as f64 / us, what)
                }
                _ => None,
            },
            "rate" => floor(1e6 / self.memcpy.get(&cell.size)?, "memcpy rate of that size"),
            "park" => floor(self.futex?, "futex wake-up"),
            _ => None,
        }
    }

    fn latency(&self, op: &str, far: &str, size: u64) -> Option<(f64, &'static str)> {
        let line = self.line?;
        let memcpy = self.memcpy.get(&size).copied();
        let both = || Some((line + memcpy?, "cache-line half round trip + memcpy"));
        match (op, far) {
            ("cas" | "fadd", _) => Some((2.0 * line, "2 x cache-line half round trip")),
            (_, "nic") => both(),
            ("send", _) => {
                let twice = memcpy.map(|m| (line + 2.0 * m, "cache-line half round trip + 2 x memcpy"));
                let vm = self.vm.get(&size).map(|us| (*us, "process_vm_writev"));
                [twice, vm].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0))
            }
            // An immediate travels in a completion, which is a line of its own.
            ("write-imm", _) | (_, "host") => match self.vm.get(&size) {
                Some(us) => Some((*us, "process_vm_writev")),
                None => both(),
            },
            _ => both(),
        }
    }

    fn copy(&self, far: &str, size: u64) -> Option<(f64, &'static str)> {
        match self.vm.get(&size) {
            Some(us) if far == "host" => Some((*us, "process_vm_writev")),
            _ => Some((*self.memcpy.get(&size)?, "memcpy")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{find, variant};

    fn floor_result(what: &str, size: u64, median: f64) -> Measurement {
        Measurement {
            experiment: FLOOR.into(),
            variant: variant(&[("what", what)]),
            size_bytes: size,
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
            Measurement { experiment: "latency".into(), median: 3.0, ..Measurement::default() },
        ])
    }

    fn of(experiment: &str, pairs: &[(&str, &str)], size: u64) -> Option<(f64, String)> {
        let cell = Cell { experiment: experiment.into(), variant: variant(pairs), size, twin: false };
        let metric = find(experiment).expect("experiment").metric(&cell.variant);
        floors().of(&cell, &metric).map(|f| ((f.value * 1e6).round() / 1e6, f.what))
    }

    #[test]
    fn latencies_stand_beside_line_and_copy() {
        let to_nic = [("op", "write"), ("source", "host"), ("sink", "nic")];
        assert_eq!(of("latency", &to_nic, 1000).map(|f| f.0), Some(0.2));
        let to_host = [("op", "write"), ("source", "nic"), ("sink", "host")];
        assert_eq!(of("latency", &to_host, 1000), Some((0.5, "process_vm_writev".into())));
        let send = [("op", "send"), ("source", "nic"), ("sink", "host")];
        assert_eq!(of("latency", &send, 1000).map(|f| f.0), Some(0.3));
        let read = [("op", "read"), ("source", "nic"), ("sink", "host")];
        assert_eq!(of("latency", &read, 1000).map(|f| f.0), Some(0.2));
        assert_eq!(of("latency", &[("op", "cas"), ("sink", "nic")], 8).map(|f| f.0), Some(0.2));
        assert_eq!(of("latency", &to_nic, 999), None, "no copy of that size was measured");
    }

    #[test]
    fn rates_and_bandwidths_have_the_unit_of_the_result() {
        let to_nic = [("op", "write"), ("source", "host"), ("sink", "nic")];
        let to_host = [("op", "write"), ("source", "host"), ("sink", "host")];
        assert_eq!(of("bandwidth", &to_nic, 1000), Some((10_000.0, "memcpy".into())));
        assert_eq!(of("bandwidth", &to_host, 1000).map(|f| f.0), Some(2_000.0));
        assert_eq!(of("bibw", &to_nic, 1000), Some((20_000.0, "2 x memcpy".into())));
        assert_eq!(of("rate", &to_nic, 8).map(|f| f.0), Some(1e9));
        assert_eq!(of("park", &[], 8).map(|f| f.0), Some(5.0));
        assert_eq!(of("memory", &[], 0), None);
        assert_eq!(of("floor", &[("what", "line")], 64), None);
    }
}
