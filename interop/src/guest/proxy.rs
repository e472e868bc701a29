//! A proxy for one connection that flips, holds back or adds bytes.

use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How long a connection may take to arrive, and either end may be silent.
const LIMIT: Duration = Duration::from_secs(60);
/// An MPA handshake frame without its private data (RFC 5044 section 7.1).
const FRAME_LEN: usize = 20;
/// The longest FPDU: length, ULPDU, padding, CRC.
const FPDU_MAX: usize = 2 + 65_535 + 3 + 4;

/// The stream that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// From the side that connected.
    Forth,
    /// From the side that accepted.
    Back,
}

/// A change to the forwarded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Flips a bit of the last byte of the first ULPDU that has at least `ulpdu_min` bytes.
    Flip { ulpdu_min: usize },
    /// Appends bytes to the handshake frame, in the same write.
    Add { bytes: &'static [u8] },
    /// Holds the handshake frame until the first FPDU, and sends both in one write.
    Hold,
}

/// Listens on a new port, and forwards one connection to `target` on 127.0.0.1. Ends when either end does.
pub(crate) fn start(target: u16, stream: Stream, damage: Damage) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    listener.set_nonblocking(true)?;
    // If one end aborts the connection, the other end must notice.
    thread::spawn(move || drop(forward_connection(&listener, target, stream, damage)));
    Ok(port)
}

fn forward_connection(listener: &TcpListener, target: u16, stream: Stream, damage: Damage) -> Result<()> {
    let began = Instant::now();
    let near = loop {
        match listener.accept() {
            Ok((near, _)) => break near,
            Err(error) if error.kind() == ErrorKind::WouldBlock && began.elapsed() < LIMIT => {
                sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    };
    near.set_nonblocking(false)?;
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    for end in [&near, &far] {
        end.set_read_timeout(Some(LIMIT))?;
        end.set_nodelay(true)?;
    }
    let of = |this: Stream| (this == stream).then_some(damage);
    let (forth, back) = (of(Stream::Forth), of(Stream::Back));
    let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
    let other = thread::spawn(move || forward(far_too, near_too, back));
    forward(near, far, forth);
    let _ = other.join();
    Ok(())
}

/// Forwards bytes until the sending end closes.
fn forward(mut from: TcpStream, mut to: TcpStream, damage: Option<Damage>) {
    let done = match damage {
        Some(damage) => apply_damage(&mut from, &mut to, damage),
        None => Ok(()),
    };
    if done.is_ok() {
        let _ = std::io::copy(&mut from, &mut to);
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn apply_damage(from: &mut impl Read, to: &mut impl Write, damage: Damage) -> Result<()> {
    let mut frame = read_frame(from)?;
    match damage {
        Damage::Add { bytes } => frame.extend_from_slice(bytes),
        Damage::Hold => frame.extend(read_fpdu(from)?),
        Damage::Flip { ulpdu_min } => {
            to.write_all(&frame)?;
            frame = loop {
                let mut fpdu = read_fpdu(from)?;
                let len = ulpdu_len(&fpdu);
                if len >= ulpdu_min {
                    fpdu[2 + len - 1] ^= 1;
                    break fpdu;
                }
                to.write_all(&fpdu)?;
            };
        }
    }
    Ok(to.write_all(&frame)?)
}

fn read_frame(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut frame = vec![0; FRAME_LEN];
    from.read_exact(&mut frame).context("no frame")?;
    if !frame.starts_with(b"MPA ID Re") {
        bail!("this is no frame of the handshake");
    }
    let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    frame.resize(FRAME_LEN + len, 0);
    from.read_exact(&mut frame[FRAME_LEN..])?;
    Ok(frame)
}

fn ulpdu_len(fpdu: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]))
}

fn read_fpdu(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut fpdu = vec![0; 2];
    from.read_exact(&mut fpdu).context("no FPDU")?;
    let len = (2 + ulpdu_len(&fpdu)).next_multiple_of(4) + 4;
    debug_assert!(len <= FPDU_MAX);
    fpdu.resize(len, 0);
    from.read_exact(&mut fpdu[2..])?;
    Ok(fpdu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut bytes = b"MPA ID Rep Frame\x10\x02\x00\x04ABCD".to_vec();
        bytes.extend([0, 3, 1, 2, 3, 0, 0, 0, 9, 9, 9, 9]);
        bytes.extend([0, 6, 1, 2, 3, 4, 5, 6, 8, 8, 8, 8]);
        bytes
    }

    fn after(damage: Damage) -> (Vec<u8>, usize) {
        let (bytes, mut out) = (stream(), Vec::new());
        let mut rest = bytes.as_slice();
        apply_damage(&mut rest, &mut out, damage).expect("a whole stream");
        (out, rest.len())
    }

    #[test]
    fn one_bit_of_the_right_fpdu_is_flipped() {
        let (out, left) = after(Damage::Flip { ulpdu_min: 5 });
        let differing: Vec<usize> = (0..out.len()).filter(|&at| out[at] != stream()[at]).collect();
        assert_eq!((differing, left, out[43]), (vec![43], 0, 7));
    }

    #[test]
    fn frames_are_held_and_lengthened() {
        assert_eq!(after(Damage::Hold), (stream()[..36].to_vec(), 12));
        let (out, left) = after(Damage::Add { bytes: b"xy" });
        assert_eq!((&out[24..], left), (&b"xy"[..], 24));
    }
}
