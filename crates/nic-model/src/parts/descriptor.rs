//! Descriptors: what the card reads from host memory to learn what a request wants. One unit asks for them, some ahead
//! of the transport engine: each takes its turn on the bus, and the latencies of several overlap.

use std::collections::VecDeque;

use crate::machine::Params;

/// The unit that fetches descriptors.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    send_bytes: u64,
    receive_bytes: u64,
    segment_bytes: u64,
    /// Requests that may be fetched ahead, for each queue pair.
    pub(crate) ahead: u64,
    /// Queue pairs with something to fetch, in turn.
    pub(crate) waiting: VecDeque<u32>,
    /// Whose descriptors are under way, in their order.
    pub(crate) fetching: VecDeque<u32>,
}

impl Descriptors {
    pub(crate) fn new(params: &Params) -> Self {
        let d = &params.descriptor;
        Self {
            send_bytes: d.send_bytes as u64,
            receive_bytes: d.receive_bytes as u64,
            segment_bytes: d.segment_bytes as u64,
            ahead: d.ahead_requests as u64,
            waiting: VecDeque::new(),
            fetching: VecDeque::new(),
        }
    }

    /// Bytes of a send request's descriptor.
    pub(crate) fn send(&self, pieces: usize, inline: usize) -> u64 {
        self.send_bytes + pieces as u64 * self.segment_bytes + inline as u64
    }

    /// Bytes of a receive's descriptor.
    pub(crate) fn receive(&self, pieces: usize) -> u64 {
        self.receive_bytes + pieces as u64 * self.segment_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn descriptors_grow_with_their_pieces() {
        let mut params = Machine::load("mt23108-vapi").expect("it comes along").params;
        let d = &mut params.descriptor;
        (d.send_bytes, d.receive_bytes, d.segment_bytes) = (48.0, 16.0, 16.0);
        let descriptors = Descriptors::new(&params);
        assert_eq!((descriptors.send(1, 0), descriptors.send(0, 20), descriptors.receive(3)), (64, 68, 64));
    }
}
