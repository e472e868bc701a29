//! [`Registration`]: memory registered for a NIC or a peer; [`Registrations`]: how a device registers memory, with a registration
//! cache.
//!
//! Which memory may be registered is a promise of the transport's user, so the user registers it: this file only calls it.

use std::ops::Range;
use std::sync::Arc;

use verbs::{Access, Buf, ImplicitMr, Mr, RemoteAddr, Sge};

/// Memory that is registered for an operation, until this is dropped.
#[derive(Debug)]
pub enum Registration {
    /// By the region of all memory.
    Implicit {
        /// Its local key.
        lkey: u32,
        /// Its key for peers.
        rkey: u32,
    },
    /// By a region of its own, which a cache may also hold.
    Own(Arc<Mr>),
}

impl Registration {
    /// Bytes at an address, for a local work request.
    pub fn sge(&self, addr: u64, length: u32) -> Sge {
        let lkey = match self {
            Self::Implicit { lkey, .. } => *lkey,
            Self::Own(mr) => mr.lkey(),
        };
        Sge { addr, length, lkey }
    }

    /// An address, for a peer's work request.
    pub fn remote(&self, addr: u64) -> RemoteAddr {
        let rkey = match self {
            Self::Implicit { rkey, .. } => *rkey,
            Self::Own(mr) => mr.rkey(),
        };
        RemoteAddr { addr, rkey }
    }
}

/// How the memory of a process is registered at a device: by a region of all memory if there is one, or for each operation.
#[derive(Debug)]
pub struct Registrations {
    all: Option<ImplicitMr>,
    cache: Option<RegCache<Mr>>,
}

impl Registrations {
    /// For a device with this region of all memory. With `caches`, regions of other memory are kept for later operations.
    pub fn new(all: Option<ImplicitMr>, caches: bool) -> Self {
        Self { all, cache: caches.then(RegCache::default) }
    }

    /// Whether the device has a region of all memory.
    pub fn has_all(&self) -> bool {
        self.all.is_some()
    }

    /// All memory, if the region of it allows this access.
    #[inline]
    pub fn all(&self, access: Access) -> Option<Registration> {
        let all = self.all.as_ref().filter(|all| all.access().contains(access))?;
        Some(Registration::Implicit { lkey: all.lkey(), rkey: all.rkey() })
    }

    /// Registers memory at these addresses; also returns whether it was registered in this call. `register` gets the access and an
    /// owner for the region to hold. Regions of `memory` may stay registered: they are kept in the cache, for LOCAL_WRITE and
    /// REMOTE_READ. The cache serves these two accesses only.
    ///
    /// # Errors
    /// Those of `register`.
    pub fn get<E>(
        &mut self,
        bytes: Range<usize>,
        access: Access,
        memory: Option<&Buf>,
        register: impl FnOnce(Access, Arc<dyn Send + Sync>) -> Result<Mr, E>,
    ) -> Result<(Registration, bool), E> {
        if let Some(all) = self.all(access) {
            return Ok((all, false));
        }
        let (Some(cache), Some(memory)) = (&mut self.cache, memory) else {
            return Ok((Registration::Own(Arc::new(register(access, Arc::new(()))?)), true));
        };
        if let Some(region) = cache.get(&bytes) {
            return Ok((Registration::Own(region), false));
        }
        let holder = cache.holder(memory);
        let both = Access::LOCAL_WRITE | Access::REMOTE_READ;
        debug_assert!(both.contains(access), "a cached region is registered for exactly these two accesses");
        let region = Arc::new(register(both, holder.clone())?);
        cache.insert(bytes, holder, region.clone());
        Ok((Registration::Own(region), true))
    }
}

/// The most regions in a [`RegCache`]. The least recently used one is dropped.
const MOST: usize = 1000;

/// A registration cache, as MVAPICH2 has one by default (`MV2_USE_LAZY_MEM_UNREGISTER`).
///
/// A region holds its memory, so that nothing else is mapped at its addresses. Cache hits thus depend on the program's actions, and
/// not on the allocator. If nothing else holds the memory, the next insertion drops the region.
#[derive(Debug)]
struct RegCache<T>(Vec<Entry<T>>);

#[derive(Debug)]
struct Entry<T> {
    bytes: Range<usize>,
    memory: Arc<Buf>,
    region: Arc<T>,
}

impl<T> Default for RegCache<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> RegCache<T> {
    /// A region that covers these bytes.
    fn get(&mut self, bytes: &Range<usize>) -> Option<Arc<T>> {
        let covers = |kept: &Range<usize>| kept.start <= bytes.start && bytes.end <= kept.end;
        let at = self.0.iter().rposition(|entry| covers(&entry.bytes))?;
        let found = self.0.remove(at);
        let region = found.region.clone();
        self.0.push(found);
        Some(region)
    }

    /// The handle by which all regions of this memory hold it. It is the same for all, so that other holders can be counted.
    fn holder(&self, memory: &Buf) -> Arc<Buf> {
        let is_same = |held: &Buf| (held.addr(), held.len()) == (memory.addr(), memory.len());
        let held = self.0.iter().map(|entry| &entry.memory).find(|held| is_same(held));
        held.map_or_else(|| Arc::new(memory.clone()), Arc::clone)
    }

    /// Keeps a region. Drops regions that it covers, regions of memory that has no other holder, and from a full cache the least
    /// recently used region.
    fn insert(&mut self, bytes: Range<usize>, memory: Arc<Buf>, region: Arc<T>) {
        let is_inside = |kept: &Range<usize>| bytes.start <= kept.start && kept.end <= bytes.end;
        self.0.retain(|entry| entry.memory.is_shared() && !is_inside(&entry.bytes));
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Entry { bytes, memory, region });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Buf, Arc<Buf>) {
        let memory = Buf::alloc(4096).expect("memory");
        let holder = RegCache::<()>::default().holder(&memory);
        (memory, holder)
    }

    #[test]
    fn cache_finds_regions_that_cover_the_bytes() {
        let ((_memory, holder), mut cache) = (memory(), RegCache::default());
        assert!(cache.get(&(0..1)).is_none());
        cache.insert(100..200, holder.clone(), Arc::new('a'));
        assert_eq!(cache.get(&(100..200)).as_deref(), Some(&'a'));
        assert_eq!(cache.get(&(150..160)).as_deref(), Some(&'a'), "a part of it");
        assert!(cache.get(&(150..201)).is_none() && cache.get(&(99..101)).is_none(), "more than it");
        cache.insert(50..250, holder, Arc::new('b'));
        assert_eq!(cache.get(&(150..160)).as_deref(), Some(&'b'));
        assert_eq!(cache.0.len(), 1, "a region that another one covers is dropped");
    }

    #[test]
    fn cache_drops_regions_whose_memory_nobody_else_holds() {
        let ((program, holder), (_other, another)) = (memory(), memory());
        let mut cache = RegCache::default();
        cache.insert(0..5, holder, Arc::new(0));
        cache.insert(5..9, cache.holder(&program), Arc::new(0));
        cache.insert(10..15, another.clone(), Arc::new(1));
        assert_eq!(cache.0.len(), 3);
        drop(program);
        cache.insert(20..25, another, Arc::new(2));
        let found = [0, 10, 20].map(|at| cache.get(&(at..at + 5)).is_some());
        assert_eq!(found, [false, true, true]);
    }

    #[test]
    fn full_cache_drops_the_least_recently_used_region() {
        let ((_memory, holder), mut cache) = (memory(), RegCache::default());
        let of = |n: usize| n * 10..n * 10 + 5;
        (0..MOST).for_each(|n| cache.insert(of(n), holder.clone(), Arc::new(n)));
        assert!(cache.get(&of(0)).is_some());
        cache.insert(of(MOST), holder, Arc::new(MOST));
        assert_eq!([0, 1, 2, MOST].map(|n| cache.get(&of(n)).is_some()), [true, false, true, true]);
    }
}
