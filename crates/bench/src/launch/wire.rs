//! The control protocol between the two sides: frames of JSON behind their length, begun by a hello.
//!
//! A frame is 4 bytes of length, big-endian, and so many bytes of JSON, at most [`FRAME_MAX`]. Each side's first frame
//! is its [`Hello`]; what does not begin so is refused before more than a hello's length of it was read.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::{Settings, Word};

/// What a hello must say.
pub const MAGIC: &str = "nicety-control";
/// Version of this protocol.
pub const VERSION: u32 = 1;
/// Bytes of a frame at most.
pub const FRAME_MAX: u32 = 1 << 16;
/// Bytes of a hello at most.
pub const HELLO_MAX: u32 = 1 << 10;

/// The first frame in each direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: String,
    /// [`VERSION`].
    pub version: u32,
    /// Version of the program, for messages.
    pub program: String,
    /// The secret that the two processes of one run share; empty for `nicety serve`.
    #[serde(default)]
    pub token: String,
    /// Process number.
    #[serde(default)]
    pub pid: u32,
    /// Which kernel and process namespace the number belongs to.
    #[serde(default)]
    pub machine: String,
}

/// Every frame after the hello.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Frame {
    /// Client: open this device, measure like this.
    Setup {
        /// Device.
        device: String,
        /// How.
        settings: Settings,
        /// The core to be pinned to, if it was given.
        core: Option<usize>,
    },
    /// Server: done.
    Opened {
        /// The core it is pinned to.
        core: Option<usize>,
    },
    /// Server: not done.
    Refused {
        /// Why.
        why: String,
    },
    /// Either: words about cells.
    Word {
        /// The word.
        word: Word,
    },
}

/// Why nothing more can be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection ended or broke.
    #[error("the peer went away ({})", ended(.0))]
    Gone(io::Error),
    /// Nothing came for too long.
    #[error("the peer says nothing")]
    Silent,
    /// Longer than allowed.
    #[error("a frame of {0} bytes is too long; this is no nicety peer")]
    TooLong(u32),
    /// Not what a frame holds.
    #[error("the peer does not speak this protocol: {0}")]
    Garbage(String),
    /// Another version.
    #[error(
        "the peer speaks version {theirs} of the control protocol (nicety {program}), this program {VERSION}; install the same nicety on both sides"
    )]
    Version {
        /// Theirs.
        theirs: u32,
        /// Their program.
        program: String,
    },
    /// The token is another's.
    #[error("the peer does not belong to this run")]
    Stranger,
}

/// How the connection ended: the system's words for a process that is gone are many.
fn ended(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "its process has ended".to_owned()
        }
        _ => why.to_string(),
    }
}

impl From<io::Error> for WireError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Gone(e),
        }
    }
}

/// Writes one frame.
///
/// # Errors
/// [`WireError`].
pub fn write<T: Serialize>(out: &mut impl Write, what: &T) -> Result<(), WireError> {
    let body = serde_json::to_vec(what).map_err(|e| WireError::Garbage(e.to_string()))?;
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if len > FRAME_MAX {
        return Err(WireError::TooLong(len));
    }
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&body);
    Ok(out.write_all(&frame)?)
}

/// Reads one frame of at most `limit` bytes.
///
/// # Errors
/// [`WireError`]; nothing more can be read then.
pub fn read<T: DeserializeOwned>(input: &mut impl Read, limit: u32) -> Result<T, WireError> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len);
    if len > limit.min(FRAME_MAX) {
        return Err(WireError::TooLong(len));
    }
    let mut body = vec![0; len as usize];
    input.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(|e| WireError::Garbage(e.to_string()))
}

impl Hello {
    /// This side's.
    #[must_use]
    pub fn own(token: &str) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            token: token.to_owned(),
            pid: std::process::id(),
            machine: super::machine::identity(),
        }
    }

    /// Reads the peer's and checks it against what this side expects.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn read(input: &mut impl Read, token: &str) -> Result<Self, WireError> {
        let hello: Self = read(input, HELLO_MAX)?;
        if hello.magic != MAGIC {
            return Err(WireError::Garbage("no magic in its hello".into()));
        }
        if hello.version != VERSION {
            let program = hello.program.chars().take(20).collect();
            return Err(WireError::Version { theirs: hello.version, program });
        }
        if hello.token != token {
            return Err(WireError::Stranger);
        }
        Ok(hello)
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
