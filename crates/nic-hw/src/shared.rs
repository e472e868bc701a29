//! [`Shared`]: what the objects of a device and its thread share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use host::{Host, Span};
use nic_util::events::EventQueue;
use nic_util::thread::EpollSet;
use rdma_abi::numbers as n;
use verbs::{AsyncEvent, AtomicCap, DeviceAttr, Error, Result};

use crate::attr::{attributes, max_read_sge};
use crate::card::Card;
use crate::connect::registry::Registry;
use crate::gids::GidEntry;
use crate::pair::PairSettings;
use crate::raw::cm::CmChannel;
use crate::raw::context::Context;

/// How long a connection stays after its queue pair has failed, so that the peer's card can report the cause first.
const FAILED_LINGER: Span = Span::from_ms(50);

/// A device without its thread.
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) attr: DeviceAttr,
    /// The most elements of a read.
    pub(crate) max_read_sge: u32,
    pub(crate) context: Arc<Context>,
    pub(crate) pair_settings: PairSettings,
    /// The GID that the name of the device chooses.
    pub(crate) gid: Option<GidEntry>,
    /// How long connections wait for a port that has lost its link or their address.
    pub(crate) patience: Span,
    pub(crate) registry: Registry,
    pub(crate) async_events: EventQueue<AsyncEvent>,
    pub(crate) epoll_set: EpollSet,
    /// Whether the card has failed or was removed.
    pub(crate) is_gone: AtomicBool,
}

impl Shared {
    pub(crate) fn new(host: &Host, card: Card, patience: Span) -> Result<Arc<Self>> {
        let channel = CmChannel::new(&card.context)?;
        let attr = attributes(&card, &channel)?;
        let max_read_sge = max_read_sge(&card)?;
        let registry = Registry::new(channel, &card.context, attr.max_private_data);
        let atomics = if attr.atomic_cap == AtomicCap::None { 0 } else { n::IBV_ACCESS_REMOTE_ATOMIC };
        let access =
            n::IBV_ACCESS_LOCAL_WRITE | n::IBV_ACCESS_REMOTE_WRITE | n::IBV_ACCESS_REMOTE_READ | atomics;
        let (is_iwarp, gid_index) = (card.context.is_iwarp, card.gid.map(|gid| gid.index));
        Ok(Arc::new(Self {
            host: host.clone(),
            attr,
            max_read_sge,
            registry,
            pair_settings: PairSettings { port: card.port, access, is_iwarp, gid_index },
            gid: card.gid,
            patience,
            context: card.context,
            async_events: EventQueue::asynchronous()?,
            epoll_set: EpollSet::new()?,
            is_gone: AtomicBool::new(false),
        }))
    }

    /// Refuses calls in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.context.fork_guard.check()
    }

    /// Records that the card has moved a queue pair to the error state: its connection ends soon.
    #[cold]
    pub(crate) fn pair_failed(&self, qp_num: u32) {
        if self.registry.pair_failed(qp_num, self.host.now() + FAILED_LINGER) {
            self.epoll_set.wake();
        }
    }

    /// The name of the card.
    pub(crate) fn name(&self) -> &str {
        &self.context.card.name
    }

    /// The error of a card that refuses to create something.
    pub(crate) fn refused(&self, what: String, why: std::io::Error) -> Error {
        let hint = match why.raw_os_error() {
            Some(libc::ENOMEM) => {
                " (if locked memory is limited, see ulimit -l: raise it in /etc/security/limits.conf; else the card has \
                 no more)"
            }
            Some(libc::EINVAL) => " (the card or its driver does not support these sizes together)",
            _ => "",
        };
        Error::system(format!("card '{}' refuses {what}{hint}", self.name()), why)
    }
}
