//! Waits on rails notice partial progress.

use std::net::Ipv4Addr;

use nic_rails::Engine;
use verbs::host::{Source as _, Span};
use verbs::{Access, Buf, CmEvent, ConnParam, Data, QpInit, SendFlags, SendOp, SendWr, Wc};

use crate::env;

const LEN: usize = 4 << 20;

/// Goal: a waiter for a completion on rails notices the progress of a long message, as on a single NIC. Method: compare
/// `progress_count` before and after a large write.
#[test]
fn partial_progress_of_a_message_is_reported() {
    let env = env(9, Engine::Callers);
    let [near, far] = [&env.a, &env.b].map(|device| {
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(16).expect("a queue"));
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.reg_mr(&Buf::alloc(LEN).expect("memory"), access).expect("a region");
        (qp, cq, memory, device.create_cm().expect("a channel"))
    });
    let listener = far.3.listen((Ipv4Addr::new(127, 0, 9, 1), 0).into(), 1).expect("a port");
    near.3.connect(&near.0, listener.addr(), &ConnParam::default()).expect("asked");
    let (mut open, host) = (0, env.a.host());
    let joined = host.poll("a connection", host.after(Span::from_secs(20)), || {
        for event in [near.3.poll_event(), far.3.poll_event()].into_iter().flatten() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    far.3.accept(request, &far.0, &ConnParam::default()).expect("accepted");
                }
                CmEvent::Established { .. } => open += 1,
                other => panic!("{other:?}"),
            }
        }
        (open == 2).then_some(())
    });
    assert!(joined.is_some(), "{open} ends are connected");
    let mut wc = [Wc::default()];
    assert_eq!(near.1.poll(&mut wc), Ok(0));
    let before = near.1.progress_count();
    let data = [near.2.sge(0, LEN as u32)];
    let op = SendOp::Write(far.2.remote(0));
    let wr = SendWr { wr_id: 7, op, data: Data::Sges(&data), flags: SendFlags::SIGNALED };
    near.0.post_send(&wr).expect("room");
    let done = host.wait("the write", &near.1, host.after(Span::from_secs(20)), || {
        near.1.poll(&mut wc).ok().filter(|count| *count > 0)
    });
    assert!(done == Some(1) && wc[0].is_ok(), "{done:?} {wc:?}");
    assert!(near.1.progress_count() != before, "no progress was counted");
}
