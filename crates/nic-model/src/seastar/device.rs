//! The device: memory registration and firmware. The card supports nothing else.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use host::world::Node;
use host::{EventCount, Host, Rate, Span, Wake};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, MrOps, PdOps, ProgramOps, QpOps, QpParts};
use verbs::{
    Access, AtomicCap, Buf, Device, DeviceAttr, DmAccess, Error, Firmware, RegionCap, Result, WriteOrder,
};

use super::cards::Fabric;
use super::recorder::CAP;
use super::transfer_time::Profile;
use super::work::Address;
use crate::config::Config;
use crate::limits::{self, ObjectKind};
use crate::machine::{FlowKind, MatchKind, Mode};
use crate::net::connections::address;

/// An opened card.
struct Card {
    name: String,
    host: Host,
    node: Node,
    fabric: Arc<Fabric>,
    attr: DeviceAttr,
}

/// Opens the card of a simulated machine.
///
/// # Errors
/// [`Error::Limit`] for more machines than the mesh has; [`Error::Invalid`] for flow control between kernels
/// that do not match.
pub(crate) fn open(host: &Host, node: &Node, config: &Config) -> Result<Device> {
    let params = &config.machine.params;
    if params.mode == (Mode { match_kind: MatchKind::Nic, flow_kind: FlowKind::Cop }) {
        let why =
            format!("{}: cop is flow control between kernels; it needs mode.match_kind=host", config.name);
        return Err(Error::Invalid(why));
    }
    let fabric = Fabric::of_node(node, config);
    let mut cards = fabric.lock();
    cards.add_card(node)?;
    node.set_costs(cards.costs.host);
    drop(cards);
    let (name, host, node) = (config.name.clone(), host.clone(), node.clone());
    let attr = attr_of(config, &node);
    Ok(Device::new(Arc::new(DeviceObject(Arc::new(Card { name, host, node, fabric, attr })))))
}

/// The profile of the last message that firmware on the card of this machine has reported to its host:
/// virtual time only.
#[must_use]
pub fn profile(host: &Host) -> Option<Profile> {
    Fabric::profile(host.node()?)
}

/// How long the kernel of this machine has spent in the card's interrupts since the start: the time that a
/// computing program has lost. Zero in real time.
#[must_use]
pub fn interrupted(host: &Host) -> Span {
    host.node().map_or(Span::ZERO, Fabric::interrupted)
}

fn attr_of(config: &Config, node: &Node) -> DeviceAttr {
    DeviceAttr {
        max_qp: 0,
        max_qp_wr: 0,
        max_sge: 0,
        max_inline: 0,
        max_cq: 0,
        max_cqe: 0,
        max_mr: ObjectKind::Region.limit(),
        max_mr_size: limits::REGION_BYTES,
        max_msg_size: CAP.max_payload,
        implicit_mr: None,
        firmware: Some(CAP),
        max_srq: 0,
        max_srq_wr: 0,
        max_private_data: 0,
        max_rd_atomic: 0,
        max_dm_size: 0,
        atomic_cap: AtomicCap::None,
        atomic_cap_dm: AtomicCap::None,
        write_order: WriteOrder::LastByteLast,
        write_order_dm: WriteOrder::LastByteLast,
        dm_access: DmAccess::None,
        write_notify: false,
        split_receives: false,
        regions: RegionCap::default(),
        maps_peers: false,
        link_rate: Some(Rate(config.machine.params.router.link_mbps * 1e6)),
        ports: 1,
        port_addrs: vec![IpAddr::V4(address(node.index(), 0))],
        notes: config.notes(),
    }
}

/// A device: one opening of a node's card.
struct DeviceObject(Arc<Card>);

impl Card {
    fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        Err(Error::Unsupported { device: self.name.clone(), what })
    }
}

impl DeviceOps for DeviceObject {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        &self.0.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        let number = self.0.fabric.lock().protection.domain();
        Ok(Arc::new(Domain { card: self.0.clone(), number }))
    }

    fn create_cq(&self, _cqe: u32, _channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        self.0.unsupported("completion queues")
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        self.0.unsupported("connections")
    }

    fn load(
        &self,
        pd: &Arc<dyn PdOps>,
        addr: SocketAddr,
        firmware: Box<dyn Firmware>,
    ) -> Result<Box<dyn ProgramOps>> {
        let domain: Arc<Domain> = verbs::provider::downcast(pd.clone(), "the protection domain")?;
        let card = &self.0;
        let own = Address::from_socket(addr, card.node.index()).filter(|at| at.node == card.node.index());
        let why =
            || format!("it differs from the card's address, which is {}", address(card.node.index(), 0));
        let at = own.ok_or_else(|| Error::Address { addr, why: why() })?;
        let mut cards = card.fabric.lock();
        let at = cards.load(at, domain.number, firmware)?;
        let wakeup = cards.wakeup(at);
        drop(cards);
        Ok(Box::new(Program { card: card.clone(), at, wakeup }))
    }
}

/// A protection domain.
struct Domain {
    card: Arc<Card>,
    number: u32,
}

impl PdOps for Domain {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        let node = self.card.node.index();
        let registered =
            self.card.fabric.lock().protection.register((node as u32, node), self.number, buf, access);
        let (key, base) = registered?;
        Ok(Box::new(Region { card: self.card.clone(), key, base }))
    }

    fn create_qp(&self, _init: &QpParts) -> Result<Arc<dyn QpOps>> {
        self.card.unsupported("queue pairs")
    }
}

/// A memory region.
struct Region {
    card: Arc<Card>,
    key: u32,
    base: u64,
}

impl MrOps for Region {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }

    fn addr(&self) -> u64 {
        self.base
    }

    fn dereg(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.card.fabric.lock().protection.deregister(self.key);
    }
}

/// The host's handle of a program.
struct Program {
    card: Arc<Card>,
    at: Address,
    wakeup: Arc<EventCount>,
}

impl ProgramOps for Program {
    fn addr(&self) -> SocketAddr {
        self.at.socket()
    }

    fn command(&self, command: &[u8]) -> Result<()> {
        // The world must have advanced to the caller's clock, which determines the kernel's state.
        self.card.node.sync();
        let mut cards = self.card.fabric.lock();
        let now = cards.now();
        let goes_on = cards.command(now, self.at, command);
        drop(cards);
        self.card.host.charge(goes_on.since(now));
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Dropped outside of the lock: the program may own objects whose drop takes it.
        let unloaded = self.card.fabric.lock().unload(self.at);
        drop(unloaded);
    }
}
