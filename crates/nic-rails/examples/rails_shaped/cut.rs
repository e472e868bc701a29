//! Many bytes over two rails; one rail is cut half-way and connected again later.

use std::time::{Duration, Instant};

use host::Span;
use nic_rails::Engine;
use verbs::{AsyncEvent, SendOp, SendWr};

use crate::netns::Spaces;
use crate::pair::{DEPTH, MIB, MeasuredRails, Pair};

/// After this many writes a message with their number follows.
const EACH: u64 = 16;

/// A 64-bit word of a write's content.
fn word(number: u64, at: usize) -> u64 {
    (number << 20 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn fill(bytes: &mut [u8], number: u64) {
    for (at, place) in bytes.chunks_exact_mut(8).enumerate() {
        place.copy_from_slice(&word(number, at).to_le_bytes());
    }
}

struct Run<'a> {
    pair: &'a Pair,
    bytes: Vec<u8>,
    wanted: Vec<u8>,
    /// Messages received, and bytes that differ from what was written.
    messages: u64,
    wrong: u64,
    events: Vec<(Duration, &'static str)>,
    began: Instant,
}

impl Run<'_> {
    fn write(&mut self, number: u64) {
        fill(&mut self.bytes, number);
        self.pair.near.mr.buf().write(number as usize % DEPTH * MIB, &self.bytes).expect("inside");
        self.pair.write(number);
        if number % EACH == EACH - 1 {
            let op = SendOp::SendImm((number / EACH) as u32);
            self.pair.near.qp.post_send(&SendWr::new(number, op, &[]).unsignaled()).expect("room");
        }
    }

    /// Checks a completed write: its bytes, and the messages and events that arrived with it.
    fn check(&mut self, number: u64) {
        fill(&mut self.wanted, number);
        let at = number as usize % DEPTH * MIB;
        self.pair.far.mr.buf().read(at, &mut self.bytes).expect("inside");
        self.wrong += self.bytes.iter().zip(&self.wanted).filter(|(a, b)| a != b).count() as u64;
        self.take_messages();
        for (device, names) in [
            (&self.pair.near.device, ["near end: rail down", "near end: rail up"]),
            (&self.pair.far.device, ["far end: rail down", "far end: rail up"]),
        ] {
            while let Some(event) = device.poll_async_event() {
                let down = matches!(event, AsyncEvent::RailDown { .. });
                self.events.push((self.began.elapsed(), names[usize::from(!down)]));
            }
        }
    }

    fn take_messages(&mut self) {
        while let Some(wc) = self.pair.far.recv_cq.poll_one().expect("no overrun") {
            assert!(wc.is_ok() && wc.imm == Some(self.messages as u32), "{wc:?} is not {}", self.messages);
            self.messages += 1;
            self.pair.far.qp.post_recv(&verbs::RecvWr::new(0, &[])).expect("room");
        }
    }
}

/// Runs the case and prints its results.
pub(crate) fn run(spaces: &Spaces, gib: u64) -> Result<(), String> {
    let pair = Pair::connect(spaces, MeasuredRails::Both(Engine::Callers));
    let (count, began) = (gib * 1024, Instant::now());
    let (bytes, wanted) = (vec![0; MIB], vec![0; MIB]);
    let mut run = Run { pair: &pair, bytes, wanted, messages: 0, wrong: 0, events: Vec::new(), began };
    let (mut gap, mut last, mut cut) = (Duration::ZERO, Instant::now(), None);
    (0..count.min(DEPTH as u64)).for_each(|number| run.write(number));
    for number in 0..count {
        let patience = pair.near.device.host().after(Span::from_secs(60));
        let wc = pair.near.send_cq.wait(patience).map_err(|e| format!("after {number} writes: {e}"))?;
        assert!(wc.is_ok() && wc.wr_id == number, "{wc:?} is not {number}");
        gap = gap.max(last.elapsed());
        last = Instant::now();
        run.check(number);
        if number + (DEPTH as u64) < count {
            run.write(number + DEPTH as u64);
        }
        if number == count / 2 {
            spaces.b.ip("link set nic-d down")?;
            cut = Some(began.elapsed());
        } else if number == count * 3 / 4 {
            spaces.b.ip("link set nic-d up")?;
        }
    }
    let end = Instant::now() + Duration::from_secs(5);
    while run.messages < count / EACH && Instant::now() < end {
        run.take_messages();
    }
    let lost = run.wrong + (count / EACH).abs_diff(run.messages);
    let what = format!("one of two rails cut in the middle of {gib} GiB");
    println!("| {what}: bytes and messages lost, duplicated or damaged | 0 | {lost} | of {count} MiB |");
    println!("| the same: time until traffic flows again | <= 2 s | {:.2} s | |", gap.as_secs_f64());
    let cut = cut.unwrap_or_default();
    let events = run.events.iter().map(|(at, what)| format!("{what} at {:.2} s", at.as_secs_f64()));
    println!("\nit was cut at {:.2} s; {}", cut.as_secs_f64(), events.collect::<Vec<_>>().join(", "));
    Ok(())
}
