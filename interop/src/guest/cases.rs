//! The cases against Linux's siw. Numbers in parentheses refer to the list of its quirks in `docs/results/interop.md`.

use super::capture::Direction;
use super::proxy::{self, Damage, Stream};
use super::testbed::{OURS, RTR_READ, RTR_WRITE, Siw, Testbed};
use super::{GUEST_INSIDE, tail};
use crate::case::{Case, Verdict};
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};
use xtask::limited::SMALL_LIMIT;

pub(crate) const CASES: &[Case<Testbed>] = &[
    Case { name: "rping-client", shows: "our client, siw's rping -s", run: rping_client },
    Case { name: "rping-server", shows: "siw's rping -c -v, our server", run: rping_server },
    Case { name: "rping-crc", shows: "both with CRC: asked for by us, in our reply, by siw", run: rping_crc },
    Case {
        name: "bytes-active",
        shows: "we connect; write, read, send, both ways, 0 B to 4 MiB",
        run: bytes_active,
    },
    Case { name: "bytes-passive", shows: "siw connects; the same", run: bytes_passive },
    Case { name: "bytes-crc", shows: "both ways to connect, with CRC, FPDUs of all sizes", run: bytes_crc },
    Case { name: "mpa1-active", shows: "MPA revision 1, we connect", run: mpa1_active },
    Case { name: "mpa1-passive", shows: "MPA revision 1, siw connects", run: mpa1_passive },
    Case {
        name: "mpa1-only",
        shows: "we speak only revision 1 and siw wants 2: refused in time",
        run: mpa1_only,
    },
    Case { name: "rtr-write", shows: "siw connects peer-to-peer, first message a write", run: rtr_write },
    Case { name: "rtr-read", shows: "siw connects peer-to-peer, first message a read", run: rtr_read },
    Case {
        name: "siw-speaks-first",
        shows: "siw's server speaks first, 20 connections (1)",
        run: siw_speaks_first,
    },
    Case {
        name: "accept-race",
        shows: "we speak at once after siw's reply, 40 connections (1)",
        run: accept_race,
    },
    Case { name: "coalesced", shows: "siw's reply and first FPDUs in one piece (5)", run: coalesced },
    Case { name: "early-bytes", shows: "unexpected bytes after siw's request (5)", run: early_bytes },
    Case { name: "private-data", shows: "as much as siw takes and sends, and more (6)", run: private_data },
    Case { name: "rejected", shows: "siw's program refuses, and says why", run: rejected },
    Case {
        name: "damage-to-us",
        shows: "a bit of siw's flipped: the right Terminate from us",
        run: damage_to_us,
    },
    Case {
        name: "damage-to-siw",
        shows: "a bit of ours flipped: siw's Terminate understood (9)",
        run: damage_to_siw,
    },
    Case {
        name: "bad-key-ours",
        shows: "our write with a wrong key: siw's Terminate understood (9)",
        run: bad_key_ours,
    },
    Case {
        name: "bad-key-siws",
        shows: "siw's write with a wrong key: the right Terminate from us",
        run: bad_key_siws,
    },
];

/// Sizes of rping's texts: the shortest possible one, odd ones, the longest.
const TEXTS: &[(u32, u32)] = &[(64, 50), (1461, 10), (65_535, 5)];
/// A short list of sizes.
const FEW: &str = "sizes=1,64,1461,65537";
/// The program on siw's side of the byte tests.
const PEER: &str = "peer listen PORT";
/// The side that connects speaks first (RFC 5044 section 7.1.3), unless the connection is peer-to-peer.
const PEER_CONNECTS: &str = "peer connect HOST PORT speak=1";
const PEER_WAITS: &str = "peer connect HOST PORT";

/// Combines the steps of a case: all must succeed; their results are joined.
fn run_all(steps: impl IntoIterator<Item = Result<Verdict>>) -> Result<Verdict> {
    let mut said = Vec::new();
    for step in steps {
        said.push(step?.0);
    }
    Ok(Verdict(said.join(" | ")))
}

fn rping_client(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    run_all(TEXTS.iter().map(|(size, count)| {
        let ours = format!("client ADDR size={size} count={count}");
        testbed.connect(
            "rping",
            &ours,
            &format!("rping -s -a {GUEST_INSIDE} -p PORT -v -S {size} -C {count}"),
        )
    }))
}

fn rping_server(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    run_all(TEXTS.iter().map(|(size, count)| {
        let theirs = format!("rping -c -a HOST -p PORT -v -V -S {size} -C {count}");
        testbed.accept("rping", "server ADDR", &theirs)
    }))
}

fn rping_crc(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let theirs = "rping -c -a HOST -p PORT -V -S 5000 -C 10";
    let asked = testbed.connect(
        "rping",
        "client ADDR size=5000 count=10 crc=1",
        &format!("rping -s -a {GUEST_INSIDE} -p PORT -S 5000 -C 10"),
    );
    let replied = testbed.accept("rping", "server ADDR crc=1", theirs);
    testbed.siw(Siw { crc: true, ..Siw::default() })?;
    run_all([asked, replied, testbed.accept("rping", "server ADDR", theirs)])
}

fn bytes_active(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let many = "connect ADDR pieces=16 sizes=1000,65536,1048577,4194307";
    run_all([testbed.connect("interop", "connect ADDR", PEER), testbed.connect("interop", many, PEER)])
}

fn bytes_passive(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let many = "listen ADDR hear=1 pieces=16 sizes=1000,65536,1048577,4194307";
    run_all([
        testbed.accept("interop", "listen ADDR hear=1", PEER_CONNECTS),
        testbed.accept("interop", many, PEER_CONNECTS),
    ])
}

fn bytes_crc(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let active = testbed.connect("interop", "connect ADDR crc=1", PEER);
    let small = testbed.connect("interop", "connect ADDR crc=1 fpdu=1001 sizes=1,1000,65537", PEER);
    testbed.siw(Siw { crc: true, ..Siw::default() })?;
    let passive = testbed.accept("interop", "listen ADDR hear=1", PEER_CONNECTS);
    let odd = testbed.accept(
        "interop",
        "listen ADDR hear=1 fpdu=1461 pieces=7 sizes=1,1000,65537,1048577",
        PEER_CONNECTS,
    );
    run_all([active, small, passive, odd])
}

fn mpa1_active(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    // siw's librdmacm grants no reads in revision 1 (4), so both sides use none.
    let without_reads = format!("connect ADDR mpa=1 sent=1 depth=0 ways=45 {FEW}");
    let crc = format!("connect ADDR mpa=1 sent=1 depth=0 ways=45 crc=1 {FEW}");
    run_all([
        testbed.connect("interop", &without_reads, "peer listen PORT depth=0"),
        testbed.connect("interop", &crc, "peer listen PORT depth=0"),
    ])
}

fn mpa1_passive(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw { mpa: 1, ..Siw::default() })?;
    // In revision 1 siw cannot be distinguished from peers that negotiate (2).
    let rping =
        testbed.accept("rping", "server ADDR sent=1 depth=1", "rping -c -a HOST -p PORT -V -S 1000 -C 10");
    let listen = format!("listen ADDR sent=1 hear=1 {FEW}");
    let bytes = testbed.accept("interop", &listen, PEER_CONNECTS);
    testbed.siw(Siw { mpa: 1, crc: true, ..Siw::default() })?;
    run_all([rping, bytes, testbed.accept("interop", &listen, PEER_CONNECTS)])
}

fn mpa1_only(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let (ours, port) =
        testbed.ours_listening("interop", &format!("listen ADDR hear=1 mpa=1 sent=1 patience=60 {FEW}"))?;
    let connect = format!("peer connect {} {port} speak=1", super::HOST_INSIDE);
    let began = Instant::now();
    let refused = testbed.guest.run(&connect, SMALL_LIMIT)?;
    ensure!(refused.status == 1, "siw's program ended with {}: {}", refused.status, tail(&refused.output));
    let took = began.elapsed().as_secs_f64();
    testbed.siw(Siw { mpa: 1, ..Siw::default() })?;
    let theirs = testbed.guest.run(&connect, OURS.as_secs() as u32)?;
    // Our program would wait forever without a peer; both outputs are reported, as either side may have caused the
    // other's failure.
    let ours = ours.finish(if theirs.status == 0 { OURS } else { Duration::from_secs(3) })?;
    ensure!(ours.is_good(), "ours: {}\nin the guest: {}", tail(&ours.output), tail(&theirs.output));
    theirs.good()?;
    Ok(Verdict(format!("refused after {took:.1} s; then revision 1 at the same listener works")))
}

fn rtr(testbed: &mut Testbed, rtr: u32) -> Result<Verdict> {
    testbed.siw(Siw { peer_to_peer: true, rtr, ..Siw::default() })?;
    let plain = testbed.accept("interop", &format!("listen ADDR {FEW}"), PEER_WAITS);
    run_all([plain, testbed.accept("interop", &format!("listen ADDR crc=1 {FEW}"), PEER_WAITS)])
}

fn rtr_write(testbed: &mut Testbed) -> Result<Verdict> {
    rtr(testbed, RTR_WRITE)
}

fn rtr_read(testbed: &mut Testbed) -> Result<Verdict> {
    rtr(testbed, RTR_READ)
}

fn siw_speaks_first(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    testbed.connect(
        "interop",
        "connect ADDR hear=1 connections=20 sizes=8",
        "peer listen PORT count=20 speak=1",
    )
}

fn accept_race(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    testbed.connect("interop", "connect ADDR connections=40 ways=1 sizes=8", "peer listen PORT count=40")
}

/// Connects a program of ours to a program in the guest through a proxy; returns both outputs.
fn through_proxy(
    testbed: &mut Testbed,
    ours: &str,
    script: &str,
    stream: Stream,
    damage: Damage,
) -> Result<ProxiedRun> {
    let port = testbed.guest.port()?;
    let job = testbed.serve(script, port)?;
    let proxy = proxy::start(port.outside, stream, damage)?;
    let capture = testbed.capture(proxy)?;
    let began = Instant::now();
    let ours = testbed.ours("interop", &ours.replace("ADDR", &format!("127.0.0.1:{proxy}")))?.finish(OURS)?;
    let took = began.elapsed().as_secs_f64();
    let terminates = match capture {
        Some(capture) => Some(capture.judge(Direction::To)?.terminates),
        None => None,
    };
    let theirs = job.wait()?;
    Ok(ProxiedRun { good: ours.is_good(), said: ours.output, theirs: theirs.output, took, terminates })
}

/// The result of a connection through the proxy.
struct ProxiedRun {
    good: bool,
    said: String,
    theirs: String,
    took: f64,
    /// Terminate messages that we sent, if this process may capture.
    terminates: Option<Vec<String>>,
}

impl ProxiedRun {
    /// Our program must have failed with these words.
    fn failed_with(&self, words: &str) -> Result<String> {
        let line = self.said.lines().find_map(|line| line.strip_prefix("failed: "));
        match line.filter(|line| line.contains(words)) {
            Some(line) => Ok(format!("{line} ({:.1} s)", self.took)),
            None => bail!(
                "ours should fail with `{words}`: {}\nin the guest: {}",
                tail(&self.said),
                tail(&self.theirs)
            ),
        }
    }

    /// We must have sent one Terminate, which tshark describes with these words.
    fn terminated_with(&self, words: &str) -> Result<String> {
        match self.terminates.as_deref() {
            None => Ok("tshark was not asked: capturing needs root".into()),
            Some([one]) if one.contains(words) => Ok(format!("our Terminate, as tshark reads it: {one}")),
            Some(others) => bail!("our Terminate should say `{words}`, but tshark reads {others:?}"),
        }
    }
}

fn coalesced(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    // In revision 1 siw does not wait for us, so its first message immediately follows its reply.
    let ours = "connect ADDR mpa=1 sent=1 depth=0 hear=1 ways=45 sizes=8,1461";
    let through =
        through_proxy(testbed, ours, "peer listen PORT depth=0 speak=1", Stream::Back, Damage::Hold)?;
    ensure!(through.good, "ours: {}\nin the guest: {}", tail(&through.said), tail(&through.theirs));
    Ok(Verdict("reply and first message in one piece: nothing lost".into()))
}

fn early_bytes(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    // We detect such bytes behind siw's reply, too, and end the connection; but that crashes siw's kernel at this
    // moment (12).
    let (ours, port) = testbed.ours_listening("interop", &format!("listen ADDR hear=1 patience=60 {FEW}"))?;
    let proxy = proxy::start(port, Stream::Forth, Damage::Add { bytes: &[0xff; 64] })?;
    let host = super::HOST_INSIDE;
    let refused = testbed.guest.run(&format!("peer connect {host} {proxy}"), SMALL_LIMIT)?;
    ensure!(refused.status != 0, "a request with bytes behind it got a connection: {}", refused.output);
    testbed.guest.run(&format!("peer connect {host} {port} speak=1"), OURS.as_secs() as u32)?.good()?;
    let ours = ours.finish(OURS)?;
    ensure!(ours.is_good(), "ours: {}", tail(&ours.output));
    Ok(Verdict("refused, and the listener lives on".into()))
}

fn private_data(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    // siw's length of private data is one byte and includes its own four: 252 would become 0 (6).
    let (heard, told) = ("private data of 251 bytes, 0 wrong", "private data of 252 bytes, 0 wrong");
    let port = testbed.guest.port()?;
    let job = testbed.serve("peer listen PORT pd=251", port)?;
    let active = testbed
        .ours("interop", &format!("connect 127.0.0.1:{} pd=252 sizes=8", port.outside))?
        .finish(OURS)?;
    let theirs = job.wait()?.good()?;
    ensure!(
        active.output.contains(heard) && theirs.contains(told),
        "{}\nin the guest: {theirs}",
        active.output
    );
    let (ours, port) = testbed.ours_listening("interop", "listen ADDR hear=1 pd=252 sizes=8")?;
    let connect = format!("peer connect {} {port} speak=1 pd=251", super::HOST_INSIDE);
    let theirs = testbed.guest.run(&connect, SMALL_LIMIT)?.good()?;
    let passive = ours.finish(OURS)?;
    ensure!(
        passive.output.contains(heard) && theirs.contains(told),
        "{}\nin the guest: {theirs}",
        passive.output
    );
    // siw closes the connection without a reply if there are more, in either revision.
    let port = testbed.guest.port()?;
    let job =
        testbed.guest.serve(&format!("timeout -s KILL 20 peer listen {}", port.inside), port, SMALL_LIMIT)?;
    let long = testbed
        .ours("interop", &format!("connect 127.0.0.1:{} pd=400 sizes=8", port.outside))?
        .finish(OURS)?;
    job.wait()?;
    let Some(why) = long.output.lines().find_map(|line| line.strip_prefix("failed: ")) else {
        bail!("400 bytes of private data: {}", tail(&long.output))
    };
    Ok(Verdict(format!("252 bytes from us and 251 from siw, in either role, every byte; 400 bytes: {why}")))
}

fn rejected(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let port = testbed.guest.port()?;
    let job = testbed.serve("peer listen PORT reject=1 pd=100", port)?;
    let ours = testbed.ours("interop", &format!("connect 127.0.0.1:{}", port.outside))?.finish(OURS)?;
    job.wait()?.good()?;
    let heard = ours.output.contains("private data of 100 bytes, 0 wrong");
    ensure!(heard && ours.output.contains("failed: the peer refused"), "ours: {}", tail(&ours.output));
    Ok(Verdict("refused, with 100 bytes of private data, every byte".into()))
}

fn damage_to_us(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let flip = Damage::Flip { ulpdu_min: 900 };
    let ours = "connect ADDR crc=1 ways=32 sizes=1000";
    let through = through_proxy(testbed, ours, PEER, Stream::Back, flip)?;
    let failed = through.failed_with("cause: MPA: CRC does not match")?;
    Ok(Verdict(format!("{failed}; {}", through.terminated_with("CRC")?)))
}

fn damage_to_siw(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let flip = Damage::Flip { ulpdu_min: 900 };
    let ours = "connect ADDR crc=1 ways=1 sizes=1000";
    let through = through_proxy(testbed, ours, PEER, Stream::Forth, flip)?;
    Ok(Verdict(through.failed_with("cause: MPA: CRC does not match")?))
}

/// Runs without a proxy: our program must fail with these words.
fn fails(testbed: &mut Testbed, ours: &str, words: &str) -> Result<ProxiedRun> {
    let port = testbed.guest.port()?;
    let job = testbed.serve(PEER, port)?;
    let capture = testbed.capture(port.outside)?;
    let began = Instant::now();
    let ours = testbed
        .ours("interop", &ours.replace("ADDR", &format!("127.0.0.1:{}", port.outside)))?
        .finish(OURS)?;
    let took = began.elapsed().as_secs_f64();
    let terminates = match capture {
        Some(capture) => Some(capture.judge(Direction::To)?.terminates),
        None => None,
    };
    let through = ProxiedRun { good: false, said: ours.output, theirs: job.wait()?.output, took, terminates };
    through.failed_with(words)?;
    Ok(through)
}

fn bad_key_ours(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let through = fails(testbed, "connect ADDR badkey=1", "cause: DDP: invalid steering tag")?;
    Ok(Verdict(through.failed_with("")?))
}

fn bad_key_siws(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    let through = fails(testbed, "connect ADDR badkey=2", "QpAccessError")?;
    Ok(Verdict(format!("{}; {}", through.failed_with("")?, through.terminated_with("STag")?)))
}
