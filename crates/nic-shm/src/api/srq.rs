//! API handles of shared receive queues.

use std::sync::Arc;

use verbs::provider::SrqOps;
use verbs::{RecvWr, Result, SrqInit};

use crate::device_inner::DeviceInner;
use crate::queues::receives::SharedReceives;

/// The API handle of a shared receive queue.
pub(crate) struct SrqHandle {
    device: Arc<DeviceInner>,
    pub(crate) receives: Arc<SharedReceives>,
}

impl SrqHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>, pd: u32, init: SrqInit) -> Result<Self> {
        let receives = Arc::new(SharedReceives::new(&device.shared, pd, init)?);
        Ok(Self { device: device.clone(), receives })
    }
}

impl SrqOps for SrqHandle {
    fn id(&self) -> u32 {
        self.receives.index as u32
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        if self.receives.post(wr)? {
            self.device.notify_rnr_waiter(&self.receives);
        }
        Ok(())
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.receives.set_limit(limit);
        if limit > 0 {
            self.device.watch_limit(&self.receives);
        }
        self.receives.check_limit();
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.receives.check_limit();
        self.receives.limit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use verbs::provider::downcast;
    use verbs::{Access, Buf, QpInit};

    use super::*;
    use crate::api::handle::QpHandle;

    /// Goal: posting a receive notifies the peers that wait for a receive of this queue; the cost does not
    /// depend on the number of queue pairs. Method: the peers of queue pairs of two shared receive queues
    /// wait, but only some have announced it.
    #[test]
    fn post_wakes_waiting_peers_of_this_queue_only() {
        let device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let mr = pd.reg_mr(&Buf::alloc(4096).expect("memory"), Access::ALL).expect("a region");
        let srqs = [(); 2].map(|()| pd.create_srq(SrqInit { max_wr: 4, max_sge: 1 }).expect("a queue"));
        let qps: Vec<_> = (0..100)
            .map(|i| QpInit { srq: Some(srqs[i % 2].clone()), ..QpInit::new(&cq) })
            .map(|init| pd.create_qp(&init).expect("a queue pair"))
            .collect();
        let inner = |i: usize| {
            let handle: Arc<QpHandle> =
                downcast(qps[i].ops().clone(), "the queue pair").expect("a queue pair of this NIC");
            handle.qp.clone()
        };
        (0..100).for_each(|i| inner(i).connection.words.rnr.0.store(1, Ordering::Relaxed));
        for i in [7, 8, 64, 99] {
            let qp = inner(i);
            qp.connection.device.header.rnr.add(qp.index());
            qp.receiving.srq.as_ref().expect("a shared receive queue").shared.rnr.store(1, Ordering::Relaxed);
        }
        let fed =
            || (0..100).filter(|&i| inner(i).connection.words.rnr.0.load(Ordering::Relaxed) == 0).collect();
        let post =
            |srq: &verbs::Srq| srq.post_recv(&RecvWr { wr_id: 1, sges: &[mr.sge(0, 8)] }).expect("room");
        post(&srqs[0]);
        let first: Vec<_> = fed();
        assert_eq!(first, [8, 64]);
        post(&srqs[1]);
        let second: Vec<_> = fed();
        assert_eq!(second, [7, 8, 64, 99]);
    }
}
