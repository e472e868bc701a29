//! [`OpenedDevice`]: an opened device; its objects access the network and charge their callers' time through it.

use std::sync::{Arc, MutexGuard};

use host::world::Node;
use host::{Host, Span, Time};
use verbs::{DeviceAttr, Wc, WcOpcode};

use crate::net::{Net, Network};
use crate::parts::calls::CallCosts;
use crate::parts::kernel::Sockets;

/// An opened device, shared by all of its objects.
pub(crate) struct OpenedDevice {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) node: Node,
    pub(crate) net: Arc<Net>,
    pub(crate) context: u32,
    pub(crate) card: usize,
    /// Its single port, if it is not the whole card.
    pub(crate) port: Option<usize>,
    pub(crate) calls: CallCosts,
    pub(crate) sockets: Sockets,
    /// The time that a sleeping call takes to wake up.
    pub(crate) wake_up: Span,
    pub(crate) attr: DeviceAttr,
}

impl OpenedDevice {
    /// Charges the caller's time.
    pub(super) fn charge(&self, span: Span) {
        self.host.charge(span);
    }

    /// Notifies the card of polled completions or posted receives, if it needs that.
    pub(super) fn notify_card(&self) {
        if self.calls.notifies {
            let (mut network, now) = self.lock();
            network.notify_card(now, self.card);
        }
    }

    /// The time that the caller spends in the kernel for a completion, if the kernel's TCP carries the data.
    pub(super) fn kernel_receive_time(&self, wc: &Wc) -> Span {
        match wc.opcode {
            WcOpcode::Recv | WcOpcode::RecvWriteImm => self.sockets.recv_cost(wc.byte_len.into()),
            // Sockets have no reads: here a read models a library that receives data from its socket.
            WcOpcode::Read => self.sockets.recv_cost_by_events(wc.byte_len.into()),
            _ => Span::ZERO,
        }
    }

    /// The error for a feature that the interface lacks.
    pub(super) fn unsupported<T>(&self, what: &'static str) -> verbs::Result<T> {
        Err(verbs::Error::Unsupported { device: self.name.clone(), what })
    }

    /// Lets the world advance to the caller's clock, and locks the network. A panicking rank does not wait.
    pub(super) fn lock_synced(&self) -> (MutexGuard<'_, Network>, Time) {
        if !std::thread::panicking() {
            self.node.sync();
        }
        self.lock()
    }

    /// Locks the network without advancing the world, whose clock may be behind the caller's: sufficient to
    /// add events.
    pub(super) fn lock(&self) -> (MutexGuard<'_, Network>, Time) {
        let now = self.net.now();
        (self.net.lock(), now)
    }
}

impl Drop for OpenedDevice {
    fn drop(&mut self) {
        self.net.lock().close(self.context);
    }
}
