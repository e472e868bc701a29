//! The library, interfaces, and identities of processes (Portals 4.3, sections 3.5, 3.6, 3.8 and 3.9).

use std::ffi::c_int;

use ffi::{In, Out, catch_panic};
use portals::{NiKind, Process};

use super::interface;
use crate::answer::{Code, code, missing};
use crate::export::exports;
use crate::handle;
use crate::state::{self, closed};
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
        let handle = handle.required_or(|| missing("ni_handle"))?;
        let kind = kind(options).ok_or_else(|| {
            code!(
                ArgInvalid,
                "options is {options:#x}; pass one of PTL_NI_MATCHING and PTL_NI_NO_MATCHING, and one of PTL_NI_LOGICAL and \
                 PTL_NI_PHYSICAL"
            )
        })?;
        if iface != IFACE_DEFAULT && iface != 0 {
            return Err(code!(ArgInvalid, "iface is {iface}; pass PTL_IFACE_DEFAULT or 0"));
        }
        let pid = (pid != PID_ANY).then_some(pid);
        if let Some(pid) = pid.filter(|pid| *pid > PID_ANY) {
            return Err(code!(ArgInvalid, "pid is {pid}; pass PTL_PID_ANY, or a number below it"));
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
        let (ni, value) = (interface(handle)?, value.required_or(|| missing("status"))?);
        let status = ni.test(|engine| engine.status()).ok_or_else(closed)?;
        let count = match register {
            0 => status.drops,
            1 => status.permission_violations,
            2 => status.operation_violations,
            _ => return Err(code!(ArgInvalid, "status_register is {register}; there are 0 to 2 (PTL_SR_*)")),
        };
        value.set(c_int::try_from(count).unwrap_or(c_int::MAX));
        Ok(())
    }

    // Portals 4.3, section 3.6.
    fn PtlNIHandle(object: Handle, handle: Out<Handle>) {
        state::check_init()?;
        let number = handle::interface_of(object)?;
        state::interface(number)?;
        handle.required_or(|| missing("ni_handle"))?.set(handle::interface(number));
        Ok(())
    }

    // Portals 4.3, section 3.6.
    fn PtlSetMap(handle: Handle, size: Size, map: In<PtlProcess>) {
        let ni = interface(handle)?;
        let count = usize::try_from(size).map_err(|_| code!(ArgInvalid, "map_size is {size}; pass 1 to {MAP_MAX}"))?;
        if !ni.kind().is_logical || count == 0 || count > MAP_MAX {
            return Err(code!(ArgInvalid, "map_size is {size} (1 to {MAP_MAX} are possible), or ni_handle is not PTL_NI_LOGICAL"));
        }
        let items = map.items(count).ok_or_else(|| missing("mapping"))?;
        let processes: Vec<Process> = items.map(|process| process.process(false)).collect();
        if !ni.map().is_empty() {
            return Err(Code::Ignored);
        }
        if ni.set_map(&processes) { Ok(()) } else { Err(code!(ArgInvalid, "mapping lacks this process; every process that calls must be in it")) }
    }

    // Portals 4.3, section 3.6.
    fn PtlGetMap(handle: Handle, size: Size, map: Out<PtlProcess>, actual: Out<Size>) {
        let ni = interface(handle)?;
        let known = ni.map();
        if !ni.kind().is_logical || (size > 0 && !map.is_some()) {
            return Err(code!(ArgInvalid, "mapping is NULL, or ni_handle is not PTL_NI_LOGICAL; physical interfaces have no map"));
        }
        if known.is_empty() {
            return Err(code!(NoSpace, "ni_handle has no map; call PtlSetMap first"));
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
        uid.required_or(|| missing("uid"))?.set(rustix::process::geteuid().as_raw());
        Ok(())
    }

    // Portals 4.3, section 3.9.
    fn PtlGetId(handle: Handle, id: Out<PtlProcess>) {
        let ni = interface(handle)?;
        // Without a map, no rank is known.
        let known = ni.id().unwrap_or(Process::rank(ANY));
        id.required_or(|| missing("id"))?.set(PtlProcess::new(known));
        Ok(())
    }

    // Portals 4.3, section 3.9.
    fn PtlGetPhysId(handle: Handle, id: Out<PtlProcess>) {
        let ni = interface(handle)?;
        id.required_or(|| missing("id"))?.set(PtlProcess::new(ni.node().me()));
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
