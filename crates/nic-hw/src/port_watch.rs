//! [`PortWatch`]: what happens to connections when the port loses its link, or their address its GID.
//!
//! A card repeats requests for seconds, and a queue pair that only receives never finds out. So connections get some time,
//! in which the port may come back, and then end, with the reason and the remedy.

use std::net::IpAddr;

use host::Time;
use rdma_abi::numbers as n;
use verbs::AsyncEvent;

use crate::card::is_port_active;
use crate::gids;
use crate::raw::context::HwEvent;
use crate::shared::Shared;

/// The port in events of the API, whose devices have one.
const PORT: u8 = 1;

const NO_LINK: &str = "the card's port has lost its link (IBV_EVENT_PORT_ERR) and did not get it back in time; look at the \
                       cable and the switch, or set the interface up (ip link set dev INTERFACE up), and connect again";
const NO_GID: &str = "the GID of this connection's address has vanished (IBV_EVENT_GID_CHANGE), as the interface has lost the \
                      address; give it back (ip addr add ADDRESS dev INTERFACE), and connect again";

/// When the link and the GIDs of the port are checked.
#[derive(Debug, Default)]
pub(crate) struct PortWatch {
    link: Option<Time>,
    gids: Option<Time>,
}

impl PortWatch {
    /// Handles an event of a port.
    pub(crate) fn handle(&mut self, shared: &Shared, event: HwEvent) {
        if event.object != u32::from(shared.pair_settings.port) {
            return;
        }
        let deadline = shared.host.now() + shared.patience;
        let ours = match event.kind {
            n::IBV_EVENT_PORT_ERR => {
                self.link.get_or_insert(deadline);
                AsyncEvent::PortError { port: PORT }
            }
            n::IBV_EVENT_PORT_ACTIVE => {
                self.link = None;
                AsyncEvent::PortActive { port: PORT }
            }
            n::IBV_EVENT_GID_CHANGE => {
                self.gids.get_or_insert(deadline);
                AsyncEvent::GidChange { port: PORT }
            }
            _ => return,
        };
        shared.async_events.push(ours);
    }

    /// Ends what has waited long enough; returns the next deadline.
    pub(crate) fn expire(&mut self, shared: &Shared, now: Time) -> Option<Time> {
        let port = shared.pair_settings.port;
        if self.link.take_if(|deadline| *deadline <= now).is_some() && !is_port_active(&shared.context, port)
        {
            fail(shared, now, NO_LINK, |_| true);
        }
        if self.gids.take_if(|deadline| *deadline <= now).is_some() {
            fail_without_gid(shared, now, port);
        }
        self.link.into_iter().chain(self.gids).min()
    }
}

/// Fails connections whose address has no GID any more.
fn fail_without_gid(shared: &Shared, now: Time, port: u8) {
    let Ok(attr) = shared.context.port_attr(port) else { return };
    if !gids::is_roce(&shared.context, &attr) {
        return;
    }
    let there: Vec<IpAddr> =
        gids::table(&shared.context, port, &attr).iter().map(gids::GidEntry::ip).collect();
    fail(shared, now, NO_GID, |own| !there.contains(&own));
}

/// Moves queue pairs of connections with such an address to the error state, and reports why.
fn fail(shared: &Shared, now: Time, why: &'static str, is_meant: impl Fn(IpAddr) -> bool) {
    for qp_num in shared.registry.fail_connected(now, why, is_meant) {
        shared.async_events.push(AsyncEvent::QpFatal { qp_num, why });
    }
}
