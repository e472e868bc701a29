//! [`Conn`]: one connection, and how events of librdmacm move it on.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use host::Time;
use rdma_abi::numbers as n;
use verbs::{CmEvent, CmFailure, ConnInfo, ConnParam, Depths, QpState};

use super::cm_events::CmEvents;
use crate::pair::Pair;
use crate::raw::cm::{CmId, HwCmEvent, OwnParam, PeerParam};

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The card and the address of the peer are searched for.
    Address,
    /// The path to the peer is searched for.
    Route,
    /// The request is on its way.
    Requested,
    /// This side has accepted.
    Accepted,
    Established,
    Ended,
}

/// What happened to a connection because of an event.
pub(crate) enum Step {
    /// It exists still.
    Stays,
    /// It failed; closing it reports this event.
    Failed(CmEvent),
}

/// A connection of a queue pair.
pub(crate) struct Conn {
    pub(crate) id: CmId,
    pub(crate) pair: Arc<Pair>,
    /// Where its events go; the program may have dropped the channel.
    pub(crate) events: Weak<CmEvents>,
    pub(crate) phase: Phase,
    /// When an attempt is given up, or a connection whose queue pair has failed is left.
    pub(crate) deadline: Time,
    /// Whether this side has disconnected.
    pub(crate) has_left: bool,
    pub(crate) param: ConnParam,
    /// The address that was connected to, on the active side.
    pub(crate) peer: Option<SocketAddr>,
    /// What the peer has sent, on the passive side.
    pub(crate) info: Option<ConnInfo>,
    /// The card that the address must belong to.
    pub(crate) card: Arc<str>,
    /// The most reads and atomics that the card has outstanding for a queue pair.
    pub(crate) max_rd_atomic: u8,
}

/// Reasons of InfiniBand for a rejection (IBA 12.6.7.2).
const NO_RESOURCES: i32 = 3;
const TIMED_OUT: i32 = 4;
const INVALID_SERVICE: i32 = 8;
const CONSUMER: i32 = 28;

impl Conn {
    fn push(&self, event: CmEvent) {
        if let Some(events) = self.events.upgrade() {
            events.push(event);
        }
    }

    /// Milliseconds for a step of the set-up.
    pub(crate) fn timeout_ms(&self) -> i32 {
        i32::try_from(self.param.timeout.to_std().as_millis()).unwrap_or(i32::MAX).max(1)
    }

    /// The parameters that this side sends, within the limits of the card.
    pub(crate) fn own_param(&self) -> OwnParam<'_> {
        OwnParam {
            private_data: &self.param.private_data,
            responder_resources: self.param.responder_resources.min(self.max_rd_atomic),
            initiator_depth: self.param.initiator_depth.min(self.max_rd_atomic),
            rnr_retry: self.param.rnr_retry,
            qp_num: self.pair.hw.number,
            has_srq: self.pair.has_srq,
        }
    }

    /// Handles an event.
    pub(crate) fn advance(&mut self, event: HwCmEvent) -> Step {
        match (self.phase, event.kind) {
            (Phase::Ended, _) => Step::Stays,
            (Phase::Address, n::RDMA_CM_EVENT_ADDR_RESOLVED) if event.status == 0 => self.address_resolved(),
            (Phase::Route, n::RDMA_CM_EVENT_ROUTE_RESOLVED) if event.status == 0 => {
                self.phase = Phase::Requested;
                let sent = self.id.connect(&self.own_param());
                self.or_failed(sent, "cannot send the connect request")
            }
            (Phase::Requested, n::RDMA_CM_EVENT_CONNECT_RESPONSE) if event.status == 0 => {
                match self.pair.ready(&self.id, None).and_then(|()| self.id.establish()) {
                    Ok(()) => self.established(event.param),
                    // The peer has accepted and left.
                    Err(_) if self.pair.has_failed() => {
                        self.established(event.param);
                        self.disconnect();
                    }
                    Err(why) => {
                        let what = "the card refuses the connection's attributes";
                        return self.fail(CmFailure::Shortage(format!("{what}: {why}")));
                    }
                }
                Step::Stays
            }
            (Phase::Requested | Phase::Accepted, n::RDMA_CM_EVENT_ESTABLISHED) if event.status == 0 => {
                self.established(event.param);
                Step::Stays
            }
            (Phase::Established, n::RDMA_CM_EVENT_DISCONNECTED | n::RDMA_CM_EVENT_DEVICE_REMOVAL) => {
                self.ended();
                Step::Stays
            }
            (_, n::RDMA_CM_EVENT_ADDR_CHANGE | n::RDMA_CM_EVENT_TIMEWAIT_EXIT) => Step::Stays,
            (Phase::Established, _) => Step::Stays,
            _ => self.refused(event),
        }
    }

    fn address_resolved(&mut self) -> Step {
        let found = self.id.card();
        if found.as_deref() != Some(&*self.card) {
            let found = found.as_deref().unwrap_or("none");
            let why =
                format!("the way there is through card '{found}', and not '{}'; open that one", self.card);
            return self.fail(CmFailure::Unreachable(self.target(), why));
        }
        self.phase = Phase::Route;
        let started = self.id.resolve_route(self.timeout_ms());
        self.or_failed(started, "cannot search the path to the peer")
    }

    fn or_failed(&self, outcome: io::Result<()>, what: &str) -> Step {
        match outcome {
            Ok(()) => Step::Stays,
            Err(why) => self.fail(CmFailure::Shortage(format!("{what}: {why}"))),
        }
    }

    /// The address that was connected to.
    fn target(&self) -> SocketAddr {
        self.peer.unwrap_or_else(|| self.id.peer())
    }

    fn established(&mut self, param: PeerParam) {
        self.phase = Phase::Established;
        self.pair.set_state(QpState::ReadyToSend);
        let qp_num = self.pair.hw.number;
        let (private_data, info) = match self.info {
            Some(info) => (Vec::new(), info),
            None => {
                let info = info_of(&self.id, self.target(), &param, self.is_iwarp());
                (param.private_data, info)
            }
        };
        self.push(CmEvent::Established { qp_num, private_data, info });
    }

    /// The peer has answered with a refusal, or cannot be reached.
    fn refused(&mut self, event: HwCmEvent) -> Step {
        if self.phase == Phase::Accepted {
            return self.fail(CmFailure::PeerGone);
        }
        let target = self.target();
        let errno = |status: i32| io::Error::from_raw_os_error(status.saturating_neg());
        let why = match (event.kind, event.status) {
            (n::RDMA_CM_EVENT_REJECTED, INVALID_SERVICE) => CmFailure::Refused(target),
            (n::RDMA_CM_EVENT_REJECTED, status)
                if status == -libc::ECONNREFUSED && event.param.private_data.is_empty() =>
            {
                CmFailure::Refused(target)
            }
            (n::RDMA_CM_EVENT_REJECTED, NO_RESOURCES) => {
                CmFailure::Shortage("the peer lacks a resource, such as queue pairs".to_owned())
            }
            (n::RDMA_CM_EVENT_REJECTED, TIMED_OUT) => CmFailure::TimedOut,
            (n::RDMA_CM_EVENT_REJECTED, status) if status < 0 || status == CONSUMER => {
                let (qp_num, private_data) = (self.pair.hw.number, event.param.private_data);
                return Step::Failed(CmEvent::Rejected { qp_num, private_data });
            }
            (n::RDMA_CM_EVENT_REJECTED, reason) => {
                CmFailure::Protocol(format!("the peer's system rejects with reason {reason} of InfiniBand"))
            }
            (n::RDMA_CM_EVENT_UNREACHABLE, status) if status == -libc::ETIMEDOUT => CmFailure::TimedOut,
            (
                n::RDMA_CM_EVENT_ADDR_ERROR | n::RDMA_CM_EVENT_ROUTE_ERROR | n::RDMA_CM_EVENT_UNREACHABLE,
                status,
            ) => CmFailure::Unreachable(target, errno(status).to_string()),
            (n::RDMA_CM_EVENT_DEVICE_REMOVAL, _) => CmFailure::Shortage("the card was removed".to_owned()),
            _ => CmFailure::PeerGone,
        };
        self.fail(why)
    }

    /// Gives the attempt up.
    pub(crate) fn fail(&self, why: CmFailure) -> Step {
        Step::Failed(CmEvent::ConnectFailed { qp_num: self.pair.hw.number, why })
    }

    /// Closes a failed attempt, and reports it.
    pub(crate) fn close(self, event: CmEvent) {
        let Self { id, pair, events, phase, .. } = self;
        // Ends the attempt, which may move the queue pair.
        drop(id);
        if phase == Phase::Accepted {
            pair.fail();
        } else {
            pair.back_to_init();
        }
        if let Some(events) = events.upgrade() {
            events.push(event);
        }
    }

    /// Whether it waits for its deadline.
    pub(crate) fn is_timed(&self) -> bool {
        match self.phase {
            Phase::Established => !self.has_left && self.pair.state() == QpState::Error,
            Phase::Ended => false,
            _ => true,
        }
    }

    /// The deadline has passed.
    pub(crate) fn expire(&mut self) -> Step {
        if self.phase == Phase::Established {
            self.disconnect();
            return Step::Stays;
        }
        self.fail(CmFailure::TimedOut)
    }

    /// Ends an established connection from this side; the event follows.
    pub(crate) fn disconnect(&mut self) {
        self.has_left = true;
        // A driver of iWARP ends the queue pair itself: what was sent before the end still arrives.
        if self.is_iwarp() {
            self.pair.set_state(QpState::Error);
        } else {
            self.pair.fail();
        }
        if self.id.disconnect().is_err() {
            self.ended();
        }
    }

    fn is_iwarp(&self) -> bool {
        self.pair.is_iwarp()
    }

    /// The connection has ended.
    fn ended(&mut self) {
        self.phase = Phase::Ended;
        self.pair.fail();
        if !self.has_left && !self.is_iwarp() {
            // Answers the peer, which otherwise waits for its time-out.
            let _ = self.id.disconnect();
        }
        self.push(CmEvent::Disconnected { qp_num: self.pair.hw.number });
    }
}

/// The ends of a connection, with what the peer has sent.
pub(crate) fn info_of(id: &CmId, peer: SocketAddr, param: &PeerParam, is_iwarp: bool) -> ConnInfo {
    ConnInfo {
        local: id.local(),
        peer,
        // The library gives them as this side's: what the peer initiates is what this side responds to.
        depths: Some(Depths {
            responder_resources: param.initiator_depth,
            initiator_depth: param.responder_resources,
        }),
        // RDMA-CM transmits the card's number; completions of the peer may carry another.
        qp_num: None,
        rnr_retry: (!is_iwarp).then_some(param.rnr_retry.min(verbs::RNR_RETRY_FOREVER)),
    }
}
