//! [`Key`]: 128 secret bits, derived keys, and authentication codes.

use std::{fmt, io};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Bytes of a key, and of a proof.
pub(crate) const KEY: usize = 16;

/// The system gives no random bytes, so no key can be made. The sentence is that of [`host::random`].
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NoRandom(io::Error);

/// A secret of 128 bits. [`Debug`](fmt::Debug) does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandom> {
    host::random().map_err(NoRandom)
}

impl Key {
    /// A new key.
    ///
    /// # Errors
    /// [`NoRandom`].
    pub fn random() -> Result<Self, NoRandom> {
        random().map(Self)
    }

    /// Makes a key from bytes.
    pub const fn from_bytes(bytes: [u8; KEY]) -> Self {
        Self(bytes)
    }

    /// The secret bytes.
    pub const fn to_bytes(&self) -> [u8; KEY] {
        self.0
    }

    /// Parses 32 hexadecimal digits; `None` for other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }

    /// As 32 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Derives a key for a purpose. The derived key reveals nothing about this one. Each part is hashed with its length.
    pub fn derive(&self, purpose: &str, parts: &[&[u8]]) -> Self {
        let mut mac = self.mac(purpose);
        for part in parts {
            mac.add(&(part.len() as u64).to_le_bytes());
            mac.add(part);
        }
        Self(mac.finish())
    }

    /// Encrypts another key under this one; the same call with the same `nonce` decrypts it. Use each nonce for one key only.
    pub fn seal(&self, nonce: &[u8], other: &Self) -> Self {
        let pad = self.derive("seal", &[nonce]);
        Self(std::array::from_fn(|at| pad.0[at] ^ other.0[at]))
    }

    /// Begins an authentication code under this key.
    pub(crate) fn mac(&self, purpose: &str) -> Mac {
        let mut mac = <Hmac<Sha256>>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(&[purpose.len() as u8]);
        mac.update(purpose.as_bytes());
        Mac(mac)
    }
}

/// An unfinished authentication code.
pub(crate) struct Mac(Hmac<Sha256>);

impl Mac {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The first 128 bits of the code.
    pub(crate) fn finish(self) -> [u8; KEY] {
        let code = self.0.finalize().into_bytes();
        std::array::from_fn(|at| code[at])
    }

    /// Whether the code is `claimed`, compared in constant time.
    pub(crate) fn verifies(self, claimed: &[u8; KEY]) -> bool {
        self.0.verify_truncated_left(claimed).is_ok()
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses hexadecimal digits; `None` for other text, and for another length.
pub(crate) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_key_hides_it() {
        let key = Key::from_bytes([0xab; KEY]);
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn hexadecimal_text_is_a_key_and_other_text_is_none() {
        let key = Key::random().expect("random bytes");
        assert_eq!(Key::from_hex(&key.to_hex()), Some(key.clone()));
        let long = key.to_hex() + "00";
        for wrong in [
            "",
            "00",
            &key.to_hex()[1..],
            &long,
            "g0112233445566778899aabbccddeeff",
            "é112233445566778899aabbccddeeff",
        ] {
            assert_eq!(Key::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn random_keys_differ() {
        assert_ne!(Key::random().expect("random bytes"), Key::random().expect("random bytes"));
    }

    /// RFC 4231, test case 2 has a key of 4 bytes; case 1 has 20. This crate's keys have 16, so the vector is Python's `hmac`
    /// module's.
    #[test]
    fn codes_are_hmac_sha_256() {
        let key = Key::from_bytes(std::array::from_fn(|at| at as u8));
        let mut code = key.mac("test");
        code.add(b"message");
        assert_eq!(hex(&code.finish()), "07e121b8831f9f09ab2b1484042c3651");
    }

    #[test]
    fn codes_are_compared_whole() {
        let key = Key::from_bytes([1; KEY]);
        let code = key.mac("a").finish();
        assert!(key.mac("a").verifies(&code) && !key.mac("b").verifies(&code));
        for bit in 0..128 {
            let mut changed = code;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.mac("a").verifies(&changed), "bit {bit}");
        }
    }

    /// Goal: no two inputs of `derive` are ambiguous.
    #[test]
    fn derived_keys_depend_on_purpose_and_each_part() {
        let key = Key::from_bytes([7; KEY]);
        let all = [
            key.derive("a", &[]),
            key.derive("b", &[]),
            key.derive("a", &[b""]),
            key.derive("a", &[b"x", b"yz"]),
            key.derive("a", &[b"xy", b"z"]),
            key.derive("a", &[b"xyz"]),
            Key::from_bytes([8; KEY]).derive("a", &[]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| one != other), "{at}");
        }
    }

    #[test]
    fn a_sealed_key_opens_with_its_key_and_nonce_alone() {
        let (key, other) = (Key::from_bytes([1; KEY]), Key::from_bytes([2; KEY]));
        let sealed = key.seal(b"nonce", &other);
        assert_ne!(sealed, other);
        assert_eq!(key.seal(b"nonce", &sealed), other);
        assert_ne!(key.seal(b"nonc2", &sealed), other);
        assert_ne!(Key::from_bytes([3; KEY]).seal(b"nonce", &sealed), other);
    }
}
