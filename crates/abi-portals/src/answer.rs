//! Return codes: maps results to those of the header (Portals 4.3, chapter 3).

use std::ffi::c_int;
use std::fmt;

use ffi::{catch_panic, log};
use portals::Error;

/// A return code other than `PTL_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    ArgInvalid = 1,
    CtNoneReached = 2,
    EqDropped = 3,
    EqEmpty = 4,
    Fail = 5,
    Ignored = 6,
    Interrupted = 8,
    NoInit = 10,
    PidInUse = 12,
    InUse = 7,
    ListTooLong = 9,
    NoSpace = 11,
    PtFull = 13,
    PtEqNeeded = 14,
    PtInUse = 15,
}

/// The result of a call, or its return code.
pub(crate) type Answer<T> = Result<T, Code>;

impl Code {
    /// Attaches the reason, for the log of failed calls: the argument or object, what is wrong with it, and what to do.
    #[cold]
    pub(crate) fn because(self, reason: fmt::Arguments<'_>) -> Self {
        log::explain(self as c_int, reason);
        self
    }

    /// Its name in the header, and its meaning with what to do.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::ArgInvalid => {
                ("PTL_ARG_INVALID", "an argument is invalid, or a handle names no object; check each")
            }
            Self::CtNoneReached => ("PTL_CT_NONE_REACHED", "no counter has reached its threshold"),
            Self::EqDropped => (
                "PTL_EQ_DROPPED",
                "the event queue was full, and events before this one are lost; allocate a longer one (count)",
            ),
            Self::EqEmpty => ("PTL_EQ_EMPTY", "the event queue is empty"),
            Self::Fail => ("PTL_FAIL", "the library could not do this, for a reason reported above"),
            Self::Ignored => ("PTL_IGNORED", "the map of the interface is set already; set it once"),
            Self::Interrupted => ("PTL_INTERRUPTED", "the object was freed while the call waited"),
            Self::NoInit => ("PTL_NO_INIT", "the library is not initialized; call PtlInit first"),
            Self::PidInUse => {
                ("PTL_PID_IN_USE", "pid is in use, or this process has another; pass PTL_PID_ANY")
            }
            Self::InUse => (
                "PTL_IN_USE",
                "an operation or a message in flight still uses it; wait for its event, and try again",
            ),
            Self::ListTooLong => (
                "PTL_LIST_TOO_LONG",
                "the list has max_list_size entries; unlink some, or ask PtlNIInit for more",
            ),
            Self::NoSpace => {
                ("PTL_NO_SPACE", "the limit of such objects is reached; free some, or ask PtlNIInit for more")
            }
            Self::PtFull => {
                ("PTL_PT_FULL", "all portal table entries are allocated; free one, or ask PtlNIInit for more")
            }
            Self::PtEqNeeded => {
                ("PTL_PT_EQ_NEEDED", "option PTL_PT_FLOWCTRL needs an event queue; pass eq_handle")
            }
            Self::PtInUse => (
                "PTL_PT_IN_USE",
                "the portal table entry is allocated, or has list entries or messages; unlink them first",
            ),
        }
    }

    /// Reports a failed call with its reason. Waiting without a result is no failure.
    #[cold]
    fn report(self, call: &str) {
        if !log::reports_errors() || matches!(self, Self::CtNoneReached | Self::EqEmpty | Self::Interrupted) {
            return;
        }
        let (name, meaning) = self.text();
        let reason = log::take_reason(self as c_int);
        let reason = reason.as_deref().or_else(|| of_engine(call, self)).unwrap_or(meaning);
        log::failure(call, &format!("{reason} ({name})"));
    }
}

/// What an error of the engine says about the arguments of a call.
fn of_engine(call: &str, code: Code) -> Option<&'static str> {
    if code != Code::ArgInvalid {
        return None;
    }
    Some(match call {
        "PtlMEAppend" | "PtlLEAppend" | "PtlTriggeredMEAppend" | "PtlMESearch" | "PtlLESearch" => {
            "pt_index names no allocated portal table entry, or ct_handle was freed; pass the index that PtlPTAlloc has returned"
        }
        "PtlMEUnlink" | "PtlLEUnlink" => {
            "the entry was unlinked already, by a message or by a call; unlink it once"
        }
        "PtlPTFree" | "PtlPTEnable" | "PtlPTDisable" => {
            "pt_index names no allocated portal table entry; pass what PtlPTAlloc returned"
        }
        "PtlPTAlloc" => {
            "pt_index_req is beyond max_pt_index, or eq_handle was freed; pass PTL_PT_ANY, and an open event queue"
        }
        "PtlMDRelease" => "md_handle was released already; release it once",
        "PtlMDBind" => {
            "eq_handle or ct_handle of the descriptor was freed; pass open ones, or PTL_EQ_NONE and PTL_CT_NONE"
        }
        "PtlEQFree" | "PtlEQGet" | "PtlEQWait" | "PtlEQPoll" => {
            "eq_handle was freed already; pass an open event queue"
        }
        "PtlCTFree"
        | "PtlCTGet"
        | "PtlCTSet"
        | "PtlCTInc"
        | "PtlCTWait"
        | "PtlCTPoll"
        | "PtlCTCancelTriggered" => "ct_handle was freed already; pass an open counter",
        "PtlPut" | "PtlGet" | "PtlAtomic" | "PtlFetchAtomic" | "PtlSwap" => {
            "md_handle was released, or offset and length exceed the descriptor or max_msg_size, or target_id is no process; check them"
        }
        _ => return None,
    })
}

/// A code with its reason, as by [`Code::because`].
macro_rules! code {
    ($name:ident, $($reason:tt)+) => {
        $crate::answer::Code::$name.because(format_args!($($reason)+))
    };
}

pub(crate) use code;

/// The code of a NULL address of an argument.
#[cold]
pub(crate) fn missing(argument: &str) -> Code {
    code!(ArgInvalid, "{argument} is NULL; pass the address of one")
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        // The call itself knows what this means; an earlier reason is not of this error.
        drop(log::take_reason(0));
        match error {
            Error::ArgInvalid => Self::ArgInvalid,
            Error::InUse => Self::InUse,
            Error::ListTooLong => Self::ListTooLong,
            Error::NoSpace => Self::NoSpace,
            Error::PtFull => Self::PtFull,
            Error::PtEqNeeded => Self::PtEqNeeded,
            Error::PtInUse => Self::PtInUse,
        }
    }
}

/// Runs the body of a call; panics do not leave it.
pub(crate) fn run_call(call: &str, body: impl FnOnce() -> Answer<()>) -> c_int {
    match catch_panic(body).unwrap_or(Err(Code::Fail)) {
        Ok(()) => 0,
        Err(code) => {
            code.report(call);
            code as c_int
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_codes() {
        for error in [
            Error::ArgInvalid,
            Error::InUse,
            Error::ListTooLong,
            Error::NoSpace,
            Error::PtFull,
            Error::PtEqNeeded,
            Error::PtInUse,
        ] {
            assert_eq!(Code::from(error) as u8, error.code());
        }
        assert_eq!(run_call("PtlInit", || panic!("on purpose")), Code::Fail as c_int);
    }
}
