//! The kernel's TCP, for cards that do not offload it: copies between program and kernel, segmentation,
//! interrupts. The kernel processes the arriving segments of a machine in sequence. Only the first one
//! interrupts it: while it works it polls for more.

use host::{Span, Time};

use super::calls::CallCosts;
use super::ns;
use super::server::Server;
use crate::machine::Params;

/// Costs of the calls by which programs send and receive; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sockets {
    segment: Span,
    byte_ps: f64,
    mtu: u64,
    /// Maximum bytes returned by one call.
    part: u64,
    call: Span,
    event: Span,
}

impl Sockets {
    /// The costs of a machine; zero if the card does all the work.
    pub(crate) fn new(params: &Params, calls: &CallCosts) -> Self {
        let k = &params.tcp;
        Self {
            segment: ns(k.send_segment_ns),
            byte_ps: k.byte_ps,
            mtu: params.link.mtu_bytes as u64,
            part: k.buffer_bytes as u64 / 2,
            call: calls.poll_full,
            event: ns(params.software.event_ns),
        }
    }

    /// The cost of sending `bytes`: copying and segmentation.
    pub(crate) fn send_cost(&self, bytes: u64) -> Span {
        self.segment * bytes.div_ceil(self.mtu).max(1) + copy(bytes, self.byte_ps)
    }

    /// The cost of receiving `bytes`: copying, in several calls if one does not return everything. TCP
    /// announces room when half of its buffer is free: while a call copies that half, the other one is in
    /// flight.
    pub(crate) fn recv_cost(&self, bytes: u64) -> Span {
        copy(bytes, self.byte_ps) + self.call * self.extra_calls(bytes)
    }

    /// The cost of receiving `bytes` for a library that does so in response to events.
    pub(crate) fn recv_cost_by_events(&self, bytes: u64) -> Span {
        self.recv_cost(bytes) + self.event * self.extra_calls(bytes)
    }

    /// How many calls beyond the first a message of `bytes` takes.
    fn extra_calls(&self, bytes: u64) -> u64 {
        bytes.checked_div(self.part).map_or(0, |_| bytes.div_ceil(self.part).saturating_sub(1))
    }
}

/// The time of a copy.
fn copy(bytes: u64, byte_ps: f64) -> Span {
    Span::from_ps((bytes as f64 * byte_ps).round() as u64)
}

/// The kernel of a machine, and its queue of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    server: Server,
    interrupt: Span,
    segment: Span,
    byte_ps: f64,
}

impl Kernel {
    pub(crate) fn new(params: &Params) -> Self {
        let k = &params.tcp;
        let (interrupt, segment) = (ns(k.interrupt_ns), ns(k.segment_ns));
        Self { server: Server::default(), interrupt, segment, byte_ps: k.byte_ps }
    }

    /// A segment arrives from the wire; the kernel itself copies `copied` of its bytes, for which no program
    /// calls. Returns when the kernel has finished.
    pub(crate) fn process_arrival(&mut self, now: Time, copied: u64) -> Time {
        let work = self.work(copied);
        if self.interrupt + work == Span::ZERO {
            return now;
        }
        let begins = if self.server.free_at() > now { now } else { now + self.interrupt };
        self.server.reserve(begins, work)
    }

    /// A segment arrives from a program of the same machine, whose processor does the work; returns when it
    /// has finished.
    pub(crate) fn process_local(&self, now: Time, copied: u64) -> Time {
        now + self.work(copied)
    }

    /// The time of a segment of which this number of bytes is copied.
    fn work(&self, copied: u64) -> Span {
        self.segment + copy(copied, self.byte_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn params() -> Params {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        let k = &mut params.tcp;
        (k.interrupt_ns, k.segment_ns, k.send_segment_ns, k.byte_ps) = (5000.0, 1000.0, 500.0, 100.0);
        params
    }

    #[test]
    fn busy_kernel_is_not_interrupted() {
        let (mut kernel, at) = (Kernel::new(&params()), |us| Time::ZERO + Span::from_us(us));
        assert_eq!(kernel.process_arrival(at(0), 0), at(6));
        assert_eq!(
            kernel.process_arrival(at(2), 10_000),
            at(8),
            "behind the first one, for which the interrupt was"
        );
        assert_eq!(kernel.process_arrival(at(20), 0), at(26));
        assert_eq!(kernel.process_local(at(21), 0), at(22), "on another processor, at once");
        let mut none = Kernel::new(&Machine::load("mt23108-vapi").expect("a built-in machine").params);
        assert_eq!(
            [none.process_arrival(at(9), 99), none.process_arrival(at(3), 99)],
            [at(9), at(3)],
            "the card does all"
        );
    }

    #[test]
    fn socket_costs_depend_on_bytes_segments_and_buffer() {
        let mut params = params();
        (params.link.mtu_bytes, params.tcp.buffer_bytes) = (2048.0, 0.0);
        let sockets = |params: &Params| Sockets::new(params, &CallCosts::new(params));
        assert_eq!(sockets(&params).send_cost(0), ns(500.0));
        assert_eq!(sockets(&params).send_cost(4097), ns(3.0 * 500.0 + 409.7));
        assert_eq!(sockets(&params).recv_cost(4096), ns(409.6), "as much as there is");
        (params.tcp.buffer_bytes, params.software.event_ns) = (4096.0, 20.0);
        assert_eq!(sockets(&params).recv_cost(2048), ns(204.8), "half of the buffer");
        assert_eq!(sockets(&params).recv_cost(4096), ns(409.6 + params.host.poll_full_ns));
        assert_eq!(sockets(&params).recv_cost_by_events(4096), ns(409.6 + params.host.poll_full_ns + 20.0));
        let free = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        assert_eq!((sockets(&free).send_cost(9), sockets(&free).recv_cost(9)), (Span::ZERO, Span::ZERO));
    }
}
