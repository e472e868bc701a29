//! Completions: entries that the card writes into a queue in host memory.

use host::{Span, Time};

use super::bus::Bus;
use super::dma::Dma;
use super::ns;
use crate::machine::Params;

/// The cost of an entry; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    entry_bytes: u64,
    fetch: Span,
}

impl Completion {
    pub(crate) fn new(params: &Params) -> Self {
        let c = &params.completion;
        Self { entry_bytes: c.entry_bytes as u64, fetch: ns(c.fetch_ns) }
    }

    /// The time from the end of a write on the bus until a poll can find its entry: the poll's own cost
    /// includes the time in which the processor fetches it.
    pub(crate) fn latency(&self, dma: &Dma) -> Span {
        Span::from_ps(dma.write_latency.as_ps().saturating_sub(self.fetch.as_ps()))
    }

    /// Writes an entry; returns when the processor sees it. An entry that follows data is visible directly
    /// after them.
    pub(crate) fn write(&self, now: Time, follows_data: bool, bus: &mut Bus, dma: &Dma) -> Time {
        bus.write(now, self.entry_bytes) + if follows_data { Span::ZERO } else { self.latency(dma) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn entries_are_seen_in_the_order_of_writing() {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
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

    #[test]
    fn fetch_time_of_a_poll_is_not_counted_twice() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        (params.dma.write_latency_ns, params.completion.fetch_ns) = (400.0, 300.0);
        assert_eq!(Completion::new(&params).latency(&Dma::new(&params)), Span::from_ns(100));
        params.completion.fetch_ns = 500.0;
        assert_eq!(Completion::new(&params).latency(&Dma::new(&params)), Span::ZERO);
    }
}
