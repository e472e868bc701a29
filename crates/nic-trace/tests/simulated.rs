//! A modelled card in simulated time: a trace has the times of the simulation, which are the same in each run.

use std::net::SocketAddr;
use std::path::Path;

use nic_trace::TraceConfig;
use trace::format::RECORDS_MIN;
use trace::{Job, What, read};
use verbs::host::world::{self, FiberKind, World};
use verbs::host::{Host, Span};
use verbs::{Access, Buf, CmEvent, ConnParam, Device, Mr, Qp, QpInit, SendOp, SendWr};

fn open(host: &Host, file: &Path) -> Device {
    let config = nic_model::Config::new("mt23108-nicmem", &[]).expect("a machine");
    let below = nic_model::open(host, &config).expect("a device");
    let file = Some((file.to_path_buf(), RECORDS_MIN));
    nic_trace::open(&below, &TraceConfig { file, has_control: true }).expect("a device that records")
}

fn side(device: &Device) -> (Qp, Mr) {
    let pd = device.alloc_pd().expect("a domain");
    let qp = pd.create_qp(&QpInit::new(&device.create_cq(256).expect("a queue"))).expect("a queue pair");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    (qp, pd.reg_mr(&Buf::alloc(4096).expect("memory"), rights).expect("a region"))
}

/// Connects two machines, and writes 1 KiB three times.
fn program(a: &Device, b: &Device) {
    let deadline = a.host().after(Span::from_secs(5));
    let ((from, source), (to, target)) = (side(a), side(b));
    let (active, passive) = (a.create_cm().expect("a channel"), b.create_cm().expect("a channel"));
    let listener = passive.listen(SocketAddr::new(b.attr().port_addrs[0], 0), 8).expect("a listener");
    active.connect(&from, listener.addr(), &ConnParam::default()).expect("a connect");
    let CmEvent::ConnectRequest(request) = passive.get_event(deadline).expect("an event") else { panic!() };
    passive.accept(request, &to, &ConnParam::default()).expect("an accept");
    for cm in [&active, &passive] {
        assert!(matches!(cm.get_event(deadline), Ok(CmEvent::Established { .. })));
    }
    for number in 0..3 {
        from.post_send(&SendWr::new(number, SendOp::Write(target.remote(0)), &[source.sge(0, 1024)]))
            .expect("a write");
        assert!(from.init().send_cq.wait(deadline).expect("a completion").is_ok());
    }
}

/// Goal: simulated times are those of the model, and repeat. Method: the same program in two worlds, recorded into one file.
#[test]
fn trace_has_simulated_times_that_repeat() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.trace");
    for _ in 0..2 {
        let config = world::Config {
            seed: 1,
            fiber_kind: FiberKind::Coroutine,
            stack: 1 << 20,
            max_events: 10_000_000,
        };
        let mut world = World::new(config);
        let (a, b) = (world.add_node("a"), world.add_node("b"));
        let (hosts, file) = ((a.host(), b.host()), file.clone());
        let driver = move || program(&open(&hosts.0, &file), &open(&hosts.1, &file));
        world.spawn("driver", &[&a, &b], driver).expect("a rank");
        world.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
    let trace = read(&std::fs::read(&file).expect("a file")).expect("a trace");
    assert!(trace.is_virtual);
    let posts: Vec<u64> = {
        let sends = trace.records.iter().filter(|record| record.what == What::Send);
        sends.map(|record| record.fields.time_ps).collect()
    };
    // Both runs have equal times, so each time is in the file twice.
    assert_eq!(posts.len(), 6);
    assert!(posts.chunks(2).all(|two| two[0] == two[1]) && posts[0] < posts[2], "{posts:?}");
    let job = Job::new(vec![("model".into(), trace)]);
    let took = job.processes[0].requests.all.iter().filter_map(|request| {
        Some(request.ended_ps? - job.processes[0].trace.records[request.posted].fields.time_ps)
    });
    let took: Vec<u64> = took.collect();
    assert!(
        took.iter().all(|ps| (1_000_000..100_000_000).contains(ps)),
        "microseconds of a card of 2003: {took:?}"
    );
}
