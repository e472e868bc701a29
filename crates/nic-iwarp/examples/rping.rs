//! Our half of rping, the ping-pong of rdma-core, on the device `iwarp`: every byte is compared.
//!
//! `cargo run -p nic-iwarp --example rping -- client ADDRESS:PORT | server ADDRESS:PORT [OPTION=VALUE...]` with
//! `size=BYTES` and `count=N` (client only; a server serves until the client disconnects), and `crc=1`, `mpa=1`,
//! `sent=1`, `fpdu=SIZE`, `depth=N`.
//!
//! In each round the client sends the location of its text (address, key, length: 8, 4 and 4 bytes, big-endian); the
//! server reads the text and sends any 16 bytes; the client sends the location of a sink; the server writes the text
//! there and sends 16 bytes. rdma-core's server writes up to the first zero byte, so a text has a zero only at its
//! end.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::{CliResult, Endpoint, ExampleDevice, Options, exit_code, first_difference};
use verbs::{Mr, RemoteAddr, SendOp, SendWr};

/// Length of a message, which holds a location.
const INFO_LEN: u32 = 16;
/// The longest text that rdma-core's program supports.
const SIZE_MAX: u64 = 65_535;
/// Number of posted receives.
const RECEIVES: u64 = 4;

struct Ping<'a> {
    end: Endpoint<'a>,
    /// The texts; the second half is the client's sink.
    text: Mr,
    inbox: Mr,
    outbox: Mr,
}

fn main() -> ExitCode {
    let options = Options::get();
    exit_code(run(&options))
}

fn run(options: &Options) -> CliResult<String> {
    let usage = "rping client|server ADDRESS:PORT [size=BYTES] [count=N]";
    let addr: SocketAddr = options.word(1).and_then(|word| word.parse().ok()).ok_or(usage)?;
    let mut side = ExampleDevice::open(options)?;
    match options.word(0) {
        Some("client") => {
            let (size, count) = (options.number("size", 64)?, options.number("count", 10)?);
            if !(16..=SIZE_MAX).contains(&size) {
                return Err(format!("size={size}: must be 16 to {SIZE_MAX} bytes"));
            }
            let ping = Ping::establish(&side, Some(addr))?;
            (0..count).try_for_each(|round| ping.round(round, size as usize))?;
            ping.end.disconnect()?;
            Ok(format!("{count} rounds of {size} bytes, every byte compared"))
        }
        Some("server") => {
            side.listen(addr)?;
            let ping = Ping::establish(&side, None)?;
            let mut rounds = 0;
            while ping.serve(rounds)? {
                rounds += 1;
            }
            Ok(format!("{rounds} rounds served"))
        }
        _ => Err(usage.into()),
    }
}

impl<'a> Ping<'a> {
    fn establish(side: &'a ExampleDevice, to: Option<SocketAddr>) -> CliResult<Self> {
        let end = side.create_endpoint()?;
        let text = side.register_memory(2 << 16)?;
        let (inbox, outbox) = (
            side.register_memory(RECEIVES as usize * INFO_LEN as usize)?,
            side.register_memory(INFO_LEN as usize)?,
        );
        let ping = Self { end, text, inbox, outbox };
        (0..RECEIVES).try_for_each(|slot| ping.post_recv(slot))?;
        ping.end.establish(to)?;
        Ok(ping)
    }

    fn post_recv(&self, slot: u64) -> CliResult<()> {
        self.end.receive(slot, self.inbox.sge(slot * u64::from(INFO_LEN), INFO_LEN))
    }

    fn post(&self, op: SendOp, from: &Mr, at: u64, len: u32, what: &str) -> CliResult<()> {
        let sges = [from.sge(at, len)];
        self.end.qp.post_send(&SendWr::new(0, op, &sges)).map_err(|e| format!("{what}: {e}"))?;
        self.end.wait_ok(&self.end.sends, what).map(drop)
    }

    /// Sends the location of our memory; also used as the "go on" message.
    fn send_info(&self, at: u64, len: usize) -> CliResult<()> {
        let place = self.text.remote(at);
        let mut info = place.addr.to_be_bytes().to_vec();
        info.extend(place.rkey.to_be_bytes());
        info.extend((len as u32).to_be_bytes());
        self.outbox.buf().write(0, &info).map_err(|e| e.to_string())?;
        self.post(SendOp::Send, &self.outbox, 0, INFO_LEN, "a message of ours")
    }

    /// The peer's next message; `None` if the peer has disconnected.
    fn recv_info(&self, may_end: bool) -> CliResult<Option<(RemoteAddr, usize)>> {
        let wc = match self.end.receives.wait(self.end.side.deadline()) {
            Ok(wc) if wc.is_ok() => wc,
            Ok(wc) if may_end && wc.status == verbs::WcStatus::WrFlushErr => return Ok(None),
            Ok(wc) => return Err(format!("a message: {:?}; {}", wc.status, self.end.connection_errors())),
            Err(error) => return Err(format!("a message: {error}")),
        };
        if wc.byte_len != INFO_LEN {
            return Err(format!("a message of {} bytes instead of {INFO_LEN}", wc.byte_len));
        }
        let at = (wc.wr_id * u64::from(INFO_LEN)) as usize;
        let info = self.inbox.buf().to_vec(at..at + INFO_LEN as usize).map_err(|e| e.to_string())?;
        self.post_recv(wc.wr_id)?;
        let number =
            |range: std::ops::Range<usize>| info[range].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        Ok(Some((RemoteAddr { addr: number(0..8), rkey: number(8..12) as u32 }, number(12..16) as usize)))
    }

    fn round(&self, round: u64, size: usize) -> CliResult<()> {
        let sink_at = 1 << 16;
        let mut text = format!("rdma-ping-{round}: ").into_bytes();
        let start = 65 + round as usize;
        text.extend((0..size).map(|at| (65 + (start + at) % 58) as u8));
        text.truncate(size - 1);
        text.push(0);
        self.text.buf().write(0, &text).map_err(|e| e.to_string())?;
        self.text.buf().write(sink_at, &vec![0xff; size]).map_err(|e| e.to_string())?;
        self.send_info(0, size)?;
        self.recv_info(false)?;
        self.send_info(sink_at as u64, size)?;
        self.recv_info(false)?;
        let found = self.text.buf().to_vec(sink_at..sink_at + size).map_err(|e| e.to_string())?;
        match first_difference(&found, &text) {
            Some(how) => Err(format!("round {round}: {how}")),
            None => Ok(()),
        }
    }

    /// Serves a round; returns whether there was one.
    fn serve(&self, round: u64) -> CliResult<bool> {
        let Some((source, len)) = self.recv_info(true)? else { return Ok(false) };
        if len as u64 > SIZE_MAX {
            return Err(format!("round {round}: a text of {len} bytes"));
        }
        self.post(SendOp::Read(source), &self.text, 0, len as u32, "a read")?;
        self.send_info(0, len)?;
        let Some((sink, _)) = self.recv_info(false)? else { return Ok(false) };
        self.post(SendOp::Write(sink), &self.text, 0, len as u32, "a write")?;
        self.send_info(0, len)?;
        Ok(true)
    }
}
