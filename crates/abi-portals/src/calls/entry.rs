//! List entries: append, search, unlink (Portals 4.3, sections 3.11 and 3.12).

use ffi::{In, Out};
use portals::{Entry, EntryHandle, EntryOptions, List, ListId, Ni, Search, Source};

use super::md::region;
use super::{interface, resolve, resolve_optional, to_answer};
use crate::answer::{Answer, code, missing};
use crate::export::exports;
use crate::handle;
use crate::types::{ANY, CT_NONE, Handle, NID_ANY, PID_ANY, PtlLe, PtlLeHead, PtlMe, PtlProcess};

/// The initiators that an entry admits.
fn match_source(ni: &Ni, id: PtlProcess) -> Source {
    let unless = |value: u32, any: u32| (value != any).then_some(value);
    if ni.kind().is_logical {
        // A rank has no process number.
        return Source { nid: unless(id.nid, ANY), pid: None };
    }
    Source { nid: unless(id.nid, NID_ANY), pid: unless(id.pid, PID_ANY) }
}

/// The fields that `ptl_le_t` and `ptl_me_t` share.
fn base_entry(ni: &Ni, le: PtlLeHead, counts: bool) -> Answer<Entry> {
    let options = EntryOptions::from_bits(le.options).ok_or_else(|| {
        code!(ArgInvalid, "options of the list entry are {:#x}, which has unknown bits; pass PTL_LE_* or PTL_ME_* options only", le.options)
    })?;
    let is_pieces = options.contains(EntryOptions::IOVEC);
    let region = region(ni, le.start, le.length, is_pieces)?;
    // A search does not count.
    let counter = if counts { resolve_optional(ni, le.ct, CT_NONE)? } else { None };
    let uid = (le.uid != ANY).then_some(le.uid);
    Ok(Entry { counter, uid, ..Entry::taking_all(region, options) })
}

fn entry_from_le(ni: &Ni, le: In<PtlLe>, counts: bool) -> Answer<Entry> {
    let PtlLe { start, length, ct, uid, options } = le.required_or(|| missing("le"))?;
    if ni.kind().is_matching {
        return Err(code!(
            ArgInvalid,
            "ni_handle is a matching interface (PTL_NI_MATCHING); call the PtlME function instead"
        ));
    }
    base_entry(ni, PtlLeHead { start, length, ct, uid, options }, counts)
}

fn entry_from_me(ni: &Ni, me: In<PtlMe>, counts: bool) -> Answer<Entry> {
    let PtlMe { le, match_id, match_bits, ignore_bits, min_free } = me.required_or(|| missing("me"))?;
    if !ni.kind().is_matching {
        return Err(code!(
            ArgInvalid,
            "ni_handle is a non-matching interface (PTL_NI_NO_MATCHING); call the PtlLE function instead"
        ));
    }
    let entry = base_entry(ni, le, counts)?;
    Ok(Entry { source: match_source(ni, match_id), match_bits, ignore_bits, min_free, ..entry })
}

fn list_id(pt_index: u32, list: u8) -> Answer<ListId> {
    match list {
        0 => Ok(ListId { pt_index, list: List::Priority }),
        1 => Ok(ListId { pt_index, list: List::Overflow }),
        _ => Err(code!(ArgInvalid, "ptl_list is {list}; pass PTL_PRIORITY_LIST or PTL_OVERFLOW_LIST")),
    }
}

fn search_mode(operation: u8) -> Answer<Search> {
    match operation {
        0 => Ok(Search::Only),
        1 => Ok(Search::Delete),
        _ => {
            Err(code!(ArgInvalid, "ptl_search_op is {operation}; pass PTL_SEARCH_ONLY or PTL_SEARCH_DELETE"))
        }
    }
}

fn append(ni: &Ni, place: ListId, entry: Entry, user_ptr: usize, handle: Out<Handle>) -> Answer<()> {
    let handle = handle.required_or(|| missing("the place of the handle"))?;
    let appended = to_answer(ni.with_engine(|engine| engine.append(place, entry, user_ptr as u64)))?;
    handle.set(handle::encode(ni.kind(), appended));
    Ok(())
}

fn unlink(entry: Handle) -> Answer<()> {
    let (ni, entry) = resolve::<EntryHandle>(entry)?;
    to_answer(ni.with_engine(|engine| engine.unlink(entry)))
}

exports! {
    // Portals 4.3, section 3.11.
    fn PtlLEAppend(handle: Handle, index: u32, entry: In<PtlLe>, list: u8, user_ptr: usize, result: Out<Handle>) {
        let ni = interface(handle)?;
        append(&ni, list_id(index, list)?, entry_from_le(&ni, entry, true)?, user_ptr, result)
    }

    // Portals 4.3, section 3.12.
    fn PtlMEAppend(handle: Handle, index: u32, entry: In<PtlMe>, list: u8, user_ptr: usize, result: Out<Handle>) {
        let ni = interface(handle)?;
        append(&ni, list_id(index, list)?, entry_from_me(&ni, entry, true)?, user_ptr, result)
    }

    // Portals 4.3, section 3.11.
    fn PtlLESearch(handle: Handle, index: u32, entry: In<PtlLe>, operation: u8, user_ptr: usize) {
        let (ni, search) = (interface(handle)?, search_mode(operation)?);
        let entry = entry_from_le(&ni, entry, false)?;
        to_answer(ni.with_engine(|engine| engine.search(index, entry, search, user_ptr as u64)))
    }

    // Portals 4.3, section 3.12.
    fn PtlMESearch(handle: Handle, index: u32, entry: In<PtlMe>, operation: u8, user_ptr: usize) {
        let (ni, search) = (interface(handle)?, search_mode(operation)?);
        let entry = entry_from_me(&ni, entry, false)?;
        to_answer(ni.with_engine(|engine| engine.search(index, entry, search, user_ptr as u64)))
    }

    // Portals 4.3, section 3.11.
    fn PtlLEUnlink(entry: Handle) {
        unlink(entry)
    }

    // Portals 4.3, section 3.12.
    fn PtlMEUnlink(entry: Handle) {
        unlink(entry)
    }

    // An extension of the reference.
    fn PtlTriggeredMEAppend(
        handle: Handle,
        index: u32,
        entry: In<PtlMe>,
        list: u8,
        user_ptr: usize,
        result: Out<Handle>,
        trigger: Handle,
        threshold: u64,
    ) {
        let (ni, result) = (interface(handle)?, result.required_or(|| missing("me_handle"))?);
        let ct = resolve_optional(&ni, trigger, CT_NONE)?.ok_or_else(|| missing("trig_ct_handle"))?;
        let (place, entry) = (list_id(index, list)?, entry_from_me(&ni, entry, true)?);
        let appended =
            to_answer(ni.with_engine(|engine| engine.trigger_append(ct, threshold, place, entry, user_ptr as u64)))?;
        result.set(handle::encode(ni.kind(), appended));
        Ok(())
    }

    // An extension of the reference.
    fn PtlTriggeredMEUnlink(entry: Handle, trigger: Handle, threshold: u64) {
        let (ni, entry) = resolve::<EntryHandle>(entry)?;
        let ct = resolve_optional(&ni, trigger, CT_NONE)?.ok_or_else(|| missing("trig_ct_handle"))?;
        to_answer(ni.with_engine(|engine| engine.trigger_unlink(ct, threshold, entry)))
    }
}
