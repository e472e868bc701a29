//! One direction of a port's link: bytes at a rate, headers, gaps. It also carries acknowledgements for
//! packets in the other direction; one that needs no packet of its own is added to the next packet.

use host::{Span, Time};

use super::{at_rate, ns};
use crate::machine::Params;

/// The sending half of a port's link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    mbps: f64,
    header_bytes: u64,
    address_bytes: u64,
    gap_bytes: u64,
    ack_bytes: u64,
    /// The latency of the cable.
    pub(crate) latency: Span,
    free_at: Time,
    owed_bytes: u64,
}

impl Link {
    pub(crate) fn new(params: &Params) -> Self {
        let l = &params.link;
        Self {
            mbps: l.rate_mbps,
            header_bytes: l.header_bytes as u64,
            address_bytes: l.address_bytes as u64,
            gap_bytes: l.gap_bytes as u64,
            ack_bytes: l.ack_bytes as u64,
            latency: ns(l.latency_ns),
            free_at: Time::ZERO,
            owed_bytes: 0,
        }
    }

    /// Bytes on the wire of a packet with `data` bytes of data.
    pub(crate) fn packet(&self, data: u64, has_address: bool) -> u64 {
        self.header_bytes + if has_address { self.address_bytes } else { 0 } + data + self.gap_bytes
    }

    /// Bytes on the wire of an acknowledgement.
    pub(crate) fn ack(&self) -> u64 {
        self.ack_bytes
    }

    /// The time to transmit this many bytes.
    pub(crate) fn time(&self, bytes: u64) -> Span {
        at_rate(bytes, self.mbps)
    }

    /// When it will be free.
    pub(crate) fn free_at(&self) -> Time {
        self.free_at
    }

    /// Sends this many bytes; only valid when the link is free.
    pub(crate) fn send(&mut self, now: Time, bytes: u64) {
        let owed = std::mem::take(&mut self.owed_bytes);
        self.free_at = now.max(self.free_at) + self.time(bytes + owed);
    }

    /// Adds an acknowledgement: immediately if the link is free, otherwise to the next packet.
    pub(crate) fn add_ack(&mut self, now: Time) {
        if self.free_at > now {
            self.owed_bytes += self.ack_bytes;
        } else {
            self.free_at = now + self.time(self.ack_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn stream(acks: bool) -> f64 {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let (mut link, bytes) = (Link::new(&params), 2048);
        for _ in 0..1000 {
            let now = link.free_at();
            link.send(now, link.packet(bytes, false));
            if acks {
                link.add_ack(now);
            }
        }
        rate(1000 * bytes, link.free_at() - Time::ZERO)
    }

    /// 944 MB/s in one direction (NM-044); 928.5 in each when both are busy (NM-056).
    #[test]
    fn link_rate_matches_the_paper() {
        assert!((stream(false) - 944.0).abs() < 1.0, "{}", stream(false));
        assert!((stream(true) - 928.5).abs() < 5.0, "{}", stream(true));
    }

    #[test]
    fn idle_link_transmits_acknowledgement_immediately() {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let (mut link, now) = (Link::new(&params), Time::ZERO + Span::from_us(7));
        link.add_ack(now);
        assert_eq!(link.free_at() - now, link.time(link.ack()));
        assert_eq!(link.time(1000), Span::from_us(1), "1000 MB/s");
        assert_eq!(link.packet(100, true) - link.packet(100, false), 16);
    }
}
