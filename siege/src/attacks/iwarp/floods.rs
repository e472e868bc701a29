//! Thousands of connections that send nothing, a partial request, or garbage, while an honest client must be served.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::endpoints::{DeviceWithMemory, Round};
use crate::attack::{Attack, Budget, Tally};
use crate::resources::ResourceCounts;
use host::Rng;

pub(crate) const ATTACK: Attack = Attack {
    name: "floods",
    about: "thousands of iWARP clients that send nothing, half a request or garbage; an honest one is served",
    weight: 1,
    late_max: Duration::from_secs(1),
    run,
};

/// Connections that are open simultaneously, not counting connections closed by the listener.
const OPEN: usize = 400;
/// Intruders between two honest clients.
const WAVE: usize = 50;
const REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\xc0\x10";

/// A hostile connection, with or without bytes sent on it.
fn intruder(addr: SocketAddr, rng: &mut Rng) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(addr)?;
    let words = match rng.below(5) {
        0 => Vec::new(),
        1 => REQUEST[..rng.below(REQUEST.len() as u64) as usize].to_vec(),
        2 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        3 => (0..rng.below(600)).map(|_| rng.next_u64() as u8).collect(),
        _ => {
            // Announces the maximum of private data and sends only a part.
            let mut frame = REQUEST.to_vec();
            frame[18..20].copy_from_slice(&512_u16.to_be_bytes());
            frame
        }
    };
    // The listener may have closed the connection.
    let _ = stream.write_all(&words);
    Ok(stream)
}

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let (a, b) = (DeviceWithMemory::open("iwarp@127.0.0.1")?, DeviceWithMemory::open("iwarp@127.0.0.1")?);
    let listener = b.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let mut crowd: Vec<TcpStream> = Vec::new();
    let before = ResourceCounts::now();
    let mut came = 0_u64;
    while budget.has_time_left() {
        for _ in 0..WAVE {
            let place = budget.rng.below(OPEN as u64) as usize;
            let stream = intruder(listener.addr(), &mut budget.rng)?;
            came += 1;
            match crowd.get_mut(place) {
                Some(old) => *old = stream,
                None => crowd.push(stream),
            }
        }
        tally.tried += 1;
        let began = Instant::now();
        let mut honest = Round::begin(&a, &b, listener.addr(), tally.tried)?;
        honest.run(8, Duration::from_secs(10))?;
        honest.ensure_established()?;
        tally.record_reaction(began.elapsed());
        honest.finish(true, tally)?;
    }
    crowd.clear();
    before.report_growth(Duration::from_secs(10), tally);
    tally.add_note(format!("{came} intruders"));
    Ok(())
}
