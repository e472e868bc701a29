//! [`Admission`]: connections to a server, or to the listening worker of a run, before they are known to be clients.
//!
//! The listening thread reads from all visitors itself, without blocking. A visitor costs one descriptor and a few
//! hundred bytes, whatever and however slowly it sends, and every visitor has the same few seconds. When there are
//! too many visitors, the oldest silent one is dropped, from the source with most silent visitors. Received data are
//! read in the next turn of the loop.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use verbs::host::Time;

use super::wire::{self, Frame, HELLO_MAX, Hello, Lock, Partial, SETUP_MAX, Setup, WireError};
use crate::machine::{now, since};
use crate::token::{Party, Token};

/// Visitors admitted at the same time.
const VISITORS_MAX: usize = 256;
/// Connections that are accepted in a turn.
const ACCEPTED: usize = 64;
/// The longest sleep: a stop flag and deadlines are checked in between.
const TICK: Duration = Duration::from_millis(100);
/// How long one may take to say all that it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a refused visitor may take to read the reason.
const LEAVING: Duration = Duration::from_secs(1);

/// A visitor that has proved that it is a client.
#[derive(Debug)]
pub struct Client {
    /// Its connection, which does not block.
    pub stream: TcpStream,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Its hello.
    pub hello: Hello,
}

/// What a client wants.
#[derive(Debug)]
pub enum Wish {
    /// To measure.
    Measure(Setup),
    /// A program at the other end of its connection.
    Run,
}

/// The address of a refused visitor, and the reason.
pub type Refused = (SocketAddr, String);

/// All visitors that have not yet been admitted or refused.
pub struct Admission<'a> {
    token: Option<&'a Token>,
    visitors: Vec<Visitor>,
}

struct Visitor {
    stream: TcpStream,
    peer: SocketAddr,
    came: Time,
    ours: Hello,
    partial: Partial,
    stage: Stage,
}

/// What is to come next.
enum Stage {
    Hello,
    Proof(Hello),
    Setup(Hello),
    /// Nothing: it was refused. What it still sends is thrown away, as the reason would be if it were not read.
    Leaving,
}

/// What counts as one source of visitors: an address, or the network that is one household of IPv6.
#[must_use]
pub fn source(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        ip => ip,
    }
}

impl<'a> Admission<'a> {
    /// Nobody yet; clients have to have this token, if there is one.
    #[must_use]
    pub fn new(token: Option<&'a Token>) -> Self {
        Self { token, visitors: Vec::new() }
    }

    /// Accepts a visitor and sends it hello.
    fn arrive(&mut self, stream: TcpStream, peer: SocketAddr) -> Result<(), WireError> {
        if self.visitors.len() >= VISITORS_MAX {
            self.make_room();
        }
        prepare(&stream)?;
        let ours = Hello::own(self.token)?;
        wire::write(&mut &stream, &ours)?;
        let (partial, stage) = (Partial::default(), Stage::Hello);
        self.visitors.push(Visitor { stream, peer, came: now(), ours, partial, stage });
        Ok(())
    }

    /// Sends somebody away.
    fn make_room(&mut self) {
        let mut silent: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let mut all = silent.clone();
        for visitor in &self.visitors {
            let count = |of: &mut BTreeMap<IpAddr, usize>| *of.entry(source(visitor.peer)).or_default() += 1;
            count(&mut all);
            if visitor.is_silent() {
                count(&mut silent);
            }
        }
        let only_silent = !silent.is_empty();
        let most = if only_silent { silent } else { all };
        let Some((crowd, _)) = most.into_iter().max_by_key(|(_, count)| *count) else { return };
        // `visitors` is in order of arrival.
        let goes =
            self.visitors.iter().position(|v| source(v.peer) == crowd && (v.is_silent() || !only_silent));
        goes.map(|index| self.visitors.remove(index));
    }

    /// Reads from all visitors. Returns those that have become clients, and those refused, with the reason.
    pub fn read_visitors(&mut self) -> (Vec<(Client, Wish)>, Vec<Refused>) {
        let (mut clients, mut refused) = (Vec::new(), Vec::new());
        let mut staying = Vec::with_capacity(self.visitors.len());
        for mut visitor in std::mem::take(&mut self.visitors) {
            match visitor.read_wish(self.token) {
                Ok(Some((hello, wish))) => {
                    let Visitor { stream, peer, .. } = visitor;
                    clients.push((Client { stream, peer, hello }, wish));
                }
                Ok(None) if since(visitor.came) < visitor.patience() => staying.push(visitor),
                Ok(None) => {}
                // The visitor has disconnected.
                Err(WireError::Gone(_)) => {}
                Err(why) => {
                    refused.push((visitor.peer, why.to_string()));
                    staying.extend(visitor.refuse(&why.to_string()));
                }
            }
        }
        self.visitors = staying;
        (clients, refused)
    }

    /// Refuses a client after admission.
    pub fn refuse(&mut self, client: Client, why: &str) {
        let Client { stream, peer, hello } = client;
        let (partial, stage) = (Partial::default(), Stage::Leaving);
        let visitor = Visitor { stream, peer, came: now(), ours: hello, partial, stage };
        self.visitors.extend(visitor.refuse(why));
    }

    /// Accepts up to 64 connections of a non-blocking listener. `log` gets the errors.
    pub fn accept(&mut self, listener: &TcpListener, log: &mut dyn FnMut(&str)) {
        for _ in 0..ACCEPTED {
            match listener.accept() {
                // A connection that is gone already is no loss.
                Ok((stream, peer)) => drop(self.arrive(stream, peer)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    log(&format!("a client was lost before it was accepted: {e}"));
                    // There may be no descriptors left.
                    self.make_room();
                    return;
                }
            }
        }
    }

    /// Sleeps until a connection comes, a visitor sends something, one of `others` is ready, or a deadline may have passed.
    pub fn wait<'f>(
        &'f self,
        listener: &'f TcpListener,
        others: impl Iterator<Item = (BorrowedFd<'f>, PollFlags)>,
    ) {
        let visitors = self.visitors.iter().map(|visitor| (visitor.stream.as_fd(), PollFlags::IN));
        let all = [(listener.as_fd(), PollFlags::IN)].into_iter().chain(visitors).chain(others);
        let mut fds: Vec<PollFd<'_>> = all.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)).collect();
        let limit = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        // A signal ends it early, as news does.
        let _ = rustix::event::poll(&mut fds, Some(&limit));
    }
}

/// Waits for the one client that has the token and wants to measure. Strangers do not delay it.
///
/// # Errors
/// Those of the listener, and of a client that is gone.
pub(super) fn await_client(listener: &TcpListener, token: &Token) -> Result<(Client, Setup), WireError> {
    listener.set_nonblocking(true)?;
    let mut admission = Admission::new(Some(token));
    loop {
        admission.wait(listener, std::iter::empty());
        admission.accept(listener, &mut |_| ());
        for (client, wish) in admission.read_visitors().0 {
            match wish {
                Wish::Measure(setup) => return Ok((client, setup)),
                Wish::Run => admission.refuse(client, "this process measures, and runs no programs"),
            }
        }
    }
}

/// What a connection needs before anything is said on it: it never blocks, and ends if the other machine does.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(sockopt::set_tcp_user_timeout(stream, 30_000)?)
}

impl Visitor {
    /// Whether it has not greeted, or only its leaving is awaited.
    fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Hello | Stage::Leaving)
    }

    /// How long it may take for what it does now.
    fn patience(&self) -> Duration {
        if matches!(self.stage, Stage::Leaving) { LEAVING } else { PATIENCE }
    }

    /// Reads what has arrived from it. Returns its greeting and its wish once all of both has arrived.
    fn read_wish(&mut self, token: Option<&Token>) -> Result<Option<(Hello, Wish)>, WireError> {
        loop {
            if matches!(self.stage, Stage::Leaving) {
                return self.drain().map(|()| None);
            }
            let limit = if matches!(self.stage, Stage::Hello) { HELLO_MAX } else { SETUP_MAX };
            let Some(body) = self.partial.pull(&mut self.stream, limit)? else { return Ok(None) };
            let lock = |theirs: &Hello| Lock::new(token, theirs, &self.ours, Party::Server);
            self.stage = match std::mem::replace(&mut self.stage, Stage::Leaving) {
                Stage::Hello => {
                    let theirs = wire::parse::<Hello>(&body)?.checked()?;
                    if lock(&theirs)?.is_some() { Stage::Proof(theirs) } else { Stage::Setup(theirs) }
                }
                Stage::Proof(theirs) => {
                    if let Some(lock) = lock(&theirs)? {
                        lock.check(wire::parse(&body)?, Party::Client)?;
                        wire::write(&mut self.stream, &lock.proof(Party::Server))?;
                    }
                    Stage::Setup(theirs)
                }
                Stage::Setup(theirs) => match wire::parse(&body)? {
                    Frame::Setup(setup) => return Ok(Some((theirs, Wish::Measure(setup)))),
                    Frame::Run => return Ok(Some((theirs, Wish::Run))),
                    _ => return Err(WireError::Garbage("no set-up came".to_owned())),
                },
                Stage::Leaving => return Ok(None),
            };
        }
    }

    /// Sends the reason, unless the visitor does not read. Returns the visitor if it must still be drained.
    fn refuse(mut self, why: &str) -> Option<Self> {
        wire::write(&mut self.stream, &Frame::Refused { why: why.to_owned() }).ok()?;
        self.stream.shutdown(Shutdown::Write).ok()?;
        (self.came, self.stage) = (now(), Stage::Leaving);
        Some(self)
    }

    /// Discards received data, a little at a time.
    fn drain(&mut self) -> Result<(), WireError> {
        match self.stream.read(&mut [0; 4096]) {
            Ok(0) => Err(WireError::Gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::control_stream::ControlStream;
    use super::*;

    /// A listener and a admission.
    fn admission() -> (TcpListener, Admission<'static>) {
        (TcpListener::bind("127.0.0.1:0").expect("a port"), Admission::new(None))
    }

    fn arrive(listener: &TcpListener, admission: &mut Admission<'_>) -> TcpStream {
        let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (near, peer) = listener.accept().expect("a visitor");
        admission.arrive(near, peer).expect("heard");
        far
    }

    fn bytes<T: serde::Serialize>(what: &T) -> Vec<u8> {
        let mut out = Vec::new();
        wire::write(&mut out, what).expect("short enough");
        out
    }

    /// Goal: nobody keeps others out by saying nothing. Method: twice as many silent ones as there is room for, a client
    /// among them that has said hello.
    #[test]
    fn of_too_many_the_oldest_goes_that_said_nothing() {
        let (listener, mut admission) = admission();
        let mut early = Vec::new();
        let mut honest = arrive(&listener, &mut admission);
        honest.write_all(&bytes(&Hello::own(None).expect("random"))).expect("sent");
        while !matches!(admission.visitors[0].stage, Stage::Setup(_)) {
            let (clients, refused) = admission.read_visitors();
            assert!(clients.is_empty() && refused.is_empty());
        }
        for _ in 0..2 * VISITORS_MAX {
            early.push(arrive(&listener, &mut admission));
            assert!(admission.visitors.len() <= VISITORS_MAX);
        }
        let setup =
            Setup { device: "shm".into(), settings: crate::experiment::Settings::default(), core: None };
        honest.write_all(&bytes(&Frame::Setup(setup.clone()))).expect("sent");
        let (_, wish) = loop {
            let (mut clients, refused) = admission.read_visitors();
            assert!(refused.is_empty(), "{refused:?}");
            if let Some(client) = clients.pop() {
                break client;
            }
        };
        assert!(matches!(wish, Wish::Measure(found) if found == setup));
    }

    /// Goal: strangers that send nothing do not delay the client of a run. Method: 100 strangers connect before the client. If the
    /// server greeted one after the other, each would have to time out first.
    #[test]
    fn a_client_with_the_token_is_found_behind_silent_strangers() {
        let token = Token::new("0123456789abcdef").expect("long enough");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let strangers: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(addr).expect("listening")).collect();
        let setup =
            Setup { device: "shm".into(), settings: crate::experiment::Settings::default(), core: None };
        let (wanted, secret) = (setup.clone(), token.clone());
        let client = std::thread::spawn(move || {
            let stream = TcpStream::connect(addr).expect("listening");
            let mut control_stream =
                ControlStream::greet(stream, Some(&secret), Party::Client).expect("greeted");
            control_stream.write(&Frame::Setup(setup)).expect("sent");
            control_stream
        });
        let (_, found) = await_client(&listener, &token).expect("a client");
        assert_eq!(found, wanted);
        client.join().expect("no panic");
        drop(strangers);
    }

    /// Goal: what is heard does not depend on how it comes, and nothing behind a set-up is taken. Method: byte by byte.
    #[test]
    fn what_is_dribbled_is_heard_and_what_follows_is_left() {
        let (listener, mut admission) = admission();
        let mut far = arrive(&listener, &mut admission);
        let setup =
            Setup { device: "shm".into(), settings: crate::experiment::Settings::default(), core: None };
        let mut said = bytes(&Hello::own(None).expect("random"));
        said.extend(bytes(&Frame::Setup(setup)));
        let mut found = Vec::new();
        for byte in said {
            assert!(found.is_empty());
            far.write_all(&[byte]).expect("sent");
            found.extend(admission.read_visitors().0);
        }
        far.write_all(b"more").expect("sent");
        while found.is_empty() {
            found.extend(admission.read_visitors().0);
        }
        let mut rest = [0; 4];
        found[0].0.stream.set_nonblocking(false).expect("a socket");
        found[0].0.stream.read_exact(&mut rest).expect("it is still there");
        assert_eq!(&rest, b"more");
    }

    /// Goal: a refused visitor can read the reason even while it keeps sending.
    #[test]
    fn whoever_is_refused_hears_why() {
        let (listener, mut admission) = admission();
        let mut far = arrive(&listener, &mut admission);
        let mut wrong = bytes(&Hello { version: 99, ..Hello::own(None).expect("random") });
        wrong.extend([b'x'; 2000]);
        far.write_all(&wrong).expect("sent");
        let mut reasons = Vec::new();
        while reasons.is_empty() {
            reasons = admission.read_visitors().1;
        }
        assert!(reasons[0].1.contains("version 99"), "{reasons:?}");
        Hello::read(&mut far).expect("a hello");
        let said: Frame = wire::read(&mut far, wire::FRAME_MAX).expect("a reason");
        assert!(matches!(said, Frame::Refused { why } if why.contains("version 99")));
    }

    #[test]
    fn a_household_of_ipv6_is_one_source() {
        let of = |text: &str| source(text.parse().expect("an address"));
        assert_eq!(of("[2001:db8:1:2::3]:1"), of("[2001:db8:1:2:ffff::4]:2"));
        assert_ne!(of("[2001:db8:1:2::3]:1"), of("[2001:db8:1:3::3]:1"));
        assert_eq!(of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:2"));
        assert_ne!(of("10.0.0.1:1"), of("10.0.0.2:1"));
    }
}
