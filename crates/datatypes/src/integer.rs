//! Integers of any width in the host's byte order.

/// The value of up to 16 bytes; unsigned ones have at most 8.
pub(crate) fn read(bytes: &[u8], signed: bool) -> i128 {
    let fill = match bytes.last() {
        Some(&last) if cfg!(target_endian = "little") => last,
        _ => bytes.first().copied().unwrap_or(0),
    };
    let mut padded = [if signed && fill >= 0x80 { 0xff } else { 0 }; 16];
    if cfg!(target_endian = "little") {
        padded[..bytes.len()].copy_from_slice(bytes);
    } else {
        padded[16 - bytes.len()..].copy_from_slice(bytes);
    }
    i128::from_ne_bytes(padded)
}

/// Writes the low bytes of a value.
pub(crate) fn write(value: i128, bytes: &mut [u8]) {
    let (padded, length) = (value.to_ne_bytes(), bytes.len());
    if cfg!(target_endian = "little") {
        bytes.copy_from_slice(&padded[..length]);
    } else {
        bytes.copy_from_slice(&padded[16 - length..]);
    }
}
