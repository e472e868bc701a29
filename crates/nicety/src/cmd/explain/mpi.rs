//! `nicety explain mpi`: the protocol for each message size, and the algorithm for each collective, on a device and for a
//! number of ranks, and why. Nothing is measured: these are the choices of our MPI library.

use collectives::{Case, SizeRange, size_ranges};
use mpi::{CollKind, Cost, Costs, Protocol, SharedCores, Tuning, cost, protocols, shared_bytes};
use serde::Serialize;

use crate::error::{Failure, OK, Outcome, one_line};
use crate::term::{Paint, Stream, wrap};

/// Type and version of the JSON.
const SCHEMA: &str = "nicety-explain-mpi/1";
/// Tables may be wider than prose.
const WIDTH: usize = 130;
/// The largest message size that is explained; larger messages are treated like it.
const SIZE_MAX: u64 = 16 << 20;

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    ranks: u32,
    messages: Vec<SizeBand>,
    costs: AssumedCosts,
    collectives: Vec<ChosenAlgorithm>,
}

/// The protocol of messages from a size on.
#[derive(Serialize)]
struct SizeBand {
    device: String,
    from_bytes: u64,
    protocol: &'static str,
    /// How often something is sent from one process to the other, or back, before the receiver has all data.
    trips: u8,
    /// How often MPI itself copies each byte.
    copies: u8,
    why: String,
}

/// The costs on which the choice of collectives is based.
#[derive(Serialize)]
struct AssumedCosts {
    device: String,
    message_us: f64,
    further_message_us: f64,
    sent_us_per_kib: f64,
    reduced_us_per_kib: f64,
    /// Instead, where ranks share cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_cores: Option<SharedCoreCosts>,
}

/// Costs of ranks that share the cores of this host; of rounds for each rank that a core has.
#[derive(Serialize)]
struct SharedCoreCosts {
    cores: f64,
    short_round_us: f64,
    long_round_us: f64,
    core_us_per_message: f64,
    core_us_per_kib: f64,
}

/// The algorithm for a kind of call from a size on.
#[derive(Serialize)]
struct ChosenAlgorithm {
    collective: &'static str,
    /// The calls for which the choice differs from the usual one: operators that are not commutative, blocks of several sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<&'static str>,
    from_bytes: u64,
    algorithm: &'static str,
    us: f64,
    why: String,
}

/// Prints the choices for one device, or for several; each pair of ranks uses the first device that both have.
///
/// # Errors
/// If a device cannot be opened, or output cannot be written.
pub(super) fn run(devices: &str, ranks: u32, json: bool) -> Outcome {
    let document = Document::new(devices, ranks)?;
    if json {
        Stream::Out.json(&document)?;
    } else {
        let (width, colour) = (Stream::Out.width().min(WIDTH), Stream::Out.colour());
        Stream::Out.print(&document.text(width, colour))?;
    }
    Ok(OK)
}

impl Document {
    fn new(devices: &str, ranks: u32) -> Result<Self, Failure> {
        let mut messages = Vec::new();
        // The costs of collectives are those of the last device, as in `Tuning`.
        let mut last = None;
        for device in fabric::split(devices, '+') {
            let attr = fabric::attr(device).map_err(|why| Failure::usage(one_line(&why.to_string())))?;
            let costs = match verbs::host::real::is_oversubscribed(ranks as usize) {
                Some(true) => Tuning::costs_on_cores(&attr, verbs::host::real::online_cores()),
                _ => Tuning::costs_of(&attr),
            };
            last = Some((device.to_owned(), costs, shared_bytes(&attr, ranks)));
            let of_device = protocols(&attr, ranks, fabric::is_virtual(device));
            messages.extend(of_device.into_iter().map(|protocol| SizeBand::new(device, protocol)));
        }
        let (device, costs, shared) =
            last.ok_or_else(|| Failure::usage("no device; `nicety devices` lists them"))?;
        Ok(Self {
            schema: SCHEMA,
            ranks,
            messages,
            costs: AssumedCosts::new(device, costs),
            collectives: CollKind::ALL
                .into_iter()
                .flat_map(|kind| chosen_algorithms(kind, (ranks, shared), costs))
                .collect(),
        })
    }

    /// The text for a terminal.
    fn text(&self, width: usize, colour: bool) -> String {
        let Self { ranks, messages, costs, collectives, .. } = self;
        let strong = |text: String| Paint::Strong.on(&text, colour) + "\n";
        let mut out = String::new();
        let mut device = "";
        for band in messages {
            if std::mem::replace(&mut device, &band.device) != band.device {
                out += &strong(format!("Messages on {device}, in a job of {ranks}"));
            }
            let head = format!(
                "  from {:>8} B  {:<14}  trips {}, copies {}  ",
                band.from_bytes, band.protocol, band.trips, band.copies
            );
            out += &format!("{head}{}\n", wrap(&band.why, head.len(), width));
        }
        out += &strong(format!("\nCollectives of {ranks} ranks on {}", costs.device));
        let assumed = format!(
            "The algorithm with the lowest estimated time is chosen. Estimated costs: a message {:.2} us, each further message at \
             the same time {:.2} us, a KiB sent {:.3} us, a KiB reduced {:.3} us. These are constants of the device, so that all \
             ranks choose alike, and reduce in the same order every time.",
            costs.message_us, costs.further_message_us, costs.sent_us_per_kib, costs.reduced_us_per_kib
        );
        out += &format!("  {}\n", wrap(&assumed, 2, width));
        if let Some(shared) = &costs.shared_cores {
            let text = format!(
                "More ranks than the {} cores of this host share them. Then a round costs {:.2} us for each rank that a core has, \
                 {:.2} us if messages are long, and the messages of all ranks together cost {:.2} us of a core each, and {:.3} us \
                 a KiB.",
                shared.cores,
                shared.short_round_us,
                shared.long_round_us,
                shared.core_us_per_message,
                shared.core_us_per_kib
            );
            out += &format!("  {}\n", wrap(&text, 2, width));
        }
        let mut before = ("", None);
        for ChosenAlgorithm { collective, calls, from_bytes, algorithm, us, why } in collectives {
            let again = std::mem::replace(&mut before, (collective, *calls)) == (*collective, *calls);
            let name = if again { "" } else { calls.unwrap_or(collective) };
            let from = if *collective == CollKind::Barrier.name() {
                String::new()
            } else {
                format!("from {from_bytes} B")
            };
            let head = format!("  {name:<15} {from:>15}  {algorithm:<18} {us:>10.2} us  ");
            out += &format!("{head}{}\n", wrap(why, head.len(), width));
        }
        out + "\nNICETY_ALGORITHMS=KIND=NAME[,...] at rank 0 selects algorithms by name, for calls that they support.\n"
    }
}

impl SizeBand {
    fn new(device: &str, Protocol { from, proto, why }: Protocol) -> Self {
        let Cost { trips, copies } = cost(proto);
        Self { device: device.to_owned(), from_bytes: from, protocol: proto.name(), trips, copies, why }
    }
}

impl AssumedCosts {
    fn new(device: String, Costs { alpha, gap, beta, gamma, shared_cores }: Costs) -> Self {
        Self {
            device,
            message_us: to_us(alpha),
            further_message_us: to_us(gap),
            sent_us_per_kib: to_us(beta * 1024.0),
            reduced_us_per_kib: to_us(gamma * 1024.0),
            shared_cores: shared_cores.map(|SharedCores { cores, turn, long_turn, message, byte }| {
                SharedCoreCosts {
                    cores,
                    short_round_us: to_us(turn),
                    long_round_us: to_us(long_turn),
                    core_us_per_message: to_us(message),
                    core_us_per_kib: to_us(byte * 1024.0),
                }
            }),
        }
    }
}

/// Microseconds, rounded to the picosecond.
fn to_us(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e6
}

/// The choices for a kind of collective by size; unusual calls have entries of their own where their choice differs.
fn chosen_algorithms(kind: CollKind, (ranks, shared): (u32, u64), costs: Costs) -> Vec<ChosenAlgorithm> {
    let (size, bytes) = (ranks as usize, 0);
    let case =
        Case { kind, size, bytes, commutative: true, equal_blocks: true, segment: 0, shared, hosts: 1 };
    let line = |calls, range: SizeRange| ChosenAlgorithm {
        collective: kind.name(),
        calls,
        from_bytes: range.from,
        algorithm: range.algorithm.name,
        us: to_us(range.seconds),
        why: range.reason,
    };
    let usual = size_ranges(case, costs, SIZE_MAX);
    let names = |all: &[SizeRange]| all.iter().map(|one| (one.from, one.algorithm.name)).collect::<Vec<_>>();
    let usual_names = names(&usual);
    let mut lines: Vec<ChosenAlgorithm> = usual.into_iter().map(|range| line(None, range)).collect();
    let unusual = match kind {
        _ if kind.reduces() => Some(("not commutative", Case { commutative: false, ..case })),
        _ if kind.has_blocks() => Some(("sizes differ", Case { equal_blocks: false, ..case })),
        _ => None,
    };
    if let Some((calls, case)) = unusual {
        let other = size_ranges(case, costs, SIZE_MAX);
        if names(&other) != usual_names {
            lines.extend(other.into_iter().map(|range| line(Some(calls), range)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_and_all_sizes_of_messages_are_explained() {
        for device in ["shm", "model:mt23108-vapi"] {
            let document = Document::new(device, 4).expect("it opens");
            assert!(document.messages[0].from_bytes == 0 && document.messages.len() >= 2);
            for kind in CollKind::ALL {
                let lines = || document.collectives.iter().filter(move |line| line.collective == kind.name());
                assert_eq!(lines().next().map(|line| line.from_bytes), Some(1), "{}", kind.name());
                assert!(lines().all(|line| !line.why.is_empty() && line.us >= 0.0));
            }
            let text = document.text(100, false);
            assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
            assert!(CollKind::ALL.iter().all(|kind| text.contains(&format!("  {} ", kind.name()))), "{text}");
        }
    }

    #[test]
    fn a_link_changes_the_choice_and_a_larger_job_the_limits() {
        let of = |device, ranks| Document::new(device, ranks).expect("it opens");
        let (near, far) = (of("shm", 8), of("model:mt23108-vapi", 8));
        let named = |document: &Document| -> Vec<(u64, &str)> {
            document.collectives.iter().map(|line| (line.from_bytes, line.algorithm)).collect()
        };
        assert_ne!(named(&near), named(&far));
        let limits =
            |document: &Document| document.messages.iter().map(|band| band.from_bytes).collect::<Vec<_>>();
        assert_ne!(limits(&near), limits(&of("shm", 2000)));
    }

    #[test]
    fn a_pair_takes_the_first_of_several_devices_and_collectives_go_by_the_last() {
        let both = Document::new("shm+iwarp", 4).expect("they open");
        let devices: Vec<&str> = both.messages.iter().map(|band| band.device.as_str()).collect();
        assert!(devices.contains(&"shm") && devices.contains(&"iwarp") && both.costs.device == "iwarp");
        assert!(Document::new("nonsense", 4).is_err());
    }
}
