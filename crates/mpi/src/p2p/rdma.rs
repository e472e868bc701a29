//! RDMA between a buffer of this process and ranges of a peer's memory.

use verbs::{Buf, RemoteAddr, SendOp};

use crate::error::Result;
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Started};
use crate::p2p::operation::RdmaBuffer;
use crate::status::Status;

impl Engine {
    /// Starts to write a buffer's bytes to consecutive ranges of a peer's memory, or to read them, as `op` says for one range. The
    /// ranges are as long in total as the buffer.
    ///
    /// # Errors
    /// The process is lost, or cannot be reached; there is no memory for a copy.
    pub(crate) fn rdma_transfer(
        &mut self,
        process: u32,
        places: &[(RemoteAddr, u64)],
        buffer: &Buffer,
        op: fn(RemoteAddr) -> SendOp,
    ) -> Result<Started> {
        let (len, is_read) = (buffer.len(), op(RemoteAddr::default()).fetches());
        if len == 0 {
            return Ok(Started::Completed(Status::empty()));
        }
        let (address, staging) = match buffer.contiguous_range() {
            Some((address, _)) => (address as u64, None),
            None => {
                let staging = Buf::alloc(len as usize)?;
                if !is_read {
                    buffer.load_to(&staging, 0)?;
                    self.host().charge_copy(len);
                }
                (staging.addr(), Some(staging))
            }
        };
        let memory = if staging.is_none() { buffer.memory() } else { None };
        let registration =
            self.transport.register_in(process, (address as usize, len as usize), memory, false)?;
        let step = self.transport.nic_of(process)?.shared.access_max();
        let (mut requests, mut done) = (Vec::with_capacity(places.len()), 0);
        for (place, length) in places {
            for begin in (0..*length).step_by(step as usize) {
                let length = (length - begin).min(step);
                requests.push((op(place.offset(begin)), registration.sge(address + done, length as u32)));
                done += length;
            }
        }
        let rdma_buffer =
            RdmaBuffer { buffer: buffer.clone(), staging, is_read, _registration: registration };
        self.start_rdma(process, &requests, Some(rdma_buffer))
    }
}
