//! The child that injects false values (the injector), and the bystander, which is honest.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nic_shm::CopyPath;
use nic_shm::lab::{FaultInjector, Word, hello_words, set_hello_fault};
use verbs::{Cq, Qp, SendOp, SendWr, Wc};

use super::testbed::{LEN, RemoteRegions, Testbed, Traffic};
use crate::child::{receive_from_parent, send_to_parent};
use host::Rng;

/// How long an injector waits for a victim that may well refuse it.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long it waits after its injection: nothing more will follow.
const PATIENCE_AFTER_INJECTION: Duration = Duration::from_millis(50);

fn first_line() -> Result<(CopyPath, u16)> {
    let line = receive_from_parent()?.context("a first line")?;
    let (copy, port) = line.split_once(' ').context("two words")?;
    Ok((if copy == "service" { CopyPath::Service } else { CopyPath::Auto }, port.parse()?))
}

/// Child: reads orders, one per line (see [`Injection`]), and injects each false value on a new connection.
pub(crate) fn injector_role() -> Result<()> {
    let (copy, port) = first_line()?;
    let testbed = Testbed::new(copy)?;
    send_to_parent("ready")?;
    while let Some(line) = receive_from_parent()? {
        round(&testbed, port, &Injection::parse(&line)?)?;
        testbed.refill();
    }
    Ok(())
}

/// When a false value is injected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// Before the connection.
    Before,
    /// Right after the connection.
    After,
    /// Between two rounds of traffic.
    Amid,
}

const MOMENTS: [Moment; 3] = [Moment::Before, Moment::After, Moment::Amid];

/// An injection: its field, its value and its moment.
#[derive(Clone, Debug)]
pub(super) struct Injection {
    /// The number of the false value for its field; see [`false_value`].
    pub(super) value: u64,
    pub(super) seed: u64,
    /// Whether receives come from a shared queue.
    pub(super) shared: bool,
    pub(super) moment: Moment,
    /// Whether the words are in the victim's segment.
    pub(super) of_peer: bool,
    pub(super) field: String,
}

impl Injection {
    /// Encodes the injection as a line: value, seed, three numbers, field.
    pub(super) fn line(&self) -> String {
        let Self { value, seed, shared, moment, of_peer, field } = self;
        format!("{value} {seed} {} {} {} {field}", u8::from(*shared), *moment as u8, u8::from(*of_peer))
    }

    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.splitn(6, ' ').collect();
        let [value, seed, shared, moment, of_peer, field] = words[..] else { anyhow::bail!("told `{line}`") };
        let moment = *MOMENTS.get(moment.parse::<usize>()?).context("no such moment")?;
        let (value, seed) = (value.parse()?, seed.parse()?);
        Ok(Self {
            value,
            seed,
            shared: shared == "1",
            moment,
            of_peer: of_peer == "1",
            field: field.to_owned(),
        })
    }

    /// A random generator that depends only on the field, the number and the seed.
    fn rng(&self) -> Rng {
        let of_field = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Rng::new(self.field.bytes().fold(self.seed ^ self.value.wrapping_mul(0x9e37_79b9), of_field))
    }

    /// A random word of the field; equal injections choose equal words.
    fn choose<'w>(&self, words: &'w [Word]) -> Option<&'w Word> {
        let of_field: Vec<&Word> = words.iter().filter(|word| word.field == self.field).collect();
        (!of_field.is_empty()).then(|| *self.rng().one_of(&of_field))
    }

    /// Writes the false value. Returns a description, or `None` if there is no such word.
    fn apply(&self, lab: &FaultInjector, words: &[Word], own: &[Word]) -> Option<Injected> {
        let word = self.choose(words)?;
        let old = lab.read(word)?;
        let value = false_value(self, word, old, own);
        let whose = if word.of_peer { "the victim's " } else { "" };
        let said = format!("{whose}{} = {value:#x} {:?}", word.name, self.moment);
        lab.write(word, value).then(|| Injected { said, word: word.clone(), old })
    }
}

/// An injected value, with the original one.
struct Injected {
    said: String,
    word: Word,
    old: u64,
}

/// One connection with one false value. Reports it, or `none` if there is no such word, and stays until asked to end.
fn round(testbed: &Testbed, port: u16, injection: &Injection) -> Result<()> {
    let (qp, cq) = testbed.queue_pair(injection.shared)?;
    let lab = FaultInjector::of(&qp)?;
    let own = lab.own_words(&testbed.keys());
    let mut traffic = Traffic::default();
    traffic.receive(testbed, &qp, injection.shared);
    let hello = hello_words();
    if let Some(word) = injection.choose(&hello) {
        let value = false_value(injection, word, 0, &own);
        set_hello_fault(Some((word.clone(), value)));
        let connected = testbed.connect(&qp, port, PATIENCE_AFTER_INJECTION);
        set_hello_fault(None);
        let result = result_of(&connected);
        if let Ok(peer) = connected {
            exchange_traffic(testbed, &qp, &cq, &peer, &mut traffic);
        }
        return report_and_wait(format!("{} = {value:#x}, {result}", word.name));
    }
    let mut told = if injection.moment == Moment::Before { injection.apply(&lab, &own, &own) } else { None };
    let patience = if told.is_some() { PATIENCE_AFTER_INJECTION } else { PATIENCE };
    let connected = testbed.connect(&qp, port, patience);
    let result = result_of(&connected);
    if let Ok(peer) = connected {
        if injection.moment == Moment::Amid {
            exchange_traffic(testbed, &qp, &cq, &peer, &mut traffic);
        }
        if told.is_none() {
            let now = lab.own_words(&testbed.keys());
            let words =
                if injection.of_peer { lab.peer_words(&[peer.host.rkey, peer.nic.rkey]) } else { now };
            told = injection.apply(&lab, &words, &own);
            lab.kick();
        }
        if injection.moment == Moment::Amid {
            send_to_parent("more")?;
        }
        exchange_traffic(testbed, &qp, &cq, &peer, &mut traffic);
    }
    report_and_wait(match &told {
        Some(told) => format!("{}, {result}", told.said),
        None if result == "worked" => "none".to_owned(),
        None => format!("nothing, {result}"),
    })?;
    if let Some(Injected { word, old, .. }) = told.filter(|told| !told.word.of_peer) {
        // The next round begins honestly.
        lab.write(&word, old);
    }
    Ok(())
}

fn result_of(connected: &Result<RemoteRegions>) -> String {
    match connected {
        Ok(_) => "worked".to_owned(),
        Err(why) => format!("refused: {why:#}"),
    }
}

/// Works as an honest peer does.
fn exchange_traffic(testbed: &Testbed, qp: &Qp, cq: &Cq, peer: &RemoteRegions, traffic: &mut Traffic) {
    traffic.send_all(testbed, qp, peer);
    traffic.poll(cq, Duration::from_millis(5));
}

/// Reports what was done, and waits until the victim has done its part.
fn report_and_wait(said: String) -> Result<()> {
    send_to_parent(said)?;
    receive_from_parent().map(|_| ())
}

/// The false value: first limits of integers, as far as the word has room for them; then neighbours of the correct
/// value, sizes, positions of other objects, and random numbers.
fn false_value(injection: &Injection, word: &Word, old: u64, own: &[Word]) -> u64 {
    const FIXED: [u64; 17] =
        [0, 1, u64::MAX, 2, 3, 7, 8, 63, 64, 127, 128, 4095, 4096, 8191, 8192, 65_535, 65_536];
    const SIZES: [u64; 8] = [24, 1024, LEN as u64, 3 * LEN as u64, 64 << 10, 8 << 20, 32 << 20, 1 << 30];
    let bits = if word.offset == u64::MAX { 12 } else { 8 * u64::from(word.width) };
    let mut rng = injection.rng();
    // Consumes the number that `choose` used.
    rng.next_u64();
    let value = match injection.value.checked_sub(FIXED.len() as u64) {
        None => FIXED[injection.value as usize],
        // The largest ones first: they have most effect.
        Some(i) if i / 3 < bits => {
            (1_u64 << (bits - 1 - i / 3)).wrapping_add([0, u64::MAX, 1][(i % 3) as usize])
        }
        Some(_) => match rng.below(16) {
            0 => rng.one_of(own).offset,
            1 => 1 << 30 | rng.below(1 << 24),
            2 => rng.one_of(&SIZES).wrapping_add(rng.below(17)).wrapping_sub(8),
            3 => old.wrapping_add(rng.below(257)).wrapping_sub(128),
            4 => old ^ 1 << rng.below(bits),
            5..10 => rng.next_u64() >> rng.below(bits),
            _ => rng.next_u64(),
        },
    };
    if bits < 64 { value & ((1 << bits) - 1) } else { value }
}

/// Child: an honest peer that works when asked to, and reports whether all went well.
pub(crate) fn bystander_role() -> Result<()> {
    let (copy, port) = first_line()?;
    let testbed = Testbed::new(copy)?;
    let (qp, cq) = testbed.queue_pair(false)?;
    let peer = testbed.connect(&qp, port, Duration::from_secs(20))?;
    send_to_parent("connected")?;
    let mut turn = 0_u8;
    while receive_from_parent()?.is_some() {
        turn = turn.wrapping_add(1);
        match check(&testbed, &qp, &cq, &peer, turn) {
            Ok(()) => send_to_parent("good")?,
            Err(why) => send_to_parent(format!("{why:#}"))?,
        }
    }
    Ok(())
}

/// Writes, reads back, and adds, in both kinds of memory.
fn check(testbed: &Testbed, qp: &Qp, cq: &Cq, peer: &RemoteRegions, turn: u8) -> Result<()> {
    let (from, into) = (testbed.start(false), testbed.start(true));
    for remote in [peer.host, peer.nic] {
        from.buf().fill(turn);
        into.buf().fill(0);
        let len = LEN as u32;
        request(testbed, qp, cq, SendOp::Write(remote), from.sge(0, len))?;
        request(testbed, qp, cq, SendOp::Read(remote), into.sge(0, len))?;
        ensure!(into.buf().to_vec(0..LEN)? == [turn; LEN], "it read something else than it wrote");
        request(testbed, qp, cq, SendOp::FetchAdd { remote, add: 1 }, into.sge(0, 8))?;
        ensure!(into.buf().to_vec(0..8)? == [turn; 8], "the atomic found something else");
    }
    Ok(())
}

fn request(testbed: &Testbed, qp: &Qp, cq: &Cq, op: SendOp, sge: verbs::Sge) -> Result<()> {
    qp.post_send(&SendWr::new(1, op, &[sge]))?;
    let wc: Wc = cq.wait(testbed.device.host().after(host::Span::from_secs(5)))?;
    ensure!(wc.is_ok(), "{wc:?}");
    Ok(())
}
