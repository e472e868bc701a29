//! The kernel's TCP, where that and not the card carries data: copies between program and kernel, segments that it makes and
//! takes, interrupts. It works on what has arrived one segment after the other, for all of a machine, and is interrupted for
//! the first one only: as long as it works it looks for more itself.

use host::{Span, Time};

use super::calls::Calls;
use super::ns;
use super::server::Server;
use crate::machine::Params;

/// Costs of the calls by which programs give data to the kernel and take them; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sockets {
    segment: Span,
    byte_ps: f64,
    mtu: u64,
    /// What one call finds at most.
    part: u64,
    call: Span,
    event: Span,
}

impl Sockets {
    /// Those of a machine; nothing takes time where the card does all.
    pub(crate) fn new(params: &Params, calls: &Calls) -> Self {
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

    /// What giving so many bytes takes: copying them, and making segments of them.
    pub(crate) fn give(&self, bytes: u64) -> Span {
        self.segment * bytes.div_ceil(self.mtu).max(1) + copy(bytes, self.byte_ps)
    }

    /// What taking so many bytes takes: copying them, in more calls than one if one does not find them all. TCP tells the sender of room
    /// when half of its buffer is free: while a call copies that, the other half is on its way.
    pub(crate) fn take(&self, bytes: u64) -> Span {
        copy(bytes, self.byte_ps) + self.call * self.more(bytes)
    }

    /// What taking so many bytes takes a library, whose calls are its answers to events.
    pub(crate) fn take_by_events(&self, bytes: u64) -> Span {
        self.take(bytes) + self.event * self.more(bytes)
    }

    fn more(&self, bytes: u64) -> u64 {
        bytes.checked_div(self.part).map_or(0, |_| bytes.div_ceil(self.part).saturating_sub(1))
    }
}

fn copy(bytes: u64, byte_ps: f64) -> Span {
    Span::from_ps((bytes as f64 * byte_ps).round() as u64)
}

/// The kernel of a machine, with what has arrived for it.
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

    /// A segment arrives from the wire, with so many bytes that the kernel copies itself, as no program takes them; when it is done
    /// with it.
    pub(crate) fn arrives(&mut self, now: Time, copied: u64) -> Time {
        let work = self.work(copied);
        if self.interrupt + work == Span::ZERO {
            return now;
        }
        let begins = if self.server.free_at() > now { now } else { now + self.interrupt };
        self.server.reserve(begins, work)
    }

    /// A segment comes from a program of the same machine, whose processor does the work; when it is done.
    pub(crate) fn comes_from_here(&self, now: Time, copied: u64) -> Time {
        now + self.work(copied)
    }

    fn work(&self, copied: u64) -> Span {
        self.segment + copy(copied, self.byte_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn params() -> Params {
        let mut params = Machine::load("mt23108-vapi").expect("it comes along").params;
        let k = &mut params.tcp;
        (k.interrupt_ns, k.segment_ns, k.send_segment_ns, k.byte_ps) = (5000.0, 1000.0, 500.0, 100.0);
        params
    }

    #[test]
    fn a_kernel_that_works_is_not_interrupted() {
        let (mut kernel, at) = (Kernel::new(&params()), |us| Time::ZERO + Span::from_us(us));
        assert_eq!(kernel.arrives(at(0), 0), at(6));
        assert_eq!(kernel.arrives(at(2), 10_000), at(8), "behind the first one, for which the interrupt was");
        assert_eq!(kernel.arrives(at(20), 0), at(26));
        assert_eq!(kernel.comes_from_here(at(21), 0), at(22), "on another processor, at once");
        let mut none = Kernel::new(&Machine::load("mt23108-vapi").expect("it comes along").params);
        assert_eq!([none.arrives(at(9), 99), none.arrives(at(3), 99)], [at(9), at(3)], "the card does all");
    }

    #[test]
    fn programs_pay_by_the_byte_and_the_segment_and_the_buffer() {
        let mut params = params();
        (params.link.mtu_bytes, params.tcp.buffer_bytes) = (2048.0, 0.0);
        let sockets = |params: &Params| Sockets::new(params, &Calls::new(params));
        assert_eq!(sockets(&params).give(0), ns(500.0));
        assert_eq!(sockets(&params).give(4097), ns(3.0 * 500.0 + 409.7));
        assert_eq!(sockets(&params).take(4096), ns(409.6), "as much as there is");
        (params.tcp.buffer_bytes, params.software.event_ns) = (4096.0, 20.0);
        assert_eq!(sockets(&params).take(2048), ns(204.8), "half of the buffer");
        assert_eq!(sockets(&params).take(4096), ns(409.6 + params.host.poll_full_ns));
        assert_eq!(sockets(&params).take_by_events(4096), ns(409.6 + params.host.poll_full_ns + 20.0));
        let free = Machine::load("mt23108-vapi").expect("it comes along").params;
        assert_eq!((sockets(&free).give(9), sockets(&free).take(9)), (Span::ZERO, Span::ZERO));
    }
}
