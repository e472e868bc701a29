//! Code shared by the programs that talk to other iWARP implementations: options, one connection, and error messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use host::{Host, Span, Time};
use nic_iwarp::{Completion, FpduSize, IwarpConfig, Mpa, open};
use verbs::{
    Access, AsyncEvent, Buf, Cm, CmEvent, ConnParam, Cq, Device, Listener, Mr, Pd, Qp, QpCap, QpInit, RecvWr,
    Sge, Wc,
};

/// Time limit of any single step, in seconds.
const PATIENCE: u64 = 60;

/// A result whose error is a message for people.
pub(crate) type CliResult<T> = Result<T, String>;

/// The command line: words, and `name=value` options.
pub(crate) struct Options {
    words: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Options {
    /// The command line of this program.
    pub(crate) fn get() -> Self {
        let (values, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.contains('='));
        let values =
            values.iter().filter_map(|arg| arg.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
        Self { words, values: values.collect() }
    }

    /// The word at this position.
    pub(crate) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// A number option, or its default.
    pub(crate) fn number(&self, name: &str, default: u64) -> CliResult<u64> {
        Ok(self.numbers(name)?.map_or(default, |numbers| numbers[0]))
    }

    /// A list of numbers separated by commas, at least one.
    pub(crate) fn numbers(&self, name: &str) -> CliResult<Option<Vec<u64>>> {
        let number = |text: &str| text.parse().map_err(|_| format!("{name}: {text} is not a number"));
        self.values.get(name).map(|text| text.split(',').map(number).collect()).transpose()
    }

    /// The device configuration: `crc=1`, `mpa=1|2`, `sent=1` (requests complete when TCP has them), `fpdu=SIZE`.
    fn config(&self) -> CliResult<IwarpConfig> {
        Ok(IwarpConfig {
            crc: self.number("crc", 0)? == 1,
            mpa: if self.number("mpa", 2)? == 1 { Mpa::V1 } else { Mpa::V2 },
            completion: if self.number("sent", 0)? == 1 { Completion::Sent } else { Completion::Placed },
            fpdu: match self.number("fpdu", 0)? {
                0 => FpduSize::Largest,
                size => FpduSize::Bytes(size.try_into().map_err(|_| "fpdu is at most 65535")?),
            },
            ..IwarpConfig::default()
        })
    }

    /// `patience=N`: time limit of any single step in seconds.
    fn timeout(&self) -> CliResult<Span> {
        Ok(Span::from_secs(self.number("patience", PATIENCE)?))
    }

    /// The connection parameters: `depth=N` reads in each direction, `pd=N` bytes of private data.
    fn param(&self) -> CliResult<ConnParam> {
        let depth = self.number("depth", 16)?.min(255) as u8;
        Ok(ConnParam {
            private_data: pattern(7, self.number("pd", 0)? as usize),
            responder_resources: depth,
            initiator_depth: depth,
            timeout: self.timeout()?,
            ..ConnParam::default()
        })
    }
}

/// One byte of a pattern with a long period; `interop/files/peer.c` generates the same.
pub(crate) fn pattern_at(seed: u32, at: usize) -> u8 {
    let mut x = (at as u32).wrapping_mul(0x9e37_79b1) ^ seed.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 15;
    (x >> 8) as u8
}

/// The pattern of a seed.
pub(crate) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| pattern_at(seed, at)).collect()
}

/// Describes the first byte that first_difference.
pub(crate) fn first_difference(found: &[u8], wanted: &[u8]) -> Option<String> {
    if found.len() != wanted.len() {
        return Some(format!("{} bytes instead of {}", found.len(), wanted.len()));
    }
    let at = found.iter().zip(wanted).position(|(a, b)| a != b)?;
    Some(format!("byte {at} of {} is {:#04x} instead of {:#04x}", found.len(), found[at], wanted[at]))
}

/// A device for connections.
pub(crate) struct ExampleDevice {
    pub(crate) host: Host,
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    param: ConnParam,
    cm: Cm,
    listener: Option<Listener>,
}

/// A connection, possibly not established yet.
pub(crate) struct Endpoint<'a> {
    pub(crate) side: &'a ExampleDevice,
    pub(crate) qp: Qp,
    pub(crate) sends: Cq,
    pub(crate) receives: Cq,
}

impl ExampleDevice {
    /// Opens the device that the options describe.
    pub(crate) fn open(options: &Options) -> CliResult<Self> {
        let host = host::real::host();
        let device = open(&host, &options.config()?).map_err(|e| e.to_string())?;
        let pd = device.alloc_pd().map_err(|e| e.to_string())?;
        let cm = device.create_cm().map_err(|e| e.to_string())?;
        Ok(Self { host, device, pd, param: options.param()?, cm, listener: None })
    }

    /// Starts to listen, and prints the address.
    pub(crate) fn listen(&mut self, addr: SocketAddr) -> CliResult<()> {
        let listener = self.cm.listen(addr, 16).map_err(|e| e.to_string())?;
        println!("listening at {}", listener.addr());
        self.listener = Some(listener);
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.host.after(self.param.timeout)
    }

    /// Host memory that peers may read and write.
    pub(crate) fn register_memory(&self, len: usize) -> CliResult<Mr> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let buf = Buf::alloc(len).map_err(|e| e.to_string())?;
        self.pd.reg_mr(&buf, access).map_err(|e| e.to_string())
    }

    /// Creates a queue pair. Post the receives that the peer's first message needs before [`Endpoint::establish`].
    pub(crate) fn create_endpoint(&self) -> CliResult<Endpoint<'_>> {
        let cq = || self.device.create_cq(512).map_err(|e| e.to_string());
        let (sends, receives) = (cq()?, cq()?);
        let init = QpInit::new(&sends).recv_cq(&receives).cap(QpCap { max_send_wr: 256, ..QpCap::default() });
        let qp = self.pd.create_qp(&init).map_err(|e| e.to_string())?;
        Ok(Endpoint { side: self, qp, sends, receives })
    }
}

impl Endpoint<'_> {
    /// Connects to `to`, or accepts the next connection.
    pub(crate) fn establish(&self, to: Option<SocketAddr>) -> CliResult<()> {
        let ExampleDevice { cm, param, .. } = self.side;
        if let Some(to) = to {
            cm.connect(&self.qp, to, param).map_err(|e| e.to_string())?;
        }
        loop {
            match cm.get_event(self.side.deadline()).map_err(|e| e.to_string())? {
                CmEvent::ConnectRequest(request) => {
                    print_private_data(&request.private_data);
                    cm.accept(request, &self.qp, param).map_err(|e| e.to_string())?;
                }
                CmEvent::Established { private_data, .. } => {
                    if to.is_some() {
                        print_private_data(&private_data);
                    }
                    return Ok(());
                }
                CmEvent::Rejected { private_data, .. } => {
                    print_private_data(&private_data);
                    return Err("the peer refused the connection".into());
                }
                CmEvent::ConnectFailed { why, .. } => return Err(format!("no connection: {why}")),
                CmEvent::Disconnected { .. } => {}
            }
        }
    }

    /// Posts a receive.
    pub(crate) fn receive(&self, wr_id: u64, sge: Sge) -> CliResult<()> {
        let sges = [sge];
        let sges = if sge.length == 0 { &[][..] } else { &sges[..] };
        self.qp.post_recv(&RecvWr::new(wr_id, sges)).map_err(|e| e.to_string())
    }

    /// Waits for the next completion of a queue, which must be successful.
    pub(crate) fn wait_ok(&self, cq: &Cq, what: &str) -> CliResult<Wc> {
        match cq.wait(self.side.deadline()) {
            Ok(wc) if wc.is_ok() => Ok(wc),
            Ok(wc) => Err(format!("{what}: {:?}; {}", wc.status, self.connection_errors())),
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    /// Describes why the device ended the connection; waits a moment for the event.
    pub(crate) fn connection_errors(&self) -> String {
        let mut said = Vec::new();
        for _ in 0..100 {
            while let Some(event) = self.side.device.poll_async_event() {
                said.push(match event {
                    AsyncEvent::QpFatal { why, .. } => format!("cause: {why}"),
                    other => format!("{other:?}"),
                });
            }
            match self.side.cm.poll_event() {
                Some(CmEvent::Disconnected { .. }) => {
                    said.push("disconnected".into());
                    break;
                }
                Some(other) => said.push(format!("{other:?}")),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        said.join("; ")
    }

    /// Disconnects, and waits until the connection has ended.
    pub(crate) fn disconnect(self) -> CliResult<()> {
        self.side.cm.disconnect(&self.qp).map_err(|e| e.to_string())?;
        self.wait_disconnected()
    }

    /// Waits until the peer ends the connection.
    pub(crate) fn wait_disconnected(self) -> CliResult<()> {
        loop {
            match self.side.cm.get_event(self.side.deadline()).map_err(|e| e.to_string())? {
                CmEvent::Disconnected { .. } => return Ok(()),
                CmEvent::ConnectRequest(_) | CmEvent::Established { .. } => {}
                other => return Err(format!("{other:?}")),
            }
        }
    }
}

/// Prints the private data that the peer sent when it connected.
fn print_private_data(private_data: &[u8]) {
    let wrong = (0..).zip(private_data).filter(|(at, byte)| pattern_at(7, *at) != **byte).count();
    println!("private data of {} bytes, {wrong} wrong", private_data.len());
}

/// Prints the result, and returns the matching exit code.
pub(crate) fn exit_code(outcome: CliResult<String>) -> std::process::ExitCode {
    match outcome {
        Ok(what) => {
            println!("ok: {what}");
            std::process::ExitCode::SUCCESS
        }
        Err(why) => {
            println!("failed: {why}");
            std::process::ExitCode::FAILURE
        }
    }
}
