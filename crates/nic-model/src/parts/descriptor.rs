//! Descriptors: the card reads them from host memory to learn of requests. One unit requests them, some ahead
//! of the transport engine: each takes its turn on the bus, and the latencies of several overlap. With other
//! cards the processor writes the descriptors to the card, which fetches nothing. The data of short messages
//! may be in the descriptor.

use std::collections::VecDeque;

use verbs::SendOp;

use crate::machine::Params;

/// The unit that fetches descriptors.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    send_bytes: u64,
    receive_bytes: u64,
    segment_bytes: u64,
    /// The processor writes descriptors to the card.
    pub(crate) pushed: bool,
    by_limit: bool,
    /// Descriptors that are not needed immediately wait until the engine reads nothing.
    pub(crate) idle: bool,
    merge_send: u64,
    merge_write: u64,
    /// Maximum number of requests fetched ahead, per queue pair.
    pub(crate) ahead: u64,
    /// Queue pairs with descriptors to fetch, round robin.
    pub(crate) waiting: VecDeque<u32>,
    /// The queue pairs of requested descriptors, in order.
    pub(crate) fetching: VecDeque<u32>,
}

impl Descriptors {
    pub(crate) fn new(params: &Params) -> Self {
        let d = &params.descriptor;
        Self {
            send_bytes: d.send_bytes as u64,
            receive_bytes: d.receive_bytes as u64,
            segment_bytes: d.segment_bytes as u64,
            pushed: d.pushed_flag,
            by_limit: d.limit_flag,
            idle: d.idle_flag,
            merge_send: d.merge_send_bytes as u64,
            merge_write: d.merge_write_bytes as u64,
            ahead: d.ahead_requests as u64,
            waiting: VecDeque::new(),
            fetching: VecDeque::new(),
        }
    }

    /// The queue pair whose descriptor is requested next, if `may` accepts it.
    pub(crate) fn next(&mut self, may: impl Fn(u32) -> bool) -> Option<u32> {
        let has_room = (self.fetching.len() as u64) < self.ahead;
        let at = self.waiting.iter().position(|qp| may(*qp)).filter(|_| has_room)?;
        self.waiting.remove(at)
    }

    /// Bytes of a send request's descriptor, in a queue that allows up to `most` pieces.
    pub(crate) fn send(&self, pieces: usize, most: u32, inline: usize) -> u64 {
        self.send_bytes + self.segment_slots(pieces, most) * self.segment_bytes + inline as u64
    }

    /// Bytes of a receive's descriptor, in a queue that allows up to `most` pieces.
    pub(crate) fn receive(&self, pieces: usize, most: u32) -> u64 {
        self.receive_bytes + self.segment_slots(pieces, most) * self.segment_bytes
    }

    /// How many segments a descriptor has room for: as many as the message needs, or the maximum.
    fn segment_slots(&self, pieces: usize, most: u32) -> u64 {
        if self.by_limit { most.into() } else { pieces as u64 }
    }

    /// Whether a message of `len` bytes is in its descriptor.
    pub(crate) fn fits_in_descriptor(&self, op: SendOp, len: u64) -> bool {
        len < match op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => self.merge_send,
            SendOp::Write(_) | SendOp::WriteImm(..) => self.merge_write,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn descriptors_grow_with_their_pieces() {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        let d = &mut params.descriptor;
        (d.send_bytes, d.receive_bytes, d.segment_bytes, d.limit_flag) = (48.0, 16.0, 16.0, false);
        let descriptors = Descriptors::new(&params);
        let bytes = |d: &Descriptors| (d.send(1, 4, 0), d.send(0, 4, 20), d.receive(3, 4));
        assert_eq!(bytes(&descriptors), (64, 68, 64));
        params.descriptor.limit_flag = true;
        assert_eq!(bytes(&Descriptors::new(&params)), (112, 132, 80), "room for four pieces each");
    }

    #[test]
    fn short_messages_are_merged_into_descriptors() {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        (params.descriptor.merge_send_bytes, params.descriptor.merge_write_bytes) = (64.0, 0.0);
        let (descriptors, remote) = (Descriptors::new(&params), verbs::RemoteAddr { addr: 0, rkey: 0 });
        assert!(
            descriptors.fits_in_descriptor(SendOp::Send, 63)
                && !descriptors.fits_in_descriptor(SendOp::Send, 64)
        );
        assert!(
            !descriptors.fits_in_descriptor(SendOp::Write(remote), 0)
                && !descriptors.fits_in_descriptor(SendOp::Read(remote), 0)
        );
    }
}
