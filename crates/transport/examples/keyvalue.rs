//! A key-value store on the transport: a third user, after MPI and Portals, with messages of its own. Server and client are threads
//! with a device each; `cargo run -p transport --example keyvalue -- iwarp` names the kind of device.
//!
//! The client sends requests without waiting for answers. The number of a request is its key in a [`SlotTable`].

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};

use auth::{Challenge, Identity, Key, Protocol, Proved};
use host::{Host, SlotKey, SlotTable};
use transport::{
    Arrived, ConnEvent, ConnectTarget, Endpoint, EndpointOptions, Header, HeaderBytes, LINE_WORDS,
    LineMessage, Nic, NicConfig, Outcome, Payload, Peers, QueueSizes, Wireup, of_completion,
};
use verbs::{Buf, CmEvent, ConnParam, Error, Result, Screen, SendFlags, WcStatus};

const PROTOCOL: Protocol = Protocol { name: "keyvalue", magic: *b"kv\x00\x01" };
const SERVER: Identity = Identity([1; auth::IDENTITY]);
const CLIENT: Identity = Identity([2; auth::IDENTITY]);
const SIZES: QueueSizes =
    QueueSizes { slots: 16, spare: 3, accesses: 0, slot_bytes: 4096, ring_bytes: 64 << 10 };
const INLINE: usize = 96;
const HEAD: usize = 24;
/// Bytes of the longest value.
const VALUE_MAX: usize = SIZES.slot_bytes - HEAD;

const PUT: u64 = 1;
const GET: u64 = 2;
const ANSWER: u64 = 3;
const CREDIT: u64 = 4;

/// A message: its kind, the number of the request, and the key; the value follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    kind: u64,
    request: u64,
    key: u64,
}

impl Message {
    fn of([first, request, key]: [u64; 3]) -> Option<Self> {
        let kind = first & 0xff;
        (PUT..=CREDIT).contains(&kind).then_some(Self { kind, request, key })
    }
}

impl Header for Message {
    type Short = [u64; 3];

    fn encode_short(&self) -> Option<[u64; 3]> {
        Some([self.kind, self.request, self.key])
    }

    fn encode(&self) -> HeaderBytes {
        HeaderBytes::from_words([self.kind, self.request, self.key])
    }

    fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize> {
        *self = Self::of([line[0], line[1], line[2]]).filter(|_| total >= HEAD)?;
        Some(HEAD)
    }

    fn decode(&mut self, bytes: &[u8], _total: usize) -> Option<usize> {
        let words: &[[u8; 8]; 3] = bytes.as_chunks().0.first_chunk()?;
        *self = Self::of(words.map(u64::from_le_bytes))?;
        Some(HEAD)
    }
}

/// All messages use one channel, and none the line.
impl transport::Message for Message {
    const CREDIT: Self = Self { kind: CREDIT, request: 0, key: 0 };
    const LINE_PAYLOAD: usize = 0;

    fn channel(&self) -> usize {
        0
    }

    fn channel_of(first: u8) -> Option<usize> {
        (u64::from(first) != CREDIT).then_some(0)
    }

    fn header_max(&self) -> usize {
        HEAD
    }

    fn fits_line(&self, _payload: usize) -> bool {
        false
    }

    fn encode_line(&self, _payload: &impl Payload, _records: u16) -> Option<LineMessage> {
        None
    }

    fn decode_line(&mut self, _line: &LineMessage) -> Option<usize> {
        None
    }
}

/// A queued value.
struct Value(Vec<u8>);

impl Payload for Value {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn load(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.0);
    }

    fn copy_to(&self, memory: &Buf, at: usize) -> Result<()> {
        memory.write(at, &self.0)
    }
}

/// The store as a user of endpoints.
enum KeyValue {}

impl transport::User for KeyValue {
    type Message = Message;
    type Payload = Value;
    type Sent = ();
    type Key = u64;
}

/// Only the client may connect.
#[derive(Debug)]
struct Client(Key);

impl Peers for Client {
    fn key_of(&self, from: Identity) -> Option<Key> {
        (from == CLIENT).then(|| self.0.clone())
    }
}

/// A process with a device and one connection.
struct Party {
    nic: Nic,
    endpoint: Endpoint<KeyValue, 1, INLINE>,
}

impl Party {
    fn new(host: &Host, device: &str, screen: &Arc<dyn Screen>, is_first: bool) -> Result<Self> {
        let device = fabric::open(device, host).map_err(|error| Error::Invalid(error.to_string()))?;
        let address = device.attr().port_addrs.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into());
        let config = NicConfig {
            sizes: SIZES,
            inline: INLINE as u32,
            cqe: SIZES.completions(),
            slab_connections: 1,
            listen_at: (&[address], 0),
            backlog: 1,
            register_all: |_| Ok(None),
            caches: false,
            split_receives: false,
        };
        let options = EndpointOptions {
            is_initiator: is_first,
            send_sges: 1,
            is_first,
            record_bytes: SIZES.slot_bytes,
            send_flags: SendFlags::empty(),
            write_flags: SendFlags::empty(),
        };
        let mut nic = Nic::open(&device, &config, screen)?;
        let endpoint = Endpoint::new(&mut nic, 0, None, options)?;
        Ok(Self { nic, endpoint })
    }

    fn wait_for_event(&self, host: &Host) -> CmEvent {
        host.wait("keyvalue", &self.nic.cm, None, || self.nic.cm.poll_event())
            .expect("a wait without a deadline")
    }

    /// Sends a message after the waiting ones.
    fn send(&mut self, message: Message, value: Vec<u8>) -> Result<()> {
        self.endpoint.queue_message(message, Value(value), None, None);
        self.pump()
    }

    /// Sends waiting messages while there is room.
    fn pump(&mut self) -> Result<()> {
        self.endpoint.pump(0, |_| (), |_, _, _, _| ()).map(drop)
    }

    /// The next message that has arrived.
    fn receive(&mut self) -> Result<Option<(Message, Vec<u8>)>> {
        self.pump()?;
        let mut message = <Message as transport::Message>::CREDIT;
        if let Some(arrived) = self.endpoint.peek(0, &mut message)? {
            return self.take(message, &arrived).map(Some);
        }
        let Some(wc) = self.nic.next_completion()? else { return Ok(None) };
        if wc.status == WcStatus::WrFlushErr {
            // The connection has ended, which an event of the connection manager reports.
            return Ok(None);
        }
        if !wc.is_ok() {
            return Err(Error::Invalid(format!("the connection ended: {:?}", wc.status)));
        }
        let (_, Some(slot)) = of_completion(&wc) else {
            self.endpoint.completed()?;
            return Ok(None);
        };
        let Some(channel) = self.endpoint.arrived(slot, wc.byte_len)? else {
            self.endpoint.queue.post_receive(slot)?;
            return Ok(None);
        };
        let arrived = self.endpoint.decode(channel, (slot, wc.byte_len), &mut message)?;
        self.take(message, &arrived).map(Some)
    }

    fn take(&mut self, message: Message, arrived: &Arrived) -> Result<(Message, Vec<u8>)> {
        let memory = self.endpoint.memory(arrived.channel, arrived.held);
        let value = memory.to_vec(arrived.at..arrived.at + arrived.len)?;
        self.endpoint.consume(arrived)?;
        Ok((message, value))
    }
}

/// Serves one client until it has disconnected. Sends its listening address to `listens`.
fn serve(device: &str, key: Key, listens: &mpsc::Sender<SocketAddr>) -> Result<()> {
    let host = host::real::host();
    let wireup = Wireup::<Client>::new(PROTOCOL, key.derive("server's nonces", &[]));
    let seed = auth::Seed::from_key(key.derive("seed", &[]));
    wireup.admission().open(SERVER, seed, Client(key));
    let screen: Arc<dyn Screen> = wireup.admission().clone();
    let mut end = Party::new(&host, device, &screen, false)?;
    let address = end.nic.addr();
    listens.send(address).map_err(|_| Error::Invalid("there is no client".into()))?;
    loop {
        let mut request = match end.wait_for_event(&host) {
            CmEvent::ConnectRequest(request) => request,
            CmEvent::Established { .. } => break,
            other => return Err(Error::Invalid(format!("no connection: {other:?}"))),
        };
        let Some(proved) = request.take_screened::<Proved>() else { continue };
        wireup.accept(&end.nic, (request, &proved), &mut end.endpoint)?;
    }
    end.endpoint.open()?;
    let mut values = BTreeMap::new();
    loop {
        if let Some((message, value)) = end.receive()? {
            let answer = match message.kind {
                PUT => values.insert(message.key, value).unwrap_or_default(),
                _ => values.get(&message.key).cloned().unwrap_or_default(),
            };
            end.send(Message { kind: ANSWER, ..message }, answer)?;
        } else if let Some(CmEvent::Disconnected { .. }) = end.nic.cm.poll_event() {
            return Ok(());
        } else {
            std::thread::yield_now();
        }
    }
}

/// Connects to a server. Its seed is not known, so the first request is rejected with a challenge.
fn connect(host: &Host, device: &str, key: &Key, server: SocketAddr) -> Result<Party> {
    let mut wireup = Wireup::<Client>::new(PROTOCOL, key.derive("nonces", &[]));
    let closed: Arc<dyn Screen> = wireup.admission().clone();
    let mut end = Party::new(host, device, &closed, true)?;
    loop {
        let target =
            ConnectTarget { key: key.clone(), from: CLIENT, to: SERVER, challenge: Challenge::UNKNOWN };
        let (own, peer) = ((0, &end.endpoint), (server, target));
        wireup.connect(&end.nic, own, peer, ConnParam::default())?;
        let Ok((_, event)) = ConnEvent::of(end.wait_for_event(host)) else { continue };
        match wireup.outcome(0, &mut end.endpoint, event) {
            Outcome::Established => {
                end.endpoint.open()?;
                return Ok(end);
            }
            Outcome::Again => {}
            other => return Err(Error::Invalid(format!("no connection: {other:?}"))),
        }
    }
}

/// Puts `count` values of many lengths, then gets them. Requests do not wait for answers. Returns the total bytes of all answers.
///
/// # Errors
/// Those of the devices.
///
/// # Panics
/// If a value is not what was put.
pub(crate) fn run(device: &'static str, count: u64) -> Result<u64> {
    let key = Key::random().map_err(|error| Error::Invalid(error.to_string()))?;
    let (listens, server) = mpsc::channel();
    let of_server = key.clone();
    let thread = std::thread::spawn(move || serve(device, of_server, &listens));
    let server = server.recv().map_err(|_| Error::Invalid("the server has not begun".into()))?;
    let mut end = connect(&host::real::host(), device, &key, server)?;
    let value = |key: u64| vec![key as u8; (key * 97) as usize % VALUE_MAX];
    let (mut requests, mut total) = (SlotTable::<(u64, u64), 255>::default(), 0);
    for kind in [PUT, GET] {
        for key in 0..count {
            let request = requests.insert((kind, key)).number();
            let put = if kind == PUT { value(key) } else { Vec::new() };
            end.send(Message { kind, request, key }, put)?;
        }
        while !requests.is_empty() {
            let Some((answer, found)) = end.receive()? else {
                if let Some(event) = end.nic.cm.poll_event() {
                    return Err(Error::Invalid(format!("the server has gone: {event:?}")));
                }
                std::thread::yield_now();
                continue;
            };
            let (kind, key) = requests.remove(SlotKey::from_number(answer.request)).expect("a request");
            assert_eq!(found, if kind == GET { value(key) } else { Vec::new() });
            total += found.len() as u64;
        }
    }
    end.nic.cm.disconnect(end.endpoint.qp())?;
    thread.join().expect("the server has not panicked")?;
    Ok(total)
}

#[allow(dead_code)] // unused by the test that includes this example
fn main() -> Result<()> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "shm".into());
    let total = run(device.leak(), 1000)?;
    println!("1000 values came back, {total} bytes");
    Ok(())
}
