//! Interrupts: what sleeping for a completion costs beyond the completion itself.

use host::Span;

use super::ns;
use crate::machine::Params;

/// Times of an interrupt; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupt {
    /// From the completion until the event is there.
    pub(crate) latency: Span,
    /// That the call which sleeps takes from then on.
    pub(crate) wake_up: Span,
}

impl Interrupt {
    pub(crate) fn new(params: &Params) -> Self {
        Self { latency: ns(params.interrupt.latency_ns), wake_up: ns(params.interrupt.wake_up_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn sleeping_costs_more_than_twenty_microseconds_less_a_poll() {
        let params = Machine::load("mt23108-vapi").expect("it comes along").params;
        let interrupt = Interrupt::new(&params);
        assert_eq!(interrupt.latency + interrupt.wake_up, Span::from_us(20));
    }
}
