//! The control protocol between the two sides: frames of JSON behind their length, begun by a hello.
//!
//! A frame is 4 bytes of length, big-endian, and that many bytes of JSON, at most [`FRAME_MAX`]. Each side's first
//! frame is its [`Hello`]; a connection that begins otherwise is refused before more than a hello's length of data is
//! read. If the sides share a token, each then proves that it has it ([`Frame::Proof`]), the client first. Then the
//! client makes its request ([`Frame::Setup`]), and receives its place in the queue ([`Frame::Wait`]) as long as the
//! server has no room for it; or it requests a program to talk to ([`Frame::Run`]), and the data that follow are not
//! frames.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::{Settings, Word};
use crate::token::{Nonce, Party, Token};
use results::plain;
use results::schema::PeerInfo;

/// What a hello must say.
pub const MAGIC: &str = "nicety-control";
/// Version of this protocol.
pub const VERSION: u32 = 4;
/// Bytes of a frame at most.
pub const FRAME_MAX: u32 = 1 << 16;
/// Bytes of a hello at most.
pub const HELLO_MAX: u32 = 1 << 10;
/// Bytes of a proof or a set-up at most.
pub const SETUP_MAX: u32 = 1 << 11;

/// The first frame in each direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: String,
    /// [`VERSION`].
    pub version: u32,
    /// Version of the program, for messages.
    pub program: String,
    /// What the other side is to prove its token with; none if this side has no token.
    #[serde(default)]
    pub nonce: Option<Nonce>,
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
    /// Either: this shows that I have the token.
    Proof {
        /// Of the client or of the server.
        proof: String,
    },
    /// Client: open this device, measure like this.
    Setup(Setup),
    /// Client: let your program have this connection.
    Run,
    /// Server: it has.
    Runs,
    /// Server: there is no room yet.
    Wait {
        /// How many are before this client.
        ahead: u32,
    },
    /// Client: I am still waiting.
    Still,
    /// Server: done.
    Opened {
        /// The core it is pinned to.
        core: Option<usize>,
        /// Where it runs.
        #[serde(default)]
        machine: PeerInfo,
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

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Device.
    pub device: String,
    /// How to measure.
    pub settings: Settings,
    /// The core to be pinned to, if it was given.
    pub core: Option<usize>,
}

/// Why nothing more can be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection ended or broke.
    #[error("the peer went away ({})", ended(.0))]
    Gone(io::Error),
    /// Nothing came for too long.
    #[error("the peer sends nothing")]
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
    #[error("the tokens of the two sides differ; give both the same, by --token-file or NICETY_TOKEN")]
    Stranger,
    /// The other side has a token, this one none.
    #[error("the peer requires a token; give the one that it has, by --token-file or NICETY_TOKEN")]
    TokenWanted,
    /// This side has a token, the other none.
    #[error("the peer has no token to prove itself with; give it the same by --token-file, or none here")]
    TokenLacking,
    /// It says why it will not go on.
    #[error("the peer says: {0}")]
    Refused(String),
}

/// How the connection ended: the system's words for a process that is gone are many.
fn ended(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected => "its process has ended".to_owned(),
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
    let mut partial = Partial::default();
    partial.pull(input, limit)?.map_or(Err(WireError::Silent), |body| parse(&body))
}

/// What a frame says.
///
/// # Errors
/// [`WireError::Garbage`].
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    // What is wrong with it may name parts of it.
    plain::from_peer(body).map_err(|e| WireError::Garbage(plain::line(&e.to_string())))
}

/// The part of a frame received so far. It takes no data behind the frame.
#[derive(Debug, Default)]
pub struct Partial {
    got: Vec<u8>,
}

impl Partial {
    /// Reads on; a frame's content once it is whole, and nothing if `input` would block before that.
    ///
    /// # Errors
    /// As [`read`].
    pub fn pull(&mut self, input: &mut impl Read, limit: u32) -> Result<Option<Vec<u8>>, WireError> {
        loop {
            let whole = match self.got.first_chunk::<4>() {
                None => 4,
                Some(len) => match u32::from_be_bytes(*len) {
                    len if len > limit.min(FRAME_MAX) => return Err(WireError::TooLong(len)),
                    len => 4 + len as usize,
                },
            };
            let had = self.got.len();
            if had == whole {
                return Ok(Some(std::mem::take(&mut self.got).split_off(4)));
            }
            self.got.resize(whole, 0);
            let read = input.read(&mut self.got[had..]);
            self.got.truncate(had + read.as_ref().map_or(0, |n| *n));
            match read {
                Ok(0) => return Err(WireError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Whether some of a frame has come.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.got.is_empty()
    }
}

impl Hello {
    /// What this side says of itself.
    ///
    /// # Errors
    /// [`WireError::Gone`] where the system has no random numbers.
    pub fn own(token: Option<&Token>) -> Result<Self, WireError> {
        Ok(Self {
            magic: MAGIC.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            nonce: token.map(|_| Nonce::new()).transpose().map_err(WireError::Gone)?,
            pid: std::process::id(),
            machine: crate::machine::identity(),
        })
    }

    /// Reads the peer's and checks that it is one.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn read(input: &mut impl Read) -> Result<Self, WireError> {
        read::<Self>(input, HELLO_MAX)?.checked()
    }

    /// This hello, if it is one of this protocol.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn checked(self) -> Result<Self, WireError> {
        if self.magic != MAGIC {
            return Err(WireError::Garbage("no magic in its hello".into()));
        }
        if self.version != VERSION {
            let program = self.program.chars().take(20).collect();
            return Err(WireError::Version { theirs: self.version, program });
        }
        Ok(self)
    }
}

/// What the proofs of a connection are about: the token, and both sides' nonces; nothing where there is no token.
#[derive(Clone, Debug)]
pub struct Lock<'a> {
    token: &'a Token,
    nonces: [Nonce; 2],
}

impl<'a> Lock<'a> {
    /// From this side's token, if it has one, and both hellos.
    ///
    /// # Errors
    /// [`WireError`] if only one of the sides has a token.
    pub fn new(
        token: Option<&'a Token>,
        client: &Hello,
        server: &Hello,
        me: Party,
    ) -> Result<Option<Self>, WireError> {
        let theirs = if me == Party::Client { server } else { client };
        match (token, &theirs.nonce) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(WireError::TokenWanted),
            (Some(_), None) => Err(WireError::TokenLacking),
            (Some(token), Some(_)) => {
                let nonces = [client, server].map(|hello| hello.nonce.clone().unwrap_or_default());
                Ok(Some(Self { token, nonces }))
            }
        }
    }

    /// What `who` has to send.
    #[must_use]
    pub fn proof(&self, who: Party) -> Frame {
        let [client, server] = &self.nonces;
        Frame::Proof { proof: self.token.proof(who, [client, server]) }
    }

    /// Whether `frame` is the proof expected from `who`.
    ///
    /// # Errors
    /// [`WireError`] if it is not.
    pub fn check(&self, frame: Frame, who: Party) -> Result<(), WireError> {
        let [client, server] = &self.nonces;
        match frame {
            Frame::Proof { proof } if self.token.is_proof(&proof, who, [client, server]) => Ok(()),
            Frame::Refused { why } => Err(WireError::Refused(why)),
            _ => Err(WireError::Stranger),
        }
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
