//! Traffic of one end of a connection, with every byte and every completion accounted for: numbered messages, and
//! writes that are read back. Both ends run the same code.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use verbs::{CmEvent, Error, RecvWr, SendOp, SendWr, Wc, WcOpcode};

use crate::attack::Tally;
use crate::endpoint::{AREA, DEPTH, Endpoint, Link, PEERS, RESULT, ROUND_MAX, SENDS, SLOT, SOURCE};
use host::Rng;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Message,
    /// Writes `len` bytes of the pattern of this seed.
    Write,
    /// Reads them back.
    ReadBack {
        seed: u64,
        len: u64,
    },
    /// Consumes a receive and carries no data.
    Notice,
}

/// The requests of one end, and their results.
pub(crate) struct StressTraffic {
    rng: Rng,
    posted: u64,
    completed: u64,
    in_flight: VecDeque<RequestKind>,
    /// Messages posted, and messages reported successful.
    sent: u64,
    pub(crate) acknowledged: u64,
    receives: u64,
    received: u64,
    /// Messages that have arrived, which is also the number expected next.
    pub(crate) messages: u64,
    /// A write and its read are in flight.
    probe_in_flight: bool,
    /// The connection has failed.
    pub(crate) failed: bool,
    /// Bytes that were sent, or written and read back.
    pub(crate) bytes: u64,
}

impl StressTraffic {
    /// Posts receives; requests are posted by [`StressTraffic::post`].
    pub(crate) fn new(end: &Endpoint, link: &Link, rng: Rng) -> Result<Self> {
        let mut traffic = Self {
            rng,
            posted: 0,
            completed: 0,
            in_flight: VecDeque::new(),
            sent: 0,
            acknowledged: 0,
            receives: 0,
            received: 0,
            messages: 0,
            probe_in_flight: false,
            failed: false,
            bytes: 0,
        };
        for _ in 0..DEPTH {
            traffic.post_receive(end, link)?;
        }
        Ok(traffic)
    }

    fn post_receive(&mut self, end: &Endpoint, link: &Link) -> Result<()> {
        let room = [end.mr.sge(self.receives % DEPTH * SLOT, SLOT as u32)];
        link.qp.post_recv(&RecvWr::new(self.receives, &room))?;
        self.receives += 1;
        Ok(())
    }

    /// Posts a random request, if there is room.
    pub(crate) fn post(&mut self, end: &Endpoint, link: &Link) -> Result<()> {
        if self.failed || self.posted - self.completed + 2 > DEPTH {
            return Ok(());
        }
        match self.rng.below(8) {
            0 if !self.probe_in_flight => self.post_probe(end, link),
            1 => {
                let op = SendOp::WriteImm(link.peer.offset(PEERS), 1);
                self.request(link, RequestKind::Notice, &SendWr::new(self.posted, op, &[])).map(drop)
            }
            _ => self.post_message(end, link),
        }
    }

    fn post_message(&mut self, end: &Endpoint, link: &Link) -> Result<()> {
        let len = *self.rng.one_of(&[8, 16, 64, 200, 1000, SLOT]);
        let mut bytes = Rng::new(self.sent).bytes(len as usize);
        bytes[..8].copy_from_slice(&self.sent.to_le_bytes());
        let slot = SENDS + self.sent % DEPTH * SLOT;
        end.write_bytes(slot, &bytes)?;
        let piece = [end.mr.sge(slot, len as u32)];
        if self.request(link, RequestKind::Message, &SendWr::new(self.posted, SendOp::Send, &piece))? {
            self.sent += 1;
            self.bytes += len;
        }
        Ok(())
    }

    fn post_probe(&mut self, end: &Endpoint, link: &Link) -> Result<()> {
        let (len, seed) = (*self.rng.one_of(&[1, 8, 300, 5000, 20_000, AREA]), self.rng.next_u64());
        end.write_bytes(SOURCE, &Rng::new(seed).bytes(len as usize))?;
        let (there, piece) = (link.peer.offset(PEERS), [end.mr.sge(SOURCE, len as u32)]);
        if self.request(link, RequestKind::Write, &SendWr::new(self.posted, SendOp::Write(there), &piece))? {
            let piece = [end.mr.sge(RESULT, len as u32)];
            let read = SendWr::new(self.posted, SendOp::Read(there), &piece);
            self.probe_in_flight = self.request(link, RequestKind::ReadBack { seed, len }, &read)?;
            self.bytes += 2 * len;
        }
        Ok(())
    }

    /// Posts a request; false if there was no room.
    fn request(&mut self, link: &Link, kind: RequestKind, wr: &SendWr<'_>) -> Result<bool> {
        match link.qp.post_send(wr) {
            Ok(()) => {
                self.posted += 1;
                self.in_flight.push_back(kind);
                Ok(true)
            }
            Err(Error::QueueFull { .. }) => Ok(false),
            Err(why) => bail!("posting {kind:?}: {why}"),
        }
    }

    /// Polls completions, which must come in the order of each queue; returns whether there were any. Replaces receives
    /// while the connection works.
    pub(crate) fn poll(&mut self, end: &Endpoint, link: &Link, tally: &mut Tally) -> Result<bool> {
        let mut wcs = [Wc::default(); 16];
        let sends = end.send_cq.poll(&mut wcs)?;
        for wc in &wcs[..sends] {
            self.on_sent(end, wc)?;
        }
        let receives = end.recv_cq.poll(&mut wcs)?;
        for wc in &wcs[..receives] {
            self.on_received(end, wc, tally)?;
            if !self.failed {
                self.post_receive(end, link)?;
            }
        }
        Ok(sends + receives > 0)
    }

    fn on_sent(&mut self, end: &Endpoint, wc: &Wc) -> Result<()> {
        ensure!(wc.wr_id == self.completed, "request {} was expected: {wc:?}", self.completed);
        let Some(kind) = self.in_flight.pop_front() else {
            bail!("a completion of a request that was not posted: {wc:?}")
        };
        self.completed += 1;
        if !wc.is_ok() {
            self.failed = true;
            return Ok(());
        }
        match kind {
            RequestKind::Message => self.acknowledged += 1,
            RequestKind::ReadBack { seed, len } => {
                self.probe_in_flight = false;
                ensure!(
                    end.get(RESULT, len)? == Rng::new(seed).bytes(len as usize),
                    "{len} bytes were not read as written"
                );
            }
            RequestKind::Write | RequestKind::Notice => {}
        }
        Ok(())
    }

    fn on_received(&mut self, end: &Endpoint, wc: &Wc, tally: &mut Tally) -> Result<()> {
        ensure!(wc.wr_id == self.received, "receive {} was expected: {wc:?}", self.received);
        self.received += 1;
        if !wc.is_ok() {
            self.failed = true;
            return Ok(());
        }
        if wc.opcode == WcOpcode::RecvWriteImm {
            return Ok(());
        }
        let bytes = end.get(wc.wr_id % DEPTH * SLOT, u64::from(wc.byte_len))?;
        ensure!(bytes.len() >= 8, "a message of {} bytes", bytes.len());
        let number = bytes[..8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        tally.lost += number.saturating_sub(self.messages);
        tally.doubled += u64::from(number < self.messages);
        self.messages = number + 1;
        ensure!(
            bytes[8..] == Rng::new(number).bytes(bytes.len())[8..],
            "message {number} has other bytes than were sent"
        );
        Ok(())
    }

    /// Makes progress until the connection has ended and everything has completed; returns when that was.
    pub(crate) fn run_until_disconnected(
        &mut self,
        end: &Endpoint,
        link: &Link,
        posts: bool,
        tally: &mut Tally,
    ) -> Result<Instant> {
        let (mut has_ended, began) = (false, Instant::now());
        loop {
            if posts && !has_ended {
                self.post(end, link)?;
            }
            let any = self.poll(end, link, tally)?;
            match end.event_now() {
                None => {}
                Some(CmEvent::Disconnected { qp_num }) if qp_num == link.qp.num() && !has_ended => {
                    has_ended = true
                }
                Some(other) => bail!("an end was expected: {other:?}"),
            }
            if has_ended && self.is_settled() {
                return Ok(Instant::now());
            }
            if !any {
                std::thread::yield_now();
            }
            if began.elapsed() > ROUND_MAX {
                tally.hung += 1;
                let reported = if has_ended { "was reported" } else { "was not reported" };
                bail!("not complete: {}; the disconnection {reported}", self.outstanding());
            }
        }
    }

    /// Sends and receives for a while.
    pub(crate) fn run_for(
        &mut self,
        end: &Endpoint,
        link: &Link,
        time: Duration,
        tally: &mut Tally,
    ) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < time && !self.failed {
            self.post(end, link)?;
            if !self.poll(end, link, tally)? {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Whether everything posted has completed.
    pub(crate) fn is_settled(&self) -> bool {
        self.posted == self.completed && self.receives == self.received
    }

    /// The outstanding work, for a note.
    fn outstanding(&self) -> String {
        format!(
            "{} of {} requests, {} of {} receives",
            self.completed, self.posted, self.received, self.receives
        )
    }
}
