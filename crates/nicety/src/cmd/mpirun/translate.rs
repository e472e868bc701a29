//! Translates the command line of mpirun: options of other launchers become ours, by the table of `habits`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{ArgAction, CommandFactory as _};
use host::bounded;

use super::habits::{self, Does, Habit, Key};
use crate::args::NextProgram;
use crate::error::Failure;
use crate::usage;

/// The largest file of programs, in bytes.
const FILE_MAX: u64 = 4 << 20;
/// Values that switch something off.
const OFF: [&str; 6] = ["0", "no", "off", "false", "disable", "disabled"];
/// The argument that separates the programs of a job.
const SEPARATOR: &str = ":";

/// A translated command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The words for our parser.
    pub(crate) words: Vec<OsString>,
    /// A line for each option that is ignored.
    pub(crate) remarks: Vec<String>,
}

/// Replaces options of other launchers by ours, up to the name of each program; other commands are returned unchanged.
///
/// # Errors
/// If an option lacks its value, or a file of programs cannot be read.
pub(crate) fn translate(args: impl IntoIterator<Item = OsString>) -> Result<Line, Failure> {
    let mut words: Vec<OsString> = args.into_iter().collect();
    if words.get(1).is_none_or(|command| command != "mpirun") {
        return Ok(Line { words, remarks: Vec::new() });
    }
    let rest = words.split_off(2).into();
    let command = usage::command();
    let Some(mpirun) = command.get_subcommands().find(|command| command.get_name() == "mpirun") else {
        return Ok(Line { words, remarks: Vec::new() });
    };
    let mut translation = Translation {
        ours: mpirun,
        rest,
        has_file: false,
        wants_version: false,
        line: Line { words, remarks: Vec::new() },
    };
    translation.all()?;
    if translation.wants_version {
        translation.line.words.truncate(1);
        translation.line.words.push("--version".into());
    }
    Ok(translation.line)
}

/// A command line while it is translated.
struct Translation<'a> {
    /// Our options for the program at hand.
    ours: &'a clap::Command,
    /// The words that are not translated yet.
    rest: VecDeque<OsString>,
    /// Whether a file of programs was read.
    has_file: bool,
    wants_version: bool,
    line: Line,
}

impl Translation<'_> {
    /// Translates all programs.
    fn all(&mut self) -> Result<(), Failure> {
        self.program()?;
        let next = NextProgram::command();
        let mut others = Translation {
            ours: &next,
            rest: std::mem::take(&mut self.rest),
            has_file: self.has_file,
            wants_version: self.wants_version,
            line: std::mem::take(&mut self.line),
        };
        while !others.rest.is_empty() && !others.wants_version {
            others.program()?;
        }
        (self.wants_version, self.line) = (others.wants_version, others.line);
        Ok(())
    }

    /// Translates the options of a program, and takes its words as they are, with the separator behind them.
    fn program(&mut self) -> Result<(), Failure> {
        while let Some(word) = self.rest.pop_front() {
            let is_option = word.as_encoded_bytes().starts_with(b"-") && word.len() > 1 && word != "--";
            if !is_option || word == SEPARATOR {
                self.rest.push_front(word);
                break;
            }
            self.option(word)?;
            if self.wants_version {
                return Ok(());
            }
        }
        while let Some(word) = self.rest.pop_front() {
            let is_end = word == SEPARATOR;
            self.line.words.push(word);
            if is_end {
                break;
            }
        }
        Ok(())
    }

    /// Translates an option, and takes its value.
    fn option(&mut self, word: OsString) -> Result<(), Failure> {
        let Some(text) = word.to_str().map(str::to_owned) else {
            self.line.words.push(word);
            return Ok(());
        };
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        let bare = name.strip_prefix("--").or_else(|| name.strip_prefix('-')).unwrap_or(name);
        let is_long = name.starts_with("--");
        // The table knows more than our parser about values of -x and --rank-by.
        let is_first =
            |habit: &&Habit| name == "-x" || !matches!(habit.does, Does::Is(_)) || self.own(name).is_none();
        if let Some(habit) = habits::find(bare).filter(is_first) {
            return self.apply(habit, name, attached);
        }
        let is_attached = !is_long && is_short_with_value(bare);
        let ours = if is_long || bare.chars().count() < 2 || is_attached {
            text.clone()
        } else {
            format!("-{text}")
        };
        self.line.words.push(ours.clone().into());
        let name = ours.split_once('=').map_or(ours.as_str(), |(name, _)| name);
        if attached.is_none() && self.own(name).is_some_and(takes_value) {
            self.line.words.extend(self.rest.pop_front());
        }
        Ok(())
    }

    /// Our option of this name, such as `--host` or `-n`.
    fn own(&self, name: &str) -> Option<&clap::Arg> {
        self.ours.get_arguments().find(|arg| {
            let is_long = arg.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
            is_long
                || arg
                    .get_short()
                    .is_some_and(|short| name.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4])))
        })
    }

    /// Does what the table says about an option.
    fn apply(&mut self, habit: &Habit, name: &str, attached: Option<String>) -> Result<(), Failure> {
        let missing = || Failure::usage(format!("{name} needs a value; write {name} {}", habit.value));
        let mut value = OsString::new();
        if !habit.value.is_empty() {
            let attached = attached.map(OsString::from);
            value = attached.or_else(|| self.rest.pop_front()).ok_or_else(missing)?;
        }
        match habit.does {
            Does::Variable(own) => {
                let is_whole = value.as_encoded_bytes().contains(&b'=');
                if !is_whole {
                    value.push("=");
                    value.push(self.rest.pop_front().ok_or_else(missing)?);
                }
                self.variable(&value)?;
                self.push(own, value);
            }
            Does::Variables(own) => {
                let names = value.to_string_lossy().into_owned();
                names.split(',').filter(|name| !name.is_empty()).for_each(|name| self.push(own, name.into()));
            }
            Does::Parameter => {
                let key = value.to_string_lossy().into_owned();
                let value = self.rest.pop_front().ok_or_else(missing)?;
                return self.parameter(&format!("{name} {key}"), &key, habits::MCA, &value);
            }
            Does::Programs => return self.insert_file(name, Path::new(&value)),
            Does::Version => self.wants_version = true,
            Does::Is("-x") => {
                self.variable(&value)?;
                self.push("-x", value);
            }
            does => {
                let value = (!habit.value.is_empty()).then_some(value.as_os_str());
                return self.act(name, does, habit.text, value);
            }
        }
        Ok(())
    }

    /// Does what the table says, for options and for keys.
    fn act(&mut self, name: &str, does: Does, text: &str, value: Option<&OsStr>) -> Result<(), Failure> {
        let shown = value.unwrap_or_default().to_string_lossy().into_owned();
        match does {
            Does::Is(own) => match value {
                Some(value) => self.push(own, value.to_owned()),
                None => self.line.words.push(own.into()),
            },
            Does::Means(ours) => {
                self.line.words.extend(ours.iter().map(|word| word.replace("{}", &shown).into()));
            }
            Does::Switch(ours) | Does::SwitchOff(ours) => {
                let is_off = OFF.contains(&shown.to_ascii_lowercase().as_str());
                if is_off == matches!(does, Does::SwitchOff(_)) {
                    self.line.words.extend(ours.iter().map(OsString::from));
                }
            }
            Does::Path => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let mut set = OsString::from("PATH=");
                set.push(value.unwrap_or_default());
                set.push(":");
                set.push(path);
                self.push("-x", set);
            }
            Does::Network if shown.parse::<host::Network>().is_ok() => {
                self.push("--genv", format!("NICETY_NETWORK={shown}").into());
            }
            Does::Network => self.line.remarks.push(format!(
                "{name} {shown} is not a network such as 10.0.0.0/8, and is ignored; name the network, or give none"
            )),
            Does::RankBy => match shown.to_ascii_lowercase().as_str() {
                order @ ("slot" | "node") => self.push("--rank-by", order.into()),
                _ => self.line.remarks.push(format!(
                    "{name} {shown} would have numbered ranks by parts of a host, and is ignored; --map-by gives their order"
                )),
            },
            Does::OutputList => shown.split(',').for_each(|item| self.output(name, item)),
            Does::Ignored => self.line.remarks.push(ignored(name, text)),
            Does::Already => {}
            // These have no meaning for keys, and are handled before for options.
            Does::Variable(_) | Does::Variables(_) | Does::Programs | Does::Parameter | Does::Version => {}
        }
        Ok(())
    }

    fn push(&mut self, option: &str, value: OsString) {
        // One word: a value may begin with a dash.
        let mut word = OsString::from(option);
        word.push("=");
        word.push(value);
        self.line.words.push(word);
    }

    /// Does what the table says about a parameter of Open MPI.
    fn parameter(&mut self, name: &str, key: &str, known: &[Key], value: &OsStr) -> Result<(), Failure> {
        match known.iter().find(|known| known.has(key)) {
            Some(known) => self.act(name, known.does, known.text, Some(value)),
            None => {
                self.line.remarks.push(format!("{name} is not known here, and is ignored; check its name"));
                Ok(())
            }
        }
    }

    /// Variables of Intel MPI that have a meaning for its launcher.
    fn variable(&mut self, word: &OsStr) -> Result<(), Failure> {
        let text = word.to_string_lossy().into_owned();
        let (name, value) = text.split_once('=').unwrap_or((&text, ""));
        if !name.starts_with("I_MPI_") {
            return Ok(());
        }
        self.parameter(name, name, habits::INTEL, value.as_ref())
    }

    /// An item of `--output` of Open MPI 5.
    fn output(&mut self, name: &str, item: &str) {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        match key.to_ascii_lowercase().as_str() {
            "tag" | "tag-detailed" | "tag-fullname" => self.line.words.push("--tag".into()),
            "timestamp" => self.push("--prepend-pattern", "%t ".into()),
            "merge" | "merge-stderr-to-stdout" => self.line.words.push("--merge-stderr-to-stdout".into()),
            "file" => self.push("--output-filename", value.into()),
            _ => self.line.remarks.push(format!(
                "{name} {item} is not known here, and is ignored; tag, timestamp, merge and file=NAME are"
            )),
        }
    }

    /// Inserts the programs of a file before the rest of the command line.
    fn insert_file(&mut self, name: &str, path: &Path) -> Result<(), Failure> {
        let shown = path.display();
        if std::mem::replace(&mut self.has_file, true) {
            return Err(Failure::usage(format!("{name} {shown}: a file was named already; write one file")));
        }
        let text = bounded::read_text(path, FILE_MAX)
            .map_err(|why| Failure::usage(format!("{name} {shown} cannot be read: {why}; check its path")))?;
        let programs = programs_of(&text).map_err(|why| Failure::usage(format!("{name} {shown}: {why}")))?;
        if programs.is_empty() {
            return Err(Failure::usage(format!("{name} {shown} has no program; write one per line")));
        }
        for word in programs.join(&OsString::from(SEPARATOR)).into_iter().rev() {
            self.rest.push_front(word);
        }
        Ok(())
    }
}

/// The line about an ignored option. Names in the table's text are set apart by backquotes, for the book.
fn ignored(name: &str, text: &str) -> String {
    let (would, remedy) = text.split_once("; ").unwrap_or((text, "leave it out"));
    format!("{name} {would}, and is ignored; {remedy}").replace('`', "'")
}

/// Whether an option of ours takes the next word as its value.
fn takes_value(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set()
}

/// Whether a word after its dash is an option of one letter with its value, such as `n4` or `xA=B`.
fn is_short_with_value(bare: &str) -> bool {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    bare.strip_prefix('n').is_some_and(is_number)
        || bare.strip_prefix('x').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// The words of each program in a file: one per line; `#` begins a comment, a backslash at the end continues a line, and quotes
/// keep blanks, as in a shell.
fn programs_of(text: &str) -> Result<Vec<Vec<OsString>>, String> {
    let mut programs = Vec::new();
    let text = text.replace("\\\n", " ");
    for (number, line) in (1..).zip(text.lines()) {
        let words =
            words_of(line).ok_or_else(|| format!("a quote in line {number} is not closed; close it"))?;
        if !words.is_empty() {
            programs.push(words);
        }
    }
    Ok(programs)
}

/// The words of a line; `None` if a quote is not closed.
fn words_of(line: &str) -> Option<Vec<OsString>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(next) = characters.next() {
        match next {
            '#' if word.is_none() => break,
            quote @ ('\'' | '"') => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        end if end == quote => break,
                        inner => text.push(inner),
                    }
                }
            }
            blank if blank.is_whitespace() => words.extend(word.take().map(OsString::from)),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.map(OsString::from));
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::super::habits::Origin;
    use super::*;

    fn translated(words: &[&str]) -> Result<Line, Failure> {
        translate(["nicety", "mpirun"].iter().chain(words).map(OsString::from))
    }

    fn words(words: &[&str]) -> String {
        let line = translated(words).expect("a line");
        let text = line.words.into_iter().map(|word| word.to_string_lossy().into_owned());
        text.skip(2).collect::<Vec<_>>().join(" ")
    }

    fn remarks(words: &[&str]) -> Vec<String> {
        translated(words).expect("a line").remarks
    }

    #[test]
    fn options_are_translated_up_to_the_program() {
        assert_eq!(
            words(&[
                "--np",
                "2",
                "-host",
                "a",
                "-wdir",
                "-np",
                "--allow-run-as-root",
                "./a",
                "-host",
                "--np"
            ]),
            "-n=2 --host=a --wdir=-np ./a -host --np"
        );
        assert_eq!(words(&["-machinefile", "f", "--", "-np"]), "--hostfile=f -- -np");
        assert_eq!(words(&["-np=2", "--bind-to=core", "-"]), "-n=2 --bind=core -");
        assert_eq!(
            words(&["-ppn", "2", "a", ":", "-np", "3", "-wd", "d", "b", "-ppn", "2"]),
            "--per-host=2 a : -n=3 --wdir=d b -ppn 2"
        );
        assert_eq!(words(&["-pernode", "-l", "a"]), "--per-host 1 --tag a");
        assert_eq!(words(&["-npersocket", "2", "a"]), "--map-by ppr:2:socket a");
        let other = ["nicety", "run", "-np"].map(OsString::from);
        assert_eq!(translate(other.clone()).map(|line| line.words), Ok(other.to_vec()));
    }

    #[test]
    fn own_options_keep_their_values() {
        assert_eq!(words(&["--rsh", "-l", "--device", "-f", "-l", "a"]), "--rsh -l --device -f --tag a");
        assert_eq!(words(&["--profile", "./a", "-l"]), "--profile ./a -l", "its value is attached");
        assert_eq!(words(&["-tag", "-dry-run", "-rsh", "-l", "a"]), "--tag --dry-run --rsh -l a", "one dash");
        assert_eq!(words(&["-n4", "-xA=1", "-n", "4", "a"]), "-n4 -xA=1 -n 4 a");
        assert_eq!(words(&["-n", "2", "-x", "A=1", ":", "-x", "B", "-l"]), "-n 2 -x=A=1 : -x=B --tag");
    }

    #[test]
    fn unknown_option_keeps_its_name() {
        assert_eq!(words(&["-hostlst", "a"]), "--hostlst a");
        assert_eq!(words(&["-nonsense", "--nonsense", "-k"]), "--nonsense --nonsense -k");
        assert_eq!(words(&["-h"]), "-h");
    }

    #[test]
    fn version_is_asked_by_any_of_its_names() {
        for name in ["-V", "--version", "-info"] {
            let line = translated(&["-n", "2", name, "a"]).expect("a line");
            assert_eq!(line.words, ["nicety", "--version"], "{name}");
        }
    }

    #[test]
    fn variables_are_set() {
        assert_eq!(
            words(&["-env", "A", "1", "-genv", "B=x y", "-genvlist", "C,D", "a"]),
            "-x=A=1 --genv=B=x y --genv=C --genv=D a"
        );
        assert_eq!(words(&["-env", "A", "-1", "a"]), "-x=A=-1 a");
        assert_eq!(words(&["-genv", "I_MPI_PIN", "off", "a"]), "--bind none --genv=I_MPI_PIN=off a");
        assert_eq!(
            words(&["-genv", "I_MPI_PIN", "1", "-x", "I_MPI_PERHOST=2", "a"]),
            "--genv=I_MPI_PIN=1 --per-host=2 -x=I_MPI_PERHOST=2 a"
        );
        let said = remarks(&["-genv", "I_MPI_FABRICS", "shm", "-env", "I_MPI_NEW=1", "a"]);
        assert!(
            said[0].starts_with("I_MPI_FABRICS would have selected transports, and is ignored; '--device"),
            "{said:?}"
        );
        assert!(said[1].starts_with("I_MPI_NEW is not known here"), "{said:?}");
    }

    #[test]
    fn parameters_of_open_mpi_have_a_meaning_or_a_remark() {
        assert_eq!(
            words(&["--mca", "plm_rsh_agent", "rsh", "--prtemca", "rmaps_base_oversubscribe", "1", "a"]),
            "--rsh=rsh --oversubscribe a"
        );
        assert_eq!(words(&["-mca", "rmaps_base_oversubscribe", "no", "a"]), "a");
        assert_eq!(
            words(&["--mca", "btl_tcp_if_include", "10.0.0.0/8", "a"]),
            "--genv=NICETY_NETWORK=10.0.0.0/8 a"
        );
        let said = remarks(&[
            "--mca",
            "btl",
            "tcp,self",
            "-mca",
            "nonsense",
            "1",
            "--mca",
            "btl_tcp_if_include",
            "eth0",
            "a",
        ]);
        assert!(
            said[0].starts_with("--mca btl would have selected transports, and is ignored; "),
            "{said:?}"
        );
        assert_eq!(said[1], "-mca nonsense is not known here, and is ignored; check its name");
        assert!(said[2].starts_with("--mca btl_tcp_if_include eth0 is not a network"), "{said:?}");
    }

    #[test]
    fn option_without_its_value_is_refused() {
        for (line, hint) in [
            (&["-ppn"][..], "-ppn needs a value; write -ppn N"),
            (&["-genv", "A"], "-genv needs a value; write -genv NAME VALUE"),
            (&["--mca", "btl"], "--mca needs a value; write --mca KEY VALUE"),
        ] {
            let failure = translated(line).expect_err(hint);
            assert_eq!(failure.lines, [hint]);
        }
    }

    #[test]
    fn programs_of_a_file_are_inserted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("programs");
        let text = "# two\n-np 2 -l ./a 'b c' \\\n  d # end\n\n-n 1 -wd x ./b#c -l\n";
        std::fs::write(&path, text).expect("a file");
        let path = path.to_str().expect("a path");
        assert_eq!(words(&["-configfile", path]), "-n=2 --tag ./a b c d : -n 1 --wdir=x ./b#c -l");
        assert!(translated(&["--app", path, "-configfile"]).is_ok(), "its program has begun");
        std::fs::write(path, format!("-app {path}\n")).expect("a file");
        let why = translated(&["--app", path]).expect_err("it names itself");
        assert!(why.lines[0].contains("a file was named already; "), "{why:?}");
        for (text, hint) in [("", "has no program; "), ("a 'b\n", "a quote in line 1 is not closed; ")] {
            std::fs::write(path, text).expect("a file");
            let why = translated(&["--app", path]).expect_err(hint);
            assert!(why.lines[0].contains(hint), "{why:?}");
        }
        assert!(translated(&["-configfile", "/nowhere"]).is_err());
    }

    #[test]
    fn output_lists_of_open_mpi_5_are_read() {
        assert_eq!(
            words(&["--output", "tag,timestamp,merge,file=a=b", "a"]),
            "--tag --prepend-pattern=%t  --merge-stderr-to-stdout --output-filename=a=b a"
        );
        assert!(remarks(&["--output", "dir=x", "a"])[0].starts_with("--output dir=x is not known"));
    }

    /// Goal: the table has no option twice, and its words are ours. Method: the parser reads what each row becomes.
    #[test]
    fn every_row_becomes_options_that_exist() {
        let mut names: Vec<&str> = habits::HABITS.iter().flat_map(|habit| habit.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "an option is there twice");
        let command = usage::command();
        let mpirun =
            command.get_subcommands().find(|command| command.get_name() == "mpirun").expect("mpirun");
        let is_ours = |word: &str| {
            let is_it = |arg: &clap::Arg| {
                arg.get_long().is_some_and(|long| word == format!("--{long}"))
                    || arg.get_short().is_some_and(|short| word == format!("-{short}"))
            };
            word == "--help" || mpirun.get_arguments().any(is_it)
        };
        let keys = habits::MCA.iter().chain(habits::INTEL).map(|key| (key.name, key.does, key.text));
        let rows = habits::HABITS.iter().map(|habit| (habit.names[0], habit.does, habit.text)).chain(keys);
        for (name, does, text) in rows {
            match does {
                Does::Is(own) | Does::Variable(own) | Does::Variables(own) => assert!(is_ours(own), "{name}"),
                Does::Means(ours) | Does::Switch(ours) | Does::SwitchOff(ours) => {
                    assert!(is_ours(ours[0]), "{name}")
                }
                _ => {}
            }
            assert_eq!(does == Does::Ignored, text.starts_with("would have "), "{name}: {text}");
        }
    }

    #[test]
    fn table_finds_keys_by_their_beginning() {
        let found = |name: &str| habits::MCA.iter().find(|key| key.has(name)).map(|key| key.name);
        assert_eq!(found("btl"), Some("btl"));
        assert_eq!(found("btl_sm_eager_limit"), Some("btl_*"));
        assert_eq!(found("btl_tcp_if_include"), Some("btl_tcp_if_include"));
        assert_eq!(found("nonsense"), None);
    }

    /// Goal: the book has the table. Method: its pages contain every row, and no other in these tables.
    #[test]
    fn pages_of_the_book_have_the_table() {
        let options = habits::book_options;
        let pages = [
            (
                include_str!("../../../../../docs/guides/coming-from-open-mpi.md"),
                options(Origin::OpenMpi),
                habits::MCA,
            ),
            (
                include_str!("../../../../../docs/guides/coming-from-mpich.md"),
                options(Origin::Mpich),
                habits::INTEL,
            ),
        ];
        for (page, options, keys) in pages {
            let rows = [options, habits::book_keys(keys)].concat();
            let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
            assert_eq!(found, rows, "write these rows into the page:\n{}", rows.join("\n"));
        }
    }
}
