//! Dynamic windows: attaching memory, detaching it, and locating elements in it (MPI 5.0, section 12.2.4).

use verbs::RemoteAddr;

use crate::error::{Class, Error, Result};
use crate::memory::{ADDRESS_MIN, Buffer};
use crate::rma::directory::{AttachedRegion, MemberBlock, REGIONS_MAX};
use crate::rma::object::{Flavor, Window};
use crate::rma::target::{ElementLocation, Target, TargetRange, runs};

impl Window {
    /// Attaches `size` bytes at an address to a dynamic window (`MPI_Win_attach`).
    ///
    /// # Safety
    /// The memory must stay readable and writable until it is detached or the window is freed, and must not be used meanwhile in a
    /// way that MPI forbids.
    ///
    /// # Errors
    /// [`Class::RMA_FLAVOR`] for a window that is not dynamic; [`Class::SIZE`] for a negative size; [`Class::RMA_ATTACH`] for
    /// memory that overlaps an attached region, and beyond 1,024 regions.
    pub unsafe fn attach(&self, address: usize, size: i64) -> Result<()> {
        self.check_dynamic()?;
        let size = u64::try_from(size)
            .map_err(|_| Error::new(Class::SIZE, format_args!("a size of {size} bytes is negative")))?;
        let (begin, wrong) = (address as u64, |why: &str| Error::new(Class::RMA_ATTACH, why));
        let end =
            begin.checked_add(size).ok_or_else(|| wrong("the memory extends beyond the address space"))?;
        if size > 0 && address < ADDRESS_MIN {
            return Err(wrong("base: no memory has such a low address"));
        }
        let keys = if size == 0 {
            Vec::new()
        } else {
            self.core().with(|engine| {
                let nics = engine.transport.nics().iter();
                nics.map(|nic| nic.expose(address, size as usize)).collect::<Result<_>>()
            })?
        };
        let mut attached = self.0.attached.lock(self.core().host());
        if attached.regions.len() == REGIONS_MAX {
            return Err(wrong(&format!("{REGIONS_MAX} regions are attached already; detach some")));
        }
        let overlaps = |region: &AttachedRegion| {
            let first = region.address as u64;
            first == begin || (first < end && begin < first + region.size)
        };
        if attached.regions.iter().any(overlaps) {
            return Err(wrong("a part of the memory is attached already"));
        }
        attached.regions.push(AttachedRegion { address, size, keys });
        attached.publish(self.0.control.buf())
    }

    /// Detaches the memory that was attached at an address (`MPI_Win_detach`).
    ///
    /// # Errors
    /// [`Class::RMA_FLAVOR`] for a window that is not dynamic; [`Class::RMA_ATTACH`] if no region was attached at the address.
    pub fn detach(&self, address: usize) -> Result<()> {
        self.check_dynamic()?;
        let region = {
            let mut attached = self.0.attached.lock(self.core().host());
            let at = attached.regions.iter().position(|region| region.address == address);
            let none = || Error::new(Class::RMA_ATTACH, format_args!("nothing is attached at {address:#x}"));
            let region = attached.regions.remove(at.ok_or_else(none)?);
            attached.publish(self.0.control.buf())?;
            region
        };
        // The lock is not held here, as devices may wait for peers.
        drop(region);
        Ok(())
    }

    /// Detaches all regions.
    pub(super) fn forget_attached(&self) {
        let regions = std::mem::take(&mut self.0.attached.lock(self.core().host()).regions);
        drop(regions);
    }

    fn check_dynamic(&self) -> Result<()> {
        self.begin_call()?;
        match self.0.flavor {
            Flavor::Dynamic => Ok(()),
            _ => Err(Error::new(Class::RMA_FLAVOR, "memory is attached to dynamic windows only")),
        }
    }

    /// Elements at an address of a member of a dynamic window.
    ///
    /// # Errors
    /// [`Class::RMA_RANGE`] unless all of the memory is in one attached region.
    pub(super) fn attached_elements(&self, target: &Target, at: &TargetRange) -> Result<ElementLocation> {
        let wrong = || {
            let text = format!(
                "the elements at {:#x} are not in memory that rank {} has attached",
                at.displacement, at.rank
            );
            Error::new(Class::RMA_RANGE, text)
        };
        let span = at.datatype.span(at.count).map_err(|error| Error::new(Class::COUNT, error.text))?;
        let address = at.displacement as u64;
        let (begin, end) = (address.wrapping_add_signed(span.start), address.wrapping_add_signed(span.end));
        if begin > end {
            return Err(wrong());
        }
        if at.rank == self.0.comm.rank() {
            if !self.0.attached.lock(self.core().host()).covers(begin, end) {
                return Err(wrong());
            }
            // SAFETY: within attached memory, which stays until it is detached, as promised to `attach`. Test:
            // dynamic_windows_access_attached_memory.
            return unsafe { Buffer::new(address as usize, at.count, at.datatype.clone()) }
                .map(ElementLocation::Mapped);
        }
        let access = target.access(&self.0.comm)?;
        let block = target.desc.control[access.port];
        let block =
            MemberBlock { process: target.process, words: &access.words, at: block, port: access.port };
        let key = target.attached.key(self.core(), &block, begin, end)?;
        let part = RemoteAddr { addr: address, rkey: key.ok_or_else(wrong)? };
        runs(part, 0, at).map(ElementLocation::Remote)
    }
}
