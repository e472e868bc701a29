//! Our device `hw` on Linux's software cards, in a guest of its own: siw, which speaks iWARP, and two of rxe, which speaks RoCE v2.
//!
//! `docs/results/cards.md` says what runs and what differs, with the reasons.

use super::archive::Entry;
use super::differences::{self, Differences};
use super::image::Image;
use super::testbed::{AGENT, INIT};
use super::{Ended, Guest, Machine, tail};
use crate::case::{Case, Verdict};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use xtask::workspace::{Workspace, run};

pub(crate) const CASES: &[Case<Cards>] = &[
    Case { name: "hw-doctor", shows: "siw and rxe are found, opened and reported", run: doctor },
    Case { name: "hw-gid", shows: "rxe with chosen entries of its GID table", run: gid },
    Case { name: "hw-bench-rxe", shows: "nicety bench on rxe", run: bench_rxe },
    Case { name: "hw-bench-siw", shows: "nicety bench on siw", run: bench_siw },
    Case { name: "hw-bench-rails", shows: "nicety bench on two of rxe as rails", run: bench_rails },
    Case { name: "hw-mpi", shows: "an MPI program on rxe; its refusal on siw and rails", run: mpi },
    Case { name: "hw-link", shows: "the link goes down in the middle of a run", run: link },
    Case { name: "hw-address", shows: "the address vanishes in the middle of a run", run: address },
    Case { name: "hw-removed", shows: "the card is removed in the middle of a run", run: removed },
    Case { name: "hw-suite-rxe", shows: "conformance on rxe, all but the known differences", run: suite_rxe },
    // The last, as it can crash the kernel.
    Case { name: "hw-suite-siw", shows: "conformance on siw, likewise", run: suite_siw },
];

/// Makes two cards of rxe, each on an interface of its own.
const RXE: &str = "for n in 0 1; do
    ip link add wire$n type dummy && ip addr add 10.0.$((n + 3)).1/24 dev wire$n && ip link set wire$n up || exit 1
    rdma link add rxe$n type rxe netdev wire$n || exit 1
done";
/// Seconds for a command that measures or runs tests; an emulated processor is slow.
const LIMIT: u32 = 280;
/// Tests of the suite that are run by one command.
const CHUNK: usize = 12;
/// The end of a measurement that the device has failed.
const NO_RESULT: &str = "nothing that was asked for can be measured";

/// The guest with our programs.
pub(crate) struct Cards {
    guest: Guest,
    folder: PathBuf,
}

impl Cards {
    /// Builds our programs and boots the guest with them.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target().join("interop");
        let (image, _) = Image::find_or_make(&folder.join("image")).context("the guest cannot be made")?;
        println!("interop: {}", image.versions.join(", "));
        run(&mut workspace.cargo(&[
            "build",
            "--quiet",
            "--package",
            "nicety",
            "--package",
            "abi-mpi",
            "--lib",
            "--bins",
        ]))?;
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nic-hw", "--example", "card_suite"]))?;
        let run_folder = folder.join("cards");
        let _ = fs::remove_dir_all(&run_folder);
        fs::create_dir_all(&run_folder)?;
        let built = workspace.target().join("debug");
        let (nicety, ring) = (built.join("nicety"), run_folder.join("ring"));
        let source = workspace.root.join("crates/abi-mpi/examples/ring.c");
        run(Command::new(&nicety).args(["mpicc", "-o"]).args([&ring, &source]))?;
        let program = |name: &str, path| Ok::<_, anyhow::Error>(Entry::program(name, &fs::read(path)?));
        let own = [
            Entry::program("init", INIT),
            Entry::program("agent", AGENT),
            program("usr/bin/nicety", nicety)?,
            program("usr/bin/ring", ring)?,
            program("usr/bin/card_suite", built.join("examples/card_suite"))?,
            program("usr/lib/x86_64-linux-gnu/libmpi_abi.so.1", built.join("libmpi_abi.so"))?,
        ];
        let guest = Guest::boot(&image, &own, &run_folder, Machine { memory_mib: 1536, processors: 2 })?;
        println!("interop: the guest booted in {:.1} s ({})", guest.boot.as_secs_f64(), guest.accelerator);
        guest.run(RXE, 30)?.good().context("rxe")?;
        Ok(Self { guest, folder: run_folder })
    }

    /// What the guest's kernel has printed.
    fn console(&self) -> String {
        let bytes = fs::read(self.folder.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn good(&self, script: &str) -> Result<String> {
        self.guest.run(script, LIMIT)?.good().with_context(|| script.to_owned())
    }
}

fn doctor(cards: &mut Cards) -> Result<Verdict> {
    let said = cards.good("nicety doctor hw --report -")?;
    for words in ["\"card1\"", "\"card2\"", "\"card3\"", "take index 1 (ADDRESS, RoCE v2)", "iWARP"] {
        ensure!(said.contains(words), "the report lacks {words}: {said}");
    }
    ensure!(!said.contains("10.0."), "the report has an address: {said}");
    Ok(Verdict("three cards, each opened".into()))
}

fn gid(cards: &mut Cards) -> Result<Verdict> {
    cards.good("nicety bench latency --only op=write,source=host,sink=host -s 8 --quick --device hw:rxe0@1,gid=1 --line")?;
    let refused = cards.guest.run("nicety bench latency --quick --device hw:rxe0@1,gid=9 --line", LIMIT)?;
    ensure!(
        refused.status != 0
            && refused.output.contains("no GID 9; it has 0 (")
            && refused.output.contains("1 (10.0.3.1, RoCE v2)"),
        "{}",
        refused.output
    );
    Ok(Verdict("entry 1 works, and entry 9 is refused with those that exist".into()))
}

/// Runs the tests of the suite in order, as many as the time allows. A test may fail if the card's list names it, and a known
/// crash of the guest's kernel ends the case.
fn suite(cards: &mut Cards, card: &str, addr: &str, seconds: u64, known: &Differences) -> Result<Verdict> {
    let all = cards.good("card_suite list")?;
    let names: Vec<&str> = all.lines().collect();
    let (began, mut passed, mut failed, mut at) = (Instant::now(), 0, Vec::new(), 0);
    let mut crash = None;
    while at < names.len() && began.elapsed().as_secs() < seconds {
        let left = (seconds - began.elapsed().as_secs()).max(1) as u32;
        // Few at a time: a crash loses their results.
        let some = names[at..].iter().take(CHUNK).copied().collect::<Vec<_>>().join(" ");
        let ended = match cards.guest.run(&format!("card_suite {card} {addr} {some}"), left) {
            Ok(ended) => ended,
            Err(why) => {
                let place = known.crash.filter(|place| cards.console().contains(*place));
                crash = Some(place.with_context(|| format!("the guest ended in one of {some}: {why}"))?);
                break;
            }
        };
        let (good, bad, begun) = results(&ended);
        passed += good;
        failed.extend(bad);
        // The last one has ended the process, or the time is over.
        at += begun.max(1);
    }
    let is_known = |line: &&String| known.tests.iter().any(|known| known.is_of(line));
    let unknown: Vec<&str> = failed.iter().filter(|line| !is_known(line)).map(String::as_str).collect();
    ensure!(
        unknown.is_empty(),
        "{passed} of {at} tests pass; without a known reason fail\n{}",
        unknown.join("\n")
    );
    let why: BTreeSet<&str> = failed
        .iter()
        .filter_map(|line| known.tests.iter().find(|known| known.is_of(line)))
        .map(|known| known.why)
        .collect();
    let mut why: Vec<String> = why.into_iter().map(str::to_owned).collect();
    why.extend(crash.map(|place| format!("then the kernel crashes in {place}")));
    let (all, failed) = (names.len(), failed.len());
    Ok(Verdict(format!(
        "{passed} of the first {at} of {all} tests pass, {failed} differ; {}",
        why.join("; ")
    )))
}

/// Passed tests, failed ones with their reason, and the number of tests that began.
fn results(ended: &Ended) -> (usize, Vec<String>, usize) {
    let count = |word: &str| ended.output.lines().filter(|line| line.starts_with(word)).count();
    let failed = ended.output.lines().filter_map(|line| line.strip_prefix("FAILED "));
    (count("ok "), failed.map(str::to_owned).collect(), count("begin "))
}

fn suite_rxe(cards: &mut Cards) -> Result<Verdict> {
    suite(cards, "rxe1", "10.0.4.1", 200, &differences::RXE)
}

fn suite_siw(cards: &mut Cards) -> Result<Verdict> {
    suite(cards, "siw0", "10.0.2.15", 80, &differences::SIW)
}

/// The overview on a device; its rows of messages.
fn bench(cards: &mut Cards, device: &str) -> Result<Verdict> {
    let said = cards.good(&format!("nicety bench --quick --device '{device}' 2>&1"))?;
    let is_row =
        |line: &&str| ["latency ", "bandwidth ", "messages "].iter().any(|word| line.starts_with(word));
    let rows: Vec<&str> = said.lines().filter(is_row).collect();
    ensure!(rows.len() >= 3, "too few results: {said}");
    Ok(Verdict(rows.join("\n")))
}

fn bench_rxe(cards: &mut Cards) -> Result<Verdict> {
    bench(cards, "hw:rxe0")
}

fn bench_siw(cards: &mut Cards) -> Result<Verdict> {
    bench(cards, "hw:siw0")
}

fn bench_rails(cards: &mut Cards) -> Result<Verdict> {
    bench(cards, "rails(hw:rxe0,hw:rxe1)")
}

fn mpi(cards: &mut Cards) -> Result<Verdict> {
    let said = cards.good("nicety mpirun --device hw:rxe0 -n 2 ring")?;
    ensure!(said.contains("rank 0 of 2: the token is 2"), "{said}");
    for (device, words) in [
        ("hw:siw0", "bytes inline, but"),
        ("rails(hw:rxe0,hw:rxe1)", "bytes of private data is 56, but at most 20 is possible"),
    ] {
        let refused = cards.guest.run(&format!("nicety mpirun --device '{device}' -n 2 ring"), LIMIT)?;
        ensure!(refused.status != 0 && refused.output.contains(words), "{device}: {}", refused.output);
    }
    Ok(Verdict(
        "rxe; siw has too little inline data for MPI, and rails of two rxe too little private data".into(),
    ))
}

/// Runs a long measurement on a card, breaks it, and expects an error with these words; nothing of ours may stay.
fn broken(cards: &mut Cards, device: &str, breaks: &str, words: &[&str], mends: &str) -> Result<Verdict> {
    let job = cards.guest.begin(
        &format!("nicety bench bandwidth --only op=write,source=host,sink=host -s 4K --interval 1 -D 100 --device {device} 2>&1"),
        60,
    );
    std::thread::sleep(std::time::Duration::from_secs(12));
    cards.good(breaks)?;
    let began = Instant::now();
    let ended = job.wait()?;
    let took = began.elapsed().as_secs_f64();
    let left = cards.guest.run("pidof nicety", 10)?;
    cards.good(mends)?;
    if ended.status == 137 {
        bail!("it hangs:\n{}", tail(&ended.output));
    }
    ensure!(left.status != 0, "processes are left: {}", left.output);
    ensure!(
        words.iter().all(|word| ended.output.contains(word)),
        "it ended with {} after {took:.1} s:\n{}",
        ended.status,
        tail(&ended.output)
    );
    Ok(Verdict(format!("it ended after {took:.1} s")))
}

fn link(cards: &mut Cards) -> Result<Verdict> {
    broken(cards, "hw:rxe0", "ip link set wire0 down", &[NO_RESULT], "ip link set wire0 up")
}

fn address(cards: &mut Cards) -> Result<Verdict> {
    broken(
        cards,
        "hw:rxe0",
        "ip addr del 10.0.3.1/24 dev wire0",
        &[NO_RESULT],
        "ip addr add 10.0.3.1/24 dev wire0",
    )
}

fn removed(cards: &mut Cards) -> Result<Verdict> {
    broken(
        cards,
        "hw:rxe0",
        "rdma link delete rxe0",
        &["was removed"],
        "rdma link add rxe0 type rxe netdev wire0",
    )
}
