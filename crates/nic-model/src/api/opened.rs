//! [`Opened`]: an opened device, and how its objects come to the network and spend their callers' time.

use std::sync::{Arc, MutexGuard};

use host::world::Node;
use host::{Host, Span, Time};
use verbs::{DeviceAttr, Wc, WcOpcode};

use crate::net::{Net, Network};
use crate::parts::calls::Calls;
use crate::parts::kernel::Sockets;

/// An opened device; what all of its objects keep.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) node: Node,
    pub(crate) net: Arc<Net>,
    pub(crate) context: u32,
    pub(crate) card: usize,
    /// The only port that it is, if it is not the whole card.
    pub(crate) port: Option<usize>,
    pub(crate) calls: Calls,
    pub(crate) sockets: Sockets,
    /// What a call that slept takes to wake up.
    pub(crate) wake_up: Span,
    pub(crate) attr: DeviceAttr,
}

impl Opened {
    /// Spends the caller's time.
    pub(super) fn charge(&self, span: Span) {
        self.host.charge(span);
    }

    /// Tells the card what its caller has taken or given, where it wants to know.
    pub(super) fn tell(&self) {
        if self.calls.tells {
            let (mut network, now) = self.post();
            network.tell(now, self.card);
        }
    }

    /// What the caller takes from the kernel with a completion, where data come through that.
    pub(super) fn taken(&self, wc: &Wc) -> Span {
        match wc.opcode {
            WcOpcode::Recv | WcOpcode::RecvWriteImm => self.sockets.take(wc.byte_len.into()),
            // Sockets have no reads: a read stands for data that a library takes from its socket.
            WcOpcode::Read => self.sockets.take_by_events(wc.byte_len.into()),
            _ => Span::ZERO,
        }
    }

    /// The answer to what the interface does not have.
    pub(super) fn refuse<T>(&self, what: &'static str) -> verbs::Result<T> {
        Err(verbs::Error::Unsupported { device: self.name.clone(), what })
    }

    /// Lets the world come to the caller's clock, and looks at the network as it is then. A rank that panics no longer
    /// waits for anything.
    pub(super) fn look(&self) -> (MutexGuard<'_, Network>, Time) {
        if !std::thread::panicking() {
            self.node.sync();
        }
        self.post()
    }

    /// The network as it is at some time before the caller's clock: good for adding events.
    pub(super) fn post(&self) -> (MutexGuard<'_, Network>, Time) {
        let now = self.net.now();
        (self.net.lock(), now)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.net.lock().close(self.context);
    }
}
