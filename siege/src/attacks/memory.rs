//! Exhaustion: all NIC memory, huge regions and queues, thousands of objects. Each refusal must be an error, everything
//! must be released, and a connection on the same device must be served meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use verbs::{Access, Buf, Device, Error, Pd, QpCap, QpInit, SrqInit};

use super::stopped::Peer;
use crate::attack::{Attack, Budget, Tally};
use crate::endpoint::Endpoint;
use crate::resources::{ResourceCounts, memory_here, settled};
use host::Rng;

/// The exhausted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exhaustion {
    NicMemory,
    Regions,
    LargeRegions,
    LargeQueues,
    QueuePairs,
    Queues,
}

const EXHAUSTIONS: &[Exhaustion] = &[
    Exhaustion::NicMemory,
    Exhaustion::Regions,
    Exhaustion::LargeRegions,
    Exhaustion::LargeQueues,
    Exhaustion::QueuePairs,
    Exhaustion::Queues,
];

/// Devices with little NIC memory, since all of it is used.
const DEVICES: &[&str] = &[
    "shm(dm=64M)",
    "shm(copy=service,dm=64M)",
    "iwarp@127.0.0.1(dm=64M)",
    "rails(shm(dm=64M),shm(dm=64M))",
    "rails(iwarp@127.0.0.1(dm=64M),iwarp@127.0.0.2(dm=64M))",
];
/// Huge queues that may exist at a time, lest the machine itself is exhausted.
const LARGE: usize = 8;
/// Objects of a kind that may exist at a time: more than any device has queue pairs.
const MANY: usize = 10_000;
/// How far the resident memory may vary, in bytes.
const SLACK: u64 = 16 << 20;
/// Memory that may stay resident after everything was exhausted once, in bytes: tables of the nine devices, which keep
/// their largest size.
const TABLES: u64 = 128 << 20;

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "memory",
    about: "allocate NIC memory, regions and queues up to their limits, huge ones and thousands, and free them",
    weight: 2,
    late_max: Duration::from_secs(1),
    run,
};

/// Attacks until the budget is spent, and counts the results.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let devices: Vec<Device> =
        DEVICES.iter().map(|name| Ok(fabric::open(name, &host::real::host())?)).collect::<Result<_>>()?;
    let rows = DEVICES.len() * EXHAUSTIONS.len();
    let (mut at, mut refused, mut level) = (0, 0, 0);
    while budget.has_time_left() {
        let (which, greed) = (at % DEVICES.len(), EXHAUSTIONS[at / DEVICES.len() % EXHAUSTIONS.len()]);
        let seed = budget.rng.next_u64();
        tally.tried += 1;
        match round(greed, DEVICES[which], &devices[which], seed, tally) {
            Ok(refusals) => {
                refused += refusals;
                tally.survived += 1;
            }
            Err(why) => tally.add_note(format!("{greed:?} on {}, seed {seed}: {why:#}", DEVICES[which])),
        }
        // One-time allocations, such as room in a table, have been made in the first round of each kind.
        let allowed = if at < rows { TABLES } else { level + SLACK };
        let now = settled(allowed - SLACK, memory_here);
        if now > allowed {
            tally.left_over += 1;
            let (now, allowed) = (now >> 20, allowed >> 20);
            tally.add_note(format!("{greed:?} on {}: {now} MiB stay, {allowed} may", DEVICES[which]));
        }
        if at < rows {
            level = level.max(now);
        }
        at += 1;
    }
    let rounds = at as f64 / rows as f64;
    tally.add_note(format!(
        "{refused} refusals, {rounds:.1} times each; {} MiB stay of the first",
        level >> 20
    ));
    Ok(())
}

/// Exhausts a resource and releases it, twice; returns how often it was exhausted.
fn round(greed: Exhaustion, name: &str, device: &Device, seed: u64, tally: &mut Tally) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let mut bystander = Peer::new(name, Endpoint::on_device(device)?, &mut rng)?;
    bystander.serve(1, tally)?;
    let held = ResourceCounts::now();
    let pd = device.alloc_pd()?;
    let refusals = match greed {
        Exhaustion::NicMemory => nic_memory(device, &mut bystander, &mut rng, tally),
        Exhaustion::Regions => regions(&pd, &mut bystander, tally),
        Exhaustion::LargeRegions => large_regions(&pd, &mut rng),
        Exhaustion::LargeQueues => large_queues(device, &pd, &mut bystander, tally),
        Exhaustion::QueuePairs => queue_pairs(device, &pd, &mut bystander, tally),
        Exhaustion::Queues => queues(device, &pd, &mut bystander, tally),
    }?;
    drop(pd);
    bystander.serve(1, tally).context("a bystander")?;
    let before = tally.left_over;
    held.report_growth(Duration::from_secs(5), tally);
    ensure!(tally.left_over == before, "something is left");
    Ok(refusals)
}

/// Allocates until refused, at most `max`; returns the objects, and whether there was a refusal. The bystander is
/// served meanwhile.
fn hoard<T>(
    max: usize,
    bystander: &mut Peer,
    tally: &mut Tally,
    mut take: impl FnMut() -> Result<T, Error>,
) -> Result<(Vec<T>, bool)> {
    let mut hoard = Vec::new();
    while hoard.len() < max {
        match take() {
            Ok(one) => hoard.push(one),
            Err(why) => {
                named(&why)?;
                bystander.serve(1, tally).context("a bystander, when there is no more")?;
                return Ok((hoard, true));
            }
        }
        if hoard.len() % 256 == 0 {
            let took = bystander.step(tally)?;
            tally.record_reaction(took);
        }
    }
    Ok((hoard, false))
}

/// The refusal must name the exhausted resource.
fn named(why: &Error) -> Result<()> {
    let kind = matches!(
        why,
        Error::Limit { .. } | Error::System { .. } | Error::Invalid(_) | Error::Unsupported { .. }
    );
    ensure!(kind && why.to_string().len() > 10, "the refusal is {why:?}");
    Ok(())
}

fn nic_memory(device: &Device, bystander: &mut Peer, rng: &mut Rng, tally: &mut Tally) -> Result<u64> {
    let max = device.attr().max_dm_size;
    if max == 0 {
        return Ok(0);
    }
    ensure!(
        device.alloc_dm(max as usize + 1).is_err_and(|why| named(&why).is_ok()),
        "more NIC memory than there is"
    );
    let piece = (max / (2 + rng.below(300))) as usize;
    let (mut last, mut refusals) = (None, 1);
    for _ in 0..3 {
        let (mut pieces, ended) = hoard(MANY, bystander, tally, || device.alloc_dm(piece))?;
        ensure!(
            ended && pieces.len() as u64 * piece as u64 <= max,
            "{} pieces of {piece} bytes",
            pieces.len()
        );
        ensure!(
            *last.get_or_insert(pieces.len()) == pieces.len(),
            "{last:?} pieces before, now {}",
            pieces.len()
        );
        for (i, piece) in pieces.iter().enumerate() {
            // Its first and last bytes can be used, and overlap nothing else.
            piece.write(0, &(i as u64).to_le_bytes())?;
            piece.write(piece.len() - 8, &(i as u64).to_le_bytes())?;
        }
        for (i, piece) in pieces.iter().enumerate() {
            for at in [0, piece.len() - 8] {
                ensure!(
                    piece.to_vec(at..at + 8)? == (i as u64).to_le_bytes(),
                    "piece {i} is somebody else's, too"
                );
            }
        }
        while !pieces.is_empty() {
            // In any order.
            pieces.swap_remove(rng.below(pieces.len() as u64) as usize);
        }
        refusals += 1;
    }
    Ok(refusals)
}

fn regions(pd: &Pd, bystander: &mut Peer, tally: &mut Tally) -> Result<u64> {
    let max = pd.device().attr().max_mr as usize;
    let buf = Buf::alloc(1 << 16)?;
    let mut refusals = 0;
    for _ in 0..2 {
        let (mrs, ended) = hoard(max + 1, bystander, tally, || pd.reg_mr(&buf, Access::LOCAL_WRITE))?;
        ensure!(ended && mrs.len() + 1024 > max, "{} regions of {max}, refused: {ended}", mrs.len());
        refusals += u64::from(ended);
    }
    Ok(refusals)
}

fn large_regions(pd: &Pd, rng: &mut Rng) -> Result<u64> {
    for len in [usize::MAX / 2, 1 << 55, 1 << 46] {
        if let Err(why) = Buf::alloc(len) {
            named(&why).with_context(|| format!("{len} bytes"))?;
        }
    }
    // Untouched, it costs address space and no memory.
    let buf = Buf::alloc((1 << 32) + rng.below(1 << 30) as usize)?;
    let mrs: Vec<_> =
        (0..64).map(|_| pd.reg_mr(&buf, Access::ALL - Access::REMOTE_ATOMIC)).collect::<Result<_, _>>()?;
    drop(buf);
    for mr in mrs {
        mr.dereg()?;
    }
    Ok(0)
}

fn large_queues(device: &Device, pd: &Pd, bystander: &mut Peer, tally: &mut Tally) -> Result<u64> {
    let attr = device.attr();
    let beyond = |cqe| device.create_cq(cqe).err();
    for cqe in [u32::MAX, attr.max_cqe + 1] {
        let why = beyond(cqe).with_context(|| format!("a completion queue of {cqe}"))?;
        ensure!(matches!(why, Error::Limit { .. }), "{why:?}");
    }
    let (cqs, _) = hoard(LARGE, bystander, tally, || device.create_cq(attr.max_cqe))?;
    drop(cqs);
    let cq = device.create_cq(16)?;
    let cap = |wr, sge| QpCap {
        max_send_wr: wr,
        max_recv_wr: wr,
        max_send_sge: sge,
        max_recv_sge: sge,
        max_inline: attr.max_inline,
    };
    for cap in [cap(u32::MAX, 1), cap(1, u32::MAX), cap(attr.max_qp_wr + 1, 1), cap(1, attr.max_sge + 1)] {
        let why = pd.create_qp(&QpInit::new(&cq).cap(cap)).err().with_context(|| format!("{cap:?}"))?;
        ensure!(matches!(why, Error::Limit { .. }), "{why:?}");
    }
    let largest = QpInit::new(&cq).cap(cap(attr.max_qp_wr, attr.max_sge));
    let (qps, _) = hoard(LARGE, bystander, tally, || pd.create_qp(&largest))?;
    let init = |max_wr| SrqInit { max_wr, max_sge: attr.max_sge };
    ensure!(
        pd.create_srq(init(u32::MAX)).is_err_and(|why| named(&why).is_ok()),
        "a shared receive queue too large"
    );
    let (srqs, _) = hoard(LARGE, bystander, tally, || pd.create_srq(init(attr.max_srq_wr)))?;
    drop((qps, srqs));
    Ok(7)
}

fn queue_pairs(device: &Device, pd: &Pd, bystander: &mut Peer, tally: &mut Tally) -> Result<u64> {
    let (cq, max) = (device.create_cq(16)?, device.attr().max_qp as usize);
    let one = || QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let (qps, ended) = hoard(max + 1, bystander, tally, || pd.create_qp(&QpInit::new(&cq).cap(one())))?;
    ensure!(ended && qps.len() + 64 > max, "{} queue pairs of {max}, refused: {ended}", qps.len());
    Ok(1)
}

fn queues(device: &Device, pd: &Pd, bystander: &mut Peer, tally: &mut Tally) -> Result<u64> {
    let attr = device.attr();
    let (cqs, ended) = hoard(MANY, bystander, tally, || device.create_cq(16))?;
    ensure!(
        ended && cqs.len() + 64 > attr.max_cq as usize,
        "{} completion queues, refused: {ended}",
        cqs.len()
    );
    let (srqs, ended) = hoard(MANY, bystander, tally, || pd.create_srq(SrqInit { max_wr: 16, max_sge: 1 }))?;
    ensure!(
        ended && srqs.len() + 64 > attr.max_srq as usize,
        "{} shared receive queues, refused: {ended}",
        srqs.len()
    );
    let (domains, _) = hoard(MANY, bystander, tally, || device.alloc_pd())?;
    let (channels, _) = hoard(1000, bystander, tally, || device.create_comp_channel())?;
    let (cms, _) = hoard(200, bystander, tally, || device.create_cm())?;
    drop((cqs, srqs, domains, channels, cms));
    Ok(2)
}
