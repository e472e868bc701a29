//! Processor costs of calls: posting, polling, registering, connecting.

use host::world::HostCosts;
use host::{Span, Step};

use super::ns;
use crate::machine::{Params, WriteImmKind};

/// In each run the system chooses a new page for an address; only its offset in the page is constant.
const SAME_EVERY_RUN: u64 = 4096;

/// Costs of calls; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallCosts {
    pub(crate) post_send: Span,
    /// The cost of posting the message that follows a write with immediate data, if there is one.
    pub(crate) post_notice: Span,
    pub(crate) post_receive: Span,
    segment: Span,
    pub(crate) poll_full: Span,
    pub(crate) poll_empty: Span,
    register: (Span, Span),
    deregister: (Span, Span),
    pub(crate) connect: Span,
    pub(crate) destroy: Span,
    page_bytes: u64,
    poll_word: Span,
    copy: Span,
    copy_ps_per_byte: f64,
    fork: Span,
    steps: [Span; Step::ALL.len()],
    /// The cost of waking up, for a thread that finds a completion after an unsuccessful poll of the same
    /// queue.
    pub(crate) wake: Span,
    /// Whether the processor may have to wait before it can ring the doorbell again.
    pub(crate) drains: bool,
    /// Whether the processor notifies the card of polled completions and posted receives.
    pub(crate) notifies: bool,
}

/// The processor costs of library steps.
pub(crate) fn steps(params: &Params) -> [Span; Step::ALL.len()] {
    let costs = &params.software;
    Step::ALL.map(|step| {
        ns(match step {
            Step::Call => costs.call_ns,
            Step::Request => costs.request_ns,
            Step::Match => costs.match_ns,
            // Per message: continuing in the middle of one needs no call for its header.
            Step::Event => costs.event_ns + params.tcp.head_calls * params.host.poll_full_ns,
            Step::Wake => costs.wake_ns,
            Step::Turn => costs.turn_ns,
        })
    })
}

impl CallCosts {
    pub(crate) fn new(params: &Params) -> Self {
        let h = &params.host;
        Self {
            post_send: ns(h.post_send_ns),
            post_notice: match params.api.write_imm_kind {
                WriteImmKind::Single => Span::ZERO,
                WriteImmKind::Split => ns(h.post_send_ns),
            },
            post_receive: ns(h.post_receive_ns),
            segment: ns(h.post_segment_ns),
            poll_full: ns(h.poll_full_ns),
            poll_empty: ns(h.poll_empty_ns),
            register: (ns(h.register_ns), ns(h.register_page_ns)),
            deregister: (ns(h.deregister_ns), ns(h.deregister_page_ns)),
            connect: ns(h.connect_ns),
            destroy: ns(h.destroy_ns),
            page_bytes: params.translation.page_bytes as u64,
            poll_word: ns(h.poll_word_ns),
            copy: ns(h.copy_ns),
            copy_ps_per_byte: 1e6 / h.copy_mbps,
            fork: ns(h.thread_ns),
            steps: steps(params),
            wake: ns(h.wake_ns),
            drains: params.doorbell.drain_ns > 0.0,
            notifies: params.completion.notify_flag,
        }
    }

    /// The cost of a request's SGEs after the first.
    pub(crate) fn sges(&self, count: usize) -> Span {
        self.segment * count.saturating_sub(1) as u64
    }

    /// The cost of registering `len` bytes at `addr`.
    pub(crate) fn register(&self, addr: u64, len: u64) -> Span {
        self.register.0 + self.register.1 * self.further_pages(addr, len)
    }

    /// The cost of deregistering `len` bytes at `addr`.
    pub(crate) fn deregister(&self, addr: u64, len: u64) -> Span {
        self.deregister.0 + self.deregister.1 * self.further_pages(addr, len)
    }

    /// How many pages beyond the first a range touches.
    fn further_pages(&self, addr: u64, len: u64) -> u64 {
        let within = addr % SAME_EVERY_RUN % self.page_bytes;
        (within + len).div_ceil(self.page_bytes).saturating_sub(1)
    }

    /// The processor costs of work other than calls of the card.
    pub(crate) fn processor(&self) -> HostCosts {
        HostCosts {
            poll: self.poll_word,
            copy: self.copy,
            copy_ps_per_byte: self.copy_ps_per_byte,
            fork: self.fork,
            steps: self.steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn steps_of_libraries_cost_what_the_file_says() {
        let mut machine = Machine::load("mt23108-vapi").expect("a built-in machine");
        assert_eq!(CallCosts::new(&machine.params).processor().steps, [Span::ZERO; 6], "nothing was said");
        let values = [("call_ns", "100"), ("request_ns", "50"), ("match_ns", "7"), ("event_ns", "30")];
        for (key, value) in values.into_iter().chain([("wake_ns", "900"), ("turn_ns", "4000")]) {
            machine.set(&format!("software.{key}"), value).expect("a key");
        }
        let steps = CallCosts::new(&machine.params).processor().steps;
        assert_eq!(steps, [100.0, 50.0, 7.0, 30.0, 900.0, 4000.0].map(ns));
        for (key, value) in [("tcp.head_calls", "2"), ("host.poll_full_ns", "400")] {
            machine.set(key, value).expect("a key");
        }
        let steps = CallCosts::new(&machine.params).processor().steps;
        assert_eq!(steps[3], ns(830.0), "and calls for a message's head");
    }

    /// Goal: two runs cost the same, although the system places memory elsewhere in each. Method: page sizes
    /// that do not divide the system's, and one larger than it.
    #[test]
    fn registration_cost_is_independent_of_the_page() {
        for page in ["4506", "3686", "65536"] {
            let mut machine = Machine::load("myrinet-gm").expect("a built-in machine");
            machine.set("translation.page_bytes", page).expect("a key");
            let calls = CallCosts::new(&machine.params);
            let costs = [0, 1, 7, 4095].map(|page| calls.register(0x7f00_0000_0100 + page * 4096, 70_000));
            assert!(costs.iter().all(|cost| *cost == costs[0]), "{page}: {costs:?}");
        }
    }

    #[test]
    fn registering_costs_by_the_page() {
        let params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        let calls = CallCosts::new(&params);
        assert_eq!(calls.register(8192, 4096), ns(73_060.0), "one page, as published");
        assert_eq!(calls.register(8191, 4096), ns(73_060.0 + params.host.register_page_ns), "it lies on two");
        assert_eq!(calls.deregister(0, 1), ns(82_050.0));
        assert_eq!(calls.sges(3), ns(2.0 * params.host.post_segment_ns));
        assert_eq!(calls.sges(0), Span::ZERO);
        assert_eq!(calls.post_send, ns(720.0));
    }
}
