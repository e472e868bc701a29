//! Peers that do not keep to the protocol: a queue pair that speaks it by hand, against a socket.

mod common;

use std::sync::Arc;

use common::{DEVICES, Host, pattern, recv, send, stream, wait};
use rsocket::{Carrier, Config, ConnData, Error, RemoteBuf, Socket};
use verbs::{Access, Buf, Cm, CmEvent, ConnParam, Cq, Mr, Qp, QpInit, RecvWr, RemoteAddr, SendOp, SendWr};

/// Kinds of messages, by the upper three bits.
const DATA: u32 = 0;
const CREDITS: u32 = 4 << 29;
const IO_MAP: u32 = 6 << 29;
const CONTROL: u32 = 7 << 29;

/// A peer that is connected to the host's listener, and the socket that was accepted.
struct Hostile {
    qp: Qp,
    cq: Cq,
    _cm: Cm,
    memory: Mr,
    carrier: Carrier,
    /// The private data that the socket has sent.
    other: ConnData,
    socket: Arc<Socket>,
}

/// The private data of a peer whose table and buffer are in this memory.
fn conn_data(memory: &Mr) -> ConnData {
    let part = |offset: u64, length| RemoteBuf { addr: memory.addr() + offset, key: memory.rkey(), length };
    ConnData { big_endian: false, credits: 100, iomap_size: 0, table: part(0, 2), buffer: part(64, 4096) }
}

impl Hostile {
    /// Connects with private data made by `change`.
    fn new(host: &Host, carrier: Carrier, change: impl FnOnce(ConnData) -> ConnData) -> Self {
        let device = host.service.device();
        let (cm, cq) = (device.create_cm().expect("a channel"), device.create_cq(512).expect("a queue"));
        let pd = device.alloc_pd().expect("a domain");
        let memory = pd.reg_mr(&Buf::alloc(8192).expect("memory"), Access::ALL - Access::REMOTE_ATOMIC);
        let memory = memory.expect("a region");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        (0..32).for_each(|at| qp.post_recv(&RecvWr::new(at, &[memory.sge(8000, 4)])).expect("posted"));
        let param = ConnParam::with_private_data(change(conn_data(&memory)).encode());
        cm.connect(&qp, host.port.addr(), &param).expect("it begins");
        let other = match cm.get_event(None).expect("an event") {
            CmEvent::Established { private_data, .. } => ConnData::decode(&private_data).expect("an rsocket"),
            event => panic!("{event:?}"),
        };
        let socket = wait(&host.listener, || host.listener.accept()).expect("a connection");
        Self { qp, cq, _cm: cm, memory, carrier, other, socket }
    }

    /// Sends a message by hand; it may fail once the socket has given up.
    fn message(&self, bits: u32) {
        let bytes = bits.to_ne_bytes();
        let request = match self.carrier {
            Carrier::Immediate => SendWr::new(1, SendOp::WriteImm(RemoteAddr::default(), bits), &[]),
            Carrier::Send => SendWr::inline(1, SendOp::Send, &bytes),
        };
        let _ = self.qp.post_send(&request);
        let _ = self.cq.poll(&mut [verbs::Wc::default(); 16]);
    }

    /// Writes into a range that the socket has exposed.
    fn write(&self, to: RemoteBuf, offset: u64, bytes: &[u8]) {
        let to = RemoteAddr { addr: to.addr, rkey: to.key }.offset(offset);
        self.qp.post_send(&SendWr::inline(2, SendOp::Write(to), bytes)).expect("posted");
    }

    /// What the socket reads next.
    fn read(&self) -> Result<usize, Error> {
        recv(&self.socket, &mut [0; 100])
    }
}

/// Runs a case on each device, and checks that the listener still serves another peer.
fn on_each(run: impl Fn(&Host, Carrier)) {
    for device in DEVICES {
        let host = Host::new(device, Config::default());
        run(&host, device.1);
        let [client, server] = host.pair();
        send(&client, b"well").expect("sent");
        assert_eq!(recv(&server, &mut [0; 9]), Ok(4), "{device:?}");
    }
}

#[test]
fn honest_peer_by_hand_is_understood() {
    on_each(|host, carrier| {
        let peer = Hostile::new(host, carrier, |data| data);
        peer.write(peer.other.buffer, 0, b"by hand");
        peer.message(DATA | 7);
        let mut bytes = [0; 20];
        assert_eq!(recv(&peer.socket, &mut bytes), Ok(7));
        assert_eq!(&bytes[..7], b"by hand");
        send(&peer.socket, b"answer").expect("sent");
        let wc = peer.cq.wait(None).expect("a completion");
        assert!(wc.is_ok(), "{wc:?}");
        while peer.memory.buf().to_vec(64..70).expect("inside") != b"answer" {
            std::thread::yield_now();
        }
        peer.message(CONTROL);
        assert_eq!(peer.read(), Ok(0));
    });
}

#[test]
fn more_bytes_than_granted_end_the_connection() {
    on_each(|host, carrier| {
        let peer = Hostile::new(host, carrier, |data| data);
        let half = peer.other.buffer.length;
        // The socket may have granted its second half by the first message.
        peer.message(DATA | half);
        peer.message(DATA | half);
        peer.message(DATA | 1);
        let mut rest = vec![0; 2 * half as usize];
        let mut total = 0;
        let end = loop {
            match wait(&peer.socket, || {
                stream(&peer.socket).poll()?;
                stream(&peer.socket).recv(&mut rest[..0], false)?;
                // Nothing is taken before all three have arrived.
                Ok(stream(&peer.socket).is_broken().then_some(()))
            }) {
                Ok(()) => match recv(&peer.socket, &mut rest) {
                    Ok(len) => total += len,
                    Err(why) => break why,
                },
                Err(why) => break why,
            }
        };
        assert!(matches!(&end, Error::Protocol(why) if why.contains("more than were granted")), "{end:?}");
        assert!(total <= 2 * half as usize);
    });
}

#[test]
fn unknown_messages_end_the_connection() {
    for bits in [1 << 29, 2 << 29 | 5, 3 << 29, 5 << 29 | 1, CONTROL | 3, u32::MAX] {
        on_each(|host, carrier| {
            let peer = Hostile::new(host, carrier, |data| data);
            peer.message(bits);
            let end = peer.read();
            assert!(matches!(&end, Err(Error::Protocol(why)) if why.contains("message 0x")), "{end:?}");
            assert!(matches!(stream(&peer.socket).send(b"x"), Err(Error::Protocol(_))));
        });
    }
}

#[test]
fn false_tables_harm_the_connection_only() {
    on_each(|host, carrier| {
        let peer = Hostile::new(host, carrier, |data| ConnData {
            buffer: RemoteBuf { addr: 0xdead_0000, key: 0x1234_5678, length: u32::MAX },
            ..data
        });
        let bytes = pattern(300_000, 5);
        let end = loop {
            match send(&peer.socket, &bytes) {
                Ok(()) => {}
                Err(why) => break why,
            }
        };
        assert_eq!(end, Error::Reset);
        assert_eq!(peer.read(), Err(Error::Reset));
    });
}

#[test]
fn peer_without_credits_or_room_gets_nothing() {
    on_each(|host, carrier| {
        let without_credits = Hostile::new(host, carrier, |data| ConnData { credits: 0, ..data });
        let without_room = Hostile::new(host, carrier, |data| ConnData {
            buffer: RemoteBuf { length: 0, ..data.buffer },
            ..data
        });
        for peer in [without_credits, without_room] {
            assert_eq!(stream(&peer.socket).send(b"nothing"), Ok(None));
            // Neither do credits for a table that has no entry, nor entries that do not exist.
            peer.message(IO_MAP | 0xffff);
            assert_eq!(stream(&peer.socket).write_at(b"nothing", 0), Err(Error::NoMapping(0)));
            drop(peer.qp);
            assert!(matches!(recv(&peer.socket, &mut [0; 9]), Err(Error::Reset)));
        }
    });
}

/// Goal: no sequence of messages and table entries panics, hangs or reaches memory that was not exposed. Method: random ones, by
/// seed, while the socket sends and receives.
#[test]
fn random_messages_are_survived() {
    for device in DEVICES {
        let host = Host::new(device, Config { recv_buffer: 4096, ..Config::default() });
        for seed in 1..=30_u64 {
            let peer = Hostile::new(&host, device.1, |data| data);
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u32
            };
            let mut room = vec![0; 5000];
            for _ in 0..60 {
                match next() % 6 {
                    0 => peer.message(DATA | (next() % 3000)),
                    1 => peer.message(CREDITS | (next() & 0xffff)),
                    2 => peer.message(IO_MAP | (next() & 0xffff)),
                    3 if next() % 8 == 0 => peer.message(CONTROL | (next() % 4)),
                    4 => {
                        let entry: Vec<u8> = (0..4).flat_map(|_| next().to_ne_bytes()).collect();
                        let to = peer.other.table;
                        let to =
                            RemoteAddr { addr: to.addr, rkey: to.key }.offset(u64::from(next() % 2) * 16);
                        let _ = peer.qp.post_send(&SendWr::inline(3, SendOp::Write(to), &entry));
                    }
                    _ => {}
                }
                let _ = stream(&peer.socket).send(&room[..(next() % 3000) as usize]);
                let _ = stream(&peer.socket).recv(&mut room, next() % 2 == 0);
                let _ = (stream(&peer.socket).is_readable(), stream(&peer.socket).is_writable());
            }
            peer.socket.close(host.service.device().host().after(verbs::host::Span::from_ms(1)));
        }
        let [client, server] = host.pair();
        send(&client, b"alive").expect("sent");
        assert_eq!(recv(&server, &mut room_of(9)), Ok(5), "{device:?}");
    }
}

fn room_of(len: usize) -> Vec<u8> {
    vec![0; len]
}

#[test]
fn private_data_of_other_programs_are_rejected() {
    for (device, _) in DEVICES {
        let host = Host::new((device, Carrier::default()), Config::default());
        let device = host.service.device();
        let (cm, cq) = (device.create_cm().expect("a channel"), device.create_cq(64).expect("a queue"));
        for private_data in [vec![], b"rping".to_vec(), vec![0xff; 56]] {
            let qp = device.alloc_pd().expect("a domain").create_qp(&QpInit::new(&cq)).expect("a queue pair");
            cm.connect(&qp, host.port.addr(), &ConnParam::with_private_data(private_data))
                .expect("it begins");
            let event = cm.get_event(None).expect("an event");
            assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
        }
        assert_eq!(host.listener.accept().map(|socket| socket.is_some()), Ok(false));
    }
}
