//! The transport engine: the processing time of the protocol. Its sending side and its receiving side each
//! process packets in sequence, for all ports together; so does the path from it to the ports. On some cards
//! one processor is both sides.

use host::{Span, Time};

use super::server::Server;
use super::{at_rate, ns};
use crate::machine::{Params, ProcessorsKind};

/// The transport engine and its occupancy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    sending: Server,
    receiving: Server,
    /// Completes messages that took a receive, unless one processor does everything.
    finishing: Server,
    one_processor: bool,
    ports: Server,
    ports_mbps: f64,
    latency: Span,
    send_request: Span,
    send_segment: Span,
    send_packet: Span,
    receive_message: Span,
    receive_packet: Span,
    address: Span,
    ack: Span,
    /// Packets are processed only when they have arrived completely.
    pub(crate) whole: bool,
}

/// Extra work for a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketWork {
    /// Number of SGEs that it was gathered from.
    pub(crate) sges: u64,
    /// Whether it starts its request.
    pub(crate) begins: bool,
    /// Whether it takes a receive.
    pub(crate) takes: bool,
    /// Whether it names the peer's memory.
    pub(crate) names_memory: bool,
}

impl Transport {
    pub(crate) fn new(params: &Params) -> Self {
        let t = &params.transport;
        Self {
            sending: Server::default(),
            receiving: Server::default(),
            finishing: Server::default(),
            one_processor: t.processors_kind == ProcessorsKind::Shared,
            ports: Server::default(),
            ports_mbps: t.ports_mbps,
            latency: ns(t.latency_ns),
            send_request: ns(t.send_request_ns),
            send_segment: ns(t.send_segment_ns),
            send_packet: ns(t.send_packet_ns),
            receive_message: ns(t.receive_message_ns),
            receive_packet: ns(t.receive_packet_ns),
            address: ns(t.address_ns),
            ack: ns(t.ack_ns),
            whole: t.whole_flag,
        }
    }

    /// The receiving processor, or the sending one if the card has no other.
    fn receiver(&mut self) -> &mut Server {
        if self.one_processor { &mut self.sending } else { &mut self.receiving }
    }

    /// The time of a translation, for a packet that names memory.
    fn address(&self, packet: PacketWork) -> Span {
        if packet.names_memory { self.address } else { Span::ZERO }
    }

    /// A packet is sent; returns when it is ready for the wire.
    pub(crate) fn send(&mut self, now: Time, packet: PacketWork) -> Time {
        let request = if packet.begins { self.send_request } else { Span::ZERO };
        let segments = self.send_segment * packet.sges.saturating_sub(1);
        let span = self.send_packet + segments + request + self.address(packet);
        self.sending.reserve(now, span) + self.latency
    }

    /// A packet's data go from the engine to its port, by a path that all ports share; returns when they
    /// arrive.
    pub(crate) fn move_to_port(&mut self, now: Time, bytes: u64) -> Time {
        self.ports.reserve(now, at_rate(bytes, self.ports_mbps)).max(now)
    }

    /// A packet arrives; returns when its data can be placed, and when the receiving side has finished with
    /// it.
    pub(crate) fn receive(&mut self, now: Time, packet: PacketWork) -> [Time; 2] {
        let (span, message, latency) =
            (self.receive_packet + self.address(packet), self.receive_message, self.latency);
        let data = self.receiver().reserve(now, span) + latency;
        if !packet.takes || self.ends_behind() {
            return [data, data];
        }
        [data, self.receiver().reserve(now, message) + latency]
    }

    /// Whether messages that take a receive are completed after their data are in place, while later packets
    /// arrive. A single processor completes them as they arrive.
    pub(crate) fn ends_behind(&self) -> bool {
        !self.one_processor
    }

    /// A message that took a receive has its data in place; returns when it is completed.
    pub(crate) fn finish(&mut self, now: Time) -> Time {
        self.finishing.reserve(now, self.receive_message)
    }

    /// An acknowledgement arrives.
    pub(crate) fn acknowledge(&mut self, now: Time) -> Time {
        let span = self.ack;
        self.receiver().reserve(now, span)
    }

    /// The receiving side stalls.
    pub(crate) fn stall(&mut self, now: Time, span: Span) {
        self.receiver().reserve(now, span);
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
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let (mut transport, mut end) = (Transport::new(&params), Time::ZERO);
        for _ in 0..1000 {
            end = transport.move_to_port(Time::ZERO, 2048);
        }
        let reached = rate(1000 * 2048, end - Time::ZERO);
        assert!((reached - 1686.0).abs() < 10.0, "{reached}");
    }

    #[test]
    fn requests_and_sges_cost_extra() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let t = &mut params.transport;
        (t.send_request_ns, t.send_segment_ns, t.send_packet_ns, t.latency_ns) = (400.0, 100.0, 1000.0, 0.0);
        let mut transport = Transport::new(&params);
        let first = PacketWork { sges: 3, begins: true, ..PacketWork::default() };
        assert_eq!(transport.send(Time::ZERO, first) - Time::ZERO, ns(1600.0));
        assert_eq!(transport.send(Time::ZERO, PacketWork::default()) - Time::ZERO, ns(2600.0));
    }

    /// Goal: completing a message that takes a receive follows its data and delays no arrival, except on a
    /// single processor.
    #[test]
    fn messages_complete_after_their_data_without_delaying_arrivals() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let t = &mut params.transport;
        (t.receive_packet_ns, t.receive_message_ns, t.latency_ns) = (200.0, 700.0, 0.0);
        let takes = PacketWork { takes: true, ..PacketWork::default() };
        let mut transport = Transport::new(&params);
        let at = |nanos| Time::ZERO + ns(nanos);
        assert_eq!(transport.receive(Time::ZERO, takes), [at(200.0); 2]);
        assert_eq!(transport.finish(at(1000.0)), at(1700.0));
        assert_eq!(transport.receive(at(200.0), takes), [at(400.0); 2], "beside the end of the first");
        assert_eq!(transport.finish(at(1200.0)), at(2400.0), "one after the other");
        params.transport.processors_kind = ProcessorsKind::Shared;
        assert_eq!(Transport::new(&params).receive(Time::ZERO, takes), [at(200.0), at(900.0)]);
    }

    #[test]
    fn single_processor_sends_and_receives_in_turn() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let t = &mut params.transport;
        (t.send_packet_ns, t.receive_packet_ns, t.address_ns, t.latency_ns) = (1000.0, 500.0, 200.0, 0.0);
        let named = PacketWork { names_memory: true, ..PacketWork::default() };
        for (processors, received) in [(ProcessorsKind::Separate, 700.0), (ProcessorsKind::Shared, 1900.0)] {
            params.transport.processors_kind = processors;
            let mut transport = Transport::new(&params);
            assert_eq!(transport.send(Time::ZERO, named) - Time::ZERO, ns(1200.0));
            assert_eq!(transport.receive(Time::ZERO, named)[0] - Time::ZERO, ns(received));
        }
    }
}
