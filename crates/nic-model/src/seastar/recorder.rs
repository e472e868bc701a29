//! [`Recorder`]: the context of a program's call. It records the program's requests as steps, which the cards
//! execute.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use host::{EventCount, Span, Step as LibraryStep};
use verbs::{Access, Error, FirmwareCap, NicCtx, Result, Sge};

use super::card::HostWrites;
use super::transfer_time::TransferTime;
use super::work::{Address, FirmwareMessage, Step};
use crate::net::connections::address;
use crate::net::protection::{Extent, Protection};

pub(super) const CAP: FirmwareCap =
    FirmwareCap { max_command: 128, max_header: 128, max_payload: 1 << 30, max_waiting: u32::MAX };

impl Address {
    /// Where messages for a program are sent.
    pub(super) fn socket(self) -> SocketAddr {
        (address(self.node, 0), self.pid).into()
    }

    /// The program at a socket address, which may be on this node.
    pub(super) fn from_socket(socket: SocketAddr, own: usize) -> Option<Self> {
        let IpAddr::V4(ip) = socket.ip() else { return None };
        let pid = socket.port();
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(Self { node: own, pid });
        }
        let [_, _, high, low] = ip.octets();
        let node = (usize::from(high) * 256 + usize::from(low)).checked_sub(1)?;
        (address(node, 0) == Ipv4Addr::from(ip.octets())).then_some(Self { node, pid })
    }
}

/// A call of a program.
pub(super) struct Recorder<'a> {
    pub(super) protection: &'a Protection,
    pub(super) effects: &'a mut HostWrites,
    pub(super) at: Address,
    pub(super) domain: u32,
    pub(super) each_match: Span,
    pub(super) wakeup: &'a Arc<EventCount>,
    /// Bytes of the message that the call handles.
    pub(super) payload_len: u64,
    pub(super) timing: TransferTime,
    pub(super) steps: VecDeque<Step>,
    pub(super) wants_turn: bool,
}

impl Recorder<'_> {
    fn extents(&self, sges: &[Sge], access: Access) -> Result<Arc<[Extent]>> {
        let (mut found, len) = (Vec::new(), sges.iter().map(|sge| u64::from(sge.length)).sum());
        match self.protection.own_extents(self.domain, sges, (0, len), access, &mut found) {
            true => Ok(found.into()),
            false => {
                Err(Error::Invalid("this is not registered memory with the required access rights".into()))
            }
        }
    }
}

impl NicCtx for Recorder<'_> {
    fn charge(&mut self, span: Span) {
        if span > Span::ZERO {
            self.steps.push_back(Step::Charge(span));
        }
    }

    fn charge_step(&mut self, step: LibraryStep, n: u64) {
        if step == LibraryStep::Match {
            self.charge(self.each_match * n);
        }
    }

    fn request_turn(&mut self) {
        self.wants_turn = true;
    }

    fn send(&mut self, to: SocketAddr, header: &[u8], payload: &[Sge]) -> Result<()> {
        Error::check_limit("bytes of a header", header.len() as u64, CAP.max_header.into())?;
        let len = payload.iter().map(|sge| u64::from(sge.length)).sum();
        Error::check_limit("bytes of payload", len, CAP.max_payload)?;
        let extents = self.extents(payload, Access::empty())?;
        let Some(to) = Address::from_socket(to, self.at.node) else { return Ok(()) };
        let (from, header, timing) = (self.at, header.into(), self.timing);
        let (data, number, tail) = (Vec::new(), 0, timing.at);
        self.steps.push_back(Step::Send(Box::new(FirmwareMessage {
            from,
            to,
            header,
            extents,
            len,
            data,
            number,
            tail,
            timing,
        })));
        Ok(())
    }

    fn deposit(&mut self, offset: u64, to: Sge) -> Result<()> {
        let len = u64::from(to.length);
        let end = offset.saturating_add(len);
        Error::check_limit("the end of the deposit in the payload", end, self.payload_len)?;
        let extents = self.extents(&[to], Access::LOCAL_WRITE)?;
        if len > 0 {
            let ticket = self.effects.take_sequence_number();
            self.steps.push_back(Step::Deposit { offset, extents, len, ticket });
        }
        Ok(())
    }

    fn event(&mut self, to: Sge, record: &[u8]) -> Result<()> {
        Error::check_limit("bytes of the record", record.len() as u64, to.length.into())?;
        if record.is_empty() || !record.len().is_multiple_of(8) || !to.addr.is_multiple_of(8) {
            return Err(Error::Invalid(
                "the length and the address of a record must be multiples of eight".into(),
            ));
        }
        let extents = self.extents(&[Sge { length: record.len() as u32, ..to }], Access::LOCAL_WRITE)?;
        let ticket = self.effects.take_sequence_number();
        self.steps.push_back(Step::Event { extents, record: record.to_vec(), ticket });
        Ok(())
    }

    fn interrupt(&mut self) {
        let ticket = self.effects.take_sequence_number();
        self.steps.push_back(Step::Interrupt { wakeup: self.wakeup.clone(), ticket });
    }
}
