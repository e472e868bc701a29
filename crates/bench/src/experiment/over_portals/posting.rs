//! [`Posting`]: the cost of posting a receive or a send, and how often the process waits for the card.

use portals::{EntryHandle, MdHandle, MdOptions, Region};
use verbs::host::Span;

use super::super::harness::timing::sample_spans;
use super::super::{Fault, Round, Session, Side};
use super::port::{Port, refused};

/// What is posted, and by which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// A receive, in the three calls of Portals 3.3.
    ThreeCalls,
    /// A receive, in one call.
    OneCall,
    /// A send from memory that is bound for it.
    Bound,
    /// A send from memory that was bound before.
    Ready,
    /// Nothing: an order that fails with an error.
    Nothing,
}

/// The quantity reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// How long it takes.
    Time,
    /// How often the process sends orders to the card.
    Orders,
}

/// A node without a card: messages to it are dropped.
const NOWHERE: u32 = 1;
const BITS: u64 = 1;

/// The state of the only rank.
pub(super) struct Posting {
    port: Port,
    how: How,
    reading: Reading,
    size: u64,
}

impl Posting {
    pub(super) fn prepare(session: &mut Session<'_>, how: How, reading: Reading) -> Result<Self, Fault> {
        let size = session.cell.size;
        Ok(Self { port: Port::open(session, 1, size.max(1), size.max(1))?, how, reading, size })
    }

    /// Posts once; returns the memory descriptor to release.
    fn post(&mut self) -> Result<Option<MdHandle>, Fault> {
        let Self { port, size, .. } = self;
        let (entry, place) = (port.receive_entry(0, *size, BITS), Port::RECEIVES);
        let offload = &mut port.offload;
        match self.how {
            How::OneCall => offload.post(place, &entry, 0).map(drop).map_err(refused)?,
            How::ThreeCalls => {
                let draft = offload.me_attach(place, &entry).map_err(refused)?;
                offload.md_attach(draft, &entry.region, 0).map_err(refused)?;
                offload.md_update(draft).map(drop).map_err(refused)?;
            }
            How::Bound => {
                let region = Region::new(entry.region.address(0), *size);
                let md = offload.md_bind(&region, MdOptions::EVENT_SEND_DISABLE).map_err(refused)?;
                port.put(md, NOWHERE, 0, *size, BITS)?;
                return Ok(Some(md));
            }
            How::Ready => port.put_ready(NOWHERE, 0, *size, BITS)?,
            // No such entry exists.
            How::Nothing => offload.unlink(EntryHandle::from_number(u64::MAX)).unwrap_or(()),
        }
        Ok(None)
    }
}

impl Side for Posting {
    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        sample_spans(session, round, readings, |session, count, _| {
            let mut all = Span::ZERO;
            for _ in 0..count {
                let (began, orders) = (session.host.now(), self.port.offload.commands().0);
                let bound = self.post()?;
                all += match self.reading {
                    Reading::Time => session.host.now() - began,
                    // A picosecond each.
                    Reading::Orders => Span::from_ps(self.port.offload.commands().0 - orders),
                };
                bound.map_or(Ok(()), |md| self.port.release(md))?;
            }
            Ok(all)
        })
    }
}
