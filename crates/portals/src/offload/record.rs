//! What the firmware writes into its process's memory: events in a ring, and replies. The last word of each
//! is its number, counted from 1: a processor that reads the expected number can read all of the record.

use super::words::{Reader, Writer};
use crate::objects::command::CtEvent;
use crate::objects::error::Error;
use crate::objects::event::{Event, EventKind, Fail, List};
use crate::objects::process::Process;

/// Bytes of an event.
pub(super) const EVENT: usize = 88;
/// Bytes of a reply.
pub(super) const REPLY: usize = 24;

/// Bytes of a counter: failures, then successes.
pub(super) const COUNTER: usize = 16;

/// The value of a counter.
pub(super) fn counter_bytes(value: CtEvent) -> Writer {
    Writer::new().put(value.failure).put(value.success)
}

/// An event, the `number`th of its queue; `lost` if an event before it was lost.
pub(super) fn event_bytes(event: &Event, number: u64, lost: bool) -> Writer {
    let Event { kind, fail, list, pt_index, initiator, uid, .. } = *event;
    let what = u32::from(kind as u8) | u32::from(fail as u8) << 8 | (list as u32) << 16;
    Writer::new()
        .pair(what, pt_index)
        .put(event.start)
        .put(event.user_ptr)
        .put(event.hdr_data)
        .put(event.match_bits)
        .put(event.rlength)
        .put(event.mlength)
        .put(event.remote_offset)
        .pair(initiator.nid, initiator.pid)
        .pair(uid, lost.into())
        .put(number)
}

/// The event in a slot, and whether an event before it was lost.
pub(super) fn event(bytes: &[u8; EVENT]) -> Option<(Event, bool)> {
    let mut words = Reader(bytes);
    let (what, pt_index) = words.pair()?;
    let [kind, fail, list, _] = what.to_le_bytes();
    let (start, user_ptr, hdr_data) = (words.word()?, words.word()?, words.word()?);
    let (match_bits, rlength, mlength) = (words.word()?, words.word()?, words.word()?);
    let remote_offset = words.word()?;
    let (nid, pid) = words.pair()?;
    let (uid, lost) = words.pair()?;
    let event = Event {
        kind: EventKind::from_number(kind)?,
        fail: Fail::from_number(fail)?,
        list: if list == 0 { List::Priority } else { List::Overflow },
        start,
        user_ptr,
        hdr_data,
        match_bits,
        rlength,
        mlength,
        remote_offset,
        initiator: Process { nid, pid },
        uid,
        pt_index,
        atomic: None,
    };
    Some((event, lost != 0))
}

/// The result of a command: a number or an error; `None` if a Portals 3.3 command did nothing because of
/// unread events.
pub(super) type Outcome = Result<Option<u64>, Error>;

const DONE: u64 = 0;
const WAITING: u64 = 1 << 8;

pub(super) fn reply_bytes(outcome: Outcome, number: u64) -> Writer {
    let (status, value) = match outcome {
        Ok(Some(value)) => (DONE, value),
        Ok(None) => (WAITING, 0),
        Err(error) => (error.code().into(), 0),
    };
    Writer::new().put(status).put(value).put(number)
}

pub(super) fn reply(bytes: &[u8; REPLY]) -> Outcome {
    let mut words = Reader(bytes);
    match (words.word(), words.word()) {
        (Some(DONE), value) => Ok(value),
        (Some(WAITING), _) => Ok(None),
        (code, _) => {
            let code = code.and_then(|code| u8::try_from(code).ok()).and_then(Error::from_code);
            Err(code.unwrap_or(Error::ArgInvalid))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_replies_roundtrip() {
        let event_of = |n: u8| Event {
            fail: Fail::from_number(n % 8).expect("a failure"),
            list: if n.is_multiple_of(2) { List::Priority } else { List::Overflow },
            start: 1,
            hdr_data: 2,
            match_bits: 3,
            rlength: 4,
            mlength: 5,
            remote_offset: 6,
            initiator: Process { nid: 7, pid: 8 },
            uid: 9,
            pt_index: 10,
            ..Event::new(EventKind::from_number(n).expect("a kind"), 11)
        };
        for n in 0..16 {
            let bytes = event_bytes(&event_of(n), 77, n % 3 == 0);
            let bytes: [u8; EVENT] = bytes.as_slice().try_into().expect("the size of an event");
            assert_eq!(event(&bytes), Some((event_of(n), n % 3 == 0)));
            assert_eq!(bytes[EVENT - 8..], 77_u64.to_le_bytes());
        }
        for outcome in [Ok(Some(u64::MAX)), Ok(None), Err(Error::NoSpace), Err(Error::PtInUse)] {
            let bytes: [u8; REPLY] =
                reply_bytes(outcome, 5).as_slice().try_into().expect("the size of a reply");
            assert_eq!(reply(&bytes), outcome);
            assert_eq!(bytes[REPLY - 8..], 5_u64.to_le_bytes());
        }
    }
}
