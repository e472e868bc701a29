//! Data path: receiving. Answers the protocol's memory lookups from the tables of the device.

use iwarp::rx::{AccessError, Lookup};
use verbs::Access;

use crate::connection::end_reason::EndReason;
use crate::queues::messages::request_of;
use crate::queues::qp_queues::QpQueues;
use crate::queues::request_ring::PostedReceive;

/// What the current message needs of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveUse {
    /// A receive whose memory takes the payload.
    Buffer,
    /// A receive that only provides a completion.
    Completion,
    /// No receive: the message belongs to the Send that follows.
    Nothing,
}

/// Answers for one connection, while its lock is held.
pub(crate) struct DeviceLookup<'a> {
    pub(crate) queues: &'a QpQueues,
    /// The receive that was taken for the message, if any.
    pub(crate) receive: Option<&'a PostedReceive>,
    pub(crate) receive_use: ReceiveUse,
    /// An error on this side, for which the peer is not responsible.
    pub(crate) fault: Option<EndReason>,
}

impl Lookup for DeviceLookup<'_> {
    fn check_write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError> {
        self.queues.domain().find(stag, Access::REMOTE_WRITE, to, len.into()).map(drop)
    }

    fn check_read_sink(&mut self, id: u64, offset: u32, len: u32) -> Result<(), AccessError> {
        let (queue, number) = (self.queues.sends.lock(), request_of(id));
        let domain = self.queues.domain();
        match queue.local_addresses(number, domain, Access::LOCAL_WRITE, offset.into(), len.into()) {
            Some(_) => Ok(()),
            None => {
                self.fault = Some(EndReason::BadSink(number));
                Err(AccessError::Access)
            }
        }
    }

    fn check_read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError> {
        self.queues.domain().find(stag, Access::REMOTE_READ, to, len.into()).map(drop)
    }

    fn check_atomic(&mut self, stag: u32, to: u64) -> Result<(), AccessError> {
        let at = self.queues.domain().find(stag, Access::REMOTE_ATOMIC, to, 8)?;
        // A region may begin at an odd address.
        if at.cast::<u64>().is_aligned() { Ok(()) } else { Err(AccessError::Unaligned) }
    }

    fn check_invalidate(&mut self, stag: u32) -> Result<(), AccessError> {
        match self.queues.domain().may_invalidate(stag) {
            Ok(()) => Ok(()),
            Err(AccessError::NotAssociated) => Err(AccessError::CannotInvalidate),
            Err(why) => Err(why),
        }
    }

    fn take_receive(&mut self, _msn: u32) -> Option<u32> {
        if self.receive_use == ReceiveUse::Nothing {
            return Some(0);
        }
        let receive = self.receive?;
        if self.queues.splits {
            // What exceeds the receive is checked when the program has posted memory for the rest.
            return Some(u32::MAX);
        }
        // The receive's memory is checked when payload is placed, and only the part that is written.
        Some(u32::try_from(receive.sges.total()).unwrap_or(u32::MAX))
    }
}
