//! TCP in tiny pieces, dribbled, and ended at every byte of handshake and traffic, by a reset or in order. What is reported successful has arrived, and nothing comes twice.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;

use super::ends::{BATCH, Node, Round};
use super::proxy::{Mischief, Proxy};
use crate::attack::{Attack, Budget, Tally};

pub(crate) const ATTACK: Attack = Attack {
    name: "cuts",
    about: "TCP in tiny pieces, dribbled, and ended at every byte, on iWARP with and without CRCs",
    weight: 2,
    late_max: Duration::from_millis(500),
    run,
};

/// Bytes of a stream behind which it is not ended any more: those of a whole batch.
const LONGEST: [u64; 2] = [14_000, 4000];

struct Side {
    a: Node,
    b: Node,
    crc: bool,
    _listener: verbs::Listener,
    proxy: Proxy,
}

fn side(options: &str, crc: bool) -> Result<Side> {
    let name = format!("iwarp@127.0.0.1({options})");
    let (a, b) = (Node::open(&name)?, Node::open(&name)?);
    let listener = b.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let proxy = Proxy::start(Ipv4Addr::LOCALHOST, listener.addr(), 2)?;
    Ok(Side { a, b, crc, _listener: listener, proxy })
}

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let sides = [
        side("crc=off", false)?,
        side("crc=on", true)?,
        side("crc=on,fpdu=256", true)?,
        side("mpa=1", false)?,
    ];
    while budget.goes_on() {
        let Side { a, b, crc, proxy, .. } = budget.rng.one_of(&sides);
        let pieces = *budget.rng.one_of(&[0, 1, 3, 50, 1000]);
        let mut mischief =
            [Mischief { pieces, dribbles: budget.rng.below(4) == 0, ..Mischief::default() }; 2];
        let way = budget.rng.below(2) as usize;
        let ends = budget.rng.below(4) > 0;
        if ends {
            // Half of them in the handshake or soon behind it.
            let longest = if budget.rng.below(2) == 0 { 200 } else { LONGEST[way] };
            mischief[way].end_at = Some((budget.rng.below(longest), budget.rng.below(2) == 0));
        }
        proxy.set(mischief);
        tally.tried += 1;
        let mut round = Round::begin(a, b, proxy.addr, tally.tried)?;
        round.go_on(BATCH, Duration::from_secs(2))?;
        if !ends {
            round.ensure_established()?;
        }
        // Nothing is flipped here, so all content counts.
        let before = tally.lost;
        round.account(true, tally)?;
        proxy.close();
        if tally.lost != before {
            tally.note(format!("crc {crc}, {mischief:?}"));
        }
    }
    Ok(())
}
