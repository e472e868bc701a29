//! Advice on ranges of regions (`ibv_advise_mr(3)`): the pages are made present before requests meet them.

use std::ffi::c_int;

use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_sge;
use rustix::mm::{Advice, madvise};

use crate::answer::Answer;
use crate::errno::errno;
use crate::objects::Pd;
use crate::requests::post;
use crate::slab::Handle;

/// The size of pages, to whose beginning a range is extended.
const PAGE: u64 = 4096;

/// Prefetches ranges. All advice is a hint: memory that is not mapped, or not by its address, is left alone.
pub(crate) fn advise(pd: Handle<Pd>, advice: c_int, flags: u32, list: *const ibv_sge, count: u32) -> Answer {
    pd.lookup()?;
    if flags & !n::IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0 || count == 0 {
        return Err(errno!(
            INVAL,
            "flags is {flags:#x} and num_sge {count}; pass 0 or IBV_ADVISE_MR_FLAG_FLUSH, and at least one element"
        ));
    }
    let advice = match advice.cast_unsigned() {
        n::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => Advice::LinuxPopulateRead,
        n::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => Advice::LinuxPopulateWrite,
        // Only pages that are present already: they need nothing.
        n::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => return Ok(()),
        other => {
            return Err(errno!(
                OPNOTSUPP,
                "advice is {other}; there are IBV_ADVISE_MR_ADVICE_PREFETCH, _WRITE and _NO_FAULT"
            ));
        }
    };
    let count =
        i32::try_from(count).map_err(|_| errno!(INVAL, "num_sge is {count}; pass the length of sg_list"))?;
    for sge in post::elements(list, count)? {
        let first = sge.addr & !(PAGE - 1);
        let bytes = sge.addr.saturating_add(sge.length.into()) - first;
        let first = std::ptr::with_exposed_provenance_mut(first as usize);
        // SAFETY: populating changes no byte, whatever is mapped there. Test: `regions_in_c_are_changed_and_addressed` in
        // tests/programs.rs.
        let _ = unsafe { madvise(first, bytes as usize, advice) };
    }
    Ok(())
}
