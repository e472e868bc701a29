//! State shared by all objects of a device; it does not know these objects.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use host::{Host, Rng};
use verbs::provider::Numbers;
use verbs::{Access, AsyncEvent, Buf, CompChannel, Device, DeviceAttr, Error, Mr, Pd, Result, Sge};

use crate::config::{Engine, RailsConfig};
use crate::lock::unpoisoned;
use crate::memory::keys::{Keys, seeded_rng};
use crate::progress::wake::WakeUp;
use crate::progress::worker::Worker;
use crate::send::request::PIECES_MAX;

/// Maximum number of pending asynchronous events; further ones are lost.
const EVENTS_MAX: usize = 4096;

/// State shared by all objects of a device.
pub(crate) struct DeviceShared {
    pub(crate) host: Host,
    pub(crate) attr: DeviceAttr,
    pub(crate) config: RailsConfig,
    pub(crate) name: String,
    pub(crate) rails: Vec<Device>,
    /// Their names, for events.
    pub(crate) rail_names: Vec<Arc<str>>,
    pub(crate) keys: Keys,
    /// On each rail, a region without access rights in its own domain: its keys are invalid everywhere.
    no_access_regions: Vec<(Pd, Mr)>,
    /// Numbers of queue pairs.
    pub(crate) qp_nums: Mutex<Numbers>,
    next: AtomicU32,
    turn: AtomicU32,
    random: Mutex<Rng>,
    events: Mutex<VecDeque<AsyncEvent>>,
    /// The channel of each rail's completion queues, if the rail supports channels.
    pub(crate) channels: Vec<Option<CompChannel>>,
    /// Wakes the service.
    pub(crate) service: WakeUp,
    /// The work queues of the rails' threads; empty if the program's threads serve all rails.
    pub(crate) workers: Vec<Arc<Worker>>,
}

impl DeviceShared {
    pub(crate) fn new(
        rails: Vec<Device>,
        config: &RailsConfig,
        attr: DeviceAttr,
        is_virtual: bool,
    ) -> Result<Self> {
        Ok(Self {
            host: rails[0].host().clone(),
            qp_nums: Mutex::new(Numbers::new("queue pairs", attr.max_qp as usize)),
            attr,
            config: config.clone(),
            name: format!("rails({})", rails.iter().map(Device::name).collect::<Vec<_>>().join(",")),
            rail_names: rails.iter().map(|rail| rail.name().into()).collect(),
            keys: Keys::new(seeded_rng(is_virtual)?),
            no_access_regions: rails.iter().map(create_no_access_region).collect::<Result<_>>()?,
            next: AtomicU32::new(1),
            turn: AtomicU32::new(0),
            random: Mutex::new(seeded_rng(is_virtual)?),
            events: Mutex::default(),
            channels: rails.iter().map(|rail| rail.create_comp_channel().ok()).collect(),
            service: WakeUp::new(is_virtual)?,
            workers: match config.engine {
                Engine::Callers => Vec::new(),
                Engine::Threads => rails.iter().map(|_| Arc::new(Worker::new())).collect(),
            },
            rails,
        })
    }

    /// Whether this is a child's copy, inherited by fork(2). Threads that do not exist in the child may hold locks of
    /// this copy: nothing is given back, and what a handle holds is never dropped.
    pub(crate) fn is_inherited(&self) -> bool {
        self.check().is_err()
    }

    /// The number of rails.
    #[inline]
    pub(crate) fn width(&self) -> usize {
        self.rails.len()
    }

    /// Refuses a call in a forked child, which the first rail detects. This comes before any use of this device's own
    /// state, of which the child may have a half-changed copy.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.rails[0].ops().check()
    }

    /// A number for an object of the device that is not a queue pair.
    pub(crate) fn new_id(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The next lane to receive messages, in turn.
    pub(crate) fn next_lane(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) as usize % self.rails.len()
    }

    pub(crate) fn token(&self) -> u64 {
        unpoisoned(&self.random).next_u64()
    }

    /// A region of a rail without access rights; its keys replace keys that name nothing.
    pub(crate) fn no_access_region(&self, rail: usize) -> &Mr {
        &self.no_access_regions[rail].1
    }

    /// Queues an asynchronous event for the program.
    pub(crate) fn async_event(&self, event: AsyncEvent) {
        let mut events = unpoisoned(&self.events);
        // Peers can cause events, and the program need not fetch them.
        if events.len() < EVENTS_MAX {
            events.push_back(event);
        }
        drop(events);
        self.host.signal();
    }

    pub(crate) fn take_event(&self) -> Option<AsyncEvent> {
        unpoisoned(&self.events).pop_front()
    }

    /// Calls `post` with elements that have a lane's local keys. A key that names nothing is replaced by a lane key
    /// without access rights, so that the lane refuses it like any invalid key.
    #[inline]
    pub(crate) fn local_pieces<R>(
        &self,
        lane: usize,
        sges: &[Sge],
        post: impl FnOnce(&[Sge]) -> Result<R>,
    ) -> Result<R> {
        let local = |sge: &Sge| {
            let lkey = self.keys.get(sge.lkey, lane).unwrap_or_else(|| self.no_access_region(lane).lkey());
            Sge { lkey, ..*sge }
        };
        if let [one] = sges {
            return post(&[local(one)]);
        }
        Error::check_limit("pieces of a request", sges.len() as u64, PIECES_MAX as u64)?;
        let mut pieces = [Sge::default(); PIECES_MAX];
        pieces.iter_mut().zip(sges).for_each(|(piece, sge)| *piece = local(sge));
        post(&pieces[..sges.len()])
    }
}

fn create_no_access_region(rail: &Device) -> Result<(Pd, Mr)> {
    let pd = rail.alloc_pd()?;
    let mr = pd.reg_mr(&Buf::alloc(1)?, Access::empty())?;
    Ok((pd, mr))
}
