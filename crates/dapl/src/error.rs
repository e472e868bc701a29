//! [`Error`]: why a call failed, as the standard's types and subtypes (`dat_error.h` of DAT 2.0).

use std::sync::Arc;

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The type of an error (`DAT_RETURN_TYPE`), by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // the standard's names
pub enum ErrorKind {
    Abort = 0x01,
    ConnQualInUse = 0x02,
    InsufficientResources = 0x03,
    InternalError = 0x04,
    InvalidHandle = 0x05,
    InvalidParameter = 0x06,
    InvalidState = 0x07,
    LengthError = 0x08,
    ModelNotSupported = 0x09,
    ProviderNotFound = 0x0A,
    PrivilegesViolation = 0x0B,
    ProtectionViolation = 0x0C,
    QueueEmpty = 0x0D,
    QueueFull = 0x0E,
    TimeoutExpired = 0x0F,
    InvalidAddress = 0x12,
    InterruptedCall = 0x13,
    ConnQualUnavailable = 0x14,
    NotImplemented = 0x3FFF,
}

/// The subtype of an error (`DAT_RETURN_SUBTYPE`), by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // the standard's names
pub enum Subtype {
    None = 0,
    ResourceMemory = 2,
    ResourceDevice = 3,
    ResourceTep = 4,
    ResourceTevd = 5,
    ResourceProtectionDomain = 6,
    ResourceMemoryRegion = 7,
    ResourceCredits = 9,
    ResourceSrq = 10,
    HandleIa = 11,
    HandleEp = 12,
    HandleLmr = 13,
    HandleRmr = 14,
    HandlePz = 15,
    HandlePsp = 16,
    HandleRsp = 17,
    HandleCr = 18,
    HandleCno = 19,
    HandleEvdCr = 20,
    HandleEvdRequest = 21,
    HandleEvdRecv = 22,
    HandleEvdConn = 23,
    HandleEvdAsync = 24,
    HandleSrq = 25,
    HandleCsp = 26,
    Arg1 = 37,
    Arg2 = 38,
    Arg3 = 39,
    Arg4 = 40,
    Arg5 = 41,
    Arg6 = 42,
    Arg7 = 43,
    Arg8 = 44,
    Arg9 = 45,
    Arg10 = 46,
    EpUnconnected = 47,
    EpActiveConnectionPending = 48,
    EpPassiveConnectionPending = 49,
    EpTentativeConnectionPending = 50,
    EpConnected = 51,
    EpDisconnected = 52,
    EpReserved = 53,
    EpCompletionPending = 54,
    EpDisconnectPending = 55,
    EpNotReady = 57,
    EpUnconfigured = 63,
    CnoInUse = 67,
    EvdUnwaitable = 73,
    EvdInUse = 74,
    EvdWaiter = 78,
    IaInUse = 80,
    LmrInUse = 81,
    PzInUse = 83,
    SrqInUse = 87,
    PrivilegesRead = 89,
    PrivilegesWrite = 90,
    PrivilegesRdmaRead = 91,
    PrivilegesRdmaWrite = 92,
    AddressUnsupported = 97,
    AddressUnreachable = 98,
    AddressMalformed = 99,
    NameNotRegistered = 100,
}

/// Why a call failed. A call that returns an error has had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The type.
    pub kind: ErrorKind,
    /// The subtype.
    pub subtype: Subtype,
    /// The device's error, if the device failed.
    pub cause: Option<Arc<verbs::Error>>,
}

impl Error {
    /// An error without a device's error as its cause.
    pub const fn new(kind: ErrorKind, subtype: Subtype) -> Self {
        Self { kind, subtype, cause: None }
    }

    /// An invalid argument, by its number in the standard's argument list.
    pub const fn argument(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidParameter, subtype)
    }

    /// An object in a state that does not allow the call.
    pub const fn state(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidState, subtype)
    }

    /// An object of the wrong kind, or of another adapter.
    pub const fn handle(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidHandle, subtype)
    }

    /// Converts a device's error; `resource` is the resource that it may have run out of.
    pub(crate) fn device(cause: verbs::Error, resource: Subtype) -> Self {
        use verbs::Error as E;
        let (kind, subtype) = match &cause {
            E::Unsupported { .. } => (ErrorKind::NotImplemented, Subtype::None),
            E::Limit { .. } | E::System { .. } => (ErrorKind::InsufficientResources, resource),
            E::QueueFull { .. } => (ErrorKind::InsufficientResources, Subtype::ResourceMemory),
            E::Invalid(_) => (ErrorKind::InvalidParameter, Subtype::None),
            // The memory is the third argument of every call that takes one.
            E::Memory { .. } => (ErrorKind::InvalidParameter, Subtype::Arg3),
            E::CqOverrun { .. } => (ErrorKind::QueueFull, Subtype::None),
            E::WrongState { .. } | E::Busy { .. } => (ErrorKind::InvalidState, Subtype::None),
            E::Foreign { .. } => (ErrorKind::InvalidHandle, Subtype::None),
            E::Address { .. } => (ErrorKind::InvalidAddress, Subtype::AddressUnsupported),
            E::TimedOut { .. } => (ErrorKind::TimeoutExpired, Subtype::None),
            _ => (ErrorKind::InternalError, Subtype::None),
        };
        Self { kind, subtype, cause: Some(Arc::new(cause)) }
    }

    /// The standard's number: class, type and subtype in one (`DAT_RETURN`).
    pub const fn code(&self) -> u32 {
        const CLASS_ERROR: u32 = 0x8000_0000;
        CLASS_ERROR | (self.kind as u32) << 16 | self.subtype as u32
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.kind)?;
        if self.subtype != Subtype::None {
            write!(f, " ({:?})", self.subtype)?;
        }
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Maps a device's errors where they happen.
pub(crate) trait OrDevice<T> {
    /// Converts the error of a result; `resource` is the resource that a device may have run out of.
    fn or_device(self, resource: Subtype) -> Result<T>;
}

impl<T> OrDevice<T> for verbs::Result<T> {
    fn or_device(self, resource: Subtype) -> Result<T> {
        self.map_err(|cause| Error::device(cause, resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_equal_those_of_the_standard() {
        assert_eq!(Error::handle(Subtype::HandleEp).code(), 0x8005_000C);
        assert_eq!(Error::argument(Subtype::Arg3).code(), 0x8006_0027);
        assert_eq!(Error::new(ErrorKind::QueueEmpty, Subtype::None).code(), 0x800D_0000);
        assert_eq!(Error::new(ErrorKind::NotImplemented, Subtype::None).code(), 0xBFFF_0000);
    }

    #[test]
    fn messages_name_the_cause() {
        let cause = verbs::Error::Limit { what: "regions", given: 5, limit: 4 };
        let error = Error::device(cause, Subtype::ResourceMemoryRegion);
        let expected =
            "InsufficientResources (ResourceMemoryRegion): regions is 5, but at most 4 is possible";
        assert_eq!(error.to_string(), expected);
    }
}
