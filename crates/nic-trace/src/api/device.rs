//! Opens a device that records, and its API handle.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use host::{ClockKind, Host, Wake};
use nic_util::control;
use nic_util::sync::unpoisoned;
use trace::Class;
use trace::format::Fields;
use trace::names::{Call, Event};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, ProgramOps, downcast};
use verbs::{AsyncEvent, Buf, Device, DeviceAttr, Firmware, Result};

use crate::api::cm::TraceCm;
use crate::api::cq::{TraceChannel, TraceCq};
use crate::api::pd::TracePd;
use crate::counters::{Kind, prometheus};
use crate::recorder::Recorder;
use crate::shared::{Counted, Shared};

/// What a device records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    /// The file, and the number of records that it keeps: a power of two from [`trace::format::RECORDS_MIN`] to
    /// [`trace::format::RECORDS_MAX`]. Without a file, the device only counts.
    pub file: Option<(PathBuf, u64)>,
    /// Whether the process gives its counters over the control socket.
    pub has_control: bool,
}

/// The devices whose counters the process gives.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// The line that asks for the counters.
const COUNTERS: &str = "counters";

/// Asks a process of this user for its counters, in the text format of Prometheus.
///
/// # Errors
/// A sentence: the process counts nothing, or does not answer.
pub fn request_counters(pid: i32) -> std::result::Result<String, String> {
    let remedy = "start it by nicety run --count or --trace FILE, as the same user, to count what it does";
    control::request(pid, COUNTERS, remedy)
}

/// Answers the request for the counters.
fn counters(_line: &str) -> std::result::Result<String, String> {
    let live: Vec<_> = unpoisoned(&LIVE).iter().filter_map(Weak::upgrade).collect();
    let devices: Vec<_> = live.iter().map(|device| (device.below.name(), &device.counters)).collect();
    Ok(prometheus(&devices))
}

/// A device in front of `below`, whose use is recorded.
///
/// # Errors
/// [`verbs::Error::Invalid`] if the process records into another file; the system's.
pub fn open(below: &Device, config: &TraceConfig) -> Result<Device> {
    let host = below.host();
    let recorder = config.file.as_ref().map(|(path, records)| Recorder::of_process(path, *records, host));
    let note = match &config.file {
        Some((path, _)) => format!("its use is recorded in {}", path.display()),
        None => "its use is counted".to_owned(),
    };
    let shared = Arc::new(Shared::new(below.ops().clone(), recorder.transpose()?, note));
    if config.has_control && host.clock() != ClockKind::Virtual {
        let mut live = unpoisoned(&LIVE);
        live.retain(|device| device.strong_count() != 0);
        live.push(Arc::downgrade(&shared));
        drop(live);
        control::serve(host, control::Service { line: COUNTERS, answer: counters })?;
    }
    shared.call(Call::Open, 0, || Ok(()), |()| Fields::default())?;
    Ok(Device::new(Arc::new(TraceDevice(shared))))
}

/// The opened device.
struct TraceDevice(Arc<Shared>);

impl DeviceOps for TraceDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn host(&self) -> &Host {
        &self.0.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn check(&self) -> Result<()> {
        self.0.below.check()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        let below = self.0.call(Call::AllocPd, 0, || self.0.below.alloc_pd(), |_| Fields::default())?;
        Ok(Arc::new(TracePd { below, counted: Counted::new(&self.0, Kind::Pd) }))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        let channel: Option<Arc<TraceChannel>> = channel.transpose()?;
        let mut object = 0;
        let make = || self.0.below.create_cq(cqe, channel.as_ref().map(|channel| &channel.below));
        let below = self.0.call(Call::CreateCq, 0, make, |below| {
            object = self.0.object(Class::Cq, [below.id().into(), below.cqe().into(), 0, 0]).0;
            Fields { object, local: below.cqe().into(), ..Fields::default() }
        })?;
        Ok(Arc::new(TraceCq { below, object, counted: Counted::new(&self.0, Kind::Cq) }))
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        let object = self.0.object(Class::Cm, [0; 4]).0;
        Ok(Arc::new(TraceCm { below: self.0.below.create_cm()?, object, shared: self.0.clone() }))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        let mut object = 0;
        let below = self.0.call(
            Call::CreateChannel,
            0,
            || self.0.below.create_comp_channel(),
            |_| {
                object = self.0.object(Class::Channel, [0; 4]).0;
                Fields { object, ..Fields::default() }
            },
        )?;
        Ok(Arc::new(TraceChannel { below, object, shared: self.0.clone() }))
    }

    fn alloc_dm(&self, len: usize) -> Result<Buf> {
        let about = |_: &Buf| Fields { local: len as u64, ..Fields::default() };
        self.0.call(Call::AllocDm, 0, || self.0.below.alloc_dm(len), about)
    }

    fn check_mtu(&self, mtu: u32) -> Result<()> {
        self.0.below.check_mtu(mtu)
    }

    fn load(
        &self,
        pd: &Arc<dyn PdOps>,
        addr: SocketAddr,
        firmware: Box<dyn Firmware>,
    ) -> Result<Box<dyn ProgramOps>> {
        let pd: Arc<TracePd> = downcast(pd.clone(), "the protection domain")?;
        self.0.call(Call::Load, 0, || self.0.below.load(&pd.below, addr, firmware), |_| Fields::default())
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        let event = self.0.below.poll_async_event()?;
        self.0.event(Event::Asynchronous, 0, true, || format!("{event:?}"));
        Some(event)
    }

    fn prepare_wait(&self) -> Option<Wake<'_>> {
        self.0.below.prepare_wait()
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.below.async_fd()
    }
}
