//! [`SharedSegment`]: memory that the members of a shared window map (MPI 5.0, section 12.2.3). It is an anonymous file that rank 0
//! creates, and that the
//! others open by its path under /proc. Its size is sealed, so that no member can truncate it. The others
//! accept only the file that
//! rank 0 has named.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use verbs::{Buf, MemoryKind};

use crate::comm::communicator::Comm;
use crate::error::{Class, Error, Result};

const SEALS: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// The mapped memory; `None` if it is empty.
pub(super) struct SharedSegment(Option<Buf>);

/// Bytes in which rank 0 announces its file: process, descriptor, and inode number. All zero if there is none.
const ANNOUNCEMENT_LEN: usize = 16;

impl SharedSegment {
    /// `len` zeroed bytes, shared by all members. Collective.
    ///
    /// # Errors
    /// [`Class::RMA_SHARED`] for members that are not on one host, and if one of them cannot map it; the same at all members.
    pub(super) fn create_shared(comm: &Comm, len: usize) -> Result<Self> {
        let cannot_share =
            |why: &str| Error::new(Class::RMA_SHARED, format_args!("memory cannot be shared: {why}"));
        if !is_one_host(comm)? {
            return Err(cannot_share("the members are on several hosts"));
        }
        if len == 0 {
            return Ok(Self(None));
        }
        let file = if comm.rank() == 0 { create(len).ok() } else { None };
        let mut announced = [0; ANNOUNCEMENT_LEN];
        if let Some(file) = &file {
            announced[..4].copy_from_slice(&std::process::id().to_le_bytes());
            announced[4..8].copy_from_slice(&file.as_raw_fd().to_le_bytes());
            announced[8..].copy_from_slice(&inode_of(file.as_fd()).unwrap_or(0).to_le_bytes());
        }
        let announced = comm.oob()?.broadcast(comm.rank(), &announced)?;
        let memory = match &file {
            Some(file) => map(file.as_fd(), len),
            None => open(&announced, len).and_then(|file| map(file.as_fd(), len)),
        };
        let all = comm.oob()?.allgather(comm.rank(), &[u8::from(memory.is_ok())])?;
        if all.contains(&0) {
            return Err(memory.err().unwrap_or_else(|| cannot_share("another member could not map it")));
        }
        memory.map(|memory| Self(Some(memory)))
    }

    /// Its address; 0 if it is empty.
    pub(super) fn address(&self) -> usize {
        self.0.as_ref().map_or(0, |memory| memory.as_ptr().expose_provenance())
    }

    pub(super) fn into_memory(self) -> Option<Buf> {
        self.0
    }
}

/// Whether all members are on this host.
fn is_one_host(comm: &Comm) -> Result<bool> {
    comm.core().with(|engine| {
        let node = |process: &u32| engine.transport.address_of(*process).map(|address| address.node);
        let mut nodes = comm.group().members().iter().map(node);
        let first = nodes.next().transpose()?;
        nodes.try_fold(true, |same, node| Ok(same && Some(node?) == first))
    })
}

fn failed(what: &str, error: impl Into<std::io::Error>) -> Error {
    Error::new(Class::RMA_SHARED, format_args!("{what} failed: {}", error.into()))
}

fn create(len: usize) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("nicety-window", flags).map_err(|error| failed("memfd_create", error))?;
    ftruncate(&file, len as u64).map_err(|error| failed("ftruncate", error))?;
    fcntl_add_seals(&file, SEALS).map_err(|error| failed("sealing", error))?;
    Ok(file)
}

fn inode_of(file: BorrowedFd<'_>) -> Result<u64> {
    fstat(file).map(|stat| stat.st_ino).map_err(|error| failed("fstat", error))
}

/// Opens the file that another process has announced.
fn open(announced: &[u8], len: usize) -> Result<OwnedFd> {
    let none = || Error::new(Class::RMA_SHARED, "rank 0 has no memory to share");
    let announced: &[u8; ANNOUNCEMENT_LEN] = announced.try_into().map_err(|_| none())?;
    let [process, descriptor] = [0, 4]
        .map(|at: usize| announced[at..at + 4].first_chunk().map_or(0, |part| i32::from_le_bytes(*part)));
    let number = announced[8..].first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
    if process <= 0 || descriptor < 0 {
        return Err(none());
    }
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| failed(&path, error))?;
    let file = OwnedFd::from(file);
    let stat = fstat(&file).map_err(|error| failed("fstat", error))?;
    // Only files in memory have seals.
    let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
    if !is_sealed || stat.st_ino != number || stat.st_size as u64 != len as u64 {
        return Err(Error::new(Class::RMA_SHARED, format_args!("{path} is not the file that rank 0 shares")));
    }
    Ok(file)
}

/// A mapping, until dropped.
struct SegmentMapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range, which may be unmapped by any thread. Test: members_share_memory.
unsafe impl Send for SegmentMapping {}
// SAFETY: as above.
unsafe impl Sync for SegmentMapping {}

impl Drop for SegmentMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no handle is left. Test: members_share_memory.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

fn map(file: BorrowedFd<'_>, len: usize) -> Result<Buf> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice does not affect others; the file is long enough and stays so,
    // because it is sealed. Test: members_share_memory.
    let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) };
    let base = base.map_err(|error| failed("mmap", error))?;
    let base = NonNull::new(base.cast::<u8>())
        .ok_or_else(|| Error::new(Class::RMA_SHARED, "the memory was mapped at address 0"))?;
    let owner = Arc::new(SegmentMapping { base, len });
    // SAFETY: mapped until the owner is dropped, and accessed only by copies and atomics. Test: members_share_memory.
    Ok(unsafe { Buf::from_raw(base, len, MemoryKind::Host, 0, owner) })
}
