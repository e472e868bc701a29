//! One bit is flipped behind TCP's back, at every place of a handshake and of a batch with every kind of message, in either
//! direction, with CRCs and without. What is reported successful must have arrived, and with CRCs must be right.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;

use super::ends::{Node, Round};
use super::proxy::{Mischief, Proxy};
use crate::attack::{Attack, Budget, Tally};

pub(crate) const ATTACK: Attack = Attack {
    name: "flips",
    about: "one bit flipped behind TCP's back, at every place of iWARP's handshake, headers and payload",
    weight: 2,
    late_max: Duration::from_millis(500),
    run,
};

/// Requests of a batch, and bits of either stream that are hit: the handshake, and all of their FPDUs.
const COUNT: usize = 20;
const BITS: [u64; 2] = [1600 * 8, 700 * 8];
/// No divisor in common with the numbers of bits, so that all of them have their turn.
const STRIDE: u64 = 1009;

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let nodes = |crc: &str| -> Result<_> {
        let name = format!("iwarp@127.0.0.1(crc={crc})");
        let (a, b) = (Node::open(&name)?, Node::open(&name)?);
        let listener = b.listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let proxy = Proxy::start(Ipv4Addr::LOCALHOST, listener.addr(), 1)?;
        Ok((a, b, listener, proxy))
    };
    let sides = [nodes("off")?, nodes("on")?];
    let start = budget.rng.next() >> 16;
    while budget.goes_on() {
        let number = start + tally.tried;
        // Three of four with CRCs, forth and back in turns of their own.
        let crc = !number.is_multiple_of(4);
        let back = usize::from((number / 4).is_multiple_of(3));
        let bit = number * STRIDE % BITS[back];
        let (a, b, _, proxy) = &sides[usize::from(crc)];
        let mut mischief = [Mischief::default(); 2];
        mischief[back].flip = Some(bit);
        proxy.set(mischief);
        tally.tried += 1;
        let (lost, doubled) = (tally.lost, tally.doubled);
        let mut round = Round::begin(a, b, proxy.addr, number)?;
        // A length that was hit lets its reader wait for more: until the end then.
        round.go_on(COUNT, Duration::from_millis(60))?;
        if !crc || !number.is_multiple_of(2) {
            proxy.close();
        }
        round.account(crc, tally)?;
        proxy.close();
        if (tally.lost, tally.doubled) != (lost, doubled) {
            tally.note(format!("crc {crc}, back {back}, byte {}, bit {}", bit / 8, bit % 8));
        }
    }
    Ok(())
}
