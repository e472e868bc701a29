//! Completions: entries that the card writes into a queue in host memory.

use host::{Span, Time};

use super::bus::Bus;
use super::dma::Dma;
use crate::machine::Params;

/// What an entry takes; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    entry_bytes: u64,
}

impl Completion {
    pub(crate) fn new(params: &Params) -> Self {
        Self { entry_bytes: params.completion.entry_bytes as u64 }
    }

    /// Writes an entry; when the processor sees it. One that follows data which have just been seen is right behind them.
    pub(crate) fn write(&self, now: Time, behind_data: bool, bus: &mut Bus, dma: &Dma) -> Time {
        bus.write(now, self.entry_bytes) + if behind_data { Span::ZERO } else { dma.write_latency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn entries_are_seen_in_the_order_of_writing() {
        let params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        let (mut bus, dma, completion) = (Bus::new(&params), Dma::new(&params), Completion::new(&params));
        let first = completion.write(Time::ZERO, false, &mut bus, &dma);
        assert!(first > Time::ZERO + dma.write_latency);
        assert!(completion.write(Time::ZERO, false, &mut bus, &dma) > first);
        let now = first + dma.write_latency;
        assert!(
            completion.write(now, true, &mut bus, &dma) < now + dma.write_latency,
            "right behind the data"
        );
    }
}
