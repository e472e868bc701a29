//! User memory: the only code that copies from it and into it, and that registers it with NICs.
//!
//! Regions are what users gave to an interface; its opener has promised that they are valid memory
//! ([`crate::Node::open`]).

use std::ptr::NonNull;
use std::sync::Arc;

use verbs::{Access, Buf, DmAccess, ImplicitMr, MemoryKind, Mr, Pd};

use crate::objects::region::Region;

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Copies bytes of a region from `offset` on, until `into` is full or the region ends.
#[inline]
pub(crate) fn load(region: &Region, offset: u64, into: &mut [u8]) {
    if let Some(address) = region.one_piece(offset, into.len()) {
        // SAFETY: user memory, as promised to `Node::open`; `into` is this library's. Test:
        // data_go_where_they_belong.
        return unsafe { copy(pointer(address), into.as_mut_ptr(), into.len()) };
    }
    let mut rest = into;
    for piece in region.part(offset, rest.len() as u64) {
        let (now, later) = rest.split_at_mut(piece.len as usize);
        // SAFETY: user memory, as promised to `Node::open`; `now` is this library's. Test:
        // data_go_where_they_belong.
        unsafe { uaccess::copy(now.as_mut_ptr(), pointer(piece.addr), now.len()) };
        rest = later;
    }
}

/// Copies bytes into a region from `offset` on, until `from` or the region ends.
pub(crate) fn store(region: &Region, offset: u64, from: &[u8]) {
    let mut rest = from;
    for piece in region.part(offset, rest.len() as u64) {
        let (now, later) = rest.split_at(piece.len as usize);
        // SAFETY: as above, for writing.
        unsafe { uaccess::copy(pointer(piece.addr), now.as_ptr(), now.len()) };
        rest = later;
    }
}

/// Fails unless `len` bytes at offset `at` are inside of this library's mapped memory.
#[inline]
fn check(memory: &Buf, at: usize, len: usize) -> verbs::Result<()> {
    let is_inside = at.checked_add(len).is_some_and(|end| end <= memory.len());
    if is_inside && memory.access() == DmAccess::Coherent {
        return Ok(());
    }
    Err(verbs::Error::Invalid(format!("{len} bytes at offset {at} are not inside of {memory:?}")))
}

/// Copies bytes that do not overlap. The case of 8 bytes compiles to a load and a store.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for bytes.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: as promised. Test: data_go_where_they_belong.
        8 => unsafe { std::ptr::copy_nonoverlapping(from, to, 8) },
        // SAFETY: as above.
        _ => unsafe { uaccess::copy(to, from, len) },
    }
}

/// Copies up to `len` bytes of a region, from `offset` on, into this library's registered memory.
#[inline]
pub(crate) fn load_to(
    region: &Region,
    offset: u64,
    len: usize,
    (memory, at): (&Buf, usize),
) -> verbs::Result<()> {
    check(memory, at, len)?;
    let load = |address: u64, len: usize, done: usize| {
        // SAFETY: the pieces have at most `len` bytes together, for which there is room (checked); user
        // memory, as promised to `Node::open`, does not overlap this library's. Test:
        // data_go_where_they_belong.
        unsafe { copy(pointer(address), memory.as_ptr().add(at + done), len) };
    };
    pieces(region, offset, len, load);
    Ok(())
}

/// Copies up to `len` bytes of this library's registered memory into a region, from `offset` on.
#[inline]
pub(crate) fn store_from(
    region: &Region,
    offset: u64,
    len: usize,
    (memory, at): (&Buf, usize),
) -> verbs::Result<()> {
    check(memory, at, len)?;
    let store = |address: u64, len: usize, done: usize| {
        // SAFETY: as above, in the other direction: a peer that writes meanwhile can only mix the bytes.
        unsafe { copy(memory.as_ptr().add(at + done), pointer(address), len) };
    };
    pieces(region, offset, len, store);
    Ok(())
}

/// Calls `with` for each piece of a region: its address, its length, and the number of bytes before it.
#[inline]
fn pieces(region: &Region, offset: u64, len: usize, mut with: impl FnMut(u64, usize, usize)) {
    if let Some(address) = region.one_piece(offset, len) {
        return with(address, len, 0);
    }
    let mut done = 0;
    for piece in region.part(offset, len as u64) {
        with(piece.addr, piece.len as usize, done);
        done += piece.len as usize;
    }
}

/// A registration of all memory, with the rights that the device supports; `None` where it supports none.
pub(crate) fn all_memory(pd: &Pd) -> verbs::Result<Option<ImplicitMr>> {
    let Some(access) = pd.device().attr().implicit_mr else { return Ok(None) };
    // SAFETY: requests only name memory of operations in flight, which is valid as promised to `Node::open`,
    // or of buffers that the operation keeps alive. Peers are processes of the same user. Test:
    // data_go_where_they_belong.
    unsafe { pd.reg_all(access) }.map(Some)
}

/// Registers user memory while an operation uses it.
pub(crate) fn register(pd: &Pd, address: u64, len: u64, access: Access) -> verbs::Result<Mr> {
    let none = || verbs::Error::Invalid("memory at address 0 cannot be registered".into());
    let base = NonNull::new(pointer(address)).ok_or_else(none)?;
    // SAFETY: valid while the operation is in flight, as promised to `Node::open`; the operation drops the
    // registration when it completes. References to its bytes exist only during the copies of this file.
    // Test: data_go_where_they_belong.
    let buf = unsafe { Buf::from_raw(base, len as usize, MemoryKind::Host, 0, Arc::new(())) };
    pd.reg_mr(&buf, access)
}
