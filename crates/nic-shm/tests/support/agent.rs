//! The role `agent`: an endpoint in another process that executes the test's commands, one per line.

use std::fmt::Write;

use nic_shm::CopyPath;
use verbs::{MemoryKind, SendOp, Wc};

use super::child::{Child, recv_line, send_line};
use super::endpoint::Endpoint;
use super::{Rng, digest};

fn kind(name: &str) -> MemoryKind {
    if name == "nic" { MemoryKind::Nic } else { MemoryKind::Host }
}

fn name(kind: MemoryKind) -> &'static str {
    if kind == MemoryKind::Nic { "nic" } else { "host" }
}

/// The copy path's name in the command.
pub(crate) fn copy_name(copy: CopyPath) -> &'static str {
    if copy == CopyPath::Service { "service" } else { "auto" }
}

/// A completion as a line.
pub(crate) fn show(wc: &Wc) -> String {
    let mut line = format!("{} {:?} {:?} {}", wc.wr_id, wc.status, wc.opcode, wc.byte_len);
    let _ = write!(line, " {:?} {:?}", wc.imm, wc.invalidated.is_some());
    line
}

/// The child's side. First line: `COPY LEN PORT`.
pub(crate) fn role() {
    let first = recv_line().expect("a first line");
    let words: Vec<&str> = first.split(' ').collect();
    let copy = if words[0] == "service" { CopyPath::Service } else { CopyPath::Auto };
    let mut end = Endpoint::new(copy, words[1].parse().expect("a length"));
    end.connect(words[2].parse().expect("a port"));
    send_line("connected");
    while let Some(line) = recv_line() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().expect("a number");
        match words[0] {
            "fill" => {
                let bytes = Rng::new(number(4)).bytes(number(3) as usize);
                end.region(kind(words[1])).buf().write(number(2) as usize, &bytes).expect("fits");
                send_line("filled");
            }
            "digest" => {
                let range = number(2) as usize..(number(2) + number(3)) as usize;
                let bytes = end.region(kind(words[1])).buf().to_vec(range).expect("inside");
                send_line(digest(&bytes));
            }
            "recv" => {
                end.post_recv(number(1), kind(words[2]), number(3), number(4) as u32);
                send_line("posted");
            }
            "received" => send_line(show(&end.received())),
            "send" => {
                end.post(number(1), SendOp::SendImm(77), kind(words[2]), number(3), number(4) as u32);
                send_line(show(&end.sent()));
            }
            "add" => send_line(add(&end, kind(words[1]), number(2))),
            "canaries" => {
                end.check_canaries();
                send_line("intact");
            }
            "end" => break,
            other => panic!("{other}?"),
        }
    }
}

/// Adds 1 to the first word of the peer's memory `count` times; returns the sum of its values before each
/// addition.
fn add(end: &Endpoint, kind: MemoryKind, count: u64) -> u64 {
    let mut sum = 0_u64;
    for i in 0..count {
        let op = SendOp::FetchAdd { remote: end.peer.of(kind), add: 1 };
        end.post(i, op, MemoryKind::Host, 0, 8);
        end.sent_ok(i);
        let mut old = [0; 8];
        end.host.buf().read(0, &mut old).expect("inside");
        sum += u64::from_le_bytes(old);
    }
    sum
}

/// The parent's side: an agent that is connected to `end`.
pub(crate) struct Agent(pub(crate) Child);

impl Agent {
    /// Starts an agent with regions of `len` bytes and accepts its connection.
    #[track_caller]
    pub(crate) fn start(end: &mut Endpoint, copy: CopyPath, len: usize) -> Self {
        let listener = end.listen();
        let mut child = Child::start("agent");
        child.send_line(format!("{} {len} {}", copy_name(copy), listener.addr().port()));
        end.accept();
        assert_eq!(child.recv_line(), "connected");
        Self(child)
    }

    /// Fills a range of its memory with seeded bytes.
    #[track_caller]
    pub(crate) fn fill(&mut self, kind: MemoryKind, offset: usize, len: usize, seed: u64) {
        assert_eq!(self.0.request(format!("fill {} {offset} {len} {seed}", name(kind))), "filled");
    }

    /// The digest of a range of its memory.
    #[track_caller]
    pub(crate) fn digest(&mut self, kind: MemoryKind, offset: usize, len: usize) -> u64 {
        self.0.request(format!("digest {} {offset} {len}", name(kind))).parse().expect("a number")
    }

    /// Makes it post a receive.
    #[track_caller]
    pub(crate) fn post_recv(&mut self, wr_id: u64, kind: MemoryKind, offset: usize, len: usize) {
        assert_eq!(self.0.request(format!("recv {wr_id} {} {offset} {len}", name(kind))), "posted");
    }

    /// Its next receive completion, formatted by [`show`].
    #[track_caller]
    pub(crate) fn received(&mut self) -> String {
        self.0.request("received")
    }

    /// Makes it send with immediate data 77, and waits for its completion.
    #[track_caller]
    pub(crate) fn send(&mut self, wr_id: u64, kind: MemoryKind, offset: usize, len: usize) -> String {
        self.0.request(format!("send {wr_id} {} {offset} {len}", name(kind)))
    }

    /// Starts the additions; [`Child::heard`] returns the sum.
    #[track_caller]
    pub(crate) fn start_adding(&mut self, kind: MemoryKind, count: u64) {
        self.0.send_line(format!("add {} {count}", name(kind)));
    }

    /// Checks its guard bytes and ends it.
    #[track_caller]
    pub(crate) fn end(mut self) {
        assert_eq!(self.0.request("canaries"), "intact");
        self.0.send_line("end");
        self.0.end();
    }
}
