//! The maximum number of queue pairs, created and destroyed.

use std::sync::atomic::{AtomicBool, Ordering};

use nic_rails::RailsConfig;
use verbs::host;
use verbs::{Device, Qp, QpCap, QpInit};

/// Queue pairs that fit on the narrow rail.
const FEW: usize = 64;

/// Creates queue pairs until there are no more, but at most `max`.
fn create_qps(device: &Device, max: usize) -> Vec<Qp> {
    let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(16).expect("a queue"));
    let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    std::iter::from_fn(|| pd.create_qp(&QpInit::new(&cq).cap(cap)).ok()).take(max).collect()
}

/// Goal: a queue pair is destroyed as soon as it has been dropped, whatever the threads of the rails are doing; only
/// the one that a thread is holding just then may take a moment longer. Method: a rail has room for few; right after
/// all of them have been dropped, as many can be created again, while something keeps the threads awake.
#[test]
fn dropped_queue_pairs_are_freed_immediately() {
    let rail = || nic_shm::open(&host::real::host(), &nic_shm::ShmConfig::default()).expect("a rail");
    let narrow = rail();
    let device = nic_rails::open(vec![narrow.clone(), rail()], &RailsConfig::default()).expect("rails");
    let others = create_qps(&narrow, narrow.attr().max_qp as usize - FEW);
    let is_stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_stopped.load(Ordering::Relaxed) {
                drop(device.create_cm().expect("a channel"));
            }
        });
        let counts: Vec<usize> = (0..20).map(|_| create_qps(&device, usize::MAX).len()).collect();
        is_stopped.store(true, Ordering::Relaxed);
        assert!(counts.iter().all(|&count| count + 1 >= FEW && count <= FEW), "{counts:?} of {FEW}");
    });
    drop(others);
}
