//! Accepted TCP connections whose MPA request has not arrived completely.

use std::net::SocketAddr;
use std::sync::Arc;

use host::{Span, Time};
use iwarp::mpa::{MpaRequest, Responder, ResponderConfig, Revision, RtrSet};

use crate::config::{IwarpConfig, Mpa};
use crate::connect::listener::Listener;
use crate::shared::{DeviceShared, protocol_time};
use crate::tcp::capture::Way;
use crate::tcp::socket::recv_available;
use nic_util::fork::ForkSafeFd;

/// Time limit for the request after TCP has connected, even if bytes keep arriving.
pub(crate) const REQUEST_TIMEOUT: Span = Span::from_secs(5);

/// A connection whose request has not arrived completely.
pub(crate) struct IncomingConn {
    machine: Box<Responder>,
    pub(crate) listener: Arc<Listener>,
    peer: SocketAddr,
}

/// A complete request.
pub(crate) struct IncomingRequest {
    pub(crate) machine: Box<Responder>,
    pub(crate) request: MpaRequest,
    pub(crate) listener: Arc<Listener>,
    pub(crate) peer: SocketAddr,
}

/// The result of reading.
pub(crate) enum IncomingStep {
    /// The request is still incomplete.
    Incomplete(IncomingConn),
    /// The request is complete.
    Complete(IncomingRequest),
    /// The connection has ended; with the last bytes to send to the peer.
    Ended(Vec<u8>),
}

impl IncomingConn {
    pub(crate) fn new(config: &IwarpConfig, listener: &Arc<Listener>, peer: SocketAddr, now: Time) -> Self {
        let config = ResponderConfig {
            revision_max: if config.mpa == Mpa::V1 { Revision::V1 } else { Revision::V2 },
            crc: config.crc,
            peer_to_peer: RtrSet::all(),
            timeout: REQUEST_TIMEOUT.to_std(),
        };
        let machine = Box::new(Responder::new(config, protocol_time(now)));
        Self { machine, listener: listener.clone(), peer }
    }

    /// The peer has sent data or closed the connection.
    pub(crate) fn on_data(mut self, shared: &DeviceShared, socket: &ForkSafeFd) -> IncomingStep {
        let mut bytes = [0; 1024];
        let n = match recv_available(socket, &mut bytes) {
            Ok(None) => return IncomingStep::Incomplete(self),
            Ok(Some(0)) | Err(_) => return IncomingStep::Ended(Vec::new()),
            Ok(Some(n)) => n,
        };
        shared.record(socket, Way::In, &bytes[..n]);
        match self.machine.handle_bytes(&bytes[..n]) {
            Ok((_, None)) => IncomingStep::Incomplete(self),
            Ok((_, Some(request))) => {
                let Self { machine, listener, peer } = self;
                IncomingStep::Complete(IncomingRequest { machine, request, listener, peer })
            }
            // A rejecting reply, if there is one.
            Err(_) => IncomingStep::Ended(self.machine.transmit().to_vec()),
        }
    }
}
