//! [`WindowDesc`]: the description of a member's memory that the others get, with a fixed size in bytes.

use verbs::RemoteAddr;

use crate::peers::address::PORTS_MAX;

/// One member's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WindowDesc {
    /// Bytes of its part of the window, and of a unit of displacement.
    pub(super) size: u64,
    pub(super) unit: u64,
    /// The ports that own the memory of its part and of its control block, where others may map it. [`NO_PORT`] for host memory.
    pub(super) data_port: u8,
    pub(super) control_port: u8,
    /// Addresses of its part and of its control block, by port.
    pub(super) data: [RemoteAddr; PORTS_MAX],
    pub(super) control: [RemoteAddr; PORTS_MAX],
}

/// The port of host memory.
pub(super) const NO_PORT: u8 = u8::MAX;
/// Bytes of an encoded [`RemoteAddr`], and of a [`WindowDesc`].
const REMOTE_ADDR_LEN: usize = 12;
pub(super) const DESC_LEN: usize = 24 + 2 * PORTS_MAX * REMOTE_ADDR_LEN;

impl WindowDesc {
    /// The description of a part with this size and displacement unit, which is not registered with any port yet.
    pub(super) fn new(size: u64, unit: u64) -> Self {
        Self { size, unit, data_port: NO_PORT, control_port: NO_PORT, ..Self::default() }
    }

    /// The encoded description.
    pub(super) fn bytes(&self) -> [u8; DESC_LEN] {
        let mut bytes = [0; DESC_LEN];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.unit.to_le_bytes());
        (bytes[16], bytes[17]) = (self.data_port, self.control_port);
        for (place, at) in self.data.iter().chain(&self.control).zip((24..).step_by(REMOTE_ADDR_LEN)) {
            bytes[at..at + 8].copy_from_slice(&place.addr.to_le_bytes());
            bytes[at + 8..at + REMOTE_ADDR_LEN].copy_from_slice(&place.rkey.to_le_bytes());
        }
        bytes
    }

    /// Decodes a member's description; `None` for a wrong length, or for a part beyond the end of the address space.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DESC_LEN] = bytes.try_into().ok()?;
        let u64_at = |at: usize| bytes[at..at + 8].first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
        let place = |number: usize| {
            let at = 24 + number * REMOTE_ADDR_LEN;
            let rkey =
                bytes[at + 8..at + REMOTE_ADDR_LEN].first_chunk().map_or(0, |part| u32::from_le_bytes(*part));
            RemoteAddr { addr: u64_at(at), rkey }
        };
        let desc = Self {
            size: u64_at(0),
            unit: u64_at(8),
            data_port: bytes[16],
            control_port: bytes[17],
            data: std::array::from_fn(place),
            control: std::array::from_fn(|number| place(PORTS_MAX + number)),
        };
        let fits = desc.size <= i64::MAX as u64
            && (1..=i64::MAX as u64).contains(&desc.unit)
            && desc.data.iter().all(|place| place.addr.checked_add(desc.size).is_some());
        fits.then_some(desc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_desc_roundtrip_keeps_values() {
        let place = |n: u64| RemoteAddr { addr: n << 40 | n, rkey: n as u32 };
        let desc = WindowDesc {
            size: 12345,
            unit: 8,
            data_port: 1,
            control_port: NO_PORT,
            data: std::array::from_fn(|n| place(n as u64 + 1)),
            control: std::array::from_fn(|n| place(n as u64 + 100)),
        };
        assert_eq!(WindowDesc::parse(&desc.bytes()), Some(desc));
        assert_eq!(WindowDesc::parse(&desc.bytes()[1..]), None);
        for malformed in [
            WindowDesc { size: u64::MAX, ..desc },
            WindowDesc { unit: 0, ..desc },
            WindowDesc { unit: 1 << 63, ..desc },
        ] {
            assert_eq!(WindowDesc::parse(&malformed.bytes()), None, "{malformed:?}");
        }
        let mut wraps = WindowDesc { size: 2, ..desc };
        wraps.data[2].addr = u64::MAX;
        assert_eq!(WindowDesc::parse(&wraps.bytes()), None);
    }
}
