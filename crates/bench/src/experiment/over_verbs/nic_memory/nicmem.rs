//! `nicmem`: how fast one device moves data between host memory and its own, compared with copies by the processor.
//!
//! `op=copy`: RDMA writes back to back over a connection of the device with itself, a window of writes in flight,
//! from the first post to the last completion. Each byte counts once, though it may cross the machine's bus twice.
//! `op=memcpy`: the processor's copies from host memory to host memory, between two pools that are much larger than
//! caches, in an order that no prefetcher follows.

use results::variant::{Variant, factor};
use verbs::Buf;
use verbs::host::Host;

use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample;
use crate::experiment::harness::variants::{FOUR, placements, usual};
use crate::experiment::loops::stream::{Flow, Stream, burst};
use crate::experiment::{Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Bytes of each pool: several times the caches of a whole socket.
const POOL: usize = 128 << 20;

pub(crate) struct Nicmem;

impl Experiment for Nicmem {
    fn name(&self) -> &'static str {
        "nicmem"
    }

    fn about(&self) -> &'static str {
        "copies within one machine, host and NIC memory, by the NIC; by the processor, with nothing in its caches"
    }

    fn explain(&self) -> &'static str {
        include_str!("../../explain/nicmem.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let mut all = if quick { usual("copy", true) } else { placements("copy", &FOUR) };
        all.extend(placements("memcpy", &FOUR[..1]));
        all
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let by_processor = variant.is(factor::OP, "memcpy");
        Metric {
            name: "bandwidth",
            unit: "MB/s",
            about: match by_processor {
                true => {
                    "bytes of a burst of copies by the processor, from and to memory in no cache, over its time"
                }
                false => {
                    "bytes of a burst, each counted once, over the time from its first post to its last completion"
                }
            },
            scale: Scale::Bandwidth(1.0),
        }
    }

    fn ranks(&self, _variant: &Variant) -> u32 {
        1
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        match (
            session.cell.factor(factor::OP)?,
            session.cell.factor(factor::SOURCE)?,
            session.cell.factor(factor::SINK)?,
        ) {
            ("copy", _, _) => Ok(Box::new(Stream::prepare(session, Flow::Alone)?)),
            ("memcpy", "host", "host") => Ok(Box::new(Pools::prepare(session)?)),
            (op, source, sink) => Err(Fault::Meaningless(format!("{op} from {source} to {sink}"))),
        }
    }
}

/// Places that are copied from and to.
struct Pools {
    from: Buf,
    to: Buf,
    len: usize,
    stride: usize,
    places: usize,
    /// Distance in slots from one copy to the next; visits every slot.
    step: usize,
    next: usize,
    burst: u64,
    seed: u64,
}

impl Pools {
    fn prepare(session: &Session<'_>) -> Result<Self, Fault> {
        let size = session.cell.length()?;
        let len = size as usize;
        let stride = len.next_multiple_of(64);
        let places = (POOL / stride).max(1);
        let bytes = places * stride;
        Ok(Self {
            from: Buf::alloc(bytes)?,
            to: Buf::alloc(bytes)?,
            len,
            stride,
            places,
            step: step(places),
            next: 0,
            burst: burst(session.settings, size),
            seed: session.settings.seed,
        })
    }

    fn copy(&mut self, host: &Host) -> Result<(), Fault> {
        let at = self.next * self.stride;
        self.from.copy_to(at, &self.to, at, self.len)?;
        host.charge_copy(self.len as u64);
        self.next = (self.next + self.step) % self.places;
        Ok(())
    }
}

/// A stride through `places` slots that jumps far and visits each: coprime to their number.
fn step(places: usize) -> usize {
    let shares = |a: usize, b: usize| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a > 1
    };
    // Near the golden section, so that neighbours are far apart in time.
    let first = (places as f64 * 0.618) as usize;
    (first.max(1)..).find(|step| !shares(places, *step)).unwrap_or(1)
}

impl Side for Pools {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.from.fill(0x5a);
        self.to.fill(0);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        let burst = self.burst;
        sample(s, round, readings, |s, count, _| (0..count * burst).try_for_each(|_| self.copy(s.host)))
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let at = self.next * self.stride;
        pattern::fill(&self.from, at, self.len, self.seed)?;
        self.copy(session.host)?;
        pattern::compare(&self.to, at, self.len, self.seed)
    }

    fn messages(&self) -> u64 {
        self.burst
    }

    fn note(&self) -> Option<String> {
        Some(format!("{} MiB to copy from and as much to copy to", (self.places * self.stride) >> 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reaches_every_place() {
        for places in [1, 2, 3, 10, 64, 97, 4096] {
            let (mut seen, mut at) = (vec![false; places], 0);
            for _ in 0..places {
                seen[at] = true;
                at = (at + step(places)) % places;
            }
            assert!(seen.iter().all(|s| *s), "{places}");
        }
    }
}
