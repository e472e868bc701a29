//! The library, interfaces, and identities of processes (Portals 4.3, sections 3.5, 3.6, 3.8 and 3.9).

use std::ffi::c_int;

use ffi::{In, Out, catch_panic};
use portals::{NiKind, Process};

use super::interface;
use crate::answer::Code;
use crate::export::exports;
use crate::handle;
use crate::state;
use crate::types::{
    ANY, Handle, IFACE_DEFAULT, NI_LOGICAL, NI_MATCHING, NI_NO_MATCHING, NI_PHYSICAL, PID_ANY, PtlLimits,
    PtlProcess, Size,
};

/// The kind of interface that options request; each pair must have exactly one bit set, and no other bits.
fn kind(options: u32) -> Option<NiKind> {
    let one_of = |yes: u32, no: u32| match options & (yes | no) {
        bit if bit == yes => Some(true),
        bit if bit == no => Some(false),
        _ => None,
    };
    let all = NI_MATCHING | NI_NO_MATCHING | NI_LOGICAL | NI_PHYSICAL;
    let (is_matching, is_logical) = (one_of(NI_MATCHING, NI_NO_MATCHING)?, one_of(NI_LOGICAL, NI_PHYSICAL)?);
    (options & !all == 0).then_some(NiKind { is_matching, is_logical })
}

exports! {
    // Portals 4.3, section 3.5.
    fn PtlInit() {
        state::init()
    }

    // Portals 4.3, section 3.6.
    fn PtlNIInit(
        iface: u32,
        options: u32,
        pid: u32,
        desired: In<PtlLimits>,
        actual: Out<PtlLimits>,
        handle: Out<Handle>,
    ) {
        state::check_init()?;
        let handle = handle.required(Code::ArgInvalid)?;
        let kind = kind(options).ok_or(Code::ArgInvalid)?;
        if iface != IFACE_DEFAULT && iface != 0 {
            return Err(Code::ArgInvalid);
        }
        let pid = (pid != PID_ANY).then_some(pid);
        if pid.is_some_and(|pid| pid > PID_ANY) {
            return Err(Code::ArgInvalid);
        }
        let limits = state::open(kind, pid, desired.get().map(PtlLimits::limits))?;
        actual.set(PtlLimits::new(&limits));
        handle.set(handle::interface(kind.number()));
        Ok(())
    }

    // Portals 4.3, section 3.6.
    fn PtlNIFini(handle: Handle) {
        state::check_init()?;
        state::close(handle::own_interface(handle)?)
    }

    // Portals 4.3, section 3.6.
    fn PtlNIStatus(handle: Handle, register: c_int, value: Out<c_int>) {
        let (ni, value) = (interface(handle)?, value.required(Code::ArgInvalid)?);
        let status = ni.test(|engine| engine.status()).ok_or(Code::ArgInvalid)?;
        let count = match register {
            0 => status.drops,
            1 => status.permission_violations,
            2 => status.operation_violations,
            _ => return Err(Code::ArgInvalid),
        };
        value.set(c_int::try_from(count).unwrap_or(c_int::MAX));
        Ok(())
    }

    // Portals 4.3, section 3.6.
    fn PtlNIHandle(object: Handle, handle: Out<Handle>) {
        state::check_init()?;
        let number = handle::interface_of(object)?;
        state::interface(number)?;
        handle.required(Code::ArgInvalid)?.set(handle::interface(number));
        Ok(())
    }

    // Portals 4.3, section 3.6.
    fn PtlSetMap(handle: Handle, size: Size, map: In<PtlProcess>) {
        let ni = interface(handle)?;
        let count = usize::try_from(size).map_err(|_| Code::ArgInvalid)?;
        if !ni.kind().is_logical || count == 0 || count > MAP_MAX {
            return Err(Code::ArgInvalid);
        }
        let items = map.items(count).ok_or(Code::ArgInvalid)?;
        let processes: Vec<Process> = items.map(|process| process.process(false)).collect();
        if !ni.map().is_empty() {
            return Err(Code::Ignored);
        }
        if ni.set_map(&processes) { Ok(()) } else { Err(Code::ArgInvalid) }
    }

    // Portals 4.3, section 3.6.
    fn PtlGetMap(handle: Handle, size: Size, map: Out<PtlProcess>, actual: Out<Size>) {
        let ni = interface(handle)?;
        let known = ni.map();
        if !ni.kind().is_logical || (size > 0 && !map.is_some()) {
            return Err(Code::ArgInvalid);
        }
        if known.is_empty() {
            return Err(Code::NoSpace);
        }
        let room = usize::try_from(size).unwrap_or(usize::MAX);
        let put = |(at, process): (usize, &Process)| map.element(at).set(PtlProcess::new(*process));
        known.iter().enumerate().take(room).for_each(put);
        actual.set(known.len() as Size);
        Ok(())
    }

    // Portals 4.3, section 3.8.
    fn PtlGetUid(handle: Handle, uid: Out<u32>) {
        interface(handle)?;
        uid.required(Code::ArgInvalid)?.set(rustix::process::geteuid().as_raw());
        Ok(())
    }

    // Portals 4.3, section 3.9.
    fn PtlGetId(handle: Handle, id: Out<PtlProcess>) {
        let ni = interface(handle)?;
        // Without a map, no rank is known.
        let known = ni.id().unwrap_or(Process::rank(ANY));
        id.required(Code::ArgInvalid)?.set(PtlProcess::new(known));
        Ok(())
    }

    // Portals 4.3, section 3.9.
    fn PtlGetPhysId(handle: Handle, id: Out<PtlProcess>) {
        let ni = interface(handle)?;
        id.required(Code::ArgInvalid)?.set(PtlProcess::new(ni.node().me()));
        Ok(())
    }

    // Portals 4.3, section 3.15.
    fn PtlAtomicSync() {
        // Atomic operations already work on the memory that the processor sees.
        state::check_init()
    }

    // Portals 4.3, section 3.17.
    fn PtlStartBundle(handle: Handle) {
        // Operations are never deferred.
        interface(handle).map(drop)
    }

    // Portals 4.3, section 3.17.
    fn PtlEndBundle(handle: Handle) {
        interface(handle).map(drop)
    }
}

/// Maximum number of processes of a map.
const MAP_MAX: usize = 1 << 24;

/// `PtlFini`: the last call closes everything that is still open (Portals 4.3, section 3.5).
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the header's")]
extern "C" fn PtlFini() {
    catch_panic(state::fini).unwrap_or(());
}

/// `PtlHandleIsEqual`: 1 for handles of the same object, else 0 (Portals 4.3, section 3.18).
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the header's")]
extern "C" fn PtlHandleIsEqual(one: Handle, other: Handle) -> c_int {
    c_int::from(one == other)
}
