//! Third-party programs at both ends: Debian's on our libraries here, started by `nicety run` on `iwarp`, and the same
//! programs on Linux's siw in the guest.

use super::testbed::{OURS, Siw, Testbed};
use super::{GUEST_INSIDE, HOST_INSIDE, tail};
use crate::case::{Case, Verdict};
use anyhow::{Context, Result, ensure};
use xtask::limited::Finished;

pub(crate) const CASES: &[Case<Testbed>] = &[
    Case { name: "siw-rping", shows: "rping at both ends, either as client", run: rping },
    Case {
        name: "siw-perftest",
        shows: "perftest over librdmacm at both ends, either as client",
        run: perftest,
    },
];

/// Sizes of rping's texts.
const TEXTS: [u32; 3] = [64, 1461, 65_535];

fn rping(testbed: &mut Testbed) -> Result<Verdict> {
    testbed.siw(Siw::default())?;
    for size in TEXTS {
        let options = format!("-C 10 -V -S {size}");
        siw_is_server(
            testbed,
            &format!("rping -s -a {GUEST_INSIDE} -p PORT {options}"),
            &format!("rping -c -a 127.0.0.1 -p PORT {options}"),
        )?;
        we_are_server(
            testbed,
            &format!("rping -s -a 127.0.0.1 -p PORT {options}"),
            &format!("rping -c -a {HOST_INSIDE} -p PORT {options}"),
        )?;
    }
    Ok(Verdict(format!("{} sizes, both ways", TEXTS.len())))
}

/// The programs of perftest that siw supports, each with the side that speaks first once both are connected.
const PERFTEST: [(FirstSender, &str); 6] = [
    (FirstSender::Client, "ib_send_lat -s 64"),
    (FirstSender::Client, "ib_send_bw -s 4096"),
    (FirstSender::Server, "ib_write_lat -s 8"),
    (FirstSender::Client, "ib_write_bw -s 65536"),
    (FirstSender::Client, "ib_read_lat -s 64"),
    (FirstSender::Client, "ib_read_bw -s 65536"),
];

/// Which side of two programs sends the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstSender {
    Client,
    Server,
}

fn perftest(testbed: &mut Testbed) -> Result<Verdict> {
    for (speaks, program) in PERFTEST {
        testbed.siw(Siw::default())?;
        let server = format!("{program} -R -F -n 200 -p PORT");
        siw_is_server(testbed, &server, &format!("{server} 127.0.0.1")).context(program)?;
        // Where siw is the client, our server may not speak first unless siw requests peer-to-peer mode (13).
        testbed.siw(Siw { peer_to_peer: speaks == FirstSender::Server, ..Siw::default() })?;
        we_are_server(testbed, &server, &format!("{server} {HOST_INSIDE}")).context(program)?;
    }
    Ok(Verdict(format!("{} programs, both ways", PERFTEST.len())))
}

/// Runs the server in the guest and the client here.
fn siw_is_server(testbed: &mut Testbed, theirs: &str, ours: &str) -> Result<()> {
    let port = testbed.guest.port()?;
    let job = testbed.serve(theirs, port)?;
    let ours = testbed.program(&ours.replace("PORT", &port.outside.to_string()))?.finish(OURS)?;
    let theirs = job.wait();
    ensure!(is_good(&ours), "ours: {}\nin the guest: {theirs:?}", tail(&ours.output));
    theirs?.good().map(drop)
}

/// Runs the server here and the client in the guest.
fn we_are_server(testbed: &mut Testbed, ours: &str, theirs: &str) -> Result<()> {
    let port = Testbed::free_port()?;
    let mut ours = testbed.program(&ours.replace("PORT", &port.to_string()))?;
    ours.wait_for_listener(port, OURS)?;
    let theirs = testbed.guest.run(&theirs.replace("PORT", &port.to_string()), OURS.as_secs() as u32)?;
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
