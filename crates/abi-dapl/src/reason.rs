//! Why a call failed, in words, from the type and the subtype of its error: which argument or object, what is wrong with it, and
//! what to do.

use dapl::{Error, ErrorKind, Subtype};

use crate::names::arguments;

/// The reason of an error of a call, whose name is in the provider's table.
pub(crate) fn explain(call: &str, error: &Error) -> String {
    let Error { kind, subtype, cause } = error;
    let (subtype, name) = (*subtype, name(*kind));
    let number = subtype as u32;
    let subject = if (Subtype::Arg1 as u32..=Subtype::Arg10 as u32).contains(&number) {
        argument(call, (number - Subtype::Arg1 as u32) as usize)
    } else {
        subject(call, *kind, subtype)
    };
    let cause = cause.as_ref().map(|cause| format!("; the device says: {cause}")).unwrap_or_default();
    format!("{subject}{cause} ({name})")
}

/// An invalid argument: the `at`th, from 0.
fn argument(call: &str, at: usize) -> String {
    let name = arguments(call).get(at).copied().unwrap_or("see dat/udat.h");
    format!(
        "argument {} ({name}) is invalid: NULL, out of range, or with unknown flags; pass a value that dat/udat.h defines",
        at + 1
    )
}

/// What is wrong, for errors that name no argument.
fn subject(call: &str, kind: ErrorKind, subtype: Subtype) -> String {
    if let Some(object) = handle(subtype) {
        let (argument, creator) = object;
        return format!(
            "{argument} is NULL, was freed, or is a handle of another kind or adapter; pass what {creator} has returned"
        );
    }
    if let Some((state, remedy)) = state(subtype) {
        return format!("{state}; {remedy}");
    }
    match kind {
        ErrorKind::InvalidHandle => {
            let first = arguments(call).first().copied().unwrap_or("the handle");
            format!("{first} is NULL, was freed, or is a handle of another kind; pass one that is open")
        }
        ErrorKind::InsufficientResources => format!("{} are exhausted; free some, or ask for fewer", resource(subtype)),
        ErrorKind::ConnQualInUse => "conn_qual is in use by another service point; pass another, or call dat_psp_create_any".into(),
        ErrorKind::ConnQualUnavailable => "all conn_quals that the adapter chooses from are in use; free a service point".into(),
        ErrorKind::InvalidParameter => "a combination of arguments is invalid; see what the device says, or dat/udat.h".into(),
        ErrorKind::InvalidState => "the object is in a state that does not allow the call, or others use it; free those first".into(),
        ErrorKind::InvalidAddress => "the address is of an unknown family, or not reachable; pass an IPv4 or IPv6 address".into(),
        ErrorKind::LengthError => "the segments are longer than the message may be, or shorter than it is; check their lengths".into(),
        ErrorKind::PrivilegesViolation => "the region lacks the right that this access needs; pass it as mem_privileges when it is created".into(),
        ErrorKind::ProtectionViolation => "the region and the endpoint are of different protection zones; use one pz_handle for both".into(),
        ErrorKind::QueueFull => "the event dispatcher has no room; make it longer (evd_min_qlen), or take its events".into(),
        ErrorKind::NotImplemented | ErrorKind::ModelNotSupported => {
            "this library does not have the function or the feature; docs/reference/support.md lists what it has".into()
        }
        ErrorKind::ProviderNotFound => "dat.conf names no such adapter; check its name and DAT_OVERRIDE".into(),
        _ => "an internal error, described above".into(),
    }
}

/// The argument that a subtype of an invalid handle is about, and the call that returns such handles.
fn handle(subtype: Subtype) -> Option<(&'static str, &'static str)> {
    Some(match subtype {
        Subtype::HandleIa => ("ia_handle", "dat_ia_open"),
        Subtype::HandleEp => ("ep_handle", "dat_ep_create"),
        Subtype::HandleLmr => ("lmr_handle", "dat_lmr_create"),
        Subtype::HandleRmr => ("rmr_handle", "dat_rmr_create"),
        Subtype::HandlePz => ("pz_handle", "dat_pz_create"),
        Subtype::HandlePsp => ("psp_handle", "dat_psp_create"),
        Subtype::HandleRsp => ("rsp_handle", "dat_rsp_create"),
        Subtype::HandleCr => ("cr_handle", "an event DAT_CONNECTION_REQUEST_EVENT"),
        Subtype::HandleCno => ("cno_handle", "dat_cno_create"),
        Subtype::HandleEvdCr => ("evd_handle (for connect requests)", "dat_evd_create with DAT_EVD_CR_FLAG"),
        Subtype::HandleEvdRequest => {
            ("request_completion_evd_handle", "dat_evd_create with DAT_EVD_DTO_FLAG")
        }
        Subtype::HandleEvdRecv => ("recv_completion_evd_handle", "dat_evd_create with DAT_EVD_DTO_FLAG"),
        Subtype::HandleEvdConn => ("connect_evd_handle", "dat_evd_create with DAT_EVD_CONNECTION_FLAG"),
        Subtype::HandleEvdAsync => ("async_evd_handle", "dat_ia_open, or DAT_HANDLE_NULL"),
        Subtype::HandleSrq => ("srq_handle", "dat_srq_create"),
        Subtype::HandleCsp => ("csp_handle", "dat_csp_create"),
        _ => return None,
    })
}

/// The state that a subtype of an invalid state is about, and what to do.
fn state(subtype: Subtype) -> Option<(&'static str, &'static str)> {
    Some(match subtype {
        Subtype::EpUnconnected => (
            "ep_handle is not connected",
            "call dat_ep_connect or dat_cr_accept, and wait for DAT_CONNECTION_EVENT_ESTABLISHED",
        ),
        Subtype::EpActiveConnectionPending | Subtype::EpPassiveConnectionPending => {
            ("ep_handle is connecting", "wait for the event on its connect_evd_handle")
        }
        Subtype::EpTentativeConnectionPending => (
            "ep_handle belongs to a connect request that is not answered",
            "call dat_cr_accept or dat_cr_reject first",
        ),
        Subtype::EpConnected => {
            ("ep_handle is connected", "call dat_ep_disconnect first, or use another endpoint")
        }
        Subtype::EpDisconnected => {
            ("ep_handle was disconnected", "call dat_ep_reset before it is used again")
        }
        Subtype::EpReserved => {
            ("ep_handle is reserved for a service point (dat_rsp_create)", "free that first")
        }
        Subtype::EpCompletionPending | Subtype::EpDisconnectPending => {
            ("ep_handle has requests that have not completed", "wait for their events first")
        }
        Subtype::EpNotReady | Subtype::EpUnconfigured => (
            "ep_handle lacks a protection zone or event dispatchers",
            "pass them to dat_ep_create, or call dat_ep_modify",
        ),
        Subtype::CnoInUse => {
            ("event dispatchers use cno_handle", "free them first, or call dat_evd_modify_cno")
        }
        Subtype::EvdUnwaitable => {
            ("evd_handle cannot be waited on", "call dat_evd_clear_unwaitable, or dat_evd_dequeue")
        }
        Subtype::EvdInUse => ("endpoints or service points use evd_handle", "free them first"),
        Subtype::EvdWaiter => ("another thread waits on evd_handle", "wait in one thread at a time"),
        Subtype::IaInUse => ("ia_handle still has objects", "free them first, or pass DAT_CLOSE_ABRUPT_FLAG"),
        Subtype::LmrInUse => ("lmr_handle is bound to a remote memory region", "free that first"),
        Subtype::PzInUse => ("memory regions or endpoints use pz_handle", "free them first"),
        Subtype::SrqInUse => ("endpoints use srq_handle", "free them first"),
        _ => return None,
    })
}

/// What was exhausted.
fn resource(subtype: Subtype) -> &'static str {
    match subtype {
        Subtype::ResourceTep => "endpoints",
        Subtype::ResourceTevd => "event dispatchers",
        Subtype::ResourceProtectionDomain => "protection zones",
        Subtype::ResourceMemoryRegion => "memory regions",
        Subtype::ResourceCredits => "credits",
        Subtype::ResourceSrq => "shared receive queues",
        Subtype::ResourceDevice => "resources of the device",
        _ => "memory, or entries of a queue,",
    }
}

/// The name of an error's type in C.
fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Abort => "DAT_ABORT",
        ErrorKind::ConnQualInUse => "DAT_CONN_QUAL_IN_USE",
        ErrorKind::InsufficientResources => "DAT_INSUFFICIENT_RESOURCES",
        ErrorKind::InternalError => "DAT_INTERNAL_ERROR",
        ErrorKind::InvalidHandle => "DAT_INVALID_HANDLE",
        ErrorKind::InvalidParameter => "DAT_INVALID_PARAMETER",
        ErrorKind::InvalidState => "DAT_INVALID_STATE",
        ErrorKind::LengthError => "DAT_LENGTH_ERROR",
        ErrorKind::ModelNotSupported => "DAT_MODEL_NOT_SUPPORTED",
        ErrorKind::ProviderNotFound => "DAT_PROVIDER_NOT_FOUND",
        ErrorKind::PrivilegesViolation => "DAT_PRIVILEGES_VIOLATION",
        ErrorKind::ProtectionViolation => "DAT_PROTECTION_VIOLATION",
        ErrorKind::QueueEmpty => "DAT_QUEUE_EMPTY",
        ErrorKind::QueueFull => "DAT_QUEUE_FULL",
        ErrorKind::TimeoutExpired => "DAT_TIMEOUT_EXPIRED",
        ErrorKind::InvalidAddress => "DAT_INVALID_ADDRESS",
        ErrorKind::InterruptedCall => "DAT_INTERRUPTED_CALL",
        ErrorKind::ConnQualUnavailable => "DAT_CONN_QUAL_UNAVAILABLE",
        ErrorKind::NotImplemented => "DAT_NOT_IMPLEMENTED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_argument_and_the_remedy() {
        let reason = |call, error: Error| explain(call, &error);
        for (call, error, words) in [
            ("ep_post_send", Error::argument(Subtype::Arg2), ["argument 2 (num_segments)", "dat/udat.h"]),
            ("ep_free", Error::handle(Subtype::HandleEp), ["ep_handle", "dat_ep_create"]),
            (
                "ep_post_send",
                Error::state(Subtype::EpUnconnected),
                ["ep_handle is not connected", "dat_ep_connect"],
            ),
            ("evd_enable", Error::handle(Subtype::None), ["evd_handle", "one that is open"]),
            (
                "lmr_create",
                Error::new(ErrorKind::InsufficientResources, Subtype::ResourceMemoryRegion),
                ["memory regions are exhausted", "DAT_INSUFFICIENT_RESOURCES"],
            ),
        ] {
            let text = reason(call, error);
            assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        }
    }
}
