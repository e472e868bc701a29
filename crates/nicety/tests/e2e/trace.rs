//! Recording and counting, end to end: what a program did is in its file, as text, as a page and as JSON, and its counters can be read
//! while it runs.

use host::Span;
use verbs::{Access, Buf, CmEvent, ConnParam, Data, Device, Mr, Qp, QpCap, QpInit, RecvWr, SendOp, SendWr};

use crate::common::nicety;

/// A queue pair of each side, connected, and a region that both use.
fn connect(device: &Device) -> (Qp, Qp, Mr) {
    let deadline = || device.host().after(Span::from_secs(60));
    let (pd, cm) = (device.alloc_pd().expect("a domain"), device.create_cm().expect("a channel"));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = pd.reg_mr(&Buf::alloc(4096).expect("memory"), rights).expect("a region");
    let qp = || {
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, ..QpCap::default() };
        let init = QpInit::new(&device.create_cq(16).expect("a queue")).cap(cap);
        pd.create_qp(&init.recv_cq(&device.create_cq(16).expect("a queue"))).expect("a queue pair")
    };
    let (a, b) = (qp(), qp());
    let listener = cm.listen("127.0.0.1:0".parse().expect("an address"), 8).expect("a listener");
    cm.connect(&a, listener.addr(), &ConnParam::default()).expect("a connect");
    let CmEvent::ConnectRequest(request) = cm.get_event(deadline()).expect("an event") else {
        panic!("no request")
    };
    cm.accept(request, &b, &ConnParam::default()).expect("an accept");
    for _ in 0..2 {
        assert!(matches!(cm.get_event(deadline()), Ok(CmEvent::Established { .. })));
    }
    (a, b, mr)
}

/// Goal: the tools show a program's mistake. Method: a queue pair whose requests are not signaled, so that its queue fills.
#[test]
fn trace_shows_requests_completions_and_a_full_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("full.trace");
    let file_text = file.display().to_string();
    let name = format!("trace(shm,file={file_text},size=1M)");
    let device = fabric::open(&name, &host::real::host()).expect("a device");
    let (a, b, mr) = connect(&device);
    let wait = |cq: &verbs::Cq| cq.wait(device.host().after(Span::from_secs(60))).expect("a completion");
    b.post_recv(&RecvWr::new(70, &[mr.sge(0, 64)])).expect("a receive");
    a.post_send(&SendWr::new(7, SendOp::Send, &[mr.sge(0, 10)])).expect("a send");
    assert!(wait(&a.init().send_cq).is_ok() && wait(&b.init().recv_cq).is_ok());
    let write = SendWr::inline(8, SendOp::Write(mr.remote(64)), b"12345678").unsignaled();
    assert!(matches!(write.data, Data::Inline(_)));
    let posted = (0..20).take_while(|_| a.post_send(&write).is_ok()).count();
    assert_eq!(posted, 4, "the queue has 4 entries, and nothing signals that they are free");
    counters(posted);

    let ended = nicety(["trace", &file_text]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let has = |words: &[&str]| ended.out.lines().any(|line| words.iter().all(|word| line.contains(word)));
    for words in [
        &["full.trace", "real time"][..],
        &["sends: 5 posted, at most 4 of 4 at a time, full for", "1 refused, 4 without completion"],
        &["receives: 1 posted, at most 1 of 4"],
        &["reg_mr", "4096 B", "LOCAL_WRITE | REMOTE_WRITE"],
        &["listen", "127.0.0.1:"],
        &["post recv", "wr_id 70", "64 B"],
        &["post send", "wr_id 7 ", "10 B", "signaled"],
        &["done send", "wr_id 7 ", "SUCCESS", "after its post"],
        &["done recv", "wr_id 70", "10 B"],
        &["post write", "wr_id 8", "8 B", "inline"],
        &["post write", "FAILED: the send queue is full"],
    ] {
        assert!(has(words), "{words:?} is missing:\n{}", ended.out);
    }
    let failures = nicety(["trace", &file_text, "--failures"]).out;
    assert_eq!(failures.lines().filter(|line| !line.starts_with('#')).count(), 1, "{failures}");
    views(&folder, &file_text);
    drop((a, b, mr));
    hostile(&folder, &file);
}

/// The counters of this process, while it runs.
fn counters(posted: usize) {
    let own = std::process::id().to_string();
    let ended = nicety(["top", &own, "--prometheus"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let value = |name: &str, rest: &str| {
        let line = ended
            .out
            .lines()
            .find(|line| line.starts_with(name) && line.contains(rest) && !line.ends_with(" 0"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).unwrap_or(0)
    };
    assert_eq!(value("nicety_registered_bytes", ""), 4096, "{}", ended.out);
    assert_eq!(value("nicety_objects", "kind=\"qp\""), 2);
    assert_eq!(value("nicety_requests_total", "signaled=\"no\""), posted);
    assert_eq!(value("nicety_outstanding_requests", "queue=\"send\""), posted);
    assert_eq!(value("nicety_refused_total", ""), 1);
    let ended = nicety(["top", &own, "--times", "2", "--interval", "1ms"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(ended.out.matches("shm  1 pd  1 mr  4 cq  2 qp").count(), 2, "{ended:?}");
    assert!(ended.out.contains(" 4/4 "), "{ended:?}");
    nicety(["top", "1"]).is_error(2, "process 1 has no control socket");
}

fn views(folder: &tempfile::TempDir, file: &str) {
    let names = ["page.html", "trace.json", "trace.pcapng"];
    let [page, json, pcap] = names.map(|name| folder.path().join(name).display().to_string());
    let ended = nicety(["trace", file, "--html", &page, "--chrome", &json, "--pcap", &pcap]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("trace-rows") && page.contains("sends") && !page.contains("src=\"http"), "{page}");
    let pcap = std::fs::read(pcap).expect("a capture");
    let has = |text: &[u8]| pcap.windows(text.len()).any(|window| window == text);
    assert!(has(b"Made up by nicety") && has(&[0x0a, 0, 0xff, 0xff]), "there is no packet of an RDMA write");
    let json = std::fs::read_to_string(json).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let depths = events
        .iter()
        .filter(|event| event["ph"] == "C")
        .filter_map(|event| event["args"]["requests"].as_u64());
    assert_eq!(depths.max(), Some(4));
}

/// Files that are no trace, and one that is cut off, are errors.
fn hostile(folder: &tempfile::TempDir, file: &std::path::Path) {
    let bytes = std::fs::read(file).expect("a file");
    let wrong = folder.path().join("wrong.trace");
    let name = wrong.display().to_string();
    for (content, hint) in
        [(&bytes[..5000], "it is cut off"), (b"hello", "it is no trace"), (b"", "it is no trace")]
    {
        std::fs::write(&wrong, content).expect("a file");
        nicety(["trace", &name]).is_error(2, hint);
    }
    nicety(["trace", "/nowhere.trace"]).is_error(2, "there is no trace /nowhere.trace");
    let ended = nicety(["run", "--trace", &name, "--library", &name, "--", "true"]);
    ended.is_error(2, "exists and is no trace");
}
