//! Invalid buffers in every call that takes one: the call returns an error that names the buffer, and never ends by a signal. Calls that
//! move no elements accept any buffer, datatype and displacements. The calls are generated from functions.txt.

mod common;

use std::fmt::Write as _;

use common::{compile, has_compiler};

const OPTIONS: [&str; 4] =
    [concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/c"), "-std=gnu11", "-Wall", "-Wno-unused"];

/// The standard's names of arguments that are buffers.
const BUFFERS: [&str; 10] = [
    "buf",
    "buffer",
    "sendbuf",
    "recvbuf",
    "inbuf",
    "outbuf",
    "inoutbuf",
    "origin_addr",
    "compare_addr",
    "result_addr",
];

/// An argument of a function.
#[derive(Clone, Copy)]
struct Argument<'a> {
    kind: &'a str,
    name: &'a str,
}

/// A function with data arguments.
struct Function<'a> {
    name: &'a str,
    arguments: Vec<Argument<'a>>,
}

/// The data arguments of a call.
#[derive(Clone, Copy, PartialEq)]
enum Data {
    /// Elements in every buffer.
    Some,
    /// No elements, with a valid datatype.
    None,
    /// No elements, with a null datatype.
    Untyped,
}

fn functions() -> Vec<Function<'static>> {
    let parse = |line: &'static str| {
        let (head, arguments) = line.split(';').next()?.trim().strip_suffix(')')?.split_once('(')?;
        let argument = |text: &'static str| {
            let text = text.trim_end_matches("[]");
            let at = text.rfind([' ', '*'])? + 1;
            Some(Argument { kind: text[..at].trim(), name: &text[at..] })
        };
        let arguments: Vec<Argument> = arguments.split(", ").map(argument).collect::<Option<_>>()?;
        let is_data =
            |argument: &Argument| argument.kind.ends_with("void *") && BUFFERS.contains(&argument.name);
        let name = head.rsplit(' ').next()?;
        let is_one = arguments.iter().any(is_data) && !name.ends_with("_end") && !name.starts_with("MPI_T_");
        is_one.then_some(Function { name, arguments })
    };
    include_str!("../functions.txt").lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect()
}

impl Function<'_> {
    fn buffers(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|argument| argument.name).filter(|name| BUFFERS.contains(name))
    }

    /// Whether a collective operation on one process accepts `MPI_IN_PLACE` for this buffer.
    fn may_be_in_place(&self, buffer: &str) -> bool {
        let name = self.name.trim_start_matches("MPI_").to_lowercase();
        if name.contains("neighbor") || name.contains("sendrecv") || name.contains("local") {
            return false;
        }
        buffer == if name.contains("scatter") && !name.contains("reduce") { "recvbuf" } else { "sendbuf" }
    }

    /// Whether a function has a count of elements.
    fn is_counted(&self) -> bool {
        self.arguments.iter().any(|argument| argument.name.contains("count"))
    }

    /// The value of an argument.
    fn value(&self, Argument { kind, name }: Argument, data: Data) -> String {
        let is_some = data == Data::Some;
        let pick = |some: &str, none: &str| (if is_some { some } else { none }).to_owned();
        let is_wide = kind.contains("MPI_Count");
        match name {
            _ if name.ends_with("counts") => match is_wide {
                true => pick("many", "nothing"),
                false => pick("some", "none"),
            },
            _ if name.ends_with("count") => pick("N", "0"),
            "displs" | "sdispls" | "rdispls" if kind.contains("MPI_Aint") => "away".to_owned(),
            "displs" | "sdispls" | "rdispls" => "far".to_owned(),
            "sendtypes" | "recvtypes" => if data == Data::Untyped { "no_types" } else { "ints" }.to_owned(),
            _ if kind == "MPI_Datatype" => {
                if data == Data::Untyped { "MPI_DATATYPE_NULL" } else { "MPI_INT" }.to_owned()
            }
            "sendbuf" | "inbuf" | "origin_addr" => pick("from", "NULL"),
            _ if BUFFERS.contains(&name) => pick("into", "NULL"),
            "dest" | "source" => pick("0", "MPI_PROC_NULL"),
            "outsize" | "insize" => pick("512", "0"),
            "size" => pick("4096", "0"),
            "partitions" => "1".to_owned(),
            "datarep" => "\"external32\"".to_owned(),
            "position" if is_wide => "&place_c".to_owned(),
            "position" if kind.contains("MPI_Aint") => "&place_a".to_owned(),
            "position" => "&place".to_owned(),
            "op" => "MPI_SUM".to_owned(),
            "info" => "MPI_INFO_NULL".to_owned(),
            "status" => "MPI_STATUS_IGNORE".to_owned(),
            "request" | "message" => format!("&{name}"),
            "comm" | "win" | "fh" | "session" => name.to_owned(),
            _ => "0".to_owned(),
        }
    }

    /// A call with some arguments replaced, and the class that it must return.
    fn call(&self, data: Data, others: &[(&str, &str)], class: &str) -> String {
        let other = |name: &str| others.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        let value = |argument: &Argument| {
            other(argument.name).map_or_else(|| self.value(*argument, data), str::to_owned)
        };
        let values: Vec<String> = self.arguments.iter().map(value).collect();
        let text = format!("{}({})", self.name, values.join(", "));
        let mut code = String::new();
        let takes_message = self.name.contains("recv") && text.contains("&message");
        if takes_message {
            writeln!(code, "match({});", if data == Data::Some { "N" } else { "0" }).expect("a string");
        }
        writeln!(code, "call({text:?});\nexpect({class}, {text});").expect("a string");
        if takes_message && class != "MPI_SUCCESS" {
            code.push_str("OK(MPI_Mrecv(from, N, MPI_INT, &message, MPI_STATUS_IGNORE));\n");
        }
        if text.contains("&request") && class == "MPI_SUCCESS" {
            let ends = if self.name.contains("_init") {
                "MPI_Request_free(&request)"
            } else {
                "MPI_Wait(&request, MPI_STATUS_IGNORE)"
            };
            writeln!(code, "OK({ends});").expect("a string");
        }
        if self.name.contains("_begin") && class == "MPI_SUCCESS" {
            let end = self.name.trim_end_matches("_c").replace("_begin", "_end");
            writeln!(code, "OK({end}(fh, NULL, MPI_STATUS_IGNORE));").expect("a string");
        }
        code
    }
}

/// Compiles and runs the calls, and returns the complaints.
fn made(name: &str, calls: &str) -> Vec<String> {
    let source = format!(
        "#include \"buffers.h\"\nint main(void) {{\nbegin();\n{calls}fflush(stdout);\nOK(MPI_Win_unlock_all(win));\n_exit(0);\n}}\n"
    );
    let program = compile(name, &source, &OPTIONS);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("data").display().to_string();
    let (ended, _) = common::job::run_job_to_its_end(
        &program.path(),
        1,
        &[("NICETY_DEVICE", "shm"), ("TEST_FILE", &file)],
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<String> = text(&ended[0].stdout).lines().map(str::to_owned).collect();
    lines.extend(text(&ended[0].stderr).lines().map(str::to_owned));
    if !ended[0].status.success() && lines.is_empty() {
        lines.push(ended[0].status.to_string());
    }
    lines
}

/// Goal: an invalid buffer is an `MPI_ERR_BUFFER`, with and without displacements, and so is a misplaced `MPI_IN_PLACE`. Method: each
/// buffer of each call is NULL, `MPI_IN_PLACE` and a low address in turn, while all counts are positive.
#[test]
fn invalid_buffers_are_errors() {
    if !has_compiler() {
        return;
    }
    let functions = functions();
    let mut calls = String::new();
    for function in &functions {
        for buffer in function.buffers() {
            for value in ["NULL", "MPI_IN_PLACE", "(void *) 40"] {
                let is_legal = value == "MPI_IN_PLACE" && function.may_be_in_place(buffer);
                let class = if is_legal { "MPI_SUCCESS" } else { "MPI_ERR_BUFFER" };
                calls += &function.call(Data::Some, &[(buffer, value)], class);
            }
        }
    }
    assert!(functions.len() > 200, "{} functions take data", functions.len());
    assert_eq!(made("buffers", &calls), Vec::<String>::new());
}

/// Goal: a count of 0 excuses NULL buffers, datatypes and displacements. Method: every call that has a count, with NULL for all three.
#[test]
fn no_elements_need_no_buffers() {
    if !has_compiler() {
        return;
    }
    let mut calls = String::new();
    for function in functions().iter().filter(|function| function.is_counted()) {
        calls += &function.call(Data::None, &[], "MPI_SUCCESS");
        calls += &function.call(Data::Untyped, &[], "MPI_SUCCESS");
        let arrays = ["displs", "sdispls", "rdispls", "sendtypes", "recvtypes"].map(|name| (name, "NULL"));
        calls += &function.call(Data::Untyped, &arrays, "MPI_SUCCESS");
    }
    assert_eq!(made("nothing", &calls), Vec::<String>::new());
}

#[test]
fn addresses_are_absolute_or_in_place_where_that_is_legal() {
    if !has_compiler() {
        return;
    }
    let program = compile("bottom", include_str!("c/bottom.c"), &OPTIONS);
    for (device, size) in [("shm", 1), ("shm", 3), ("iwarp", 2)] {
        assert_eq!(common::job::run_job(&program.path(), size, &[("NICETY_DEVICE", device)]).len(), size);
    }
}
