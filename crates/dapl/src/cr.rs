//! [`Cr`]: a connection request, as dispatchers hold it. `sp` answers it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use verbs::ConnectRequest;

use crate::ia::{Endpoint, IaInner};
use crate::sync::lock;

/// A connection request (`DAT_CR`); cheap to clone. Dropped unanswered, it is rejected.
#[derive(Clone)]
pub struct Cr(pub(crate) Arc<CrInner>);

pub(crate) struct CrInner {
    pub(crate) ia: Arc<IaInner>,
    pub(crate) private_data: Arc<[u8]>,
    pub(crate) remote: SocketAddr,
    pub(crate) conn_qual: u64,
    /// The endpoint created or reserved for it. Endpoints report to dispatchers, which hold requests; so it is only stored
    /// here.
    pub(crate) local_ep: Option<Arc<dyn Endpoint>>,
    /// `None` once it is answered.
    pub(crate) request: Mutex<Option<ConnectRequest>>,
}

impl std::fmt::Debug for Cr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cr(from {} to {})", self.0.remote, self.0.conn_qual)
    }
}

impl Cr {
    /// The private data of the peer.
    pub fn private_data(&self) -> &Arc<[u8]> {
        &self.0.private_data
    }

    /// The peer's address, as far as the device knows it.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Whether it still waits for an answer.
    pub fn is_open(&self) -> bool {
        lock(&self.0.request).is_some()
    }
}
