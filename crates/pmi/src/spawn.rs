//! Spawn requests of ranks: written for either protocol, read from PMI-1.
//!
//! In PMI-1 each program is a group of lines, from `mcmd=spawn` to `endcmd`. Every line has one key and a value that extends to its
//! end, blanks included. Keys for the new job are repeated in all groups; a server reads them from the first.
//!
//! Such a value cannot be empty or have a newline, and servers disagree about a backslash. A server of this crate also accepts it
//! [encoded](crate::value::encode), under the key with a suffix, and announces this when a rank joins (`nicety_encoded`).

use crate::value::{
    KEY_LEN_MAX, TextError, VALUE_LEN_MAX, check_key, check_line, check_value, decode, encode,
};
use crate::wire::{COMMAND_LEN_MAX, Draft, Framing, MESSAGE_LEN_MAX, excerpt};
use std::collections::BTreeMap;
use thiserror::Error;

/// Maximum number of programs in a request.
pub const PROGRAMS_MAX: usize = 64;
/// Maximum bytes of a request, and the bytes counted for each of its lines in addition to its text.
pub const REQUEST_LEN_MAX: usize = 64 * 1024;
const LINE_COST: usize = 64;
/// Suffix of a key whose value is encoded.
const ENCODED: &str = "_encoded";
/// The key by which a server announces, with its limits, that it accepts encoded values.
pub(crate) const ACCEPTS_ENCODED: &str = "nicety_encoded";
/// The longest text that can be sent encoded, in bytes: its line is one message.
const ENCODED_LEN_MAX: usize = (MESSAGE_LEN_MAX - LINE_COST) / 2;

/// A program to start, and its number of processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// The file, looked up by the process manager.
    pub file: String,
    /// Number of processes, at least one.
    pub processes: u32,
    /// Arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Hints for the process manager, such as `wdir`.
    pub info: Vec<(String, String)>,
}

/// Programs that form one job, with the initial contents of its key-value space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spawn {
    /// Ranks are numbered consecutively across all programs, in this order.
    pub programs: Vec<Program>,
    /// Put before the first process starts.
    pub preput: Vec<(String, String)>,
}

/// Why a rank's own request is not sent.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpawnRequestError {
    /// No programs, or too many.
    #[error("{0} programs to spawn: between 1 and {PROGRAMS_MAX} are possible")]
    Programs(usize),
    /// A program without processes.
    #[error("no process of '{0}' is requested: request at least one, or leave the program out")]
    Processes(String),
    /// More than [`REQUEST_LEN_MAX`].
    #[error("the request to spawn has {0} bytes, {REQUEST_LEN_MAX} is the most: pass arguments in a file")]
    TooLong(usize),
    /// A text that not every server can carry.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Why a peer's request is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpawnParseError {
    /// A line that is no key and value, or a duplicate.
    #[error("in a request to spawn there is a line that cannot be used: '{0}'")]
    Line(String),
    /// More than [`REQUEST_LEN_MAX`].
    #[error("a request to spawn is longer than {REQUEST_LEN_MAX} bytes")]
    TooLong,
    /// A required key is missing or has an invalid value.
    #[error("in a request to spawn, {key} is missing or wrong: '{found}'")]
    Key {
        /// Its name.
        key: String,
        /// Its value, empty if it is missing.
        found: String,
    },
}

/// The encoding of a program's texts, as the server supports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextEncoding {
    /// In lines, without encoding: texts that PMI-1 cannot carry are refused.
    Lines,
    /// In lines; texts that PMI-1 cannot carry are encoded.
    Encoded,
    /// In packets.
    Packets,
}

impl TextEncoding {
    fn framing(self) -> Framing {
        if self == Self::Packets { Framing::Packets } else { Framing::Lines }
    }

    /// Checks that the server will read this text unchanged.
    fn check(self, what: &'static str, text: &str) -> Result<(), TextError> {
        if self != Self::Encoded {
            return check_line(what, text, COMMAND_LEN_MAX, self.framing());
        }
        let (len, max) = (text.len(), ENCODED_LEN_MAX);
        if len > max { Err(TextError::TooLong { what, len, max }) } else { Ok(()) }
    }

    /// Adds a line with a text that [`TextEncoding::check`] accepts.
    fn line(self, lines: &mut String, key: &str, text: &str) {
        if self == Self::Encoded && Self::Lines.check("text", text).is_err() {
            lines.extend([key, ENCODED, "=", &encode(text.as_bytes()), "\n"]);
        } else {
            lines.extend([key, "=", text, "\n"]);
        }
    }
}

impl Spawn {
    /// Checks that the server can read this request.
    fn check(&self, encoding: TextEncoding) -> Result<(), SpawnRequestError> {
        if self.programs.is_empty() || self.programs.len() > PROGRAMS_MAX {
            return Err(SpawnRequestError::Programs(self.programs.len()));
        }
        for program in &self.programs {
            if program.processes == 0 {
                return Err(SpawnRequestError::Processes(excerpt(&program.file)));
            }
            encoding.check("program", &program.file)?;
            for argument in &program.arguments {
                encoding.check("argument", argument)?;
            }
            for (key, value) in &program.info {
                check_key(key, COMMAND_LEN_MAX)?;
                encoding.check("hint", value)?;
            }
        }
        for (key, value) in &self.preput {
            check_key(key, KEY_LEN_MAX)?;
            check_value(value, VALUE_LEN_MAX)?;
        }
        Ok(())
    }

    /// The request in PMI-1, for a server that takes encoded values or not.
    pub(crate) fn to_lines(&self, can_decode: bool) -> Result<Vec<u8>, SpawnRequestError> {
        let encoding = if can_decode { TextEncoding::Encoded } else { TextEncoding::Lines };
        self.check(encoding)?;
        let mut text = String::new();
        for (index, program) in self.programs.iter().enumerate() {
            let mut line = |key: &str, value: &str| encoding.line(&mut text, key, value);
            line("mcmd", "spawn");
            line("nprocs", &program.processes.to_string());
            line("execname", &program.file);
            line("totspawns", &self.programs.len().to_string());
            line("spawnssofar", &(index + 1).to_string());
            line("argcnt", &program.arguments.len().to_string());
            for (number, argument) in (1..).zip(&program.arguments) {
                line(&format!("arg{number}"), argument);
            }
            for (what, pairs) in [("preput", &self.preput), ("info", &program.info)] {
                line(&format!("{what}_num"), &pairs.len().to_string());
                for (number, (key, text)) in pairs.iter().enumerate() {
                    line(&format!("{what}_key_{number}"), key);
                    line(&format!("{what}_val_{number}"), text);
                }
            }
            text.push_str("endcmd\n");
        }
        check_length(text.into_bytes())
    }

    /// The request in PMI-2.
    pub(crate) fn to_packet(&self) -> Result<Vec<u8>, SpawnRequestError> {
        self.check(TextEncoding::Packets)?;
        let mut draft = Draft::new(Framing::Packets, "spawn")
            .with("ncmds", self.programs.len())
            .with("preputcount", self.preput.len());
        for (number, (key, value)) in self.preput.iter().enumerate() {
            draft = draft.with(format!("ppkey{number}"), key).with(format!("ppval{number}"), value);
        }
        for program in &self.programs {
            draft = draft.with("subcmd", &program.file).with("maxprocs", program.processes);
            draft = draft.with("argc", program.arguments.len());
            for (number, argument) in program.arguments.iter().enumerate() {
                draft = draft.with(format!("argv{number}"), argument);
            }
            draft = draft.with("infokeycount", program.info.len());
            for (number, (key, value)) in program.info.iter().enumerate() {
                draft = draft.with(format!("infokey{number}"), key).with(format!("infoval{number}"), value);
            }
        }
        check_length(draft.finish())
    }
}

fn check_length(request: Vec<u8>) -> Result<Vec<u8>, SpawnRequestError> {
    if request.len() > REQUEST_LEN_MAX { Err(SpawnRequestError::TooLong(request.len())) } else { Ok(request) }
}

/// Collects a peer's request in PMI-1 until it is complete.
#[derive(Debug, Default)]
pub(crate) struct SpawnReader {
    /// The lines of the current program; `None` between two programs.
    lines: Option<BTreeMap<String, String>>,
    spawn: Spawn,
    cost: usize,
}

impl SpawnReader {
    /// Whether a line starts such a request.
    pub(crate) fn starts_request(line: &str) -> bool {
        line == "mcmd=spawn"
    }

    /// Takes the next line. Returns the request after its last line.
    pub(crate) fn line(&mut self, line: &str) -> Result<Option<Spawn>, SpawnParseError> {
        self.cost += line.len() + LINE_COST;
        if self.cost > REQUEST_LEN_MAX {
            return Err(SpawnParseError::TooLong);
        }
        let Some(lines) = &mut self.lines else {
            if !Self::starts_request(line) {
                return Err(SpawnParseError::Line(excerpt(line)));
            }
            self.lines = Some(BTreeMap::new());
            return Ok(None);
        };
        if line == "endcmd" {
            let program = ProgramLines(std::mem::take(lines));
            self.lines = None;
            return self.program(&program);
        }
        let wrong = || SpawnParseError::Line(excerpt(line));
        let (key, value) = line.split_once('=').filter(|_| !Self::starts_request(line)).ok_or_else(wrong)?;
        match lines.insert(key.to_owned(), value.to_owned()) {
            None => Ok(None),
            Some(_) => Err(wrong()),
        }
    }

    /// Adds a program. Returns the request after the last program.
    fn program(&mut self, lines: &ProgramLines) -> Result<Option<Spawn>, SpawnParseError> {
        let so_far = self.spawn.programs.len() + 1;
        let total = lines.number("totspawns", 1..=PROGRAMS_MAX)?;
        lines.number("spawnssofar", so_far..=so_far.min(total))?;
        if so_far == 1 {
            self.spawn.preput = lines.pairs("preput")?;
        }
        let arguments = lines.number("argcnt", 0..=REQUEST_LEN_MAX)?;
        let program = Program {
            file: lines.value("execname")?,
            processes: lines.number("nprocs", 1..=crate::mapping::RANKS_MAX as usize)? as u32,
            arguments: (1..=arguments)
                .map(|number| lines.value(&format!("arg{number}")))
                .collect::<Result<_, _>>()?,
            info: lines.pairs("info")?,
        };
        self.spawn.programs.push(program);
        Ok((so_far == total).then(|| std::mem::take(&mut self.spawn)))
    }
}

/// The lines of one program.
struct ProgramLines(BTreeMap<String, String>);

impl ProgramLines {
    fn key_error(&self, key: &str) -> SpawnParseError {
        SpawnParseError::Key {
            key: key.to_owned(),
            found: self.0.get(key).map_or_else(String::new, |text| excerpt(text)),
        }
    }

    fn text(&self, key: &str) -> Result<&str, SpawnParseError> {
        self.0.get(key).map(String::as_str).ok_or_else(|| self.key_error(key))
    }

    /// A value, which may be encoded.
    fn value(&self, key: &str) -> Result<String, SpawnParseError> {
        let encoded = format!("{key}{ENCODED}");
        match (self.0.get(key), self.0.get(&encoded)) {
            (Some(text), None) => Ok(text.clone()),
            (None, Some(text)) => {
                let text = decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                text.ok_or_else(|| self.key_error(&encoded))
            }
            _ => Err(self.key_error(key)),
        }
    }

    fn number(&self, key: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, SpawnParseError> {
        let number = self.text(key)?.parse().ok();
        number.filter(|number| range.contains(number)).ok_or_else(|| self.key_error(key))
    }

    /// Keys and values numbered from 0; if their count is missing, it is 0.
    fn pairs(&self, what: &str) -> Result<Vec<(String, String)>, SpawnParseError> {
        let count = format!("{what}_num");
        if !self.0.contains_key(&count) {
            return Ok(Vec::new());
        }
        let pair = |number: usize| {
            let text = |part: &str| self.value(&format!("{what}_{part}_{number}"));
            Ok((text("key")?, text("val")?))
        };
        (0..self.number(&count, 0..=REQUEST_LEN_MAX)?).map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Spawn {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let first = Program {
            file: "/bin/a".into(),
            processes: 2,
            arguments: vec!["x y".into(), "-n=1".into()],
            info: vec![pair("wdir", "/tmp")],
        };
        let second = Program { file: "b".into(), processes: 1, ..Program::default() };
        Spawn { programs: vec![first, second], preput: vec![pair("PARENT_ROOT_PORT_NAME", "tag#0$x")] }
    }

    const LINES: &str = "mcmd=spawn\nnprocs=2\nexecname=/bin/a\ntotspawns=2\nspawnssofar=1\nargcnt=2\narg1=x y\n\
        arg2=-n=1\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0$x\ninfo_num=1\ninfo_key_0=wdir\n\
        info_val_0=/tmp\nendcmd\nmcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nargcnt=0\npreput_num=1\n\
        preput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0$x\ninfo_num=0\nendcmd\n";

    fn read(lines: &str) -> Result<Option<Spawn>, SpawnParseError> {
        let mut reader = SpawnReader::default();
        for line in lines.lines() {
            if let Some(spawn) = reader.line(line)? {
                return Ok(Some(spawn));
            }
        }
        Ok(None)
    }

    #[test]
    fn requests_in_lines_are_written_and_read() {
        assert_eq!(
            request().to_lines(false).map(|bytes| String::from_utf8(bytes).expect("text")),
            Ok(LINES.into())
        );
        assert_eq!(read(LINES), Ok(Some(request())));
    }

    /// Goal: a server of this crate reads every text unchanged, and texts that PMI-1 can carry are written without encoding.
    #[test]
    fn texts_that_pmi_1_cannot_carry_are_encoded() {
        let mut spawn = request();
        let texts = ["", "a\nendcmd", "\\", "\u{e4}\u{1f30d}", "xff", "arg1_encoded=x", "two words"];
        spawn.programs[0].arguments = texts.map(str::to_owned).into();
        spawn.programs[0].arguments.push("\\".repeat(ENCODED_LEN_MAX));
        spawn.programs[1].file = "a\\b".into();
        spawn.programs[0].info[0].1 = String::new();
        let lines = String::from_utf8(spawn.to_lines(true).expect("encoded")).expect("text");
        assert!(lines.contains("\narg1_encoded=x\narg2_encoded=x610a656e64636d64\n"), "{lines}");
        assert!(lines.contains("\narg5=xff\n") && lines.contains("\narg7=two words\n"), "{lines}");
        assert!(lines.lines().all(|line| line.len() <= MESSAGE_LEN_MAX));
        assert_eq!(read(&lines), Ok(Some(spawn.clone())));
        assert_eq!(request().to_lines(true), request().to_lines(false));
        spawn.programs[0].arguments[7].push('a');
        assert!(matches!(spawn.to_lines(true), Err(SpawnRequestError::Text(TextError::TooLong { .. }))));
    }

    #[test]
    fn malformed_encoded_texts_are_refused() {
        for wrong in [
            "arg1_encoded=",
            "arg1_encoded=y",
            "arg1_encoded=x6",
            "arg1_encoded=xff",
            "arg1=a\narg1_encoded=x",
        ] {
            assert!(
                matches!(read(&LINES.replace("arg1=x y", wrong)), Err(SpawnParseError::Key { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_request_in_a_packet() {
        let packet = request().to_packet().map(|bytes| String::from_utf8(bytes).expect("text"));
        let text = "cmd=spawn;ncmds=2;preputcount=1;ppkey0=PARENT_ROOT_PORT_NAME;ppval0=tag#0$x;subcmd=/bin/a;maxprocs=2;\
                    argc=2;argv0=x y;argv1=-n=1;infokeycount=1;infokey0=wdir;infoval0=/tmp;subcmd=b;maxprocs=1;argc=0;\
                    infokeycount=0;";
        assert_eq!(packet, Ok(format!("{:6}{text}", text.len())));
    }

    #[test]
    fn requests_that_a_server_would_misread_are_refused() {
        let with = |change: fn(&mut Spawn)| {
            let mut spawn = request();
            change(&mut spawn);
            assert_eq!(spawn.to_packet().err(), spawn.to_lines(false).err());
            spawn.to_lines(false).err()
        };
        assert_eq!(with(|spawn| spawn.programs.clear()), Some(SpawnRequestError::Programs(0)));
        assert_eq!(
            with(|spawn| spawn.programs.resize(65, request().programs[0].clone())),
            Some(SpawnRequestError::Programs(65))
        );
        assert_eq!(
            with(|spawn| spawn.programs[1].processes = 0),
            Some(SpawnRequestError::Processes("b".into()))
        );
        for (wrong, in_lines) in [("a\nendcmd", true), ("a\\b", true), ("", true), ("a;b", false)] {
            let mut spawn = request();
            spawn.programs[0].arguments[0] = wrong.into();
            assert_eq!(
                matches!(spawn.to_lines(false), Err(SpawnRequestError::Text(_))),
                in_lines,
                "{wrong:?}"
            );
            assert!(matches!(spawn.to_packet(), Err(SpawnRequestError::Text(_))), "{wrong:?}");
        }
        let long = |spawn: &mut Spawn| spawn.programs[0].arguments = vec!["a".repeat(1000); 70];
        let mut spawn = request();
        long(&mut spawn);
        assert!(matches!(spawn.to_lines(false), Err(SpawnRequestError::TooLong(_))));
        assert!(matches!(spawn.to_packet(), Err(SpawnRequestError::TooLong(_))));
    }

    /// Goal: an incomplete or invalid request starts nothing. Method: each line left out, duplicated, or with another value.
    #[test]
    fn damaged_requests_are_refused() {
        let lines: Vec<&str> = LINES.lines().collect();
        for at in 0..lines.len() {
            // Without the count, there are no hints and no puts.
            let without = [&lines[..at], &lines[at + 1..]].concat().join("\n");
            let is_count = lines[at].starts_with("info_num") || lines[at].starts_with("preput_num");
            let is_second = lines[at].contains("preput") && at > lines.len() / 2;
            if !is_count && !is_second {
                assert!(!matches!(read(&without), Ok(Some(_))), "without {:?}", lines[at]);
            }
            let twice = [&lines[..=at], &lines[at..]].concat().join("\n");
            if at + 1 < lines.len() {
                assert!(!matches!(read(&twice), Ok(Some(_))), "twice {:?}", lines[at]);
            }
        }
        for (old, new) in [
            ("nprocs=2", "nprocs=0"),
            ("nprocs=2", "nprocs=-1"),
            ("nprocs=2", "nprocs=1048577"),
            ("totspawns=2", "totspawns=0"),
            ("totspawns=2", "totspawns=65"),
            ("spawnssofar=2", "spawnssofar=1"),
            ("spawnssofar=1", "spawnssofar=2"),
            ("argcnt=2", "argcnt=3"),
            ("argcnt=2", "argcnt=99999999999999999999"),
            ("info_num=1", "info_num=2"),
        ] {
            assert!(matches!(read(&LINES.replace(old, new)), Err(SpawnParseError::Key { .. })), "{new}");
        }
    }

    #[test]
    fn a_request_has_a_length_limit() {
        let mut reader = SpawnReader::default();
        assert_eq!(reader.line("mcmd=spawn"), Ok(None));
        let most = REQUEST_LEN_MAX / (LINE_COST + 10);
        let refused = (0..2 * most).position(|number| reader.line(&format!("arg{number:05}=x")) != Ok(None));
        assert!(refused.is_some_and(|at| (most - 1..=most).contains(&at)), "{refused:?} of {most}");
    }
}
