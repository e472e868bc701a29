//! [`SendBuffer`]: handshake bytes that have not been sent yet.

/// Bytes that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendBuffer {
    pub(super) fn set(&mut self, bytes: Vec<u8>) {
        *self = Self { bytes, sent: 0 };
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn sent(&mut self, n: usize) {
        self.sent = self.bytes.len().min(self.sent + n);
    }
}
