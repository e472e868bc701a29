//! Captures packets on the wire, and lets tshark check every FPDU that we sent.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::{Finished, Running};

const LIMIT: Duration = Duration::from_secs(120);
/// What some versions of tshark report for every frame of revision 2: they take its bits for reserved ones.
const EXPECTED: &[&str] =
    &["Rev field not set to 1", "Res field not set to 0", "Revision is not", "Reserved is not"];

/// Our side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// We connect to the port.
    To,
    /// We listen on the port.
    From,
}

/// A running capture.
pub(crate) struct Capture {
    dumpcap: Running,
    port: u16,
    file: PathBuf,
}

/// The results of tshark.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Our handshake frames, and our FPDUs.
    frames: usize,
    fpdus: usize,
    crc_good: usize,
    /// Bytes that we sent, and the part covered by the frames and FPDUs above.
    sent: u64,
    covered: u64,
    /// Complaints of tshark about what we sent, except the expected ones.
    odd: Vec<String>,
    /// Terminate messages that we sent, as tshark describes them.
    pub(crate) terminates: Vec<String>,
}

impl Capture {
    /// Starts the capture, and waits until packets are seen.
    pub(crate) fn begin(port: u16, file: &Path) -> Result<Self> {
        let mut dumpcap = Command::new("dumpcap");
        dumpcap
            .args(["-q", "-i", "lo", "-B", "64", "-s", "262144", "-f", &format!("tcp port {port}"), "-w"])
            .arg(file);
        let mut dumpcap = Running::start(&mut dumpcap, &file.with_extension("dumpcap"))?;
        ensure!(dumpcap.wait_for_output("File: ", LIMIT)?, "dumpcap does not begin: {}", dumpcap.output()?);
        Ok(Self { dumpcap, port, file: file.to_owned() })
    }

    /// Ends the capture, and evaluates it with tshark.
    pub(crate) fn judge(self, ours: Direction) -> Result<Judgement> {
        // The last bytes reach dumpcap within the time-out of its buffer.
        std::thread::sleep(Duration::from_millis(300));
        let Finished { status, output } = self.dumpcap.interrupt(LIMIT)?;
        ensure!(status.is_some_and(|status| status.success()), "dumpcap: {output}");
        let mut tshark = Command::new("tshark");
        // Two passes, so that tshark knows about lost and reordered packets; only frames with data, iWARP in full.
        tshark.arg("-r").arg(&self.file).args([
            "-2",
            "-Y",
            "tcp.len > 0",
            "-V",
            "-O",
            "iwarp_mpa,iwarp_ddp_rdmap",
        ]);
        // Other dissectors would claim the contents of messages.
        for other in ["smb_direct", "rpcordma", "data"] {
            tshark.args(["--disable-protocol", other]);
        }
        let log = self.file.with_extension("tshark");
        let finished = Running::start(&mut tshark, &log)?.finish(LIMIT)?;
        ensure!(finished.is_good(), "tshark: {}", finished.output);
        judge(&finished.output, self.port, ours).with_context(|| format!("{}", self.file.display()))
    }
}

impl Judgement {
    /// The result as a sentence; an error if there is any complaint.
    pub(crate) fn verdict(&self, crc: bool) -> Result<String> {
        let Self { frames, fpdus, crc_good, sent, covered, odd, .. } = self;
        ensure!(odd.is_empty(), "tshark reports errors in our frames: {}", odd.join("; "));
        ensure!(*frames > 0 && *fpdus > 0, "tshark sees {frames} MPA frames and {fpdus} FPDUs of ours");
        ensure!(sent == covered, "tshark makes sense of {covered} bytes of the {sent} that we sent");
        ensure!(!crc || crc_good == fpdus, "{crc_good} of our {fpdus} FPDUs have a good CRC");
        let checked = if crc { ", every CRC good" } else { "" };
        Ok(format!("tshark: {fpdus} FPDUs of ours{checked}"))
    }
}

/// The number right after `mark`.
fn number(line: &str, mark: &str) -> Option<u64> {
    let rest = &line[line.find(mark)? + mark.len()..];
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Parses tshark's output: a packet begins with a line for TCP; its contents are indented below lines for iWARP.
fn judge(text: &str, port: u16, side: Direction) -> Result<Judgement> {
    let mut found = Judgement::default();
    // The highest byte sent on each connection, identified by its ports; retransmissions do not count.
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    let mut ours = false;
    let mut terminate: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if line.starts_with("Transmission Control Protocol") {
            let ports = (number(line, "Src Port: "), number(line, "Dst Port: "));
            let (Some(from), Some(to)) = ports else { bail!("tshark names no ports: {line}") };
            let (Some(seq), Some(len)) = (number(line, "Seq: "), number(line, "Len: ")) else {
                bail!("tshark names no sequence: {line}")
            };
            ours = (side == Direction::To && to == u64::from(port))
                || (side == Direction::From && from == u64::from(port));
            if ours {
                let end = ends.entry(from * 65_536 + to).or_default();
                *end = (*end).max(seq + len - 1);
            }
            continue;
        }
        if !ours {
            continue;
        }
        if !line.starts_with(' ') {
            found.terminates.extend(terminate.take());
        }
        if trimmed.starts_with("ULPDU length: ") {
            let len = number(trimmed, "ULPDU length: ").context("no length")?;
            found.fpdus += 1;
            found.covered += (2 + len).next_multiple_of(4) + 4;
        } else if trimmed.starts_with("Private data length: ") {
            found.frames += 1;
            found.covered += 20 + number(trimmed, "length: ").context("no length")?;
        } else if trimmed.starts_with("CRC check: ") {
            match trimmed.contains("(Good") {
                true => found.crc_good += 1,
                false => found.odd.push(trimmed.to_owned()),
            }
        } else if trimmed.contains("OpCode: Terminate") {
            terminate = Some(String::new());
        } else if line.starts_with("[Malformed") || trimmed.starts_with("[Expert Info") {
            if !EXPECTED.iter().any(|expected| trimmed.contains(expected)) {
                found.odd.push(trimmed.to_owned());
            }
        } else if let Some(words) = &mut terminate
            && ["Layer: ", "Error Types", "Error Code"].iter().any(|mark| trimmed.contains(mark))
        {
            let value = trimmed.rsplit(": ").next().unwrap_or(trimmed);
            words.push_str(if words.is_empty() { "" } else { ", " });
            words.push_str(value);
        }
    }
    found.terminates.extend(terminate);
    found.sent = ends.values().sum();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Frame 1: 90 bytes on wire
Transmission Control Protocol, Src Port: 5000, Dst Port: 7000, Seq: 1, Ack: 1, Len: 24
iWARP Marker Protocol data unit Aligned framing
    Request frame header
        Private data length: 4 bytes
Transmission Control Protocol, Src Port: 7000, Dst Port: 5000, Seq: 1, Ack: 1, Len: 24
        CRC check: 0x1 (Bad CRC32, should be 0x2)
Transmission Control Protocol, Src Port: 5000, Dst Port: 7000, Seq: 25, Ack: 1, Len: 28
        ULPDU length: 22 bytes
        CRC check: 0x1 (Good CRC32)
            .... 0111 = OpCode: Terminate (0x7)
                0010 .... = Layer: LLP (0x2)
                .... 0000 = Error Types for LLP layer: MPA Error (0x0)
                Error Code for LLP layer: MPA CRC Error (0x02)
Transmission Control Protocol, Src Port: 5000, Dst Port: 7000, Seq: 25, Ack: 1, Len: 28
";

    #[test]
    fn our_frames_are_counted_once() {
        let found = judge(TEXT, 7000, Direction::To).expect("well-formed");
        assert_eq!((found.frames, found.fpdus, found.crc_good), (1, 1, 1));
        assert_eq!((found.sent, found.covered), (52, 52));
        assert_eq!(found.terminates, ["LLP (0x2), MPA Error (0x0), MPA CRC Error (0x02)"]);
        assert!(found.verdict(true).is_ok());
    }

    #[test]
    fn complaint_of_tshark_is_an_error() {
        let theirs = judge(TEXT, 7000, Direction::From).expect("well-formed");
        assert!(theirs.verdict(true).expect_err("a bad CRC").to_string().contains("Bad CRC32"));
        let cut = TEXT.replace("        ULPDU length: 22 bytes\n", "");
        let cut = judge(&cut, 7000, Direction::To).expect("well-formed");
        assert!(cut.verdict(false).is_err(), "bytes that are no FPDU");
        let odd = format!("{TEXT}iWARP\n    [Expert Info (Warning/Protocol): odd]\n");
        let odd = judge(&odd, 7000, Direction::To).expect("well-formed");
        assert!(odd.verdict(true).expect_err("an error reported by tshark").to_string().contains("odd"));
    }
}
