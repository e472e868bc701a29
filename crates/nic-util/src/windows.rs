//! [`Windows`]: the memory windows of a device, with what each is bound to. The tables of regions have their keys.
//!
//! Windows are entries of the table of regions, which are found by the upper half of a key. An entry is valid while its window
//! is bound; a peer may invalidate it. So whether a window is bound is asked of the table.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use verbs::{Access, Error, MwBind, MwKind};

use crate::sync::unpoisoned;

/// A window of the table.
struct Window {
    pd: u32,
    kind: MwKind,
    /// Its last key.
    rkey: u32,
    /// The entry of the region that it was bound to last.
    region: Option<u32>,
}

/// The windows of a device, by the entries of their keys.
#[derive(Default)]
pub struct Windows {
    /// Whether there ever was one, so that regions of devices without windows need no lock.
    is_used: AtomicBool,
    all: Mutex<BTreeMap<u32, Window>>,
}

/// What the table of regions does for windows.
pub trait WindowTable {
    /// A part of a region.
    type Part;
    /// The part of a region that a window is to give access to; `None` if the key, domain, rights or range do not allow it.
    fn part(&self, pd: u32, bind: &MwBind) -> Option<Self::Part>;
    /// Whether an entry is valid with this key.
    fn is_valid(&self, rkey: u32) -> bool;
    /// Makes an entry invalid.
    fn unbind(&self, rkey: u32);
    /// Makes the entry of the key `rkey`, which is not valid, valid for this part. Only the queue pair `owner` may use it, or, if
    /// that is [`ANY_QP`], all of the domain.
    fn bind(&self, rkey: u32, pd: u32, owner: u64, part: Self::Part, access: Access);
}

/// The owner of windows that all queue pairs of their domain may use.
pub const ANY_QP: u64 = 0;

/// The entry of a key.
fn entry_of(key: u32) -> u32 {
    key >> 16
}

/// Whether two keys are of one window.
fn is_same_window(one: u32, other: u32) -> bool {
    one >> 8 == other >> 8
}

impl Windows {
    /// Adds a window, which is not bound.
    pub fn add(&self, rkey: u32, pd: u32, kind: MwKind) {
        self.is_used.store(true, Ordering::Release);
        unpoisoned(&self.all).insert(entry_of(rkey), Window { pd, kind, rkey, region: None });
    }

    /// Unbinds and removes a window.
    pub fn remove(&self, rkey: u32, table: &impl WindowTable) {
        if let Some(window) = unpoisoned(&self.all).remove(&entry_of(rkey)) {
            table.unbind(window.rkey);
        }
    }

    /// Carries out a request of queue pair `qp`, a number other than [`ANY_QP`]; false if it is not allowed, and then nothing has
    /// changed.
    pub fn bind(&self, table: &impl WindowTable, pd: u32, qp: u64, bind: &MwBind) -> bool {
        let mut all = unpoisoned(&self.all);
        // Windows of windows do not exist.
        if all.contains_key(&entry_of(bind.lkey)) {
            return false;
        }
        let Some(window) = all.get_mut(&entry_of(bind.rkey)) else { return false };
        let is_own = window.pd == pd && is_same_window(window.rkey, bind.rkey);
        let may_bind = match window.kind {
            MwKind::Type1 => true,
            MwKind::Type2 => bind.len != 0 && !table.is_valid(window.rkey),
        };
        if !is_own || !may_bind {
            return false;
        }
        // The region cannot end meanwhile: it ends its windows after its key, and for that needs the lock.
        let part = if bind.len == 0 { None } else { table.part(pd, bind) };
        if part.is_none() && bind.len != 0 {
            return false;
        }
        table.unbind(window.rkey);
        (window.rkey, window.region) = (bind.rkey, None);
        if let Some(part) = part {
            let owner = if window.kind == MwKind::Type2 { qp } else { ANY_QP };
            table.bind(bind.rkey, pd, owner, part, bind.access & Access::REMOTE);
            window.region = Some(entry_of(bind.lkey));
        }
        true
    }

    /// Whether a window that queue pairs of this domain may invalidate has this key; those of type 1 are only unbound.
    pub fn may_invalidate(&self, rkey: u32, pd: u32) -> bool {
        let all = unpoisoned(&self.all);
        let window = all.get(&entry_of(rkey)).filter(|window| window.rkey == rkey);
        window.is_some_and(|window| window.pd == pd && window.kind == MwKind::Type2)
    }

    /// Whether windows are bound to the region with this key.
    pub fn are_bound_to(&self, lkey: u32, table: &impl WindowTable) -> bool {
        self.is_used.load(Ordering::Acquire)
            && unpoisoned(&self.all)
                .values()
                .any(|window| window.region == Some(entry_of(lkey)) && table.is_valid(window.rkey))
    }

    /// Unbinds the windows of the region with this key, which is no longer valid.
    pub fn unbind_all_of(&self, lkey: u32, table: &impl WindowTable) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        for window in
            unpoisoned(&self.all).values_mut().filter(|window| window.region == Some(entry_of(lkey)))
        {
            table.unbind(window.rkey);
            window.region = None;
        }
    }
}

/// Whether a region with these rights allows a window with those: windows have no right that writes where the region has
/// no local write access (IBA 10.6.7.2).
#[must_use]
pub fn allows_window(region: Access, window: Access) -> bool {
    let writes = window.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    region.contains(Access::BIND) && (!writes || region.contains(Access::LOCAL_WRITE))
}

/// The error of a change of a region to which windows are bound.
#[cold]
pub fn bound_error() -> Error {
    Error::Invalid("memory windows are bound to the region; invalidate or free them first".into())
}
