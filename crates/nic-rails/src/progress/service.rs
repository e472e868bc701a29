//! The service: makes progress for sleeping waiters, and for connections without a poller. In real time it is a thread
//! that sleeps in poll(2) on the rails' descriptors; in virtual time a rank, which the machine's signals wake.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use host::{EventCount, Host, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{Cm, CompChannel, Error, QpState, Result};

use crate::api::cm;
use crate::device_inner::DeviceInner;
use crate::lanes::failover::check_lane_reports;
use crate::lanes::reconnect::reconnect_lanes;
use crate::lanes::srq_move::progress_srq_move;
use crate::progress::poll::poll_and_fail_over;
use crate::state;

/// Starts the service; it ends with the device.
pub(crate) fn start(device: &Arc<DeviceInner>) -> Result<()> {
    let (weak, stop) = (Arc::downgrade(device), device.shared.service.is_stopped.clone());
    let host = device.shared.host.clone();
    let started = match device.shared.service.fd.clone() {
        Some(wake_up) => host.spawn("rails", None, move || run_thread(&weak, &wake_up, &stop)),
        None => {
            let own = host.clone();
            host.spawn("rails", None, move || run_rank(&own, &weak, &stop))
        }
    };
    started.map(drop).map_err(|e| Error::system("cannot start the thread of the rails", e))
}

/// The rank of virtual time. Signals of the machine wake it; a timer is used only where a step may take too long.
fn run_rank(host: &Host, device: &Weak<DeviceInner>, stop: &AtomicBool) {
    let mut poll_interval = None;
    while !stop.load(Ordering::Acquire) {
        let deadline = poll_interval.and_then(|span| host.after(span));
        // Until it needs another timer, or the device is gone.
        let look = || match device.upgrade().filter(|_| !stop.load(Ordering::Acquire)) {
            None => Some(()),
            Some(device) => {
                progress_all(&device);
                (short_interval(&device) != poll_interval).then_some(())
            }
        };
        let looked = host.wait("the rails' service", &EventCount::new(), deadline, look);
        if looked.is_none() && deadline.is_none_or(|deadline| host.now() < deadline) {
            // The world ends.
            return;
        }
        poll_interval = device.upgrade().and_then(|device| short_interval(&device));
    }
}

/// The time until the next check, if it is short.
fn short_interval(device: &DeviceInner) -> Option<Span> {
    Some(poll_interval(device)).filter(|poll_interval| *poll_interval < Span::from_ms(100))
}

/// The thread of real time.
fn run_thread(device: &Weak<DeviceInner>, wake_up: &OwnedFd, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let (cms, channels, poll_interval) = {
            let Some(device) = device.upgrade() else { return };
            progress_all(&device);
            let cms: Vec<Cm> = device.live_cms().iter().flat_map(|cm| cm.rail_cms.clone()).collect();
            let cms: Vec<Cm> = cms.into_iter().chain(device.join_cms().iter().cloned()).collect();
            let channels: Vec<CompChannel> = device.shared.channels.iter().flatten().cloned().collect();
            (cms, channels, poll_interval(&device).to_std())
        };
        let fds = cms.iter().filter_map(Cm::fd).chain(channels.iter().filter_map(CompChannel::fd));
        let fds = fds.chain([wake_up.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let nanos = i64::from(poll_interval.subsec_nanos());
        let poll_interval = Timespec { tv_sec: poll_interval.as_secs() as i64, tv_nsec: nanos };
        // Interrupted or not: check everything.
        let _ = poll(&mut fds, Some(&poll_interval));
        while rustix::io::read(wake_up, &mut [0; 8]).is_ok() {}
    }
}

/// The work of the service after each wake-up.
fn progress_all(device: &Arc<DeviceInner>) {
    cm::progress(device);
    for qp in device.live_qps() {
        if qp.uses_an_overrun_queue() && qp.state() != QpState::Error {
            qp.fail();
        }
        check_lane_reports(device, &qp);
        progress_srq_move(device, &qp);
    }
    device.failing_over.retain(|qp| poll_and_fail_over(device, qp));
    device.degraded.retain(|qp| reconnect_lanes(device, qp));
}

/// The longest time until the next check, even without an event.
fn poll_interval(device: &DeviceInner) -> Span {
    if !device.failing_over.is_empty() {
        return Span::from_ms(2);
    }
    if !device.expected.is_empty() || !device.degraded.is_empty() {
        return Span::from_ms(50);
    }
    // A peer may have closed a lane and written a lane report, for which there is no event.
    let connected = device.live_qps().any(|qp| qp.state_number() == state::READY_TO_SEND);
    if connected { Span::from_ms(100) } else { Span::from_secs(5) }
}
