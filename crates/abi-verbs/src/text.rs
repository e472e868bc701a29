//! Functions that need no device: names of status codes, rates, and fork support.

use std::ffi::{CStr, c_char, c_void};

use rdma_abi::numbers::IBV_FORK_UNNEEDED;

use crate::answer::Answer;

fn name(names: &[&'static CStr], number: i32, otherwise: &'static CStr) -> Answer<*const c_char> {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number)).copied();
    Ok(name.unwrap_or(otherwise).as_ptr())
}

/// A GUID in network byte order, in sysfs format.
pub(crate) fn guid_text(guid: u64) -> String {
    let bytes = guid.to_ne_bytes();
    let quarters = bytes.chunks_exact(2).map(|two| format!("{:02x}{:02x}", two[0], two[1]));
    quarters.collect::<Vec<_>>().join(":")
}

pub(crate) fn ibv_wc_status_str(status: i32) -> Answer<*const c_char> {
    let names = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    name(&names, status, c"unknown")
}

pub(crate) fn ibv_node_type_str(node_type: i32) -> Answer<*const c_char> {
    let names = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    name(&names, node_type, c"unknown")
}

pub(crate) fn ibv_port_state_str(port_state: i32) -> Answer<*const c_char> {
    let names = [c"no state change (NOP)", c"DOWN", c"INIT", c"ARMED", c"ACTIVE", c"ACTIVE_DEFER"];
    name(&names, port_state, c"invalid state")
}

pub(crate) fn ibv_event_type_str(event: i32) -> Answer<*const c_char> {
    let names = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    name(&names, event, c"unknown")
}

/// The numbers of `enum ibv_rate`, in multiples of 2.5 Gb/s, and in Mb/s.
const RATES: [(i32, i32, i32); 22] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 6, 14_062),
    (12, 22, 56_250),
    (13, 45, 112_500),
    (14, 67, 168_750),
    (15, 10, 25_781),
    (16, 41, 103_125),
    (17, 82, 206_250),
    (18, 124, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
];

pub(crate) fn ibv_rate_to_mult(rate: i32) -> i32 {
    RATES.iter().find(|(number, ..)| *number == rate).map_or(-1, |(_, mult, _)| *mult)
}

pub(crate) fn ibv_rate_to_mbps(rate: i32) -> i32 {
    RATES.iter().find(|(number, ..)| *number == rate).map_or(-1, |(.., mbps)| *mbps)
}

/// The rate of this multiple; 0, the maximum rate, for others.
pub(crate) fn mult_to_ibv_rate(mult: i32) -> i32 {
    RATES.iter().find(|(_, known, _)| *known == mult).map_or(0, |(number, ..)| *number)
}

pub(crate) fn mbps_to_ibv_rate(mbps: i32) -> i32 {
    RATES.iter().find(|(.., known)| *known == mbps).map_or(0, |(number, ..)| *number)
}

/// No action is needed: registered memory is copied at fork(2) like all memory, since nothing is pinned.
pub(crate) fn ibv_fork_init() -> Answer {
    Ok(())
}

pub(crate) fn ibv_is_fork_initialized() -> i32 {
    IBV_FORK_UNNEEDED as i32
}

pub(crate) fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> Answer {
    Ok(())
}

pub(crate) fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> Answer {
    Ok(())
}
