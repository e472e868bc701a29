//! Users of one device that access its owner's private memory in different ways.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use host::{Host, Span};
use nic_shm::{CopyPath, ShmConfig, open};
use verbs::{Access, Buf, CmEvent, ConnParam, Device, Pd, QpInit, SendOp, SendWr};

const ADDS: u64 = 2_000;

fn device(host: &Host, copy: CopyPath) -> Device {
    open(host, &ShmConfig { copy, dm_size: None }).expect("a device")
}

/// Connects a device with this copy path to the owner's domain and adds to its word.
fn add_over(host: &Host, owner: &Pd, copy: CopyPath, remote: verbs::RemoteAddr) {
    let deadline = || host.after(Span::from_secs(30));
    let (far_cq, far_cm) =
        (owner.device().create_cq(8).expect("a queue"), owner.device().create_cm().expect("cm"));
    let far = owner.create_qp(&QpInit::new(&far_cq)).expect("a queue pair");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = far_cm.listen(any, 4).expect("a listener");
    let device = device(host, copy);
    let pd = device.alloc_pd().expect("a domain");
    let (cq, cm) = (device.create_cq(8).expect("a queue"), device.create_cm().expect("cm"));
    let near = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
    cm.connect(&near, listener.addr(), &ConnParam::default()).expect("connect");
    let Ok(CmEvent::ConnectRequest(request)) = far_cm.get_event(deadline()) else { panic!("no request") };
    far_cm.accept(request, &far, &ConnParam::default()).expect("accept");
    assert!(matches!(cm.get_event(deadline()), Ok(CmEvent::Established { .. })));
    let result = pd.reg_mr(&Buf::alloc(8).expect("memory"), Access::LOCAL_WRITE).expect("a region");
    for i in 0..ADDS {
        let into = [result.sge(0, 8)];
        let add = SendWr::new(i, SendOp::FetchAdd { remote, add: 1 }, &into);
        near.post_send(&add).expect("room");
        let wc = cq.wait(deadline()).expect("a completion");
        assert!(wc.is_ok(), "{wc:?}");
    }
}

/// Goal: atomics on private memory are atomic among all users of a device (`AtomicCap::Hca`), whichever copy
/// path they use. Method: one thread for each path adds to the same word; no addition may be lost.
#[test]
fn atomics_over_different_copy_paths_lose_nothing() {
    let host = host::real::host();
    let owner = device(&host, CopyPath::Auto);
    let pd = owner.alloc_pd().expect("a domain");
    let word = pd.reg_mr(&Buf::alloc(8).expect("memory"), Access::ALL).expect("a region");
    let ways = [CopyPath::Auto, CopyPath::Kernel, CopyPath::Service];
    std::thread::scope(|scope| {
        for copy in ways {
            let (host, pd, remote) = (&host, &pd, word.remote(0));
            scope.spawn(move || add_over(host, pd, copy, remote));
        }
    });
    let sum = word.buf().word(0).expect("aligned").load(Ordering::SeqCst);
    assert_eq!(sum, ADDS * ways.len() as u64);
}
