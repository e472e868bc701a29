//! [`Way`]: the control connection as an experiment sees it.

use std::io::{BufReader, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::wire::{self, FRAME_MAX, Frame, Hello, WireError};
use crate::experiment::{Control, Fault, Word};

/// How long a peer may take for its hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// A control connection after both hellos.
pub(super) struct Way {
    stream: BufReader<TcpStream>,
    local: IpAddr,
    peer: SocketAddr,
    /// What it was dialled by.
    name: Option<String>,
    theirs: Hello,
}

impl Way {
    /// Connects to `HOST:PORT`, trying all of its addresses.
    pub(super) fn dial(to: &str, token: &str, patience: Duration) -> Result<Self, Fault> {
        let addrs = to.to_socket_addrs().map_err(|e| {
            Fault::Connection(format!("{to} cannot be found: {e}; check the name of the host"))
        })?;
        let mut last = "it has no address".to_owned();
        for addr in addrs {
            match TcpStream::connect_timeout(&addr, patience) {
                Ok(stream) => {
                    let way = Self::greet(stream, token).map_err(|e| lost(to, &e))?;
                    return Ok(Self { name: Some(to.to_owned()), ..way });
                }
                Err(e) => last = e.to_string(),
            }
        }
        let advice = "is `nicety serve` running there, and is the port right?";
        Err(Fault::Connection(format!("{to} cannot be reached: {last}; {advice}")))
    }

    /// Says hello and hears the other's.
    pub(super) fn greet(stream: TcpStream, token: &str) -> Result<Self, WireError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HELLO_PATIENCE))?;
        stream.set_write_timeout(Some(HELLO_PATIENCE))?;
        let (local, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?);
        let mut stream = BufReader::new(stream);
        wire::write(stream.get_mut(), &Hello::own(token))?;
        // The limit holds even where buffering reads ahead: a hello is at most so long.
        let theirs = Hello::read(&mut stream.by_ref(), token)?;
        Ok(Self { stream, local, peer, name: None, theirs })
    }

    /// The address of the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What the other end is called in messages.
    pub(super) fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.peer.to_string())
    }

    pub(super) fn lost(&self, why: &WireError) -> Fault {
        lost(&self.called(), why)
    }

    /// How long [`Control::hear`] waits.
    pub(super) fn set_patience(&mut self, patience: Duration) -> Result<(), WireError> {
        Ok(self.stream.get_ref().set_read_timeout(Some(patience))?)
    }

    pub(super) fn write(&mut self, frame: &Frame) -> Result<(), WireError> {
        wire::write(self.stream.get_mut(), frame)
    }

    pub(super) fn read(&mut self) -> Result<Frame, WireError> {
        wire::read(&mut self.stream, FRAME_MAX)
    }
}

fn lost(peer: &str, why: &WireError) -> Fault {
    Fault::Control(format!("{peer}: {why}"))
}

impl Control for Way {
    fn tell(&mut self, word: &Word) -> Result<(), Fault> {
        self.write(&Frame::Word { word: word.clone() }).map_err(|e| self.lost(&e))
    }

    fn hear(&mut self) -> Result<Word, Fault> {
        match self.read().map_err(|e| self.lost(&e))? {
            Frame::Word { word } => Ok(word),
            Frame::Refused { why } => Err(Fault::Peer(why)),
            other => Err(Fault::Control(format!("{}: {other:?} came out of turn", self.called()))),
        }
    }

    fn name(&self) -> Option<&str> {
        // A process of this very run has a port by chance, which tells nobody anything.
        self.name.as_deref().filter(|_| self.theirs.token.is_empty())
    }

    fn local_ip(&self) -> IpAddr {
        self.local
    }

    fn peer_ip(&self) -> IpAddr {
        self.peer.ip()
    }

    fn neighbour(&self) -> Option<u32> {
        let here = super::machine::identity();
        (!here.is_empty() && self.theirs.machine == here).then_some(self.theirs.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn against(peer: impl FnOnce(TcpStream) + Send + 'static) -> Result<Way, WireError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let thread = std::thread::spawn(move || peer(listener.accept().expect("a client").0));
        let way = Way::greet(TcpStream::connect(addr).expect("listening"), "t");
        thread.join().expect("no panic");
        way
    }

    #[test]
    fn two_sides_find_each_other_and_know_their_numbers() {
        let way = against(|s| {
            let mut way = Way::greet(s, "t").expect("greeted");
            way.tell(&Word::Ready).expect("told");
        });
        let mut way = way.expect("greeted");
        assert_eq!(way.hear(), Ok(Word::Ready));
        assert!(matches!(way.hear(), Err(Fault::Control(_))), "it hung up");
        assert_eq!(way.neighbour(), Some(std::process::id()));
        assert!(way.local_ip().is_loopback() && way.peer_ip().is_loopback());
    }

    #[test]
    fn garbage_is_refused() {
        let http = against(|mut s| s.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent"));
        assert!(matches!(http, Err(WireError::TooLong(_))));
        assert!(matches!(against(drop), Err(WireError::Gone(_))));
    }

    #[test]
    fn nobody_there_is_said_with_advice() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound").to_string();
        drop(listener);
        let why = Way::dial(&addr, "", Duration::from_secs(5)).err().expect("refused").to_string();
        assert!(why.contains(&addr) && why.contains("nicety serve"), "{why}");
        let why = Way::dial("no.such.host.invalid:1", "", Duration::from_secs(5)).err().expect("unknown");
        assert!(why.to_string().contains("no.such.host.invalid"), "{why}");
    }
}
