//! Portal table entries (Portals 4.3, section 3.7).

use ffi::Out;
use portals::PtOptions;

use super::{interface, resolve_optional, to_answer};
use crate::answer::{code, missing};
use crate::export::exports;
use crate::types::{ANY, EQ_NONE, Handle};

exports! {
    fn PtlPTAlloc(handle: Handle, options: u32, eq: Handle, wanted: u32, index: Out<u32>) {
        let (ni, index) = (interface(handle)?, index.required_or(|| missing("pt_index"))?);
        let options = PtOptions::from_bits(options).ok_or_else(|| code!(ArgInvalid, "options is {options:#x}, which has unknown bits; pass PTL_PT_* options only"))?;
        let eq = resolve_optional(&ni, eq, EQ_NONE)?;
        let wanted = (wanted != ANY).then_some(wanted);
        index.set(to_answer(ni.with_engine(|engine| engine.pt_alloc(options, eq, wanted)))?);
        Ok(())
    }

    fn PtlPTFree(handle: Handle, index: u32) {
        to_answer(interface(handle)?.with_engine(|engine| engine.pt_free(index)))
    }

    fn PtlPTEnable(handle: Handle, index: u32) {
        to_answer(interface(handle)?.with_engine(|engine| engine.pt_enable(index)))
    }

    fn PtlPTDisable(handle: Handle, index: u32) {
        to_answer(interface(handle)?.with_engine(|engine| engine.pt_disable(index)))
    }
}
