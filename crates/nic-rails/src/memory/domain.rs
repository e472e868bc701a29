//! Protection domains and regions, registered on each rail, and the table of keys that peers read.

use std::sync::{Arc, Mutex, Weak};

use verbs::provider::MrOps;
use verbs::{Access, Buf, Error, MemoryKind, Mr, Pd, Result, Sge};

use crate::lock::unpoisoned;
use crate::memory::keys::{ENTRIES, ENTRY_BYTES};
use crate::shared::DeviceShared;

/// The part of a domain that its queue pairs and regions share.
pub(crate) struct PdInner {
    pub(crate) shared: Arc<DeviceShared>,
    pub(crate) pds: Vec<Pd>,
    table: Buf,
    /// The table's registration on each rail, readable by peers.
    tables: Vec<Mr>,
    /// Regions whose keys a peer can invalidate.
    regions: Mutex<Vec<Weak<Region>>>,
    /// Memory into which queue pairs read entries of the peer's table: a slot for each queue pair.
    scratch: Buf,
    scratch_mrs: Vec<Mr>,
    places: Mutex<ScratchSlots>,
}

/// Free slots of the scratch memory: those given back, and those from `next` on.
#[derive(Default)]
struct ScratchSlots {
    free: Vec<u32>,
    next: u32,
}

/// Maximum number of queue pairs of a domain.
const SCRATCH_SLOTS: u32 = 8192;

impl PdInner {
    pub(crate) fn alloc(shared: &Arc<DeviceShared>) -> Result<Self> {
        let pds: Vec<Pd> = shared.rails.iter().map(verbs::Device::alloc_pd).collect::<Result<_>>()?;
        let table = Buf::alloc(ENTRIES as usize * ENTRY_BYTES)?;
        let tables = pds.iter().map(|pd| pd.reg_mr(&table, Access::REMOTE_READ)).collect::<Result<_>>()?;
        let scratch = Buf::alloc(SCRATCH_SLOTS as usize * ENTRY_BYTES)?;
        let scratch_mrs =
            pds.iter().map(|pd| pd.reg_mr(&scratch, Access::LOCAL_WRITE)).collect::<Result<_>>()?;
        Ok(Self {
            shared: shared.clone(),
            pds,
            table,
            tables,
            regions: Mutex::default(),
            scratch,
            scratch_mrs,
            places: Mutex::default(),
        })
    }

    pub(crate) fn reg_mr(self: &Arc<Self>, buf: &Buf, access: Access) -> Result<RailsMr> {
        if buf.kind() == MemoryKind::Nic {
            return Err(Error::Foreign { what: "NIC memory of one rail" });
        }
        let mrs: Vec<Mr> = self.pds.iter().map(|pd| pd.reg_mr(buf, access)).collect::<Result<_>>()?;
        let by_rail = |of: fn(&Mr) -> u32| std::array::from_fn(|rail| mrs.get(rail).map_or(0, of));
        let (remote, local) = (by_rail(Mr::rkey), by_rail(Mr::lkey));
        let full = Error::Limit {
            what: "the number of memory regions",
            given: u64::from(ENTRIES) + 1,
            limit: u64::from(ENTRIES),
        };
        let key = self.shared.keys.insert(remote, local, &self.table).ok_or(full)??;
        let region = Arc::new(Region { pd: self.clone(), key, addr: mrs[0].addr(), mrs: Mutex::new(mrs) });
        unpoisoned(&self.regions).push(Arc::downgrade(&region));
        Ok(RailsMr(region))
    }

    /// Address and key of the table, for a peer on this lane.
    pub(crate) fn table_location(&self, lane: usize) -> (u64, u32) {
        (self.tables[lane].addr(), self.tables[lane].rkey())
    }

    pub(crate) fn alloc_scratch(&self) -> Result<u32> {
        let mut places = unpoisoned(&self.places);
        if let Some(place) = places.free.pop() {
            return Ok(place);
        }
        Error::check_limit(
            "queue pairs of a protection domain",
            u64::from(places.next) + 1,
            SCRATCH_SLOTS.into(),
        )?;
        places.next += 1;
        Ok(places.next - 1)
    }

    pub(crate) fn free_scratch(&self, place: u32) {
        unpoisoned(&self.places).free.push(place);
    }

    /// A slot, as a scatter/gather element of a lane.
    pub(crate) fn scratch_sge(&self, lane: usize, place: u32) -> Sge {
        self.scratch_mrs[lane].sge(u64::from(place) * ENTRY_BYTES as u64, ENTRY_BYTES as u32)
    }

    pub(crate) fn scratch_read(&self, place: u32) -> Option<[u8; ENTRY_BYTES]> {
        let mut entry = [0; ENTRY_BYTES];
        self.scratch.read(place as usize * ENTRY_BYTES, &mut entry).ok()?;
        Some(entry)
    }

    /// A peer has invalidated the region with this key of a lane: invalidates it on all others, too. Returns the
    /// region's key.
    pub(crate) fn invalidate(&self, lane: usize, lane_key: u32) -> Option<u32> {
        let key = self.shared.keys.find(lane, lane_key)?;
        let mut regions = unpoisoned(&self.regions);
        regions.retain(|region| region.strong_count() > 0);
        let region = regions.iter().filter_map(Weak::upgrade).find(|region| region.key == key);
        drop(regions);
        if let Some(region) = region {
            // Even if deregistration fails for now, the region is unreachable, which is what the peer requested.
            let _ = region.dereg_all();
        }
        Some(key)
    }
}

/// A region, registered on all rails.
struct Region {
    pd: Arc<PdInner>,
    key: u32,
    addr: u64,
    mrs: Mutex<Vec<Mr>>,
}

impl Region {
    /// Deregisters on all rails; returns the first error.
    fn dereg_all(&self) -> Result<()> {
        self.pd.shared.keys.remove(self.key, &self.pd.table);
        let mrs = std::mem::take(&mut *unpoisoned(&self.mrs));
        mrs.into_iter().map(Mr::dereg).fold(Ok(()), Result::and)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.pd.shared.is_inherited() {
            return std::mem::forget(self.pd.clone());
        }
        // Dropping cannot return an error; `dereg` does.
        let _ = self.dereg_all();
    }
}

/// API handle of a region.
pub(crate) struct RailsMr(Arc<Region>);

impl MrOps for RailsMr {
    fn lkey(&self) -> u32 {
        self.0.key
    }

    fn rkey(&self) -> u32 {
        self.0.key
    }

    fn addr(&self) -> u64 {
        self.0.addr
    }

    fn dereg(self: Box<Self>) -> Result<()> {
        self.0.dereg_all()
    }
}
