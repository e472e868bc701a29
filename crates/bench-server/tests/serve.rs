//! A server with real workers: it measures for clients with its token, and hostile clients do not stop it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use bench::launch::{WorkerCommand, run_with, worker_main};
use bench::plan::{CheckedPlan, Plan};
use bench::token::Token;
use bench_server::{Serving, serve_with};
use results::schema::Run;

/// Not a test: the workers' entry. A test binary can only be started with the name of a test.
#[test]
fn worker_entry() {
    // Without its name as an argument there is no job. An exit code can only be compared by its debug form.
    let shown = |code: std::process::ExitCode| format!("{code:?}");
    let is_worker = std::env::args().any(|a| a == "worker_entry");
    if is_worker && shown(worker_main()) != shown(std::process::ExitCode::SUCCESS) {
        std::process::exit(1);
    }
}

fn command() -> WorkerCommand {
    let program = std::env::current_exe().expect("this test");
    let args = ["worker_entry", "--exact", "--nocapture", "--test-threads=1"];
    WorkerCommand { program, args: args.iter().map(Into::into).collect() }
}

/// The experiment `rate` in one size, with this server.
fn plan(server: SocketAddr) -> CheckedPlan {
    let set = [("min-count", "5"), ("max-count", "20"), ("budget", "0.1")];
    let set: BTreeMap<String, String> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let plan = Plan {
        experiments: vec!["rate".to_owned()],
        device: "shm".to_owned(),
        sizes: Some(vec![8]),
        seed: Some(7),
        launches: Some(1),
        set,
        ..Plan::default()
    };
    let mut plan = plan.check().expect("a sound plan");
    plan.peers = vec![server.to_string()];
    plan
}

fn measure(plan: &CheckedPlan) -> Run {
    run_with(&command(), plan, &mut (), &AtomicBool::new(false)).unwrap_or_else(|why| panic!("{why}"))
}

/// Runs a server while `body` runs with its address; returns what the server logged.
fn with_server(token: Option<Token>, body: impl FnOnce(SocketAddr)) -> Vec<String> {
    let (stop, log) = (AtomicBool::new(false), std::sync::Mutex::new(Vec::<String>::new()));
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let listen = SocketAddr::from(([127, 0, 0, 1], 0));
            let serving = Serving { listen, device: None, token, agent: None };
            let result = serve_with(&command(), &serving, &stop, &mut |line| {
                if let Some(addr) = line.strip_prefix("listening at ") {
                    said.send(addr.parse().expect("an address")).expect("the receiver waits");
                }
                log.lock().expect("no panic").push(line.to_owned());
            });
            result.expect("an address of this machine");
        });
        let addr = heard.recv().expect("it says where it listens");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(addr)));
        // Else a failed check would leave the server, and with it this test, running for ever.
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    log.into_inner().expect("no panic")
}

/// Goal: garbage, early hang-ups and the wrong protocol end only their own connection. Method: several such clients,
/// then a run over the same server, then two concurrent runs.
#[test]
fn a_server_outlives_hostile_clients_and_serves_many() {
    let log = with_server(None, |addr| {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", &[0; 64], &[0xff; 4096], b"\0\0\0\x02{}"] {
            let mut stream = TcpStream::connect(addr).expect("it listens");
            // It may have hung up already.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let small = || {
            let mut plan = plan(addr);
            plan.cells.retain(|c| c.experiment == "rate");
            plan.devices[0].cells = 0..plan.cells.len();
            plan
        };
        let cells = small().cells.len();
        assert!(cells > 1, "{cells}");
        let run = measure(&small());
        assert_eq!(run.results.len(), cells);
        std::thread::scope(|scope| {
            let both = [scope.spawn(|| measure(&small())), scope.spawn(|| measure(&small()))];
            both.into_iter().for_each(|b| assert_eq!(b.join().expect("measured").results.len(), cells));
        });
    });
    // Clients that send no hello get no process; a mere hang-up is not logged.
    assert_eq!(log.iter().filter(|l| l.contains("started")).count(), 3, "{log:#?}");
    assert_eq!(log.iter().filter(|l| l.contains("refused")).count(), 4, "{log:#?}");
    assert!(log.iter().filter(|l| l.contains("done")).count() >= 2, "{log:#?}");
}

/// Goal: a server with a token measures only for clients that have it, and others get advice.
#[test]
fn a_server_with_a_token_measures_for_who_has_it() {
    let token = |text: &str| Some(Token::new(text).expect("long enough"));
    with_server(token("0123456789abcdef"), |addr| {
        let mut small = plan(addr);
        small.token = token("0123456789abcdef");
        let run = measure(&small);
        assert!(!run.results.is_empty());
        let text = run.to_json().expect("finite");
        assert!(!text.contains("0123456789abcdef") && !format!("{small:?}").contains("0123456789abcdef"));
        for (wrong, said) in
            [(None, "requires a token"), (token("another one, as long"), "tokens of the two sides differ")]
        {
            small.token = wrong;
            let why = run_with(&command(), &small, &mut (), &AtomicBool::new(false)).expect_err("refused");
            assert!(why.what.contains(said) && why.what.contains("--token-file"), "{why}");
        }
    });
}
