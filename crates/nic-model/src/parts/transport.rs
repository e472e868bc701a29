//! The transport engine: what the protocol takes. Its sending side and its receiving side each serve one packet after
//! the other, for all ports together; so does the way from it to the ports.

use host::{Span, Time};

use super::server::Server;
use super::{at_rate, ns};
use crate::machine::Params;

/// The engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    sending: Server,
    receiving: Server,
    ports: Server,
    ports_mbps: f64,
    latency: Span,
    send_request: Span,
    send_segment: Span,
    send_packet: Span,
    receive_message: Span,
    receive_packet: Span,
    ack: Span,
}

impl Transport {
    pub(crate) fn new(params: &Params) -> Self {
        let t = &params.transport;
        Self {
            sending: Server::default(),
            receiving: Server::default(),
            ports: Server::default(),
            ports_mbps: t.ports_mbps,
            latency: ns(t.latency_ns),
            send_request: ns(t.send_request_ns),
            send_segment: ns(t.send_segment_ns),
            send_packet: ns(t.send_packet_ns),
            receive_message: ns(t.receive_message_ns),
            receive_packet: ns(t.receive_packet_ns),
            ack: ns(t.ack_ns),
        }
    }

    /// A packet is sent, of so many pieces, perhaps the first of its request; when it is ready for the wire.
    pub(crate) fn send(&mut self, now: Time, pieces: u64, begins: bool) -> Time {
        let request = if begins { self.send_request } else { Span::ZERO };
        let segments = self.send_segment * pieces.saturating_sub(1);
        self.sending.reserve(now, self.send_packet + segments + request) + self.latency
    }

    /// A packet's data go from the engine towards its port, over a way that all ports share; when they are there.
    pub(crate) fn hand_over(&mut self, now: Time, bytes: u64) -> Time {
        self.ports.reserve(now, at_rate(bytes, self.ports_mbps)).max(now)
    }

    /// A packet arrives, perhaps one that takes a receive; when its data can be placed, and when it is done with.
    pub(crate) fn receive(&mut self, now: Time, takes_receive: bool) -> [Time; 2] {
        let data = self.receiving.reserve(now, self.receive_packet) + self.latency;
        if !takes_receive {
            return [data, data];
        }
        [data, self.receiving.reserve(now, self.receive_message) + self.latency]
    }

    /// An acknowledgement arrives.
    pub(crate) fn acknowledge(&mut self, now: Time) -> Time {
        self.receiving.reserve(now, self.ack)
    }

    /// The receiving side stands still.
    pub(crate) fn stall(&mut self, now: Time, span: Span) {
        self.receiving.reserve(now, span);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    /// Packets of both ports together: 1686 MB/s (NM-068).
    #[test]
    fn packets_of_all_ports_share_the_way_to_the_wire() {
        let params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        let (mut transport, mut end) = (Transport::new(&params), Time::ZERO);
        for _ in 0..1000 {
            end = transport.hand_over(Time::ZERO, 2048);
        }
        let reached = rate(1000 * 2048, end - Time::ZERO);
        assert!((reached - 1686.0).abs() < 10.0, "{reached}");
    }

    #[test]
    fn requests_and_pieces_cost_extra() {
        let mut params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        let t = &mut params.transport;
        (t.send_request_ns, t.send_segment_ns, t.send_packet_ns, t.latency_ns) = (400.0, 100.0, 1000.0, 0.0);
        let mut transport = Transport::new(&params);
        assert_eq!(transport.send(Time::ZERO, 3, true) - Time::ZERO, ns(1600.0));
        assert_eq!(transport.send(Time::ZERO, 0, false) - Time::ZERO, ns(2600.0));
    }
}
