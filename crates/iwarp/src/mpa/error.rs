//! [`HandshakeError`]: why a handshake made no connection.

use thiserror::Error;

use crate::terminate::TerminateCode;

/// Why a handshake did not make a connection.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HandshakeError {
    /// RFC 5044 section 7.1.2.
    #[error("the bytes received are no MPA frame: the peer uses another protocol, or both sides connected")]
    Key,
    /// RFC 5044 section 7.1.1.
    #[error("the frame announces {len} bytes of private data; the maximum is 512")]
    PrivateDataTooLong {
        /// Bytes announced.
        len: usize,
    },
    /// RFC 6581 section 6.
    #[error("the frame lacks the four bytes that revision 2 needs")]
    EnhancedMissing,
    /// RFC 5044 section 7.1.1.
    #[error("the peer uses MPA revision {0}, which is not supported")]
    Revision(u8),
    /// The peer answered revision 2 in revision 1: see
    /// [`Initiator::may_retry_as_v1`](super::Initiator::may_retry_as_v1).
    #[error("the peer supports only MPA revision 1")]
    Downgraded,
    /// See the table of what is implemented in the crate's documentation.
    #[error("the peer demands markers in the stream, which are not supported")]
    MarkersDemanded,
    /// The initiator must wait for the reply (RFC 5044 section 7.1.2).
    #[error("the peer sent data before it had its reply")]
    EarlyBytes,
    /// RFC 6581 section 9.1.
    #[error("the peer needs {wanted} outstanding reads, but only {granted} are granted")]
    InsufficientIrd {
        /// Depth that the side that sends reads asked for.
        wanted: u16,
        /// Depth that the side that serves reads grants.
        granted: u16,
    },
    /// RFC 6581 section 9.2.
    #[error("the two sides have no ready-to-receive message in common")]
    NoCommonRtr,
    /// The deadline passed.
    #[error("the peer did not finish the handshake in time")]
    Timeout,
    /// The stream ended.
    #[error("the peer closed the connection during the handshake")]
    Closed,
    /// The caller's mistake.
    #[error("{len} bytes of private data; the maximum is {max}")]
    OwnPrivateData {
        /// Length given.
        len: usize,
        /// Maximum length.
        max: usize,
    },
    /// The caller's mistake.
    #[error("a read depth of {depth}; the maximum that can be negotiated is {max}")]
    OwnDepth {
        /// Depth given.
        depth: u16,
        /// Maximum depth.
        max: u16,
    },
    /// The caller's mistake: accepted or rejected without a request, or twice.
    #[error("there is no connection request to answer")]
    NoRequest,
}

impl HandshakeError {
    /// The code of the Terminate that an initiator sends for this error after the reply (RFC 5044 section 8, RFC 6581
    /// section 8).
    pub(super) const fn terminate_code(&self) -> Option<TerminateCode> {
        Some(match self {
            Self::Key
            | Self::PrivateDataTooLong { .. }
            | Self::EnhancedMissing
            | Self::Revision(_)
            | Self::Downgraded
            | Self::MarkersDemanded => TerminateCode::LLP_FRAME,
            Self::InsufficientIrd { .. } => TerminateCode::LLP_IRD,
            Self::NoCommonRtr => TerminateCode::LLP_RTR,
            _ => return None,
        })
    }
}
