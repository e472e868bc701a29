//! Each kind of fault, on shared memory, on iWARP and on a modelled card in simulated time.

mod support;

use support::{ALL, End, Nic, accept, connect, pair, run};
use verbs::host::{Span, Time};
use verbs::{
    AsyncEvent, Buf, CmEvent, CmFailure, ConnParam, Error, QpInit, QpState, RecvWr, SendOp, SendWr, SrqInit,
    WcOpcode, WcStatus,
};

fn write(end: &End, peer: &End, wr_id: u64) {
    let local = [end.mr.sge(0, 8)];
    end.post(&SendWr::new(wr_id, SendOp::Write(peer.mr.remote(1024)), &local));
}

/// Goal: the request ends as on a card: earlier ones succeed, it has the status, later ones are flushed in order, the
/// queue pair fails, and the peer sees the end.
fn third_write_ends_with(status: WcStatus, rules: &'static [&'static str]) {
    for nic in ALL {
        run(nic, 0, rules, move |a, b, addr| {
            let (a, b) = pair(a, b, addr);
            (1..=5).for_each(|wr_id| write(&a, &b, wr_id));
            let flushed = WcStatus::WrFlushErr;
            let expected =
                [(1, WcStatus::Success), (2, WcStatus::Success), (3, status), (4, flushed), (5, flushed)];
            assert_eq!(a.statuses(5), expected, "{nic:?}");
            assert_eq!(a.qp.state(), QpState::Error, "{nic:?}");
            a.until_disconnected();
            b.until_disconnected();
            let why = a.qp.failure().expect("a reason");
            assert!(why.contains("rule 1 (test: on=write nth=3"), "{nic:?}: {why}");
            let trace = a.faults().trace();
            assert_eq!((trace.len(), trace[0].qp_num), (1, Some(a.qp.num())), "{nic:?}");
            assert!(
                a.faults().report()[0].ends_with("fired 1 times in 5 operations"),
                "{:?}",
                a.faults().report()
            );
        });
    }
}

#[test]
fn write_ends_with_each_status() {
    third_write_ends_with(WcStatus::RetryExcErr, &["on=write nth=3 status=RETRY_EXC_ERR"]);
    third_write_ends_with(WcStatus::RemAccessErr, &["on=write nth=3 status=REM_ACCESS_ERR"]);
    third_write_ends_with(WcStatus::LocProtErr, &["on=write nth=3 status=LOC_PROT_ERR"]);
    third_write_ends_with(WcStatus::WrFlushErr, &["on=write nth=3 status=WR_FLUSH_ERR"]);
    third_write_ends_with(WcStatus::RnrRetryExcErr, &["on=write nth=3 status=RNR_RETRY_EXC_ERR"]);
}

#[test]
fn each_kind_of_request_ends_with_its_own_opcode() {
    for nic in ALL {
        run(nic, 0, &["on=request times=all status=REM_OP_ERR"], move |a, b, addr| {
            let ops = |b: &End| {
                [
                    (SendOp::Send, WcOpcode::Send),
                    (SendOp::WriteImm(b.mr.remote(0), 7), WcOpcode::Write),
                    (SendOp::Read(b.mr.remote(0)), WcOpcode::Read),
                    (SendOp::FetchAdd { remote: b.mr.remote(0), add: 1 }, WcOpcode::FetchAdd),
                ]
            };
            for at in 0..4 {
                let (a, b) = pair(a, b, addr);
                let (op, opcode) = ops(&b)[at];
                // Without a signal: errors complete nevertheless.
                a.post(&SendWr::new(9, op, &[a.mr.sge(0, 8)]).unsignaled());
                let wc = a.send_done();
                assert_eq!((wc.wr_id, wc.status, wc.opcode), (9, WcStatus::RemOpErr, opcode), "{nic:?}");
                assert_eq!(wc.qp_num, a.qp.num());
            }
        });
    }
}

#[test]
fn receive_ends_with_a_status_with_and_without_data() {
    for nic in ALL {
        for bytes in [8, 0] {
            run(nic, 0, &["on=recv nth=2 status=LOC_LEN_ERR"], move |a, b, addr| {
                // The side with the rule receives.
                let (b, a) = (End::new(b), End::new(a));
                (1..=3).for_each(|wr_id| a.post_recv(wr_id));
                connect(&a, &b, addr);
                for wr_id in 1..=2 {
                    b.post(&SendWr::new(
                        wr_id,
                        SendOp::Send,
                        &[b.mr.sge(0, bytes)][..usize::from(bytes != 0)],
                    ));
                }
                let done: Vec<_> = (0..3).map(|_| a.recv_done()).map(|wc| (wc.wr_id, wc.status)).collect();
                let expected = [(1, WcStatus::Success), (2, WcStatus::LocLenErr), (3, WcStatus::WrFlushErr)];
                assert_eq!(done, expected, "{nic:?} with {bytes} bytes");
                b.until_disconnected();
            });
        }
    }
}

#[test]
fn creation_fails_with_an_error_number() {
    const RULES: &[&str] = &[
        "on=reg_mr nth=3 error=ENOMEM",
        "on=create_qp nth=2 error=ENOMEM",
        "on=create_cq nth=3 error=EMFILE",
        "on=alloc_pd nth=2 error=EAGAIN",
        "on=create_srq error=ENOMEM",
        "on=create_channel error=ENOMEM",
    ];
    for nic in ALL {
        run(nic, 0, RULES, move |a, _, _| {
            let end = End::new(a);
            let errno = |error: Error| match error {
                Error::System { errno, what, why } => (errno, what + &why),
                other => panic!("{other:?}"),
            };
            let buf = Buf::alloc(64).expect("memory");
            let rights = verbs::Access::LOCAL_WRITE;
            let region = end.pd.reg_mr(&buf, rights).expect("the second region");
            let (found, text) = errno(end.pd.reg_mr(&buf, rights).expect_err("the third region"));
            assert_eq!(found, Some(12), "{nic:?}");
            assert!(text.contains("reg_mr fails by an injected fault") && text.contains("rule 1"), "{text}");
            drop(region);
            end.pd.reg_mr(&buf, rights).expect("it happens once");
            let qp = end.pd.create_qp(&QpInit::new(&end.cq)).expect_err("the second queue pair");
            assert_eq!(errno(qp).0, Some(12));
            assert_eq!(errno(end.device.create_cq(8).expect_err("the third queue")).0, Some(24));
            assert_eq!(errno(end.device.alloc_pd().expect_err("the second domain")).0, Some(11));
            let srq = end.pd.create_srq(SrqInit { max_wr: 8, max_sge: 1 });
            assert_eq!(errno(srq.expect_err("the first shared queue")).0, Some(12));
            assert_eq!(errno(end.device.create_comp_channel().expect_err("a channel")).0, Some(12));
            assert_eq!(end.faults().report_unused(), [""; 0]);
        });
    }
}

#[test]
fn post_fails_with_an_error_number_and_can_be_repeated() {
    for nic in ALL {
        run(nic, 0, &["on=send nth=2 error=ENOMEM", "on=recv nth=2 error=ENOMEM"], move |a, b, addr| {
            let (a, b) = pair(a, b, addr);
            (1..=3).for_each(|wr_id| b.post_recv(wr_id));
            let send = SendWr::inline(1, SendOp::Send, b"8 bytes.");
            a.post(&send);
            assert!(matches!(a.qp.post_send(&send), Err(Error::System { errno: Some(12), .. })), "{nic:?}");
            a.post(&send);
            assert_eq!(a.statuses(2), [(1, WcStatus::Success); 2]);
            a.post_recv(1);
            let refused = a.qp.post_recv(&RecvWr::new(2, &[]));
            assert!(matches!(refused, Err(Error::System { errno: Some(12), .. })), "{nic:?}");
        });
    }
}

fn async_event(end: &End) -> AsyncEvent {
    end.device.get_async_event(end.deadline()).expect("an asynchronous event")
}

#[test]
fn events_of_ports_and_of_the_device_come_after_a_count() {
    const RULES: &[&str] = &[
        "on=write nth=2 event=PORT_ERR",
        "on=write nth=3 event=PORT_ACTIVE",
        "on=write nth=4 event=DEVICE_FATAL",
    ];
    for nic in ALL {
        run(nic, 0, RULES, move |a, b, addr| {
            let (a, b) = pair(a, b, addr);
            (1..=3).for_each(|wr_id| write(&a, &b, wr_id));
            assert_eq!(async_event(&a), AsyncEvent::PortError { port: 1 }, "{nic:?}");
            assert_eq!(async_event(&a), AsyncEvent::PortActive { port: 1 }, "{nic:?}");
            assert!(a.statuses(3).iter().all(|(_, status)| *status == WcStatus::Success));
            assert_eq!(a.qp.state(), QpState::ReadyToSend);
            write(&a, &b, 4);
            assert_eq!(async_event(&a), AsyncEvent::DeviceFatal, "{nic:?}");
            assert_eq!(a.qp.state(), QpState::Error);
            b.until_disconnected();
            assert!(matches!(a.device.create_cq(8), Err(Error::DeviceGone { .. })), "{nic:?}");
        });
    }
}

#[test]
fn event_comes_at_its_time_to_a_sleeper() {
    for nic in ALL {
        run(nic, 0, &["on=time after=30ms event=QP_FATAL"], move |a, b, addr| {
            let begin = a.host().now();
            let (a, b) = pair(a, b, addr);
            let AsyncEvent::QpFatal { qp_num, why } = async_event(&a) else { panic!("another event") };
            assert_eq!(qp_num, a.qp.num());
            assert!(why.contains("injected"), "{why}");
            assert_eq!(a.qp.state(), QpState::Error, "{nic:?}");
            assert!(a.device.host().now().since(begin) >= Span::from_ms(20), "{nic:?}: too early");
            b.until_disconnected();
        });
    }
}

#[test]
fn shared_receive_queue_reports_its_limit_and_the_last_receive() {
    const RULES: &[&str] = &["on=write event=SRQ_LIMIT", "on=write nth=2 event=LAST_WQE_REACHED"];
    for nic in ALL {
        run(nic, 0, RULES, move |a, b, addr| {
            let (mut a, b) = (End::new(a), End::new(b));
            let srq = a.pd.create_srq(SrqInit { max_wr: 8, max_sge: 1 }).expect("a shared queue");
            srq.post_recv(&RecvWr::new(1, &[a.mr.sge(0, 64)])).expect("a receive");
            srq.post_recv(&RecvWr::new(2, &[a.mr.sge(0, 64)])).expect("a receive");
            a.qp = a.pd.create_qp(&QpInit::new(&a.cq).recv_cq(&a.recv_cq).srq(&srq)).expect("a queue pair");
            connect(&a, &b, addr);
            srq.arm_limit(1).expect("a limit");
            write(&a, &b, 1);
            assert_eq!(async_event(&a), AsyncEvent::SrqLimitReached { srq: srq.id() }, "{nic:?}");
            assert_eq!(srq.limit(), 0);
            write(&a, &b, 2);
            assert_eq!(async_event(&a), AsyncEvent::LastWqeReached { qp_num: a.qp.num() }, "{nic:?}");
            assert_eq!(a.qp.state(), QpState::Error);
        });
    }
}

#[test]
fn connect_is_rejected_lost_or_refused_without_the_peer() {
    const RULES: &[&str] = &["on=connect action=reject", "on=connect action=lose", "on=connect error=EAGAIN"];
    for nic in ALL {
        run(nic, 0, RULES, move |a, b, addr| {
            let (a, b) = (End::new(a), End::new(b));
            let listener = b.cm.listen(addr, 8).expect("a listener");
            let param = ConnParam { timeout: Span::from_ms(50), ..ConnParam::default() };
            let connect = || a.cm.connect(&a.qp, listener.addr(), &param);
            connect().expect("it starts");
            assert!(matches!(a.event(), CmEvent::Rejected { qp_num, .. } if qp_num == a.qp.num()), "{nic:?}");
            let begin = a.device.host().now();
            connect().expect("it starts");
            let CmEvent::ConnectFailed { why, .. } = a.event() else { panic!("{nic:?}: another event") };
            assert_eq!(why, CmFailure::TimedOut);
            assert!(a.device.host().now().since(begin) >= Span::from_ms(50));
            assert!(matches!(connect(), Err(Error::System { errno: Some(11), .. })), "{nic:?}");
            assert!(b.cm.poll_event().is_none(), "{nic:?}: the peer has seen nothing");
            connect().expect("it starts");
            accept(&b);
            assert!(matches!(a.event(), CmEvent::Established { .. }), "{nic:?}");
        });
    }
}

#[test]
fn connect_requests_are_lost_or_rejected_at_the_listener() {
    const RULES: &[&str] = &["on=connect_request action=reject", "on=connect_request action=lose"];
    for nic in ALL {
        run(nic, 0, RULES, move |a, b, _| {
            // The side with the rules listens.
            let (listens, connects) = (End::new(a), End::new(b));
            let ip = a.attr().port_addrs.first().copied().unwrap_or([127, 0, 0, 1].into());
            let listener = listens.cm.listen((ip, 0).into(), 8).expect("a listener");
            let param = ConnParam { timeout: Span::from_ms(100), ..ConnParam::default() };
            for round in 0..3 {
                let end = End::new(b);
                connects.cm.connect(&end.qp, listener.addr(), &param).expect("a connect");
                let event = loop {
                    // The listening side has to poll: its program takes the events.
                    if let Some(CmEvent::ConnectRequest(request)) = listens.cm.poll_event() {
                        assert_eq!(round, 2, "{nic:?}: a request that a fault takes");
                        listens.cm.accept(request, &listens.qp, &ConnParam::default()).expect("an accept");
                    }
                    if let Ok(event) = connects.cm.get_event(b.host().after(Span::from_ms(1))) {
                        break event;
                    }
                };
                let is_expected = match (round, &event) {
                    (0, CmEvent::Rejected { .. }) | (2, CmEvent::Established { .. }) => true,
                    (1, CmEvent::ConnectFailed { why, .. }) => *why == CmFailure::TimedOut,
                    _ => false,
                };
                assert!(is_expected, "{nic:?}, round {round}: {event:?}");
            }
        });
    }
}

#[test]
fn events_of_connections_are_late_in_order_or_lost() {
    for nic in ALL {
        run(nic, 0, &["on=established delay=30ms", "on=disconnected action=lose"], move |a, b, addr| {
            let (a, b) = (End::new(a), End::new(b));
            let begin = a.device.host().now();
            connect(&a, &b, addr);
            assert!(a.device.host().now().since(begin) >= Span::from_ms(30), "{nic:?}: too early");
            b.qp.to_error();
            b.until_disconnected();
            // The queue pair knows of the end, and its program gets no event.
            let failed = || (a.qp.state() == QpState::Error).then_some(());
            a.device.host().poll("the end", a.deadline(), failed).expect("the end");
            let more = a.cm.get_event(a.device.host().after(Span::from_ms(20)));
            assert!(more.is_err(), "{nic:?}: {more:?}");
            assert_eq!(a.faults().report_unused(), [""; 0]);
        });
    }
}

#[test]
fn late_requests_keep_their_order_and_let_other_queue_pairs_pass() {
    for nic in ALL {
        run(nic, 0, &["on=write nth=2 delay=40ms"], move |a, b, addr| {
            let (first, peer) = pair(a, b, addr);
            let (other, other_peer) = pair(a, b, addr);
            let begin = a.host().now();
            (1..=3).for_each(|wr_id| write(&first, &peer, wr_id));
            (1..=2).for_each(|wr_id| write(&other, &other_peer, wr_id));
            let ok = WcStatus::Success;
            assert_eq!(other.statuses(2), [(1, ok), (2, ok)], "{nic:?}");
            assert_eq!(first.statuses(3), [(1, ok), (2, ok), (3, ok)], "{nic:?}");
            assert!(a.host().now().since(begin) >= Span::from_ms(40), "{nic:?}: too early");
        });
    }
}

/// Goal: requests that wait are flushed in order when the peer goes meanwhile, and the queue has its depth.
#[test]
fn late_requests_are_flushed_and_fill_the_queue() {
    for nic in ALL {
        run(nic, 0, &["on=write delay=50ms"], move |a, b, addr| {
            let (a, b) = pair(a, b, addr);
            let depth = a.qp.init().cap.max_send_wr;
            for wr_id in 0..u64::from(depth) {
                write(&a, &b, wr_id);
            }
            let full = a.qp.post_send(&SendWr::new(99, SendOp::Write(b.mr.remote(0)), &[a.mr.sge(0, 8)]));
            assert!(matches!(full, Err(Error::QueueFull { .. })), "{nic:?}: {full:?}");
            b.qp.to_error();
            let done = a.statuses(depth as usize);
            assert!(done.iter().enumerate().all(|(at, (wr_id, _))| *wr_id == at as u64), "{nic:?}: {done:?}");
            assert!(done[1..].iter().all(|(_, status)| *status == WcStatus::WrFlushErr), "{nic:?}: {done:?}");
        });
    }
}

/// Goal: a receiver that is slow to post receives makes a sender without retries fail, as on a card.
#[test]
fn late_receive_is_missing_for_its_message() {
    for nic in ALL {
        run(nic, 0, &["on=recv delay=50ms"], move |a, b, addr| {
            let (b, a) = (End::new(b), End::new(a));
            a.post_recv(1);
            connect(&a, &b, addr);
            b.post(&SendWr::inline(1, SendOp::Send, b"8 bytes."));
            let begin: Time = a.device.host().now();
            assert_eq!(a.recv_done().status, WcStatus::Success, "{nic:?}");
            assert!(a.device.host().now().since(begin) >= Span::from_ms(20), "{nic:?}: too early");
            assert_eq!(b.send_done().status, WcStatus::Success);
        });
    }
}

/// Goal: the same seed gives the same faults, and in simulated time the same run.
#[test]
fn same_seed_gives_the_same_faults() {
    const RULES: &[&str] = &[
        "on=write probability=0.1 delay=20us jitter=100us",
        "on=write nth=40 probability=0.2 times=1 status=RETRY_EXC_ERR",
    ];
    fn faults(nic: Nic, seed: u64) -> (Vec<(usize, verbs::host::Span)>, Option<verbs::host::world::Ended>) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let ended = run(nic, seed, RULES, move |a, b, addr| {
            let (a, b) = pair(a, b, addr);
            let mut left = 0;
            for wr_id in 0..200 {
                write(&a, &b, wr_id);
                let wc = a.send_done();
                left += u32::from(!wc.is_ok());
                if left == 2 {
                    break;
                }
            }
            let fired = a.faults().trace().into_iter().map(|fired| (fired.rule, fired.at)).collect();
            sender.send(fired).expect("a receiver");
        });
        (receiver.recv().expect("a trace"), ended)
    }
    for nic in ALL {
        let rules_of = |seed| faults(nic, seed).0.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        assert_eq!(rules_of(7), rules_of(7), "{nic:?}");
        assert!(rules_of(7).len() > 2, "{nic:?}");
        assert_ne!(rules_of(7), rules_of(8), "{nic:?}");
    }
    let model = Nic::Model("mt23108-nicmem");
    assert_eq!(faults(model, 7), faults(model, 7), "the same seed gave another run");
    assert_ne!(faults(model, 7).1, faults(model, 8).1);
}

#[test]
fn rules_are_added_and_ended_while_the_device_is_used() {
    for nic in ALL {
        run(nic, 0, &[], move |a, b, addr| {
            let (a, b) = pair(a, b, addr);
            write(&a, &b, 1);
            assert_eq!(a.faults().add("on=write nth=2 delay=1us".parse().expect("a rule")), Ok(1));
            a.faults().clear();
            write(&a, &b, 2);
            assert_eq!(a.faults().add("on=write status=REM_ACCESS_ERR".parse().expect("a rule")), Ok(2));
            write(&a, &b, 3);
            let ok = WcStatus::Success;
            assert_eq!(a.statuses(3), [(1, ok), (2, ok), (3, WcStatus::RemAccessErr)], "{nic:?}");
        });
    }
}

#[test]
fn process_cannot_vanish_in_simulated_time() {
    let rules: &[&str] = &[];
    run(Nic::Model("mt23108-nicmem"), 0, rules, |a, _, _| {
        let refused = End::new(a).faults().add("on=write action=vanish".parse().expect("a rule"));
        assert!(refused.expect_err("simulated").to_string().contains("simulated time"));
    });
}

/// Goal: rules about a peer leave the others alone.
#[test]
fn rule_about_a_peer_leaves_others_alone() {
    for nic in [Nic::Shm, Nic::Iwarp] {
        run(
            nic,
            0,
            &[
                "on=write peer=10.9.8.7 status=RETRY_EXC_ERR",
                "on=write peer=127.0.0.0/8 nth=2 status=REM_OP_ERR",
            ],
            move |a, b, addr| {
                let (a, b) = pair(a, b, addr);
                (1..=2).for_each(|wr_id| write(&a, &b, wr_id));
                assert_eq!(a.statuses(2), [(1, WcStatus::Success), (2, WcStatus::RemOpErr)], "{nic:?}");
                assert!(a.faults().report()[0].contains("never matched"));
            },
        );
    }
}
