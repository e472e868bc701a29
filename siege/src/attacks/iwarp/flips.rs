//! Flips one bit that TCP does not notice, in a handshake frame or an FPDU, in either direction, with and without CRCs.
//! Requests reported successful must have arrived and, with CRCs, must be correct.
//!
//! Undamaged connections come first: their frames are the targets, the first of each kind before the others. Frames
//! that a peer sends when it ends a connection are hit on connections that are damaged twice.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::endpoints::{DeviceWithMemory, Round};
use super::frames::FrameName;
use super::proxy::{BitPosition, Damage, Frames, Proxy};
use crate::attack::{Attack, Budget, Tally};
use host::Rng;

pub(crate) const ATTACK: Attack = Attack {
    name: "flips",
    about: "flip one bit undetected by TCP, at every place of iWARP's handshake, headers and payload",
    weight: 2,
    late_max: Duration::from_millis(500),
    run,
};

/// Requests of a batch.
const COUNT: usize = 20;
/// A damaged length makes its reader wait for more bytes; the round waits no longer than this.
const WAIT: Duration = Duration::from_millis(60);
/// Every byte at the front of a frame is a target (all headers and most control messages), and every byte at its end
/// (pad and CRC). The middle byte represents those in between.
const FRONT: usize = 64;
const END: usize = 8;
/// A run that has this much time must have hit a target.
const ENOUGH: Duration = Duration::from_secs(3);
/// Damages a send, by which the peer ends the connection.
const PROVOCATION: BitPosition =
    BitPosition { frame: FrameName { opcode: Some(3), nth: 2 }, byte: 13, bit: 0 };

/// A byte of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FrameByte {
    frame: FrameName,
    byte: usize,
    back: bool,
    /// The frame exists only because the connection was damaged before.
    provoked: bool,
}

struct ProxiedDevice {
    a: DeviceWithMemory,
    b: DeviceWithMemory,
    _listener: verbs::Listener,
    proxy: Proxy,
    crc: bool,
    targets: Vec<FrameByte>,
    hit: BTreeSet<FrameByte>,
    rounds: usize,
    established: usize,
}

impl ProxiedDevice {
    fn open(crc: bool, rng: &mut Rng, tally: &mut Tally) -> Result<Self> {
        let name = format!("iwarp@127.0.0.1(crc={})", if crc { "on" } else { "off" });
        let (a, b) = (DeviceWithMemory::open(&name)?, DeviceWithMemory::open(&name)?);
        let listener = b.listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let proxy = Proxy::start(Ipv4Addr::LOCALHOST, listener.addr(), 1)?;
        let (targets, hit) = (Vec::new(), BTreeSet::new());
        let mut side =
            Self { a, b, _listener: listener, proxy, crc, targets, hit, rounds: 0, established: 0 };
        let plain = side.record_frames(Damage::default(), tally)?;
        side.add(&plain, false);
        // Without CRCs, errors in a peer's final messages are no fault.
        if crc {
            let mut ended =
                side.record_frames(Damage { flip: Some(PROVOCATION), ..Damage::default() }, tally)?;
            ended[0].clear();
            ended[1].retain(|(frame, _)| plain[1].iter().all(|(other, _)| frame.opcode != other.opcode));
            ensure!(!ended[1].is_empty(), "a peer of a damaged connection said nothing of it");
            side.add(&ended, true);
        }
        // The first frames of each kind are hit first; the order is otherwise random.
        let mut order: Vec<_> = side.targets.drain(..).map(|of| (of.frame.nth, rng.next_u64(), of)).collect();
        order.sort_unstable();
        side.targets = order.into_iter().map(|(.., target)| target).collect();
        Ok(side)
    }

    /// The frames of a connection.
    fn record_frames(&mut self, forth: Damage, tally: &mut Tally) -> Result<Frames> {
        self.proxy.set_damage([forth, Damage::default()]);
        tally.tried += 1;
        let mut round = Round::begin(&self.a, &self.b, self.proxy.addr, tally.tried)?;
        round.run(COUNT, Duration::from_secs(2))?;
        round.ensure_established()?;
        round.finish(self.crc, tally)?;
        let seen = self.proxy.frames_seen();
        self.proxy.close();
        Ok(seen)
    }

    fn add(&mut self, frames: &Frames, provoked: bool) {
        for (back, frames) in [(false, &frames[0]), (true, &frames[1])] {
            for &(frame, len) in frames {
                let bytes = (0..len).filter(|&at| at < FRONT || at == len / 2 || at + END >= len);
                self.targets.extend(bytes.map(|byte| FrameByte { frame, byte, back, provoked }));
            }
        }
    }

    /// One connection with one flipped bit, or with a second one in the frame that the first provoked.
    fn round(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
        let target = self.targets[self.rounds % self.targets.len()];
        let aim = BitPosition { frame: target.frame, byte: target.byte, bit: rng.below(8) as u32 };
        self.rounds += 1;
        let mut damage = [Damage::default(); 2];
        damage[usize::from(target.back)].flip = Some(aim);
        if target.provoked {
            damage[0].flip = Some(PROVOCATION);
        }
        self.proxy.set_damage(damage);
        tally.tried += 1;
        let (lost, doubled, hits) = (tally.lost, tally.doubled, self.proxy.forwarded_flips());
        let mut round = Round::begin(&self.a, &self.b, self.proxy.addr, tally.tried)?;
        round.run(COUNT, WAIT)?;
        self.established += usize::from(round.is_established());
        // A side with an incomplete handshake waits for its whole timeout, so the proxy closes the connection. A
        // successful completion has no CRC: after a flipped bit there, the ends may have agreed on completing what TCP
        // has accepted.
        let may_close = target.frame != FrameName::HANDSHAKE && (!self.crc || rng.below(2) == 0);
        if may_close || !round.is_established() {
            self.proxy.close();
        }
        round.finish(self.crc, tally)?;
        self.proxy.close();
        if self.proxy.forwarded_flips() > hits + u64::from(target.provoked) {
            self.hit.insert(target);
        }
        if (tally.lost, tally.doubled) != (lost, doubled) {
            tally.add_note(format!("crc {}, {target:?}, {aim:?}", self.crc));
        }
        Ok(())
    }

    /// Notes what was hit. Fails if a run with enough time hit nothing.
    fn close(&self, long: bool, tally: &mut Tally) -> Result<()> {
        let firsts =
            |of: &mut dyn Iterator<Item = &FrameByte>| of.filter(|target| target.frame.nth == 0).count();
        let hits = self.proxy.forwarded_flips();
        tally.add_note(format!(
            "crc {}: {} connections, {} of them established, {hits} bits flipped; {} of {} bytes hit, of each kind's first \
             frame {} of {}",
            self.crc,
            self.rounds,
            self.established,
            self.hit.len(),
            self.targets.len(),
            firsts(&mut self.hit.iter()),
            firsts(&mut self.targets.iter()),
        ));
        ensure!(!long || self.established > 0, "no connection was established: nothing was tested");
        ensure!(!long || !self.hit.is_empty(), "no flipped bit was passed on: nothing was tested");
        Ok(())
    }
}

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let began = Instant::now();
    let mut sides = [
        ProxiedDevice::open(false, &mut budget.rng, tally)?,
        ProxiedDevice::open(true, &mut budget.rng, tally)?,
    ];
    while budget.has_time_left() {
        // Three of four rounds use CRCs.
        let side = &mut sides[usize::from(budget.rng.below(4) > 0)];
        side.round(&mut budget.rng, tally)?;
    }
    sides.iter().try_for_each(|side| side.close(began.elapsed() >= ENOUGH, tally))
}
