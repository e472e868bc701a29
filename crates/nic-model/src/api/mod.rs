//! The traits of `verbs::provider` over the network: each object has its key and what it keeps alive.
//!
//! A call costs its caller what the machine says. Calls that look at what events change first let the world come to the
//! caller's clock; posting does not have to, because it only adds events.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | [`Opened`], the device: completion queues, channels, NIC memory |
//! | `domain` | protection domains and memory regions |
//! | `queues` | completion queues and channels, queue pairs, shared receive queues |
//! | `manager` | connection channels, listeners, requests |

mod device;
mod domain;
mod manager;
mod queues;

use std::sync::MutexGuard;

use host::world::Node;
use host::{Host, Span, Time};
use verbs::DeviceAttr;

use crate::net::{Net, Network};
use crate::parts::calls::Calls;
use std::sync::Arc;

pub(crate) use device::{DeviceObject, attr_of};

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
    /// What a call that slept takes to wake up.
    pub(crate) wake_up: Span,
    pub(crate) attr: DeviceAttr,
}

impl Opened {
    /// Spends the caller's time.
    fn charge(&self, span: Span) {
        self.host.charge(span);
    }

    /// The answer to what the interface does not have.
    fn refuse<T>(&self, what: &'static str) -> verbs::Result<T> {
        Err(verbs::Error::Unsupported { device: self.name.clone(), what })
    }

    /// Lets the world come to the caller's clock, and looks at the network as it is then. A rank that panics no longer
    /// waits for anything.
    fn look(&self) -> (MutexGuard<'_, Network>, Time) {
        if !std::thread::panicking() {
            self.node.sync();
        }
        self.post()
    }

    /// The network as it is at some time before the caller's clock: good for adding events.
    fn post(&self) -> (MutexGuard<'_, Network>, Time) {
        let now = self.net.now();
        (self.net.lock(), now)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.net.lock().close(self.context);
    }
}
