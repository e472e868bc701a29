//! The worker: a fresh process of the same program that measures, or serves as the peer, and then exits.
//!
//! Its standard input is a socket: a Unix one leads to the orchestrator of a run, a TCP one to a client of `nicety
//! serve`; then its standard output is a Unix one that leads to the server. It dies with the process that started it.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::AddressFamily;
use verbs::host::real::{host, pin_to_core, remark};
use verbs::host::{Host, Span};

use super::admission::await_client;
use super::control_stream::ControlStream;
use super::job::{ClientJob, Job, Lines, News, write_line};
use super::{rendezvous, serving};
use crate::experiment::driver::{Watch, watched_cell};
use crate::experiment::{Bounds, Control, Fault, Session, Word};
use crate::machine::{clock_kind, involuntary_switches, memory_in_use, noise};
use crate::token::Token;
use results::plain;
use results::schema::{ClockInfo, RateInterval};

/// Runs a worker to its end; what the hidden command `worker` does.
#[must_use]
pub fn worker_main() -> ExitCode {
    // Without it a worker would only notice at its next word that its parent is gone.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            remark(format_args!("worker: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// Does the job of this process, which its standard input decides: that of a launch, or of one client of the server.
fn work() -> Result<(), Fault> {
    let hint = "`worker` is started by `nicety bench` and `nicety serve`, not by hand";
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| Fault::Control(e.to_string()))?;
    match rustix::net::sockopt::socket_domain(&input) {
        Ok(AddressFamily::UNIX) => orchestrated(input),
        Ok(AddressFamily::INET | AddressFamily::INET6) => guest(TcpStream::from(input)),
        _ => Err(Fault::Control(hint.into())),
    }
}

/// Serves a client of `nicety serve`, which hears how that ended.
fn guest(stream: TcpStream) -> Result<(), Fault> {
    // Even what is wrong with this very program may hold words of the client.
    std::panic::set_hook(Box::new(|panic| remark(format_args!("worker: {panic}"))));
    let server = UnixStream::from(std::io::stdout().as_fd().try_clone_to_owned().map_err(control)?);
    let mut lines = Lines::new(server.try_clone().map_err(control)?);
    let Some(Job::Guest { hello, setup }) = lines.next::<Job>().map_err(control)? else {
        return Err(control("no client came with the job"));
    };
    let reports = server.try_clone().map_err(control)?;
    let control_stream = ControlStream::resume(stream, hello, Some(reports)).map_err(serving::control);
    if let Err(fault) = control_stream.and_then(|control_stream| serving::guest(control_stream, &setup)) {
        let why = plain::line(&fault.to_string());
        write_line(&server, &News::Failed { why, index: None, corrupt: false }).map_err(control)?;
    }
    Ok(())
}

/// An error of the connection to the orchestrator or the server as a fault.
fn control(e: impl std::fmt::Display) -> Fault {
    Fault::Control(e.to_string())
}

/// Does the job of a launch, and reports how it ended.
fn orchestrated(input: OwnedFd) -> Result<(), Fault> {
    let mut lines = Lines::new(UnixStream::from(input));
    let job = lines.next::<Job>().map_err(control)?.ok_or_else(|| control("no job came"))?;
    let out = lines.stream().try_clone().map_err(control)?;
    let mut cell = None;
    let done = match job {
        Job::Server { token, core } => serve_one(&out, &token, core),
        Job::Client(job) => measure(&out, &job, &mut cell),
        Job::Guest { .. } => Err(control("a client came without its connection")),
    };
    if let Err(fault) = done {
        let corrupt = matches!(fault, Fault::Corrupt(_));
        write_line(&out, &News::Failed { why: fault.to_string(), index: cell, corrupt }).map_err(control)?;
    }
    Ok(())
}

/// Serves the client of this run, which has the token. Strangers are refused, and do not delay it.
fn serve_one(out: &UnixStream, token: &Token, core: Option<usize>) -> Result<(), Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(control)?;
    let addr = listener.local_addr().map_err(control)?.to_string();
    write_line(out, &News::Listening { addr }).map_err(control)?;
    let (client, setup) = await_client(&listener, token).map_err(control)?;
    drop(listener);
    let control_stream = ControlStream::resume(client.stream, client.hello, None).map_err(control)?;
    serving::session(control_stream, setup, core)?;
    // This process ends before its client does, which still measures the noise: without this it would be taken for lost.
    write_line(out, &News::Done { noise: None }).map_err(control)
}

/// Measures all cells of the job.
fn measure(out: &UnixStream, job: &ClientJob, current: &mut Option<usize>) -> Result<(), Fault> {
    // Jobs of a launcher are bound by that, to cores that are left free for them.
    let core = job.core.filter(|core| job.against.is_none() && pin_to_core(*core).is_ok());
    let host = host();
    let clock = calibrate(&host);
    let before = noise(&host);
    // A failed write is ignored: an orchestrator that does not read it notices the failure anyway.
    let told = |what| drop(write_line(out, &News::Waiting { what }));
    let mut control_streams = rendezvous::gather(job, &told)?;
    let device = fabric::open(&job.device, &host)?;
    let rails = super::device::rails(device.name());
    let notes = device.attr().notes.clone();
    let elsewhere = control_streams.iter().filter(|_| !job.own);
    let peers = elsewhere.map(|control_stream| control_stream.about.clone()).collect();
    write_line(out, &News::Begun { clock, noise: before, core, notes, peers }).map_err(control)?;
    let plan = job.sampling.plan(clock);
    for (index, cell) in &job.cells {
        if stop_asked(out) {
            break;
        }
        *current = Some(*index);
        write_line(out, &News::Cell { index: *index }).map_err(control)?;
        let switches = involuntary_switches().unwrap_or(0);
        let mut session = Session {
            host: &host,
            device: &device,
            rails: &rails,
            rank: 0,
            controls: control_streams.iter_mut().map(|stream| stream as &mut dyn Control).collect(),
            cell,
            settings: &job.settings,
            against: job.against.as_ref(),
            gauge: &memory_in_use,
            failed: Vec::new(),
            bounds: Bounds::default(),
            until: None,
        };
        // As above, a failed write is noticed by the orchestrator.
        let mut report = |interval: &RateInterval| {
            drop(write_line(out, &News::Moved { index: *index, interval: interval.clone() }));
        };
        let every = Span::from_ms(job.interval_ms);
        let watch = (job.interval_ms > 0).then_some(Watch { every, report: &mut report });
        let news = match watched_cell(&mut session, plan, &mut || stop_asked(out), watch) {
            Ok(record) => {
                let switches = involuntary_switches().unwrap_or(0).saturating_sub(switches);
                News::Measured { index: *index, record, switches }
            }
            Err(fault) if fault.is_local() => {
                News::Skipped { index: *index, never: is_final(&fault), why: fault.to_string() }
            }
            Err(fault) => return Err(fault),
        };
        write_line(out, &news).map_err(control)?;
    }
    *current = None;
    for control_stream in &mut control_streams {
        // A peer that has gone already has no need of it.
        let _ = control_stream.send(&Word::Bye);
    }
    write_line(out, &News::Done { noise: noise(&host) }).map_err(control)
}

/// Whether a cell fails in every launch as it failed in this one: it makes no sense here.
fn is_final(fault: &Fault) -> bool {
    matches!(fault, Fault::Meaningless(_) | Fault::Device(verbs::Error::Unsupported { .. }))
}

/// Whether the orchestrator has said anything since the job, which can only be: stop; or has gone.
fn stop_asked(orchestrator: &UnixStream) -> bool {
    let mut fds = [PollFd::new(orchestrator, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

/// The overhead and the resolution of the host's clock.
fn calibrate(host: &Host) -> ClockInfo {
    // The host's clock counts in picoseconds.
    crate::sample::calibrate(clock_kind(host.clock()), 1e-3, 50, || host.now().as_ps()).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wire::{Frame, Setup};
    use super::*;
    use crate::experiment::Settings;

    /// Goal: a server reports that its client has said goodbye. Method: a client that opens the device and leaves.
    #[test]
    fn server_reports_the_end_of_its_session() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let token = Token::random().expect("random numbers");
        let secret = token.clone();
        let server = std::thread::spawn(move || serve_one(&theirs, &secret, None));
        let mut lines = Lines::new(ours);
        let Some(News::Listening { addr }) = lines.next().expect("a line") else {
            panic!("it does not listen")
        };
        let patience = Duration::from_secs(30);
        let mut control_stream = ControlStream::dial(&addr, Some(&token), patience).expect("reached");
        control_stream.set_patience(patience);
        let setup = Setup { device: "shm".to_owned(), settings: Settings::default(), core: None };
        control_stream.write(&Frame::Setup(setup)).expect("sent");
        assert!(matches!(control_stream.read(), Ok(Frame::Opened { .. })));
        control_stream.send(&Word::Bye).expect("sent");
        assert_eq!(lines.next().expect("a line"), Some(News::Done { noise: None }));
        assert_eq!(server.join().expect("no panic"), Ok(()));
        assert_eq!(lines.next::<News>().expect("the end"), None);
    }
}
