//! Third-party programs at both ends: Debian's on our libraries here, started by `nicety run` on `iwarp`, and the same
//! programs on Linux's siw in the guest.

use super::lab::{Lab, OURS, Siw};
use super::{GUEST_INSIDE, HOST_INSIDE, tail};
use crate::case::{Case, Verdict};
use anyhow::{Context, Result, ensure};
use xtask::limited::Finished;

pub(crate) const CASES: &[Case<Lab>] = &[
    Case { name: "siw-rping", shows: "rping at both ends, either as client", run: rping },
    Case {
        name: "siw-perftest",
        shows: "perftest over librdmacm at both ends, either as client",
        run: perftest,
    },
];

/// Sizes of rping's texts.
const TEXTS: [u32; 3] = [64, 1461, 65_535];

fn rping(lab: &mut Lab) -> Result<Verdict> {
    lab.siw(Siw::default())?;
    for size in TEXTS {
        let options = format!("-C 10 -V -S {size}");
        theirs_serves(
            lab,
            &format!("rping -s -a {GUEST_INSIDE} -p PORT {options}"),
            &format!("rping -c -a 127.0.0.1 -p PORT {options}"),
        )?;
        ours_serves(
            lab,
            &format!("rping -s -a 127.0.0.1 -p PORT {options}"),
            &format!("rping -c -a {HOST_INSIDE} -p PORT {options}"),
        )?;
    }
    Ok(Verdict(format!("{} sizes, both ways", TEXTS.len())))
}

/// The programs of perftest that siw supports, each with the side that speaks first once both are connected.
const PERFTEST: [(Speaks, &str); 6] = [
    (Speaks::Client, "ib_send_lat -s 64"),
    (Speaks::Client, "ib_send_bw -s 4096"),
    (Speaks::Server, "ib_write_lat -s 8"),
    (Speaks::Client, "ib_write_bw -s 65536"),
    (Speaks::Client, "ib_read_lat -s 64"),
    (Speaks::Client, "ib_read_bw -s 65536"),
];

/// Which side of two programs sends the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Client,
    Server,
}

fn perftest(lab: &mut Lab) -> Result<Verdict> {
    for (speaks, program) in PERFTEST {
        lab.siw(Siw::default())?;
        let server = format!("{program} -R -F -n 200 -p PORT");
        theirs_serves(lab, &server, &format!("{server} 127.0.0.1")).context(program)?;
        // Where siw is the client, our server may not speak first unless siw requests peer-to-peer mode (13).
        lab.siw(Siw { peer_to_peer: speaks == Speaks::Server, ..Siw::default() })?;
        ours_serves(lab, &server, &format!("{server} {HOST_INSIDE}")).context(program)?;
    }
    Ok(Verdict(format!("{} programs, both ways", PERFTEST.len())))
}

/// Runs the server in the guest and the client here.
fn theirs_serves(lab: &mut Lab, theirs: &str, ours: &str) -> Result<()> {
    let port = lab.guest.port()?;
    let job = lab.serve(theirs, port)?;
    let ours = lab.program(&ours.replace("PORT", &port.outside.to_string()))?.finish(OURS)?;
    let theirs = job.wait();
    ensure!(is_good(&ours), "ours: {}\nin the guest: {theirs:?}", tail(&ours.output));
    theirs?.good().map(drop)
}

/// Runs the server here and the client in the guest.
fn ours_serves(lab: &mut Lab, ours: &str, theirs: &str) -> Result<()> {
    let port = Lab::free_port()?;
    let mut ours = lab.program(&ours.replace("PORT", &port.to_string()))?;
    ours.listens(port, OURS)?;
    let theirs = lab.guest.run(&theirs.replace("PORT", &port.to_string()), OURS.as_secs() as u32)?;
    let ours = ours.finish(OURS)?;
    ensure!(
        theirs.status == 0 && is_good(&ours),
        "ours: {}\nin the guest: {}",
        tail(&ours.output),
        tail(&theirs.output)
    );
    Ok(())
}

fn is_good(finished: &Finished) -> bool {
    finished.status.is_some_and(|status| status.success())
}
