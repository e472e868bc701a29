//! Streams between two sockets of one process, on each kind of device.

mod common;

use std::sync::Arc;
use std::thread;

use common::{DEVICES, Host, pattern, recv, recv_all, send, stream, wait};
use rsocket::{Config, Error, Phase, Socket};

/// Goal: every byte arrives once and in order, in both directions at the same time, whatever the sizes of calls and buffers.
#[test]
fn bytes_arrive_in_order_in_both_directions() {
    for device in DEVICES {
        for (buffer, queue) in [(4096, 16), (131_072, 384)] {
            let config = Config {
                send_buffer: buffer,
                recv_buffer: buffer,
                send_queue: queue,
                recv_queue: queue,
                ..Config::default()
            };
            let host = Host::new(device, config);
            let ends = host.pair();
            let sent = [pattern(3_000_017, 1), pattern(2_000_003, 2)];
            thread::scope(|scope| {
                for (end, bytes) in ends.iter().zip(&sent) {
                    scope.spawn(move || {
                        for piece in bytes.chunks(70_001) {
                            let (short, long) = piece.split_at(piece.len().min(63));
                            send(end, short).expect("sent");
                            send(end, long).expect("sent");
                        }
                        stream(end).shut_write().expect("shut down");
                    });
                }
                let received =
                    ends.each_ref().map(|end| scope.spawn(move || recv_all(end).expect("received")));
                let [at_client, at_server] = received.map(|thread| thread.join().expect("no panic"));
                assert!(at_server == sent[0], "{device:?}, {buffer}: to the server");
                assert!(at_client == sent[1], "{device:?}, {buffer}: to the client");
            });
        }
    }
}

#[test]
fn short_messages_are_answered() {
    for device in DEVICES {
        let host = Host::new(device, Config::default());
        let [client, server] = host.pair();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = [0; 100];
                loop {
                    match recv(&server, &mut bytes).expect("received") {
                        0 => break,
                        len => send(&server, &bytes[..len]).expect("sent"),
                    }
                }
            });
            for number in 0..2000_u32 {
                send(&client, &number.to_le_bytes()).expect("sent");
                let mut answer = [0; 4];
                let mut have = 0;
                while have < 4 {
                    have += recv(&client, &mut answer[have..]).expect("received");
                }
                assert_eq!(u32::from_le_bytes(answer), number, "{device:?}");
            }
            stream(&client).shut_write().expect("shut down");
        });
    }
}

#[test]
fn each_direction_ends_on_its_own() {
    for device in DEVICES {
        let host = Host::new(device, Config::default());
        let [client, server] = host.pair();
        send(&client, b"question").expect("sent");
        stream(&client).shut_write().expect("shut down");
        assert_eq!(stream(&client).send(b"more"), Err(Error::ShutDown));
        assert_eq!(recv_all(&server).expect("received"), b"question");
        assert!(stream(&server).is_peer_shut() && !stream(&server).is_ended());
        send(&server, b"answer").expect("sent");
        server.close(None);
        assert_eq!(recv_all(&client).expect("received"), b"answer");
        assert!(stream(&client).is_ended() && !stream(&client).is_broken());
    }
}

#[test]
fn peeked_bytes_stay() {
    let host = Host::new(DEVICES[0], Config::default());
    let [client, server] = host.pair();
    send(&client, b"twice").expect("sent");
    let mut bytes = [0; 9];
    for peek in [true, true, false] {
        bytes.fill(0);
        let len = wait(&server, || stream(&server).recv(&mut bytes, peek)).expect("received");
        assert_eq!(&bytes[..len], b"twice");
    }
    assert_eq!(stream(&server).recv(&mut bytes, false), Ok(None));
}

/// Goal: a sender that nobody reads from stops at the buffers, and goes on when the bytes are taken.
#[test]
fn sender_waits_for_the_receiver() {
    for device in DEVICES {
        let host = Host::new(device, Config::default());
        let [client, server] = host.pair();
        let bytes = pattern(1 << 20, 3);
        let mut sent = 0;
        while let Some(more) = stream(&client).send(&bytes[sent..]).expect("sent") {
            sent += more;
            stream(&server).poll().expect("polled");
        }
        assert!(sent >= 1 << 17, "{device:?}: {sent}");
        assert!(sent <= 1 << 18, "{device:?}: {sent}");
        stream(&client).poll().expect("polled");
        assert!(!stream(&client).is_writable(), "{device:?}");
        let reader = thread::spawn({
            let server = server.clone();
            move || recv_all(&server).expect("received")
        });
        send(&client, &bytes[sent..]).expect("sent");
        client.close(None);
        assert!(reader.join().expect("no panic") == bytes, "{device:?}");
    }
}

#[test]
fn connections_without_listener_are_refused() {
    for device in DEVICES {
        let host = Host::new(device, Config::default());
        let [client, server] = host.pair();
        host.listener.close(None);
        let late = Arc::new(Socket::new(host.config).expect("a socket"));
        host.service.connect(&late, None, host.port.addr()).expect("it begins");
        let refused = wait(&late, || late.connection().map(|stream| stream.map(drop)));
        assert!(matches!(refused, Err(Error::Unconnected(_) | Error::Rejected)), "{device:?}: {refused:?}");
        assert_eq!(late.phase(), Phase::Failed);
        send(&client, b"still").expect("sent");
        assert_eq!(recv(&server, &mut [0; 9]).expect("received"), 5, "{device:?}");
    }
}

/// Goal: a peer whose queue pair is gone without a word is noticed by both a reader that sleeps and a writer.
#[test]
fn lost_peer_resets_the_connection() {
    for device in DEVICES {
        let host = Host::new(device, Config::default());
        let [client, server] = host.pair();
        send(&client, b"last words").expect("sent");
        let reader = thread::spawn({
            let server = server.clone();
            move || {
                let mut bytes = [0; 20];
                (recv(&server, &mut bytes), recv(&server, &mut bytes), bytes)
            }
        });
        // Until they have been read, the end is not seen.
        while stream(&server).unread() > 0 {
            thread::yield_now();
        }
        drop(client);
        let (first, second, bytes) = reader.join().expect("no panic");
        assert_eq!((first, &bytes[..10]), (Ok(10), &b"last words"[..]), "{device:?}");
        assert_eq!(second, Err(Error::Reset), "{device:?}");
        assert_eq!(send(&server, b"anybody?"), Err(Error::Reset), "{device:?}");
        assert!(stream(&server).is_broken());
    }
}

#[test]
fn many_connections_share_a_device() {
    for device in DEVICES {
        let config = Config { send_buffer: 4096, recv_buffer: 4096, ..Config::default() };
        let host = Host::new(device, config);
        let pairs: Vec<_> = (0..60).map(|_| host.pair()).collect();
        for (number, [client, server]) in pairs.iter().enumerate() {
            send(client, &number.to_le_bytes()).expect("sent");
            let mut bytes = [0; 8];
            assert_eq!(recv(server, &mut bytes).expect("received"), 8);
            assert_eq!(usize::from_le_bytes(bytes), number, "{device:?}");
        }
        let peers: Vec<_> =
            pairs.iter().map(|[client, _]| client.local_addr().expect("an address")).collect();
        for (at, [client, server]) in pairs.iter().enumerate() {
            assert_eq!(client.peer_addr(), Some(host.port.addr()), "{device:?}");
            assert!(
                !peers[..at].contains(&peers[at]) || peers[at].port() == 0,
                "{device:?}: {:?}",
                peers[at]
            );
            assert!(server.peer_addr().is_some());
        }
    }
}
