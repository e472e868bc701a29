//! The memory of the side under test: regions with every combination of rights, separated by bytes that nothing may
//! touch.

use std::ops::Range;

use verbs::{Access, Buf, Device, Mr, Pd, Sge};

/// Bytes of a slot, and of the region in its middle.
const SLOT: usize = 1024;
pub(super) const REGION: usize = 512;
const MARGIN: usize = (SLOT - REGION) / 2;
/// The first slots hold one region for each combination of the peer's three rights.
const COMBINATIONS: usize = 8;
const FOREIGN: usize = 8;
const GONE: usize = 9;
const GOING: usize = 10;
const RECEIVES: usize = 11;
const SINKS: usize = 12;
const SOURCE: usize = 13;
const UNALIGNED: usize = 15;
const SLOTS: usize = 16;
/// Enough to fill a socket's buffers when it is read a few times.
const LARGE: usize = 128 << 10;
/// Content of the memory for this side's own messages, which is not secret.
const PLAIN: u8 = 0x11;

/// A region as the peer knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownRegion {
    pub(super) stag: u32,
    pub(super) base: u64,
    pub(super) len: u64,
}

/// The memory that both sides use, and its expected content.
pub(super) struct VictimMemory {
    host: Buf,
    nic: Buf,
    large: Buf,
    domain: Pd,
    foreign: Pd,
    /// Expected content of host and NIC memory, except in the ranges of `open`.
    expected: [Vec<u8>; 2],
    /// Ranges that may be written: which memory, and which bytes.
    open: Vec<(usize, Range<usize>)>,
    regions: Vec<Mr>,
    going: Option<Mr>,
    local: Vec<Mr>,
    /// Eight bytes that no peer can know, repeated through all memory that it may not read.
    secret: u64,
    receives: usize,
    sinks: usize,
}

fn region(slot: usize) -> Range<usize> {
    let begin = slot * SLOT + MARGIN + usize::from(slot == UNALIGNED);
    begin..begin + REGION
}

/// The combination of the peer's rights with this number.
fn combination(bits: usize) -> Access {
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let chosen = rights.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    chosen.fold(Access::LOCAL_WRITE, |all, (_, right)| all | *right)
}

impl VictimMemory {
    pub(super) fn new(device: &Device) -> Self {
        let pd = || device.alloc_pd().expect("a domain");
        Self {
            host: Buf::alloc(SLOTS * SLOT).expect("memory"),
            nic: device.alloc_dm(SLOT).expect("NIC memory"),
            large: Buf::alloc(LARGE).expect("memory"),
            domain: pd(),
            foreign: pd(),
            expected: [vec![0; SLOTS * SLOT], vec![0; SLOT]],
            open: Vec::new(),
            regions: Vec::new(),
            going: None,
            local: Vec::new(),
            secret: 0x2545_f491_4f6c_dd1d,
            receives: 0,
            sinks: 0,
        }
    }

    /// The protection domain of the connections.
    pub(super) fn domain(&self) -> &Pd {
        &self.domain
    }

    /// Resets contents and tags. Returns the regions that the peer knows.
    pub(super) fn reset(&mut self) -> Vec<KnownRegion> {
        self.regions.clear();
        self.local.clear();
        self.going = None;
        self.open.clear();
        (self.receives, self.sinks) = (0, 0);
        // A new secret each time, so that earlier inputs do not reveal it.
        self.secret = self.secret.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
        let word = self.secret.to_ne_bytes();
        for expected in &mut self.expected {
            expected.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
        }
        // An atomic returns the previous content.
        let readable =
            |bits: &usize| combination(*bits).intersects(Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        for slot in (0..COMBINATIONS).filter(readable) {
            self.expected[0][region(slot)].fill(PLAIN);
        }
        for slot in [SOURCE, UNALIGNED, GOING] {
            self.expected[0][region(slot)].fill(PLAIN);
        }
        self.expected[1][MARGIN..MARGIN + REGION].fill(PLAIN);
        self.host.write(0, &self.expected[0]).expect("inside");
        self.nic.write(0, &self.expected[1]).expect("inside");
        self.register()
    }

    fn register(&mut self) -> Vec<KnownRegion> {
        let Self { host, nic, large, domain, foreign, .. } = self;
        let add = |pd: &Pd, buf: &Buf, range: Range<usize>, access| {
            pd.reg_mr_range(buf, range, access).expect("a region")
        };
        let gone = add(domain, host, region(GONE), Access::ALL);
        let going = add(domain, host, region(GOING), Access::ALL);
        let mut known = vec![known_region(&gone), known_region(&going)];
        gone.dereg().expect("no thread uses it");
        let mut regions: Vec<Mr> =
            (0..COMBINATIONS).map(|bits| add(domain, host, region(bits), combination(bits))).collect();
        regions.push(add(foreign, host, region(FOREIGN), Access::ALL));
        regions.push(add(domain, host, region(UNALIGNED), Access::ALL));
        regions.push(add(domain, nic, MARGIN..MARGIN + REGION, Access::ALL));
        regions.push(add(domain, large, 0..LARGE, Access::REMOTE_READ));
        self.local = [RECEIVES, SINKS, SOURCE]
            .map(|slot| {
                let access = if slot == SOURCE { Access::empty() } else { Access::LOCAL_WRITE };
                add(domain, host, region(slot), access)
            })
            .into();
        let writable =
            |bits: usize| combination(bits).intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let slots = (0..COMBINATIONS).filter(|bits| writable(*bits)).chain([GOING, UNALIGNED]);
        self.open = slots.map(|slot| (0, region(slot))).collect();
        self.open.push((1, MARGIN..MARGIN + REGION));
        known.extend(regions.iter().chain(&self.local).map(known_region));
        (self.regions, self.going) = (regions, Some(going));
        // The regions that most inputs should find first.
        known.rotate_left(2 + COMBINATIONS - 1);
        known
    }

    /// Deregisters a region while the peer uses it; from now on its bytes must not change.
    pub(super) fn deregister_one(&mut self) {
        let Some(going) = self.going.take() else { return };
        going.dereg().expect("no thread is using it");
        let range = region(GOING);
        self.open.retain(|(memory, open)| (*memory, open) != (0, &range));
        let now = self.host.to_vec(range.clone()).expect("inside");
        self.expected[0][range].copy_from_slice(&now);
    }

    /// Memory for the next receive, at most `len` bytes.
    pub(super) fn receive(&mut self, len: usize) -> Sge {
        let (mr, used) = (&self.local[0], &mut self.receives);
        let sge = take_part(mr, used, len);
        self.mark_writable(RECEIVES, sge)
    }

    /// Memory for the data that a request fetches.
    pub(super) fn sink(&mut self, len: usize) -> Sge {
        let (mr, used) = (&self.local[1], &mut self.sinks);
        let sge = take_part(mr, used, len);
        self.mark_writable(SINKS, sge)
    }

    /// Memory that this side sends.
    pub(super) fn source(&self, len: usize) -> Sge {
        self.local[2].sge(0, len.min(REGION) as u32)
    }

    fn mark_writable(&mut self, slot: usize, sge: Sge) -> Sge {
        let begin = (sge.addr - self.host.addr()) as usize;
        debug_assert!(region(slot).contains(&begin) || sge.length == 0);
        self.open.push((0, begin..begin + sge.length as usize));
        sge
    }

    /// Checks that nothing has changed outside the writable ranges.
    pub(super) fn check(&self) {
        for (memory, buf) in [&self.host, &self.nic].into_iter().enumerate() {
            let mut expected = self.expected[memory].clone();
            let now = buf.to_vec(0..buf.len()).expect("inside");
            for (_, open) in self.open.iter().filter(|(of, _)| *of == memory) {
                expected[open.clone()].copy_from_slice(&now[open.clone()]);
            }
            let wrong = expected.iter().zip(&now).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "memory {memory}: a byte has changed without permission");
        }
        let large = self.large.to_vec(0..LARGE).expect("inside");
        assert!(large.iter().all(|byte| *byte == 0), "a region that may only be read has changed");
    }

    /// Checks that no secret bytes were sent to the peer.
    pub(super) fn check_secret(&self, sent: &[u8]) {
        let word = self.secret.to_ne_bytes();
        // In every rotation, because a copy may begin in the middle of a word.
        for turn in 0..8 {
            let mut turned = word;
            turned.rotate_left(turn);
            let found = sent.windows(8).position(|window| window == turned);
            assert_eq!(found, None, "the peer was sent memory that it may not read");
        }
    }
}

fn known_region(mr: &Mr) -> KnownRegion {
    KnownRegion { stag: mr.rkey(), base: mr.addr(), len: mr.buf().len() as u64 }
}

fn take_part(mr: &Mr, used: &mut usize, len: usize) -> Sge {
    let len = len.min(REGION - *used);
    let sge = mr.sge(*used as u64, len as u32);
    *used += len;
    sge
}
