//! Memory descriptors, and the user's memory as C describes it (Portals 4.3, section 3.10).

use ffi::{In, Out};
use portals::{MdHandle, MdOptions, MemoryDescriptor, Ni, Piece, Region};

use super::{interface, resolve, resolve_optional, to_answer};
use crate::answer::{Answer, code, missing};
use crate::export::exports;
use crate::handle;
use crate::state::closed;
use crate::types::{CT_NONE, EQ_NONE, Handle, PtlIovec, PtlMd};

/// Memory at an address, or with `is_pieces` the `length` pieces listed there.
pub(super) fn region(ni: &Ni, start: usize, length: u64, is_pieces: bool) -> Answer<Region> {
    if !is_pieces {
        // The maximum length means all memory after the start.
        return Ok(Region::new(start as u64, length.min(u64::MAX - start as u64)));
    }
    let most = ni.with_engine(|engine| engine.limits().max_iovecs).ok_or_else(closed)?;
    let count =
        usize::try_from(length).ok().filter(|count| *count <= most as usize).ok_or_else(|| {
            code!(ArgInvalid, "length is {length} with PTL_IOVEC, but a list has at most {most} elements (max_iovecs); pass fewer")
        })?;
    // SAFETY: the program passes an array of `length` pieces. Test: `messages_go_both_ways_on_shm`.
    let pieces: In<PtlIovec> = unsafe { In::new(std::ptr::with_exposed_provenance(start)) };
    let items = pieces.items(count).ok_or_else(|| missing("start"))?;
    let pieces: Vec<Piece> = items.map(|piece| Piece { addr: piece.base as u64, len: piece.len }).collect();
    Region::from_pieces(&pieces).ok_or_else(|| {
        code!(ArgInvalid, "the elements of the PTL_IOVEC list wrap around memory, or are too long together; check their lengths")
    })
}

exports! {
    fn PtlMDBind(handle: Handle, md: In<PtlMd>, result: Out<Handle>) {
        let (ni, result) = (interface(handle)?, result.required_or(|| missing("md_handle"))?);
        let md = md.required_or(|| missing("md"))?;
        let options = MdOptions::from_bits(md.options).ok_or_else(|| {
            code!(ArgInvalid, "md.options is {:#x}, which has unknown bits; pass PTL_MD_* options and PTL_IOVEC only", md.options)
        })?;
        let region = region(&ni, md.start, md.length, options.contains(MdOptions::IOVEC))?;
        let (eq, counter) = (resolve_optional(&ni, md.eq, EQ_NONE)?, resolve_optional(&ni, md.ct, CT_NONE)?);
        let md = MemoryDescriptor { region, options, eq, counter };
        let bound: MdHandle = to_answer(ni.with_engine(|engine| engine.md_bind(md)))?;
        result.set(handle::encode(ni.kind(), bound));
        Ok(())
    }

    fn PtlMDRelease(md: Handle) {
        let (ni, md) = resolve::<MdHandle>(md)?;
        to_answer(ni.with_engine(|engine| engine.md_release(md)))
    }
}
