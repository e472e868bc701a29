//! The trace file, mapped into the process.
//!
//! The file gets all of its blocks when it is created, so that a full disk is an error here, and not a signal later. A forked child gets private
//! memory in place of the mapping ([`nic_util::fork`]), so that it cannot write into the trace of its parent.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use nic_util::{fork, process_file};
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use verbs::{Buf, Error, MemoryKind, Result};

struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is only an address range; unmapping it is allowed from any thread. Test: file_is_mapped_and_named_once.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        fork::unmapped(self.base.as_ptr(), || {
            // SAFETY: `map` has mapped this range, and no handle is left. Test: file_is_mapped_and_named_once.
            let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
        });
    }
}

/// Creates the trace file of this process ([`process_file::create`]) and maps it.
///
/// # Errors
/// The system's.
pub(crate) fn create(path: &Path, len: u64) -> Result<(PathBuf, Buf)> {
    let failed = |named: &Path, why: io::Error| {
        Error::system(
            format!(
                "cannot write the trace {}; name a file in a folder with {len} free bytes",
                named.display()
            ),
            why,
        )
    };
    let (named, file) = process_file::create(path).map_err(|(named, why)| failed(&named, why))?;
    let buf = reserve(&file, len).and_then(|()| map(&file, len)).inspect_err(|_| {
        let _ = std::fs::remove_file(&named);
    });
    let buf = buf.map_err(|why| failed(&named, why))?;
    Ok((named, buf))
}

fn reserve(file: &File, len: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        // The file system cannot do it.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(ftruncate(file, len)?),
        done => Ok(done?),
    }
}

fn map(file: &File, len: u64) -> io::Result<Buf> {
    let len = usize::try_from(len).map_err(|_| io::Error::other("it is too large for this machine"))?;
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a mapping at an address of the kernel's choice affects no other mapping. Test: file_is_mapped_and_named_once.
    let base = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, file, 0) }?.cast::<u8>();
    // SAFETY: the range was just mapped; the advice changes no bytes. Without it, the first records cost page faults. Test: as above.
    let _ = unsafe { madvise(base.cast(), len, Advice::LinuxPopulateWrite) };
    fork::mapped(base, len);
    fork::grown(base, len);
    let base = NonNull::new(base).ok_or_else(|| io::Error::other("mapped at address 0"))?;
    let owner = Arc::new(Mapping { base, len });
    // SAFETY: the range is mapped until `owner` is dropped, and all accesses are those of `Buf`. Test: as above.
    Ok(unsafe { Buf::from_raw(base, len, MemoryKind::Host, 0, owner) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_mapped_and_named_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.trace");
        let (first, buf) = create(&path, 1 << 16).expect("a file");
        buf.write(100, b"hello").expect("in range");
        let (second, other) = create(&path, 1 << 16).expect("a second file");
        drop((buf, other));
        assert_eq!(first, path);
        assert_eq!(second, folder.path().join(format!("a.trace.{}", std::process::id())));
        let bytes = std::fs::read(&path).expect("a file");
        assert_eq!((bytes.len(), &bytes[100..105]), (1 << 16, &b"hello"[..]));
        create(&path, 1 << 16).expect("the file of an earlier process of this number is replaced");
    }

    #[test]
    fn folder_that_does_not_exist_is_named() {
        let error = create(Path::new("/nowhere/a.trace"), 1 << 16).expect_err("no folder").to_string();
        assert!(error.contains("/nowhere/a.trace") && error.contains("No such file"), "{error}");
    }
}
