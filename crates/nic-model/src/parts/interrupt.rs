//! Interrupts: the cost of sleeping until a completion, in addition to the completion itself.

use host::Span;

use super::ns;
use crate::machine::Params;

/// Times of an interrupt; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupt {
    /// The time from the completion until the event.
    pub(crate) latency: Span,
    /// The time from the event until the sleeping call continues.
    pub(crate) wake_up: Span,
}

impl Interrupt {
    pub(crate) fn new(params: &Params) -> Self {
        let i = &params.interrupt;
        Self { latency: ns(i.latency_ns), wake_up: ns(i.wake_up_ns) * i.woken_threads as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn interrupt_time_grows_with_woken_threads() {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        let i = &mut params.interrupt;
        (i.latency_ns, i.wake_up_ns, i.woken_threads) = (3000.0, 8000.0, 2.0);
        let interrupt = Interrupt::new(&params);
        assert_eq!((interrupt.latency, interrupt.wake_up), (Span::from_us(3), Span::from_us(16)));
    }
}
