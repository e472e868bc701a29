//! A connection channel of the program: its channels on the rails, and the events to deliver.

use std::net::SocketAddr;

use verbs::{Cm, CmEvent, Device, Result};

use crate::completion::event_queue::EventQueue;
use crate::shared::DeviceShared;

pub(crate) struct CmEvents {
    pub(crate) rail_cms: Vec<Cm>,
    /// Events; for requests, with the listener's address.
    pub(crate) events: EventQueue<(Option<SocketAddr>, CmEvent)>,
}

impl CmEvents {
    pub(crate) fn new(shared: &DeviceShared) -> Result<Self> {
        let rail_cms = shared.rails.iter().map(Device::create_cm).collect::<Result<_>>()?;
        Ok(Self { rail_cms, events: EventQueue::new(&shared.host)? })
    }

    /// The channel on a rail.
    pub(crate) fn rail_cm(&self, rail: usize) -> &Cm {
        &self.rail_cms[rail]
    }

    pub(crate) fn push(&self, event: CmEvent) {
        self.events.push((None, event));
    }
}
