//! Writes the output of ranks in whole lines, each with a tag if requested.
//!
//! An unfinished line is held back until it is complete, or until its rank's stream ends. On a terminal, where it may be a
//! prompt, it is shown after 100 ms; output of another rank then begins on a new line.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

/// Longer lines are split, in bytes.
const LINE_MAX: usize = 64 << 10;
/// Bytes queued for a slow reader above which no more output is read from ranks.
const QUEUE_MAX: usize = 256 << 10;
/// Size of a write in bytes: a pipe reported as writable takes this much without blocking (PIPE_BUF).
const PIECE: usize = 4096;
/// How long an unfinished line is held back on a terminal.
const HOLD_TIME: Duration = Duration::from_millis(100);

/// Standard output or standard error of mpirun.
#[derive(Debug)]
pub(super) struct Printer<W> {
    to: W,
    /// Whether each line begins with the tag of its rank, such as `[3] `.
    is_tagged: bool,
    is_terminal: bool,
    /// Unfinished lines by rank, and when they arrived.
    held: BTreeMap<u32, (Vec<u8>, Instant)>,
    /// The rank whose unfinished line was written last.
    open: Option<u32>,
    out: Vec<u8>,
    /// Whether a write has failed: further output is dropped.
    is_lost: bool,
}

impl<W: Write> Printer<W> {
    pub(super) fn new(to: W, is_tagged: bool, is_terminal: bool) -> Self {
        Self {
            to,
            is_tagged,
            is_terminal,
            held: BTreeMap::new(),
            open: None,
            out: Vec::new(),
            is_lost: false,
        }
    }

    /// Accepts output of a rank; an empty slice is the end of its stream.
    pub(super) fn add_output(&mut self, rank: u32, tag: &str, bytes: &[u8], now: Instant) {
        let (mut line, since) = self.held.remove(&rank).unwrap_or((Vec::new(), now));
        if bytes.is_empty() {
            if !line.is_empty() {
                self.write(rank, tag, &line);
            }
            return;
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at(whole);
        if !lines.is_empty() {
            line.extend_from_slice(lines);
            self.write(rank, tag, &line);
            line.clear();
        }
        line.extend_from_slice(rest);
        while line.len() >= LINE_MAX {
            let rest = line.split_off(LINE_MAX);
            self.write(rank, tag, &line);
            line = rest;
        }
        if !line.is_empty() {
            self.held.insert(rank, (line, if lines.is_empty() { since } else { now }));
        }
    }

    /// Queues lines for writing; the last may be unfinished.
    fn write(&mut self, rank: u32, tag: &str, lines: &[u8]) {
        if self.is_lost {
            return;
        }
        if self.open.is_some_and(|open| open != rank) {
            self.out.push(b'\n');
            self.open = None;
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if self.is_tagged && self.open.is_none() {
                self.out.extend_from_slice(tag.as_bytes());
            }
            self.out.extend_from_slice(line);
            self.open = (!line.ends_with(b"\n")).then_some(rank);
        }
    }

    /// Queues a line of mpirun itself.
    pub(super) fn remark(&mut self, line: &str) {
        if self.is_lost {
            return;
        }
        if self.open.take().is_some() {
            self.out.push(b'\n');
        }
        self.out.extend_from_slice(line.as_bytes());
    }

    /// The next time at which [`Self::flush_held`] has to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let oldest = self.held.values().map(|(_, since)| *since).min();
        oldest.filter(|_| self.is_terminal).map(|since| since + HOLD_TIME)
    }

    /// Queues unfinished lines that have waited long enough.
    pub(super) fn flush_held(&mut self, now: Instant, tag: impl Fn(u32) -> String) {
        if self.deadline().is_none_or(|at| now < at) {
            return;
        }
        for (rank, (line, since)) in std::mem::take(&mut self.held) {
            if since + HOLD_TIME <= now {
                self.write(rank, &tag(rank), &line);
            } else {
                self.held.insert(rank, (line, since));
            }
        }
    }

    /// Whether more output of ranks may be read; a slow reader of mpirun's output thus slows down the ranks.
    pub(super) fn has_room(&self) -> bool {
        self.out.len() < QUEUE_MAX
    }

    /// Whether anything waits to be written.
    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Writes once, at most what a writable pipe takes without blocking.
    ///
    /// # Errors
    /// The system's error, returned once: the reader has gone, or there is no space left.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let n = self.out.len().min(PIECE);
        match self.to.write(&self.out[..n]).and_then(|n| self.to.flush().map(|()| n)) {
            Ok(n) => drop(self.out.drain(..n)),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(why) => {
                // The stream is unusable from now on.
                self.out.clear();
                self.is_lost = true;
                return Err(why);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestPrinter {
        printer: Printer<Vec<u8>>,
        began: Instant,
    }

    impl TestPrinter {
        fn new(is_tagged: bool, is_terminal: bool) -> Self {
            Self { printer: Printer::new(Vec::new(), is_tagged, is_terminal), began: Instant::now() }
        }

        /// A rank writes this many milliseconds after the start.
        fn write_at(&mut self, ms: u64, rank: u32, text: &str) -> &mut Self {
            let now = self.began + Duration::from_millis(ms);
            self.printer.flush_held(now, tag);
            self.printer.add_output(rank, &tag(rank), text.as_bytes(), now);
            self
        }

        fn text(&mut self) -> String {
            while self.printer.has_output() {
                self.printer.flush().expect("writes to memory succeed");
            }
            String::from_utf8(self.printer.to.clone()).expect("text")
        }
    }

    fn tag(rank: u32) -> String {
        format!("[{rank}] ")
    }

    #[test]
    fn lines_of_ranks_are_not_mixed() {
        let mut printer_test = TestPrinter::new(false, false);
        printer_test
            .write_at(0, 0, "a")
            .write_at(0, 1, "x\ny")
            .write_at(900, 0, "b\nc")
            .write_at(900, 1, "z\n")
            .write_at(900, 0, "")
            .write_at(900, 1, "");
        assert_eq!(printer_test.text(), "x\nab\nyz\nc");
        let mut tagged = TestPrinter::new(true, false);
        tagged
            .write_at(0, 0, "a")
            .write_at(0, 1, "x\ny")
            .write_at(0, 0, "b\n")
            .write_at(0, 1, "")
            .write_at(0, 0, "end\n");
        assert_eq!(tagged.text(), "[1] x\n[0] ab\n[1] y\n[0] end\n");
    }

    #[test]
    fn a_question_is_shown_on_a_terminal() {
        let mut printer_test = TestPrinter::new(true, true);
        printer_test.write_at(0, 0, "how many? ").write_at(50, 1, "x\n");
        assert_eq!(printer_test.text(), "[1] x\n");
        assert_eq!(printer_test.printer.deadline(), Some(printer_test.began + HOLD_TIME));
        printer_test
            .write_at(100, 0, "3\n")
            .write_at(200, 0, "?")
            .write_at(301, 1, "y\n")
            .write_at(301, 0, "\n");
        assert_eq!(printer_test.text(), "[1] x\n[0] how many? 3\n[0] ?\n[1] y\n[0] \n");
    }

    #[test]
    fn long_lines_are_cut_and_nothing_is_lost() {
        let mut printer_test = TestPrinter::new(false, false);
        let long = "a".repeat(LINE_MAX * 2 + 5);
        printer_test.write_at(0, 0, &long);
        assert_eq!(printer_test.printer.out.len(), 2 * LINE_MAX);
        printer_test.write_at(0, 0, "\n");
        assert_eq!(printer_test.text(), long + "\n");
    }

    #[test]
    fn closed_reader_is_an_error() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut printer = Printer::new(Broken, false, false);
        printer.add_output(0, "", b"x\n", Instant::now());
        assert_eq!(printer.flush().map_err(|why| why.kind()), Err(ErrorKind::BrokenPipe));
        printer.add_output(0, "", b"y\n", Instant::now());
        printer.remark("z\n");
        assert!(!printer.has_output(), "an error is reported once");
    }
}
