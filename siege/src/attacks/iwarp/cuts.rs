//! Delivers TCP in tiny pieces and slowly, and cuts it at every byte of handshake and traffic, by a reset or an orderly
//! close; for rails, each rail separately. Requests reported successful must have arrived, and nothing may arrive
//! twice.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::endpoints::{BATCH, DeviceWithMemory, Round};
use super::proxy::{Damage, Proxy};
use crate::attack::{Attack, Budget, Tally};
use host::Rng;

pub(crate) const ATTACK: Attack = Attack {
    name: "cuts",
    about: "TCP in tiny and delayed pieces, and cut at every byte, on iWARP with and without CRCs and on rails of it",
    weight: 2,
    late_max: Duration::from_millis(500),
    run,
};

/// Streams are cut before this many bytes, which is the length of a whole batch.
const LONGEST: [u64; 2] = [14_000, 4000];
/// A run that has this much time must have established connections and cut them in their traffic, for each device.
const ENOUGH: Duration = Duration::from_secs(3);

const DEVICES: [&str; 5] = [
    "iwarp@127.0.0.1(crc=off)",
    "iwarp@127.0.0.1(crc=on)",
    "iwarp@127.0.0.1(crc=on,fpdu=256)",
    "iwarp@127.0.0.1(mpa=1)",
    "rails(iwarp@127.0.0.1,iwarp@127.0.0.2)",
];
const RAILS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

struct ProxiedDevice {
    device: &'static str,
    a: DeviceWithMemory,
    b: DeviceWithMemory,
    _listener: verbs::Listener,
    /// The client connects to the first proxy. For rails, the others are in front of the further listeners: that of
    /// rail 1, and that through which rail 0 is joined again.
    proxies: Vec<Proxy>,
    /// Handshake bytes of each proxy's connection, in both directions.
    greetings: Vec<[u64; 2]>,
    rounds: u64,
    established: u64,
    /// TCP connections that were cut during the handshake, and after it.
    ended: [u64; 2],
}

impl ProxiedDevice {
    fn open(device: &'static str, tally: &mut Tally) -> Result<Self> {
        let (a, b) = (DeviceWithMemory::open(device)?, DeviceWithMemory::open(device)?);
        let listener = b.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let mut proxies: Vec<Proxy> = Vec::new();
        if device.starts_with("rails") {
            // The proxies learn the listeners' addresses from the handshake's answer.
            proxies.insert(0, Proxy::start(RAILS[0], listener.addr(), 4)?);
            let last = proxies.first();
            proxies.insert(0, Proxy::chained(RAILS[1], listener.addr(), 3, last)?);
        }
        let further = proxies.first();
        proxies.insert(0, Proxy::chained(RAILS[0], listener.addr(), 2, further)?);
        let greetings = vec![[0; 2]; proxies.len()];
        let mut side = Self {
            device,
            a,
            b,
            _listener: listener,
            proxies,
            greetings,
            rounds: 0,
            established: 0,
            ended: [0; 2],
        };
        side.round(&mut |_| [Damage::default(); 2], tally)?;
        // Joining a rail again takes the same handshake as joining it first.
        let first = side.proxies.iter().take(RAILS.len()).map(Proxy::frames_seen);
        let lens: Vec<_> =
            first.map(|seen| seen.map(|frames| frames.first().map(|(_, len)| *len as u64))).collect();
        for (greeting, lens) in side.greetings.iter_mut().zip(lens.iter().chain(lens.last())) {
            let [Some(forth), Some(back)] = *lens else {
                anyhow::bail!("{device}: a connection went another way")
            };
            *greeting = [forth, back];
        }
        Ok(side)
    }

    /// Connects, transfers a batch, and checks the results; `plan` chooses the damage for each proxy.
    fn round(&mut self, plan: &mut dyn FnMut([u64; 2]) -> [Damage; 2], tally: &mut Tally) -> Result<()> {
        let damage: Vec<[Damage; 2]> = self.greetings.iter().map(|greeting| plan(*greeting)).collect();
        for (proxy, damage) in self.proxies.iter().zip(&damage) {
            proxy.set_damage(*damage);
        }
        tally.tried += 1;
        self.rounds += 1;
        let first = self.proxies.first().context("a proxy")?;
        let mut round = Round::begin(&self.a, &self.b, first.addr, tally.tried)?;
        round.run(BATCH, Duration::from_secs(2))?;
        self.established += u64::from(round.is_established());
        let mut must = true;
        for (damage, greeting) in damage.iter().zip(&self.greetings) {
            for (one, greeting) in damage.iter().zip(greeting) {
                let Some((at, _)) = one.end_at else { continue };
                // Neither side sends more than its handshake before it has received all of the peer's.
                let behind = at > *greeting;
                self.ended[usize::from(behind)] += 1;
                // Rails may be ended on a rail before they are connected on all.
                must &= behind && self.proxies.len() == 1;
            }
        }
        if must {
            round.ensure_established().with_context(|| format!("{}, {damage:?}", self.device))?;
        }
        // No bit is flipped here, so all content is compared.
        let before = tally.lost;
        round.finish(true, tally)?;
        self.proxies.iter().for_each(Proxy::close);
        if tally.lost != before {
            tally.add_note(format!("{}, {damage:?}", self.device));
        }
        Ok(())
    }

    /// Notes what was done. Fails if a run with enough time did not cut the intended connections.
    fn close(&self, long: bool, tally: &mut Tally) -> Result<()> {
        let Self { device, rounds, established, ended: [greeting, traffic], .. } = self;
        tally.add_note(format!(
            "{device}: {rounds} connections, {established} of them established; ends of TCP planned: {greeting} in a \
             handshake, {traffic} behind it"
        ));
        ensure!(
            !long || *established > 1 && *traffic > 0,
            "{device}: no connection was ended in its traffic"
        );
        Ok(())
    }
}

/// Random damage for each direction of a connection whose handshake has these lengths.
fn damage(greeting: [u64; 2], rng: &mut Rng) -> [Damage; 2] {
    let pieces = *rng.one_of(&[0, 1, 3, 50, 1000]);
    let mut damage = [Damage { pieces, dribbles: rng.below(4) == 0, ..Damage::default() }; 2];
    let way = rng.below(2) as usize;
    if rng.below(4) > 0 {
        let longest = *rng.one_of(&[greeting[way] + 1, greeting[way] + 200, LONGEST[way]]);
        damage[way].end_at = Some((rng.below(longest), rng.below(2) == 0));
    }
    damage
}

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let began = Instant::now();
    let mut sides = Vec::new();
    for device in DEVICES {
        sides.push(ProxiedDevice::open(device, tally)?);
    }
    while budget.has_time_left() {
        let side = budget.rng.below(sides.len() as u64) as usize;
        sides[side].round(&mut |greeting| damage(greeting, &mut budget.rng), tally)?;
    }
    sides.iter().try_for_each(|side| side.close(began.elapsed() >= ENOUGH, tally))
}
