//! The thread that handles the events of an engine. It starts when the device is opened.
//!
//! It does the work that must go on while a program makes no calls: accepting paired queue pairs, posting requests that waited for a
//! connection, and making descriptors readable for asynchronous and librdmacm events. It takes no part in the data path.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ffi::lock;
use rdma_abi::numbers as n;
use verbs::host::{EventCount, Span};
use verbs::pairing::{Accept, Offered, Pairing};
use verbs::{AsyncEvent, CmEvent};

use crate::answer::Answer;
use crate::cm::{attempt, outcome};
use crate::engine::{ENGINES, gids, own_ip};
use crate::errno::Errno;
use crate::objects::{AsyncQpEvent, CmId, DelayedTask, Engine, Objects, PendingAsyncEvent, Qp};
use crate::qp::{failed_completion, peer_gone};
use crate::resources::event;
use crate::slab::Held;

/// The engine of the device with this name. The first caller opens the device.
///
/// # Errors
/// As [`fabric::open`]; the error is also reported on standard error.
pub(crate) fn engine_of(name: &str) -> Answer<Arc<Engine>> {
    let own = std::process::id();
    let mut engines = lock(&ENGINES);
    if let Some((.., engine)) = engines.iter().find(|(pid, known, _)| *pid == own && known == name) {
        return Ok(engine.clone());
    }
    let engine = open(name).map_err(|why| {
        let text = format!("cannot open {name}: {why}");
        Errno::from(why).remarked(format_args!("{text}"))
    })?;
    engines.push((own, name.to_owned(), engine.clone()));
    Ok(engine)
}

/// Reports what is left of a process that is checked, and replaces its exit status where the user wants that.
fn end_check() -> Vec<String> {
    if let Some(status) = fabric::end_check() {
        // The process is exiting: the C library goes on with the functions that are left, and then uses this status.
        std::process::exit(status);
    }
    Vec::new()
}

fn open(name: &str) -> verbs::Result<Arc<Engine>> {
    if fabric::is_wrapped(name) {
        ffi::log::report_at_exit(fabric::end_report);
    }
    if fabric::has_check(name) {
        ffi::log::report_at_exit(end_check);
    }
    let device = fabric::open(name, &host::real::host())?;
    let cm = device.create_cm()?;
    let pairing = Pairing::new(&cm, own_ip(name), std::process::id())?;
    let gids = gids(name, &pairing);
    let is_local = fabric::is_local(name);
    let engine = Arc::new(Engine {
        device,
        cm,
        pairing,
        is_local,
        gids,
        objects: Mutex::default(),
        contexts: Mutex::default(),
        is_port_down: AtomicBool::new(false),
        is_gid_lost: AtomicBool::new(false),
        datagrams: Mutex::default(),
        delayed_tasks: Mutex::default(),
        has_limits: AtomicBool::new(false),
        plans: AtomicU32::new(0),
        planned: EventCount::new(),
    });
    let (thread, run) = (std::thread::Builder::new().name("nicety-verbs".into()), engine.clone());
    thread.spawn(move || serve(&run)).map_err(|why| verbs::Error::system("cannot start a thread", why))?;
    Ok(engine)
}

/// How often the thread checks whether a peer has taken receives of a shared queue below its limit.
const LIMIT_LOOK: Span = Span::from_ms(10);

/// The thread's main function, which runs until the process ends.
fn serve(engine: &Engine) {
    // Work for a connection may copy to and from the program's memory, and the thread inherits its signal mask from a thread of the
    // program.
    let _ = uaccess::unblock();
    let sources = ((&engine.cm, &engine.device), &engine.planned);
    loop {
        let plans = engine.plans.load(Ordering::Acquire);
        let look = || match (engine.cm.poll_event(), engine.device.poll_async_event()) {
            (None, None) if plans == engine.plans.load(Ordering::Acquire) => None,
            news => Some(news),
        };
        let next_task = lock(&engine.delayed_tasks).iter().map(|(at, ..)| *at).min();
        let has_limits = engine.has_limits.load(Ordering::Acquire);
        let limits = has_limits.then(|| engine.device.host().now() + LIMIT_LOOK);
        let deadline = [next_task, limits].into_iter().flatten().min();
        match engine.device.host().wait("events", &sources, deadline, look) {
            Some((connection, other)) => {
                connection.into_iter().for_each(|event| on_connection(engine, event));
                other.into_iter().for_each(|event| on_event(engine, &event));
            }
            None if deadline.is_some() => run_due_tasks(engine),
            None => return,
        }
    }
}

/// Runs the tasks of identifiers that are due.
fn run_due_tasks(engine: &Engine) {
    let now = engine.device.host().now();
    // An identifier that is destroyed removes its tasks under this lock.
    let mut objects = lock(&engine.objects);
    let due: Vec<_> = lock(&engine.delayed_tasks).extract_if(.., |(at, ..)| *at <= now).collect();
    for (_, id, task) in due {
        let Ok(held) = id.lookup() else { continue };
        match task {
            DelayedTask::Connect => attempt::retry(engine, &mut objects, id),
            DelayedTask::End(until) => outcome::on_connection_end(engine, held, until),
            DelayedTask::TimeWait => outcome::end_time_wait(held),
        }
    }
}

fn on_connection(engine: &Engine, event: CmEvent) {
    match event {
        CmEvent::ConnectRequest(request) => {
            // A concurrent reset of the queue pair happens before or after this, not in between.
            let objects = lock(&engine.objects);
            match engine.pairing.offer(request) {
                Offered::Matched(accept) => accept_pair(engine, &objects, accept),
                Offered::Handled => {}
                Offered::Other(request) => {
                    drop(objects);
                    outcome::requested(engine, request);
                }
            }
        }
        CmEvent::Established { qp_num, private_data, info } => {
            let Some(qp_num) = engine.pairing.ready_qp(qp_num) else { return };
            notify(
                engine,
                qp_num,
                |_, qp| qp.established(),
                |id| outcome::on_established(id, private_data, &info),
            );
        }
        CmEvent::Rejected { qp_num, private_data } => {
            let qp_num = engine.pairing.owner_of(qp_num);
            notify(engine, qp_num, |_, qp| qp.failed(), |id| outcome::on_rejected(id, private_data));
        }
        CmEvent::ConnectFailed { qp_num, why } => {
            let qp_num = engine.pairing.owner_of(qp_num);
            notify(
                engine,
                qp_num,
                |objects, qp| {
                    failed_completion::report_unconnected(objects, qp, &why);
                    qp.failed();
                },
                |id| attempt::not_connected(engine, id, &why),
            );
        }
        // A pair gets no event.
        CmEvent::Disconnected { qp_num } => {
            let until = engine.device.host().now() + outcome::UNPOLLED;
            notify(engine, qp_num, |_, _| {}, |id| outcome::on_connection_end(engine, id, until));
        }
    }
}

/// Accepts with a paired queue pair of the program, or with a bridge.
fn accept_pair(engine: &Engine, objects: &Objects, accept: Accept) {
    let qp = objects.qps.get(&accept.qp_num).and_then(|qp| qp.lookup().ok());
    if let Some(qp) = qp {
        if engine.pairing.accept(qp.verbs(), accept).is_err() {
            qp.failed();
        }
    } else if let Some(bridge) = lock(&engine.datagrams).as_ref().and_then(|all| all.by_end(accept.qp_num)) {
        // If this fails, the program's queue pair gets an event that the connection has failed.
        let _ = engine.pairing.accept(bridge.far_qp(), accept);
    }
}

/// Passes an event to the identifier that connects a queue pair, or else to the paired queue pair. The lock keeps both from being
/// destroyed.
fn notify(
    engine: &Engine,
    qp_num: u32,
    on_pair: impl FnOnce(&Objects, Held<Qp>),
    on_id: impl FnOnce(Held<CmId>),
) {
    let objects = lock(&engine.objects);
    if let Some(id) = objects.ids.get(&qp_num) {
        if let Ok(id) = id.lookup() {
            on_id(id);
        }
    } else if let Some(qp) = objects.of_event(qp_num) {
        on_pair(&objects, qp);
    } else if let Some(bridge) = lock(&engine.datagrams).as_ref().and_then(|all| all.of_event(qp_num)) {
        bridge.wake();
    }
}

fn on_event(engine: &Engine, event: &AsyncEvent) {
    let objects = lock(&engine.objects);
    failed_completion::report_event(&objects, event);
    match event {
        AsyncEvent::CqError { cq } => {
            objects.cqs.get(cq).into_iter().for_each(|cq| event::queue_cq_event(*cq))
        }
        AsyncEvent::QpAccessError { qp_num } => {
            let qp = objects.of_event(*qp_num);
            qp.into_iter().for_each(|qp| event::queue_qp_event(qp.handle(), AsyncQpEvent::QpAccessError));
        }
        AsyncEvent::QpFatal { qp_num, .. } => {
            let qp = objects.of_event(*qp_num);
            qp.into_iter().for_each(|qp| event::queue_qp_event(qp.handle(), AsyncQpEvent::QpFatal));
        }
        AsyncEvent::SrqLimitReached { srq } => {
            objects.srqs.get(srq).into_iter().for_each(|srq| event::queue_srq_event(*srq));
        }
        AsyncEvent::LastWqeReached { qp_num } => {
            objects.of_event(*qp_num).into_iter().for_each(peer_gone::report_drained);
        }
        AsyncEvent::PortError { port } | AsyncEvent::PortActive { port } => {
            let is_active = matches!(event, AsyncEvent::PortActive { .. });
            engine.is_port_down.store(!is_active, Ordering::Relaxed);
            let kind = if is_active { n::IBV_EVENT_PORT_ACTIVE } else { n::IBV_EVENT_PORT_ERR };
            event::queue_context_event(engine, || PendingAsyncEvent::Port { kind, port: *port });
        }
        AsyncEvent::GidChange { port } => {
            engine.is_gid_lost.fetch_not(Ordering::Relaxed);
            let kind = n::IBV_EVENT_GID_CHANGE;
            event::queue_context_event(engine, || PendingAsyncEvent::Port { kind, port: *port });
        }
        AsyncEvent::DeviceFatal => event::queue_context_event(engine, || PendingAsyncEvent::Device),
        // Events of rails do not concern a program that sees one device.
        _ => {}
    }
}
