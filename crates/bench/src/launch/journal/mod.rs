//! [`Journal`]: the measurements of a plan file, stored next to it, so that an interruption loses only what was in
//! progress.
//!
//! JSON lines, appended as cells are measured: a head that says which machine and which program, a line for each time it
//! was opened, one for each cell of each launch, and what the surroundings of each part were. A cell is known by everything that its value depends on: the part's
//! name, device, peers, cores, factors, size, settings; so a plan may be changed, and what still belongs to it is not
//! measured again. How long it is sampled is no part of that.
//!
//! A line that was cut off by a crash is dropped; the file is locked while it is written to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use verbs::host::Bytes;
use verbs::host::bounded;

use crate::experiment::{Cell, Settings};
use crate::launch::sample::Sample;
use crate::machine;
use crate::plan::CheckedPlan;
use results::plain::{self, Numbers};
use results::schema::Environment;

/// Kind and version of the file.
const KIND: &str = "nicety-journal/1";
/// Bytes of a line, and of the file, at most.
const LINE_MAX: u64 = 64 << 20;
const FILE_MAX: u64 = 4 << 30;
/// Lines `opened` and `surroundings` at most: each is kept, where one of `measured` replaces the one before it.
const OPENINGS_MAX: usize = 1 << 18;
/// Bytes of this program at most.
const PROGRAM_MAX: u64 = 1 << 30;

/// The machine and the program that measure; results of different ones are not mixed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Who {
    host: String,
    kernel: String,
    cpu: String,
    cores: u32,
    program: String,
}

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    /// The first.
    Head { kind: String, who: Who },
    /// It was opened, and what the plan's text was.
    Opened { date: String, text: String },
    /// A cell was measured in a launch.
    Measured { cell: String, launch: u32, sample: Box<Sample> },
    /// A cell cannot be measured at all.
    Never { cell: String, why: String },
    /// The environment in which a part was measured since the journal was opened, as far as known yet; the last entry
    /// counts.
    Surroundings { part: Option<String>, environment: Box<Environment> },
}

/// Why what was measured cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The system says no.
    #[error("cannot keep what is measured in {path}: {why}; free space, or put the plan where files can be written", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Another process has it.
    #[error("{path} is in use: this plan is being measured already; wait for that, or copy the plan", path = .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Not such a file.
    #[error("{path} is no journal of this version of nicety ({what}); --fresh begins another and keeps this one as .old", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// It was begun on another machine, or by another program.
    #[error("{path} was begun with {what}, and numbers of both must not be mixed; --fresh begins again and keeps the old file as .old", path = .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Cells of launches that need not be measured again.
    pub kept: usize,
    /// Such that do not belong to the plan as it is now.
    pub aside: usize,
    /// When it was begun, if not just now.
    pub since: Option<String>,
    /// Whether the plan's text has changed since it was opened last.
    pub changed: bool,
    /// Bytes at the end that were dropped, as a crash leaves them.
    pub torn: u64,
    /// Lines in the middle that could not be read.
    pub unreadable: usize,
}

/// The kept measurements of a plan.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Of each cell, for each launch: the opening since which it was measured, from 1, and what.
    measured: BTreeMap<String, BTreeMap<u32, (usize, Sample)>>,
    never: BTreeMap<String, String>,
    /// Of each opening.
    dates: Vec<String>,
    /// Of each part, by opening.
    surroundings: BTreeMap<Option<String>, BTreeMap<usize, Environment>>,
    /// The first failure to write.
    failed: Option<io::Error>,
}

impl Journal {
    /// Opens the journal at `path` for these plans, or begins one; `text` is the plan file's.
    ///
    /// # Errors
    /// [`JournalError`]; the file is then as it was.
    pub fn open<'a>(
        path: &Path,
        text: &str,
        plans: impl Iterator<Item = &'a CheckedPlan>,
    ) -> Result<(Self, Found), JournalError> {
        let io = |why| JournalError::Io { path: path.to_owned(), why };
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(why)) => return Err(io(why)),
        }
        let mut journal = Self {
            file,
            path: path.to_owned(),
            measured: BTreeMap::new(),
            never: BTreeMap::new(),
            dates: Vec::new(),
            surroundings: BTreeMap::new(),
            failed: None,
        };
        let mut wanted: BTreeMap<String, u32> = BTreeMap::new();
        for plan in plans {
            for (index, key) in keys(plan).into_iter().enumerate() {
                let launches =
                    if plan.device_of(index).is_some_and(|d| d.is_virtual) { 1 } else { plan.launches() };
                wanted.insert(key, launches);
            }
        }
        let text = digest(text.as_bytes());
        let found = journal.read(&wanted, &text)?;
        journal.append(&Line::Opened { date: machine::utc_now(), text });
        match journal.failed.take() {
            Some(why) => Err(io(why)),
            None => Ok((journal, found)),
        }
    }

    /// Puts a journal aside, as `PATH.old`, where the one before it was; nothing where there is none.
    ///
    /// # Errors
    /// [`JournalError`]; it is then where it was.
    pub fn set_aside(path: &Path) -> Result<(), JournalError> {
        let io = |why| JournalError::Io { path: path.to_owned(), why };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(why) => return Err(io(why)),
        };
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(JournalError::Busy { path: path.to_owned() });
        }
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        std::fs::rename(path, old).map_err(io)
    }

    /// Reads the existing entries; writes the head of an empty file.
    fn read(&mut self, wanted: &BTreeMap<String, u32>, text: &str) -> Result<Found, JournalError> {
        let path = self.path.clone();
        let io = |why| JournalError::Io { path: path.clone(), why };
        let foreign = |what| JournalError::Foreign { path: path.clone(), what };
        let mut input = BufReader::new(self.file.try_clone().map_err(io)?);
        input.seek(SeekFrom::Start(0)).map_err(io)?;
        if self.file.metadata().map_err(io)?.len() > FILE_MAX {
            return Err(foreign(format!("it exceeds {}", Bytes(FILE_MAX))));
        }
        let (mut found, mut line, mut sound, mut last_text) = (Found::default(), Vec::new(), 0, None);
        let mut openings = 0;
        loop {
            line.clear();
            let got = match bounded::read_line(&mut input, LINE_MAX, &mut line) {
                Ok(got) => got as u64,
                Err(why) if why.kind() == ErrorKind::FileTooLarge => {
                    return Err(foreign(format!("a line exceeds {}", Bytes(LINE_MAX))));
                }
                Err(why) => return Err(io(why)),
            };
            if line.last() != Some(&b'\n') {
                found.torn = self.file.metadata().map_err(io)?.len() - sound;
                break;
            }
            let read = plain::from_file::<Line>(&line, Numbers::Any);
            if sound == 0 {
                self.check_head(read.as_ref().ok())?;
            }
            sound += got;
            match read {
                Ok(line) => {
                    openings += usize::from(matches!(line, Line::Opened { .. } | Line::Surroundings { .. }));
                    self.take(line, wanted, &mut found, &mut last_text);
                }
                Err(_) => found.unreadable += 1,
            }
            if openings > OPENINGS_MAX {
                return Err(foreign(format!("it has more than {OPENINGS_MAX} openings")));
            }
        }
        if sound == 0 && found.torn > 0 && !is_cut_off_head(&line) {
            return Err(foreign("it has no head".into()));
        }
        self.file.set_len(sound).map_err(io)?;
        if sound == 0 {
            let head = Line::Head { kind: KIND.into(), who: who() };
            self.append(&head);
        }
        found.changed = last_text.is_some_and(|last| last != text);
        found.since = self.dates.first().cloned();
        found.kept = self.measured.values().map(BTreeMap::len).sum();
        Ok(found)
    }

    /// Checks that the journal is of this machine and this build.
    fn check_head(&self, first: Option<&Line>) -> Result<(), JournalError> {
        let path = self.path.clone();
        let (kind, theirs) = match first {
            Some(Line::Head { kind, who }) => (kind, who),
            _ => return Err(JournalError::Foreign { path, what: "it has no head".into() }),
        };
        if kind != KIND {
            return Err(JournalError::Foreign { path, what: format!("it is {kind}, not {KIND}") });
        }
        let ours = who();
        let pairs = [
            ("the host", &theirs.host, &ours.host),
            ("the kernel", &theirs.kernel, &ours.kernel),
            ("the processor", &theirs.cpu, &ours.cpu),
            ("usable cores", &theirs.cores.to_string(), &ours.cores.to_string()),
            ("the build of nicety", &theirs.program, &ours.program),
        ];
        let differs = pairs.iter().filter(|(_, a, b)| a != b);
        let what: Vec<String> =
            differs.map(|(name, theirs, ours)| format!("{name} {theirs}, which is {ours} now")).collect();
        if what.is_empty() { Ok(()) } else { Err(JournalError::Changed { path, what: what.join(", ") }) }
    }

    fn take(
        &mut self,
        line: Line,
        wanted: &BTreeMap<String, u32>,
        found: &mut Found,
        text: &mut Option<String>,
    ) {
        match line {
            Line::Head { .. } => {}
            Line::Opened { date, text: then } => {
                self.dates.push(date);
                *text = Some(then);
            }
            Line::Measured { cell, launch, sample } => match wanted.get(&cell) {
                Some(launches) if launch < *launches => {
                    self.measured.entry(cell).or_default().insert(launch, (self.dates.len(), *sample));
                }
                _ => found.aside += 1,
            },
            Line::Never { cell, why } => {
                if wanted.contains_key(&cell) {
                    self.never.insert(cell, why);
                }
            }
            Line::Surroundings { part, environment } => {
                self.surroundings.entry(part).or_default().insert(self.dates.len(), *environment);
            }
        }
    }

    /// Adds a line; the first failure is kept for [`sync`](Self::sync).
    fn append(&mut self, line: &Line) {
        let mut text = match serde_json::to_vec(line) {
            Ok(text) => text,
            Err(why) => {
                self.failed.get_or_insert(io::Error::other(why));
                return;
            }
        };
        text.push(b'\n');
        if let Err(why) = self.file.write_all(&text) {
            self.failed.get_or_insert(why);
        }
    }

    /// Makes sure that everything is on the disk, and says if something is not.
    pub(super) fn sync(&mut self) -> Result<(), JournalError> {
        let failed = self.failed.take().or_else(|| self.file.sync_data().err());
        failed.map_or(Ok(()), |why| Err(JournalError::Io { path: self.path.clone(), why }))
    }
}

/// The journal as the collection of one plan uses it: by the numbers of the plan's cells.
#[derive(Debug)]
pub(super) struct Keeping<'a> {
    journal: &'a mut Journal,
    keys: Vec<String>,
    part: Option<String>,
    /// Cells measured before, with their launches.
    done: BTreeSet<(usize, u32)>,
    /// The openings since which they were.
    openings: BTreeSet<usize>,
}

impl<'a> Keeping<'a> {
    pub(super) fn new(journal: &'a mut Journal, plan: &CheckedPlan) -> Self {
        let part = part(plan).map(str::to_owned);
        Self { journal, keys: keys(plan), part, done: BTreeSet::new(), openings: BTreeSet::new() }
    }

    /// What was measured of each cell before.
    pub(super) fn kept(&mut self) -> Vec<(usize, u32, Sample)> {
        let mut all = Vec::new();
        for (index, key) in self.keys.iter().enumerate() {
            let launches = self.journal.measured.remove(key).unwrap_or_default();
            for (launch, (opening, sample)) in launches {
                self.openings.insert(opening);
                all.push((index, launch, sample));
            }
        }
        self.done = all.iter().map(|(index, launch, _)| (*index, *launch)).collect();
        all
    }

    /// Cells that cannot be measured, as was found before.
    pub(super) fn never(&self) -> Vec<(usize, String)> {
        let why = |(index, key)| Some((index, self.journal.never.get::<String>(key)?.clone()));
        self.keys.iter().enumerate().filter_map(why).collect()
    }

    /// Whether a cell was measured in a launch.
    pub(super) fn is_done(&self, index: usize, launch: u32) -> bool {
        self.done.contains(&(index, launch))
    }

    /// Appends a measured cell.
    pub(super) fn measured(&mut self, index: usize, launch: u32, sample: &Sample) {
        let cell = self.keys[index].clone();
        self.journal.append(&Line::Measured { cell, launch, sample: Box::new(sample.clone()) });
    }

    /// Appends that a cell cannot be measured.
    pub(super) fn cannot(&mut self, index: usize, why: &str) {
        let cell = self.keys[index].clone();
        self.journal.append(&Line::Never { cell, why: why.to_owned() });
    }

    /// Waits until everything appended is on disk.
    pub(super) fn sync(&mut self) -> Result<(), JournalError> {
        self.journal.sync()
    }

    /// In what that was which [`kept`](Self::kept) has returned, each time.
    pub(super) fn before(&self) -> Vec<Environment> {
        let times = self.journal.surroundings.get(&self.part).into_iter().flatten();
        times.filter(|(opening, _)| self.openings.contains(opening)).map(|(_, then)| then.clone()).collect()
    }

    /// In what it is measured now.
    pub(super) fn surroundings(&mut self, environment: &Environment) {
        let environment = Box::new(environment.clone());
        self.journal.append(&Line::Surroundings { part: self.part.clone(), environment });
    }
}

/// A head that a crash cut off is the beginning of one.
fn is_cut_off_head(line: &[u8]) -> bool {
    let begin = br#"{"line":"head""#;
    let n = line.len().min(begin.len());
    line[..n] == begin[..n]
}

/// What each cell of a plan is known by.
fn keys(plan: &CheckedPlan) -> Vec<String> {
    #[derive(Serialize)]
    struct Key<'a> {
        part: Option<&'a str>,
        device: &'a str,
        peers: &'a [String],
        cores: &'a str,
        settings: &'a Settings,
        cell: &'a Cell,
    }
    let settings = plan.settings();
    let part = part(plan);
    let key = |(index, cell)| {
        let device = plan.device_of(index).map_or("", |d| d.name.as_str());
        let (peers, cores) = (plan.peers.as_slice(), plan.values.text("cores"));
        let key = Key { part, device, peers, cores, settings: &settings, cell };
        // A structure of texts and numbers always has a text.
        digest(&serde_json::to_vec(&key).unwrap_or_default())
    };
    plan.cells.iter().enumerate().map(key).collect()
}

/// The name of the plan file's part that this is.
fn part(plan: &CheckedPlan) -> Option<&str> {
    plan.parameters.iter().find(|p| p.key == "part").map(|p| p.value.as_str())
}

/// 128 bits of SHA-256.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// This machine and this build.
fn who() -> Who {
    let environment = machine::environment(&[]);
    Who {
        host: environment.host,
        kernel: environment.kernel,
        cpu: environment.cpu,
        cores: environment.cores,
        program: program(),
    }
}

/// The beginning of a digest of this very program, which takes a moment and does not change.
fn program() -> String {
    static OWN: OnceLock<String> = OnceLock::new();
    let read = || std::env::current_exe().and_then(|own| bounded::read(own, PROGRAM_MAX));
    let version = || env!("CARGO_PKG_VERSION").to_owned();
    OWN.get_or_init(|| read().map_or_else(|_| version(), |bytes| digest(&bytes)[..12].to_owned())).clone()
}

#[cfg(test)]
mod tests;
