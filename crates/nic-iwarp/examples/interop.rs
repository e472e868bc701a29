//! Transfers data in every way between this program and `interop/files/peer.c`, which uses another iWARP
//! implementation, and compares every byte at both ends.
//!
//! `cargo run -p nic-iwarp --example interop -- connect|listen ADDRESS:PORT [OPTION=VALUE...]`, with
//! - `sizes=A,B,...` in bytes, `pieces=N` requests for each transfer,
//! - `ways=N`, a sum: 1 our writes, 2 our reads, 4 our sends, 8 the peer's writes, 16 its reads, 32 its sends (63),
//! - `connections=N` one after the other, `hear=1` if the peer sends first,
//! - `badkey=1` for a write of ours with an invalid key, `badkey=2` for one of the peer's,
//! - `crc=1`, `mpa=1`, `sent=1`, `fpdu=SIZE`, `depth=N` reads in each direction, `pd=N` bytes of private data.
//!
//! Commands are eight big-endian words: command, seed, length, address (2), key, pieces, 0. Answers: order + 128, 0,
//! value (2), address (2), key, 0. The value is 0 on success, or one more than the position of the first wrong byte.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::{CliResult, Endpoint, ExampleDevice, Options, exit_code, first_difference, pattern};
use verbs::{Mr, RemoteAddr, SendOp, SendWr, Sge};

/// A command to the peer.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// Report the address of its buffer.
    Hello = 1,
    /// Fill the buffer with the pattern.
    Fill,
    /// Compare the buffer with the pattern.
    Check,
    /// Write the pattern to us.
    Put,
    /// Read the pattern from us, and compare.
    Get,
    /// Post a receive for our message, and compare the message: two answers.
    Take,
    /// Send us a message.
    Give,
}

const COMMAND_LEN: usize = 32;
const BUFFER_LEN: usize = 8 << 20;
const SIZES: &[u64] = &[
    0, 1, 2, 3, 4, 7, 8, 64, 255, 1000, 1460, 4096, 16_383, 65_535, 65_536, 65_537, 262_145, 1_048_576,
    1_048_577,
];

struct Driver<'a> {
    end: Endpoint<'a>,
    buffer: Mr,
    commands: Mr,
    peer: RemoteAddr,
    pieces: usize,
    seed: u32,
}

fn main() -> ExitCode {
    let options = Options::get();
    exit_code(run(&options))
}

fn run(options: &Options) -> CliResult<String> {
    let usage = "interop connect|listen ADDRESS:PORT [OPTION=VALUE...]";
    let addr: SocketAddr = options.word(1).and_then(|word| word.parse().ok()).ok_or(usage)?;
    let mut side = ExampleDevice::open(options)?;
    let to = match options.word(0) {
        Some("connect") => Some(addr),
        Some("listen") => {
            side.listen(addr)?;
            None
        }
        _ => return Err(usage.into()),
    };
    let (ways, sizes) =
        (options.number("ways", 63)?, options.numbers("sizes")?.unwrap_or_else(|| SIZES.to_vec()));
    let connections = options.number("connections", 1)?;
    let (mut bytes, mut transfers) = (0, 0);
    for _ in 0..connections {
        let pieces = options.number("pieces", 1)?.clamp(1, 64) as usize;
        let mut driver = Driver::establish(&side, to, pieces, options.number("hear", 0)? == 1)?;
        driver.use_invalid_key(options.number("badkey", 0)?)?;
        for &size in &sizes {
            let size =
                usize::try_from(size).ok().filter(|size| *size <= BUFFER_LEN).ok_or("a size above 8 MiB")?;
            for way in (0..6).map(|bit| 1 << bit).filter(|way| ways & way != 0) {
                if way == 2 && size == 0 {
                    // Linux siw may answer a zero-length read with data when it is busy (docs/results/interop.md).
                    continue;
                }
                driver.seed += 1;
                driver
                    .run_transfer(way, size)
                    .map_err(|why| format!("{} of {size} bytes: {why}", name(way)))?;
                (bytes, transfers) = (bytes + size, transfers + 1);
            }
        }
        driver.end.disconnect()?;
    }
    Ok(format!("{connections} connections, {transfers} transfers, {bytes} bytes, each compared"))
}

fn name(way: u64) -> &'static str {
    ["our write", "our read", "our send", "the peer's write", "the peer's read", "the peer's send"]
        [way.trailing_zeros() as usize]
}

impl<'a> Driver<'a> {
    fn establish(
        side: &'a ExampleDevice,
        to: Option<SocketAddr>,
        pieces: usize,
        hears: bool,
    ) -> CliResult<Self> {
        let end = side.create_endpoint()?;
        let (buffer, commands) = (side.register_memory(BUFFER_LEN)?, side.register_memory(2 * COMMAND_LEN)?);
        let mut driver = Self { end, buffer, commands, peer: RemoteAddr::default(), pieces, seed: 0 };
        driver.post_reply_receive()?;
        driver.end.establish(to)?;
        if hears {
            driver.recv_reply(Command::Hello)?;
            driver.post_reply_receive()?;
        }
        driver.request(Command::Hello, 0)?;
        Ok(driver)
    }

    /// The buffer for commands; replies arrive right after it.
    fn command_sge(&self) -> Sge {
        self.commands.sge(0, COMMAND_LEN as u32)
    }

    fn post_reply_receive(&self) -> CliResult<()> {
        self.end.receive(0, self.commands.sge(COMMAND_LEN as u64, COMMAND_LEN as u32))
    }

    fn recv_reply(&mut self, command: Command) -> CliResult<u64> {
        let wc = self.end.wait_ok(&self.end.receives, "an answer")?;
        let words = self.commands.buf().to_vec(COMMAND_LEN..2 * COMMAND_LEN).map_err(|e| e.to_string())?;
        let word = |at: usize| words[4 * at..][..4].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        if wc.byte_len as usize != COMMAND_LEN || word(0) != command as u64 + 128 {
            return Err(format!("an answer of {} bytes to {} instead of {command:?}", wc.byte_len, word(0)));
        }
        self.peer = RemoteAddr { addr: word(4) << 32 | word(5), rkey: word(6) as u32 };
        Ok(word(2) << 32 | word(3))
    }

    /// Waits for an answer, which must report success.
    fn recv_ok(&mut self, command: Command) -> CliResult<()> {
        match self.recv_reply(command)? {
            0 => Ok(()),
            place => Err(format!("the peer received a wrong byte {}", place - 1)),
        }
    }

    fn send_command(&self, command: Command, len: usize, key: u32) -> CliResult<()> {
        let addr = self.buffer.addr();
        let words = [
            command as u32,
            self.seed,
            len as u32,
            (addr >> 32) as u32,
            addr as u32,
            key,
            self.pieces as u32,
            0,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.commands.buf().write(0, &bytes).map_err(|e| e.to_string())?;
        let sges = [self.command_sge()];
        self.end.qp.post_send(&SendWr::new(0, SendOp::Send, &sges)).map_err(|e| e.to_string())?;
        self.end.wait_ok(&self.end.sends, "a command").map(drop)
    }

    /// Sends a command and waits for its reply; then posts a receive for the next reply.
    fn request(&mut self, command: Command, len: usize) -> CliResult<u64> {
        self.send_command(command, len, self.buffer.rkey())?;
        let value = self.recv_reply(command)?;
        self.post_reply_receive()?;
        Ok(value)
    }

    fn request_ok(&mut self, command: Command, len: usize) -> CliResult<()> {
        match self.request(command, len)? {
            0 => Ok(()),
            place => Err(format!("the peer received a wrong byte {}", place - 1)),
        }
    }

    fn prepare(&self, bytes: &[u8]) -> CliResult<()> {
        self.buffer.buf().write(0, bytes).map_err(|e| e.to_string())
    }

    fn compare(&self, len: usize) -> CliResult<()> {
        let found = self.buffer.buf().to_vec(0..len).map_err(|e| e.to_string())?;
        first_difference(&found, &pattern(self.seed, len)).map_or(Ok(()), Err)
    }

    /// A write or a read in several pieces, all posted before any has completed.
    fn transfer(&self, len: usize, op: impl Fn(RemoteAddr) -> SendOp, key: u32) -> CliResult<()> {
        let each = len.div_ceil(self.pieces).max(1);
        let mut posted = 0;
        let mut at = 0;
        loop {
            let now = each.min(len - at);
            let sges = [self.buffer.sge(at as u64, now as u32)];
            let sges = if now == 0 { &[][..] } else { &sges[..] };
            let remote = RemoteAddr { rkey: key, ..self.peer }.offset(at as u64);
            self.end.qp.post_send(&SendWr::new(posted, op(remote), sges)).map_err(|e| e.to_string())?;
            (posted, at) = (posted + 1, at + now);
            if at >= len {
                break;
            }
        }
        (0..posted).try_for_each(|_| self.end.wait_ok(&self.end.sends, "a transfer of ours").map(drop))
    }

    fn run_transfer(&mut self, way: u64, len: usize) -> CliResult<()> {
        let bytes = pattern(self.seed, len);
        let blank = vec![!0; len];
        match way {
            1 => {
                self.prepare(&bytes)?;
                self.transfer(len, SendOp::Write, self.peer.rkey)?;
                self.request_ok(Command::Check, len)
            }
            2 => {
                self.request_ok(Command::Fill, len)?;
                self.prepare(&blank)?;
                self.transfer(len, SendOp::Read, self.peer.rkey)?;
                self.compare(len)
            }
            4 => {
                self.prepare(&bytes)?;
                self.request_ok(Command::Take, len)?;
                let sges = [self.buffer.sge(0, len as u32)];
                let sges = if len == 0 { &[][..] } else { &sges[..] };
                self.end.qp.post_send(&SendWr::new(0, SendOp::Send, sges)).map_err(|e| e.to_string())?;
                self.end.wait_ok(&self.end.sends, "a send of ours")?;
                self.recv_ok(Command::Take)?;
                self.post_reply_receive()
            }
            8 => {
                self.prepare(&blank)?;
                self.request_ok(Command::Put, len)?;
                self.compare(len)
            }
            16 => {
                self.prepare(&bytes)?;
                self.request_ok(Command::Get, len)
            }
            _ => self.receive_peer_send(len, &blank),
        }
    }

    /// Receives a message of the peer. The receive for the answer was posted first, so the peer answers first.
    fn receive_peer_send(&mut self, len: usize, blank: &[u8]) -> CliResult<()> {
        self.prepare(blank)?;
        self.end.receive(1, self.buffer.sge(0, len as u32))?;
        self.send_command(Command::Give, len, self.buffer.rkey())?;
        self.recv_ok(Command::Give)?;
        let wc = self.end.wait_ok(&self.end.receives, "a message of the peer")?;
        self.post_reply_receive()?;
        if wc.byte_len as usize != len {
            return Err(format!("a message of {} bytes", wc.byte_len));
        }
        self.compare(len)
    }

    /// Writes with an invalid key, by us (1) or by the peer (2). The write fails; returns the reason.
    fn use_invalid_key(&mut self, who: u64) -> CliResult<()> {
        let len = 64;
        match who {
            1 => self.transfer(len, SendOp::Write, self.peer.rkey ^ 0x5500),
            2 => {
                self.send_command(Command::Put, len, self.buffer.rkey() ^ 0x5500)?;
                self.recv_ok(Command::Put)
            }
            _ => Ok(()),
        }
    }
}
