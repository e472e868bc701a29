//! Raw TCP: spinning ping-pongs, and the fastest of several ways to stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use super::process::{BenchProcess, LARGE, LARGES};

/// Socket buffer sizes to try, in bytes; 0 for the kernel's default.
const BUFFERS: [usize; 4] = [0, 512 << 10, 2 << 20, 4 << 20];
/// Bytes per call.
const CHUNKS: [usize; 4] = [64 << 10, 128 << 10, 256 << 10, 1 << 20];
/// Number of fastest variants of the first test to repeat in every round.
pub(crate) const KEPT: usize = 3;

/// A variant of streaming.
#[derive(Clone, Copy)]
pub(crate) struct Streaming {
    socket: usize,
    chunk: usize,
    /// Whether the receiver spins instead of sleeping until data arrives.
    spins: bool,
}

/// Accepts one socket for each size of [`BUFFERS`].
pub(crate) fn accept(listener: &TcpListener) -> Vec<TcpStream> {
    BUFFERS.iter().map(|&len| prepare(listener.accept().expect("the other side").0, len)).collect()
}

/// Connects one socket for each size of [`BUFFERS`].
pub(crate) fn connect(addr: std::net::SocketAddr) -> Vec<TcpStream> {
    BUFFERS.iter().map(|&len| prepare(TcpStream::connect(addr).expect("the other side"), len)).collect()
}

fn prepare(socket: TcpStream, buffer: usize) -> TcpStream {
    socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true)).expect("options");
    if buffer > 0 {
        set_socket_send_buffer_size(&socket, buffer).expect("an option");
        set_socket_recv_buffer_size(&socket, buffer).expect("an option");
    }
    socket
}

fn write(mut socket: &TcpStream, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match socket.write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
}

fn read(mut socket: &TcpStream, bytes: &mut [u8]) {
    let mut got = 0;
    while got < bytes.len() {
        match socket.read(&mut bytes[got..]) {
            Ok(0) => panic!("the other side is gone"),
            Ok(n) => got += n,
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
}

impl BenchProcess {
    /// One-way time of 8 bytes in microseconds.
    pub(crate) fn raw_pings(&mut self) -> f64 {
        self.one_way_time(
            |side, turn| write(&side.raws[0], &turn.to_le_bytes()),
            |side, _| read(&side.raws[0], &mut [0; 8]),
        )
    }

    /// The fastest streaming variants on this machine.
    pub(crate) fn best_raw_streams(&mut self) -> Vec<Streaming> {
        let mut found = Vec::new();
        for socket in 0..BUFFERS.len() {
            for chunk in CHUNKS {
                for spins in [false, true] {
                    let way = Streaming { socket, chunk, spins };
                    let rate = (0..3).map(|_| self.raw_stream_once(way)).fold(0.0, f64::max);
                    // The client decides for both.
                    let rate = if self.client { rate } else { 0.0 };
                    let theirs = f64::from_le_bytes(self.exchange(rate.to_le_bytes()));
                    found.push((rate.max(theirs), way));
                }
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        if self.client {
            for (rate, way) in &found[..KEPT] {
                let (buffer, reading) =
                    (BUFFERS[way.socket], if way.spins { "spinning" } else { "sleeping" });
                println!(
                    "raw stream: buffers {buffer}, {} a call, {reading} reader: {rate:.3} GB/s",
                    way.chunk
                );
            }
        }
        found[..KEPT].iter().map(|&(_, way)| way).collect()
    }

    /// The best rate of `ways` in GB/s.
    pub(crate) fn raw_stream(&mut self, ways: &[Streaming]) -> f64 {
        ways.iter().map(|&way| self.raw_stream_once(way)).fold(0.0, f64::max)
    }

    fn raw_stream_once(&mut self, way: Streaming) -> f64 {
        let socket = self.raws[way.socket].try_clone().expect("a descriptor");
        socket.set_nonblocking(way.spins).expect("an option");
        let mut bytes = std::mem::take(&mut self.bytes);
        self.exchange([0]);
        let began = self.host.now();
        for _ in 0..LARGES {
            for chunk in bytes.chunks_mut(way.chunk) {
                if self.client { write(&socket, chunk) } else { read(&socket, chunk) }
            }
        }
        if self.client {
            read(&socket, &mut [0])
        } else {
            write(&socket, &[0])
        }
        let span = self.host.now() - began;
        self.bytes = bytes;
        socket.set_nonblocking(true).expect("an option");
        (LARGES * u64::from(LARGE)) as f64 / span.as_ns_f64()
    }
}
