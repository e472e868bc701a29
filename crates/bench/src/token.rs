//! [`Token`]: a secret that two sides share, and how each proves to the other that it has it.
//!
//! The token itself is never sent. Each side sends a [`Nonce`], and then an HMAC-SHA256 of both nonces under the
//! token, with a label for its own side, so that a proof cannot be used as the other side's, or replayed. Proofs are
//! compared in constant time.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use verbs::host::bounded;

/// Minimum characters of a token: an eavesdropper with a proof can try tokens against it offline, without limit.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 1024;
/// Maximum bytes of a token file: characters have up to four.
const FILE_MAX: u64 = 4 * LENGTH_MAX as u64 + 64;
/// The environment variable for a token.
pub const VARIABLE: &str = "NICETY_TOKEN";
/// The purpose that a proof covers, in addition to the nonces.
const PURPOSE: &[u8] = b"nicety token 1";

/// A secret that two sides share. It is never shown: [`Debug`](fmt::Debug) leaves it out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}

/// A number used only once, in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(String);

/// Which side proves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The connecting side.
    Client,
    /// The accepting side.
    Server,
}

impl Nonce {
    /// A new random nonce.
    ///
    /// # Errors
    /// The system's error if it has no random numbers.
    pub fn new() -> std::io::Result<Self> {
        random().map(Self)
    }
}

/// 128 random bits.
fn random() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Why there is no token; never the token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Too short to be secret, or too long.
    #[error(
        "a token of {0} characters, which has to have {LENGTH_MIN} to {LENGTH_MAX}; `openssl rand -hex 16` makes one"
    )]
    Length(usize),
    /// The file cannot be read.
    #[error("cannot read the token in {path}: {why}; check its name", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// It is no file.
    #[error("the token in {path}: this is no file; give a file that holds the token alone", path = .0.display())]
    NoFile(PathBuf),
    /// Others can read it.
    #[error("the token in {path} can be read by others; `chmod 600 {path}`", path = .0.display())]
    Open(PathBuf),
    /// The file contains no valid token.
    #[error("{path} holds {why}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why its content is invalid.
        why: Box<Self>,
    },
}

impl Token {
    /// The token of this text, without the white space around it.
    ///
    /// # Errors
    /// [`TokenError::Length`].
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        match text.chars().count() {
            LENGTH_MIN..=LENGTH_MAX => Ok(Self(text.to_owned())),
            n => Err(TokenError::Length(n)),
        }
    }

    /// Reads a token from a file that only its owner can read.
    ///
    /// # Errors
    /// As [`new`](Self::new); a file that cannot be read, is not a regular file, or that others can read.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let cannot = |why| TokenError::Io { path: path.to_owned(), why };
        let about = std::fs::metadata(path).map_err(cannot)?;
        if !about.is_file() {
            return Err(TokenError::NoFile(path.to_owned()));
        }
        if about.mode() & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned()));
        }
        let text = bounded::read_text(path, FILE_MAX).map_err(cannot)?;
        Self::new(&text).map_err(|why| TokenError::Content { path: path.to_owned(), why: Box::new(why) })
    }

    /// A new random token, for processes started by one program.
    ///
    /// # Errors
    /// As [`Nonce::new`].
    pub fn random() -> std::io::Result<Self> {
        random().map(Self)
    }

    /// The proof that `who` sends to show that it has the token, computed from both sides' nonces: the client's
    /// first.
    #[must_use]
    pub fn proof(&self, who: Party, nonces: [&Nonce; 2]) -> String {
        hex(&self.mac(who, nonces).finalize().into_bytes())
    }

    /// Whether this is the proof expected from `who`. Takes the same time for all wrong proofs.
    #[must_use]
    pub fn is_proof(&self, proof: &str, who: Party, nonces: [&Nonce; 2]) -> bool {
        unhex(proof).is_some_and(|proof| self.mac(who, nonces).verify_slice(&proof).is_ok())
    }

    /// The authentication code of both nonces for one side.
    fn mac(&self, who: Party, nonces: [&Nonce; 2]) -> Hmac<Sha256> {
        // HMAC takes keys of any length; the error is for other codes.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(self.0.as_bytes())
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(PURPOSE);
        mac.update(match who {
            Party::Client => b"client",
            Party::Server => b"server",
        });
        for Nonce(nonce) in nonces {
            // With their lengths, so that no other two nonces give the same text.
            mac.update(&(nonce.len() as u64).to_be_bytes());
            mac.update(nonce.as_bytes());
        }
        mac
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn token(text: &str) -> Token {
        Token::new(text).expect("long enough")
    }

    #[test]
    fn a_proof_is_good_for_one_side_one_token_and_one_time() {
        let (ours, theirs) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let (a, b) = (Nonce::new().expect("random"), Nonce::new().expect("random"));
        assert_ne!(a, b);
        let proof = ours.proof(Party::Client, [&a, &b]);
        assert!(ours.is_proof(&proof, Party::Client, [&a, &b]));
        assert!(!ours.is_proof(&proof, Party::Server, [&a, &b]), "the other side's");
        assert!(!ours.is_proof(&proof, Party::Client, [&b, &a]), "another time");
        assert!(!theirs.is_proof(&proof, Party::Client, [&a, &b]), "another token");
        for wrong in ["", "0", "zz", &proof[1..], &proof[2..], "\u{1F980}"] {
            assert!(!ours.is_proof(wrong, Party::Client, [&a, &b]), "{wrong}");
        }
        assert!(!proof.contains("0123456789abcdef") && !format!("{ours:?}").contains("0123"));
    }

    #[test]
    fn a_token_is_long_and_its_file_is_its_owners_alone() {
        assert!(Token::new("password").expect_err("short").to_string().contains("openssl"));
        assert!(Token::new(&"x".repeat(LENGTH_MAX + 1)).is_err());
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
            Token::from_file(&path)
        };
        assert_eq!(write("0123456789abcdef\n", 0o600).ok(), Some(token("0123456789abcdef")));
        let open = write("0123456789abcdef\n", 0o640).expect_err("open").to_string();
        assert!(open.contains("chmod 600"), "{open}");
        let short = write("short\n", 0o600).expect_err("short").to_string();
        assert!(!short.contains("short\n") && short.contains("5 characters"), "{short}");
        assert!(Token::from_file(dir.path()).expect_err("a folder").to_string().contains("no file"));
        assert!(Token::from_file(&dir.path().join("none")).is_err());
    }
}
