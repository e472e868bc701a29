//! MPICH's lists of tests: the run of each line, or why it is left out here.

/// One run of a program, from a line of a list.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(super) struct Test {
    pub(super) program: String,
    pub(super) ranks: String,
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) expects: Expects,
    pub(super) limit_s: u64,
}

/// The expected result of a run.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Expects {
    /// A line `No Errors`, no other output, and status 0.
    NoErrors,
    /// A line `No Errors` among other output, and status 0.
    NoErrorsAndWords,
    /// A line `No Errors`, and then a nonzero status.
    NoErrorsThenFailure,
    /// A nonzero status.
    Failure,
    /// Status 0.
    Status,
}

/// A line of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Test(Test),
    LeftOut(&'static str),
}

/// How long a test may run, in seconds, if its line gives no limit.
const LIMIT_S: u64 = 180;
/// Memory that a test may need, in GB; MPICH's own runs have this limit.
const MEMORY_GB: f64 = 4.0;

/// The entries of a list, or of a template from which configuration makes a list; runs that differ only in MPICH's
/// variables are merged.
pub(super) fn entries(list: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for entry in list.lines().filter_map(entry) {
        if matches!(entry, Entry::LeftOut(_)) || !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

/// Parses a line; `None` for a comment or a folder.
fn entry(line: &str) -> Option<Entry> {
    let line = line.split('#').next().unwrap_or("").trim();
    let line = match line.strip_prefix('@').and_then(|line| line.split_once('@')) {
        Some(("namepub_tests" | "comm_overlap", rest)) => rest,
        Some(("coll_error", _)) => {
            return Some(Entry::LeftOut("off in MPICH, too, unless it was configured"));
        }
        Some(_) => return None,
        None => line,
    };
    let mut words = line.split_whitespace();
    let (program, ranks) = (words.next()?, words.next()?);
    let mut test = Test {
        program: program.to_owned(),
        ranks: ranks.to_owned(),
        arguments: Vec::new(),
        variables: Vec::new(),
        expects: Expects::NoErrors,
        limit_s: LIMIT_S,
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "arg" => test.arguments.push(value.to_owned()),
            "env" => test.set(value),
            "timeLimit" => test.limit_s = value.parse().unwrap_or(LIMIT_S),
            "resultTest" => test.expects = expects(value),
            "strict" => return Some(Entry::LeftOut("of what the standard does not have")),
            "xfail" => return Some(Entry::LeftOut("known to fail on MPICH")),
            "hasgpu" => return Some(Entry::LeftOut("needs a GPU")),
            "mem" if value.parse().is_ok_and(|needed: f64| needed > MEMORY_GB) => {
                return Some(Entry::LeftOut("needs more than 4 GB"));
            }
            _ => {}
        }
    }
    Some(Entry::Test(test))
}

impl Test {
    fn set(&mut self, variable: &str) {
        if let Some((name, value)) = variable.split_once('=')
            && !name.starts_with("MPIR_CVAR")
        {
            self.variables.push((name.to_owned(), value.to_owned()));
        }
    }
}

fn expects(result: &str) -> Expects {
    match result {
        "TestAllowWarnings" => Expects::NoErrorsAndWords,
        "TestStatusNoErrors" => Expects::NoErrorsThenFailure,
        "TestStatus" | "TestErrFatal" => Expects::Failure,
        "TestBench" => Expects::Status,
        _ => Expects::NoErrors,
    }
}

/// The lines that MPICH's configuration would generate from its pools of datatypes for the programs of a folder: a run
/// for each program, type and count.
pub(super) fn pooled(config: &str, folder: &str) -> String {
    const TYPES: [&str; 2] = ["MPI_INT", "MPI_INT:4+MPI_DOUBLE:8"];
    let mut list = String::new();
    let lines = config.lines().filter(|line| !line.starts_with('#'));
    for (seed, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split(':').collect();
        let &[path, arguments, counts, passed_on, ranks, size, ..] = &fields[..] else { continue };
        let Some((_, program)) = path.rsplit_once('/').filter(|(of, _)| *of == folder) else { continue };
        let arguments: String = arguments.split_whitespace().map(|word| format!(" arg={word}")).collect();
        let count = if matches!(folder, "pt2pt" | "part") { "sendcnt" } else { "count" };
        for (kind, number) in
            TYPES.iter().flat_map(|kind| counts.split(' ').map(move |number| (kind, number)))
        {
            let received = if count == "sendcnt" { format!(" arg=-recvcnt={number}") } else { String::new() };
            list.push_str(&format!(
                "{program} {ranks} arg=-type={kind} arg=-{count}={number}{received} arg=-seed={} arg=-testsize={size}{arguments} {passed_on}\n",
                seed + 1
            ));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(line: &str) -> Test {
        match entry(line) {
            Some(Entry::Test(test)) => test,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_are_parsed_into_tests() {
        let line = "@namepub_tests@join 2 arg=-a arg=b=c env=X=1 env=MPIR_CVAR_Y=2 timeLimit=7 resultTest=TestErrFatal # so";
        let found = test(line);
        assert_eq!((found.program.as_str(), found.ranks.as_str(), found.limit_s), ("join", "2", 7));
        assert_eq!(found.arguments, ["-a", "b=c"]);
        assert_eq!(found.variables, [("X".into(), "1".into())]);
        assert_eq!(found.expects, Expects::Failure);
        assert_eq!((test("a 1").expects, test("a 1").limit_s), (Expects::NoErrors, LIMIT_S));
    }

    #[test]
    fn lines_are_left_out_for_a_reason() {
        for line in
            ["a 1 strict=FALSE", "a 2 xfail=ticket1", "a 1 mem=4.3", "@coll_error@a 4", "a 2 hasgpu=any"]
        {
            assert!(matches!(entry(line), Some(Entry::LeftOut(_))), "{line}");
        }
        assert_eq!([entry("# a 1"), entry(""), entry("errhan"), entry("@iodir@")], [None, None, None, None]);
        assert_eq!(test("a 1 mem=4").program, "a");
    }

    #[test]
    fn runs_that_differ_in_mpichs_variables_are_one() {
        assert_eq!(entries("a 2\na 2 env=MPIR_CVAR_X=1\na 4\na 2 env=Z=1\n").len(), 3);
    }

    #[test]
    fn pools_make_a_run_for_each_type_and_count() {
        let config = "# c\ncoll/bcast::1 512::4:16:1024:0\npt2pt/sendself:-x:8:mem=2:1:32:1024:0\n";
        let runs = entries(&pooled(config, "coll"));
        assert_eq!(runs.len(), 4);
        let Entry::Test(sent) = &entries(&pooled(config, "pt2pt"))[0] else { panic!("a test") };
        assert_eq!(sent.arguments[1..], ["-sendcnt=8", "-recvcnt=8", "-seed=2", "-testsize=32", "-x"]);
    }
}
