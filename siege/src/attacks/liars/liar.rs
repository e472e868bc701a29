//! The child that lies, and the bystander, which is honest.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nic_soft::shm::CopyPath;
use nic_soft::shm::lab::{Lab, Word, hello_words, twist_hellos};
use verbs::{Cq, Qp, SendOp, SendWr, Wc};

use super::estate::{Estate, LEN, Remotes, Traffic};
use crate::chance::Rng;
use crate::child::{hear, say};

/// How long a liar waits for a victim that may well refuse it.
const PATIENCE: Duration = Duration::from_millis(200);

fn first_line() -> Result<(CopyPath, u16)> {
    let line = hear()?.context("a first line")?;
    let (copy, port) = line.split_once(' ').context("two words")?;
    Ok((if copy == "service" { CopyPath::Service } else { CopyPath::Auto }, port.parse()?))
}

/// Child: lies as it is told, `WORD VALUE SEED SHARED BEFORE` a round.
pub(crate) fn liar_role() -> Result<()> {
    let (copy, port) = first_line()?;
    let estate = Estate::new(copy)?;
    say("ready")?;
    while let Some(line) = hear()? {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [word, value, seed, shared, before] = numbers[..] else { anyhow::bail!("five numbers") };
        let lie = Lie { word, value, seed, before: before == 1 };
        round(&estate, port, shared == 1, &lie)?;
        estate.refill();
    }
    Ok(())
}

/// What to lie about, and when.
struct Lie {
    word: u64,
    value: u64,
    seed: u64,
    before: bool,
}

/// One connection with a lie in it; says which one, or `none` if there is no such word, and stays until told to end.
fn round(estate: &Estate, port: u16, shared: bool, lie: &Lie) -> Result<()> {
    let (qp, cq) = estate.queue_pair(shared)?;
    let lab = Lab::of(&qp)?;
    let (hello, own) = (hello_words(), lab.own_words(&estate.keys()));
    let mut traffic = Traffic::default();
    traffic.receive(estate, &qp, shared);
    if let Some(word) = hello.get(lie.word as usize) {
        let value = hostile(lie, word, &own);
        twist_hellos(Some((word.clone(), value)));
        let result = work(estate, &qp, &cq, port, &mut traffic, |_| {});
        twist_hellos(None);
        return part(format!("{} = {value:#x} {result}", word.name));
    }
    let at = lie.word as usize - hello.len();
    let mut told = None;
    let old = own.get(at).and_then(|word| lab.read(word));
    if let (Some(word), true) = (own.get(at), lie.before) {
        told = tell(&lab, lie, word, &own);
    }
    let result = work(estate, &qp, &cq, port, &mut traffic, |peer: &Remotes| {
        let words =
            if at < own.len() { own.clone() } else { lab.peer_words(&[peer.host.rkey, peer.nic.rkey]) };
        let at = if at < own.len() { at } else { at - own.len() };
        if told.is_none()
            && let Some(word) = words.get(at)
        {
            told = tell(&lab, lie, word, &own);
            lab.kick();
        }
    });
    part(match told {
        Some(what) => format!("{what} {}, {result}", if lie.before { "before" } else { "after" }),
        None if result == "worked" => "none".to_owned(),
        None => format!("nothing, {result}"),
    })?;
    if let (Some(word), Some(old)) = (own.get(at), old) {
        // The next round begins honestly.
        lab.write(word, old);
    }
    Ok(())
}

/// Says what was done, and waits for the victim to have done its part.
fn part(said: String) -> Result<()> {
    say(said)?;
    hear().map(|_| ())
}

fn tell(lab: &Lab, lie: &Lie, word: &Word, own: &[Word]) -> Option<String> {
    let value = hostile(lie, word, own);
    let whose = if word.of_peer { "the victim's " } else { "" };
    lab.write(word, value).then(|| format!("{whose}{} = {value:#x}", word.name))
}

/// Connects and works as an honest peer would, `then` doing something in between.
fn work(
    estate: &Estate,
    qp: &Qp,
    cq: &Cq,
    port: u16,
    traffic: &mut Traffic,
    then: impl FnOnce(&Remotes),
) -> String {
    let peer = match estate.connect(qp, port, PATIENCE) {
        Ok(peer) => peer,
        Err(why) => return format!("refused: {why:#}"),
    };
    then(&peer);
    traffic.send_all(estate, qp, &peer);
    traffic.poll(cq, Duration::from_millis(5));
    "worked".to_owned()
}

/// The lie's value: a number at a limit, another object's place, or any.
fn hostile(lie: &Lie, word: &Word, own: &[Word]) -> u64 {
    let fixed = [0, 1, u64::MAX, 2, 3, 7, 8, 63, 64, 127, 128, 4095, 4096, 8191, 8192, 65_535, 65_536];
    let powers = 64;
    match lie.value {
        i if i < fixed.len() as u64 => fixed[i as usize],
        i if i < fixed.len() as u64 + 3 * powers => {
            let i = i - fixed.len() as u64;
            // The largest first: they lead furthest.
            (1_u64 << (63 - i / 3)).wrapping_add([0, u64::MAX, 1][(i % 3) as usize])
        }
        i => {
            let mut rng = Rng::new(lie.seed ^ i.wrapping_mul(0x9e37_79b9) ^ word.offset.rotate_left(32));
            match rng.below(4) {
                0 => rng.one_of(own).offset,
                1 => 1 << 30 | rng.below(1 << 24),
                2 => rng.next() >> rng.below(64),
                _ => rng.next(),
            }
        }
    }
}

/// Child: an honest peer that works whenever it is told to, and says whether all was well.
pub(crate) fn bystander_role() -> Result<()> {
    let (copy, port) = first_line()?;
    let estate = Estate::new(copy)?;
    let (qp, cq) = estate.queue_pair(false)?;
    let peer = estate.connect(&qp, port, Duration::from_secs(20))?;
    say("connected")?;
    let mut turn = 0_u8;
    while hear()?.is_some() {
        turn = turn.wrapping_add(1);
        match check(&estate, &qp, &cq, &peer, turn) {
            Ok(()) => say("good")?,
            Err(why) => say(format!("{why:#}"))?,
        }
    }
    Ok(())
}

/// Writes, reads back, and adds, in both kinds of memory.
fn check(estate: &Estate, qp: &Qp, cq: &Cq, peer: &Remotes, turn: u8) -> Result<()> {
    let (from, into) = (estate.start(false), estate.start(true));
    for remote in [peer.host, peer.nic] {
        from.buf().fill(turn);
        into.buf().fill(0);
        let len = LEN as u32;
        request(estate, qp, cq, SendOp::Write(remote), from.sge(0, len))?;
        request(estate, qp, cq, SendOp::Read(remote), into.sge(0, len))?;
        ensure!(into.buf().to_vec(0..LEN)? == [turn; LEN], "it read something else than it wrote");
        request(estate, qp, cq, SendOp::FetchAdd { remote, add: 1 }, into.sge(0, 8))?;
        ensure!(into.buf().to_vec(0..8)? == [turn; 8], "the atomic found something else");
    }
    Ok(())
}

fn request(estate: &Estate, qp: &Qp, cq: &Cq, op: SendOp, sge: verbs::Sge) -> Result<()> {
    qp.post_send(&SendWr::new(1, op, &[sge]))?;
    let wc: Wc = cq.wait(estate.device.host().after(host::Span::from_secs(5)))?;
    ensure!(wc.is_ok(), "{wc:?}");
    Ok(())
}
