//! [`Regions`]: the regions of a device, and the latest deregistered ones: a request with a key of these is a bug whose two places
//! are known.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use nic_util::sync::unpoisoned;
use verbs::{Access, Buf, MemoryKind, Result, Sge};

use findings::Stack;

/// Deregistered regions that are remembered.
const DEAD_MAX: usize = 4096;
/// Bytes between the places at which the memory of a region is tried.
const PAGE: usize = 4096;
/// Places of a region that are tried at most.
const TRIED_MAX: usize = 256;

/// A region, alive or not.
pub(crate) struct Region {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    addr: u64,
    access: Access,
    /// `None` for a region of all memory.
    buf: Option<Buf>,
    pub(crate) registered: Stack,
    pub(crate) ended: OnceLock<Stack>,
}

impl Region {
    pub(crate) fn new((lkey, rkey): (u32, u32), addr: u64, access: Access, buf: Option<&Buf>) -> Self {
        let (buf, registered) = (buf.cloned(), Stack::here());
        Self { lkey, rkey, addr, access, buf, registered, ended: OnceLock::new() }
    }

    /// The region as words.
    pub(crate) fn text(&self) -> String {
        let Self { lkey, rkey, addr, access, .. } = self;
        match &self.buf {
            Some(buf) => {
                format!("{} bytes at {addr:#x}, lkey {lkey:#x}, rkey {rkey:#x}, {access:?}", buf.len())
            }
            None => format!("all memory, lkey {lkey:#x}, rkey {rkey:#x}, {access:?}"),
        }
    }

    /// Its memory; `None` for a region of all memory.
    pub(crate) fn buf(&self) -> Option<&Buf> {
        self.buf.as_ref()
    }

    /// Whether the NIC may write there for this process.
    pub(crate) fn is_writable(&self) -> bool {
        self.access.contains(Access::LOCAL_WRITE)
    }

    /// Whether the addresses of its elements are those of the process.
    pub(crate) fn is_host_memory(&self) -> bool {
        self.buf.as_ref().is_none_or(|buf| buf.kind() == MemoryKind::Host)
    }

    /// The buffer, and the part of it that an element names: `None` if that is not inside. A region of all memory has no buffer.
    pub(crate) fn part(&self, sge: &Sge) -> Option<(Option<&Buf>, Range<usize>)> {
        let Some(buf) = &self.buf else { return Some((None, 0..0)) };
        let start = usize::try_from(sge.addr.checked_sub(self.addr)?).ok()?;
        let end = start.checked_add(sge.length as usize)?;
        (end <= buf.len()).then_some((Some(buf), start..end))
    }

    /// Tries whether its memory can be read: its first and last page, and pages between. Memory that is mapped on demand may
    /// be gone.
    ///
    /// # Errors
    /// [`verbs::Error::Memory`] if the program has unmapped some.
    pub(crate) fn check_presence(&self) -> Result<()> {
        let Some(buf) = self.buf.as_ref().filter(|buf| buf.kind() == MemoryKind::Host && !buf.is_on_demand())
        else {
            return Ok(());
        };
        let step = (buf.len() / TRIED_MAX).max(PAGE);
        let places = (0..buf.len()).step_by(step).chain([buf.len() - 1]);
        places.into_iter().try_for_each(|at| buf.read(at, &mut [0]))
    }
}

#[derive(Default)]
struct Tables {
    live: BTreeMap<u32, Arc<Region>>,
    dead: VecDeque<Arc<Region>>,
}

/// The regions of a device.
#[derive(Default)]
pub(crate) struct Regions(Mutex<Tables>);

impl Regions {
    pub(crate) fn add(&self, region: &Arc<Region>) {
        unpoisoned(&self.0).live.insert(region.lkey, region.clone());
    }

    /// The region has been deregistered here.
    pub(crate) fn end(&self, region: &Arc<Region>) {
        let _ = region.ended.set(Stack::here());
        let mut tables = unpoisoned(&self.0);
        tables.live.remove(&region.lkey);
        tables.dead.push_back(region.clone());
        if tables.dead.len() > DEAD_MAX {
            tables.dead.pop_front();
        }
    }

    pub(crate) fn by_lkey(&self, lkey: u32) -> Option<Arc<Region>> {
        unpoisoned(&self.0).live.get(&lkey).cloned()
    }

    /// The latest region that was deregistered and fits.
    pub(crate) fn dead(&self, fits: impl Fn(&Region) -> bool) -> Option<Arc<Region>> {
        unpoisoned(&self.0).dead.iter().rev().find(|region| fits(region)).cloned()
    }

    /// Whether a live region has this remote key.
    pub(crate) fn is_live_rkey(&self, rkey: u32) -> bool {
        unpoisoned(&self.0).live.values().any(|region| region.rkey == rkey)
    }
}
