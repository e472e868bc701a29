//! Generates the exported functions from functions.txt and the constants from constants.txt, and sets the linker options: the soname that
//! programs expect, and a second version script that exports the weak `MPI_` names, which rustc's symbol list lacks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    for file in ["build.rs", "functions.txt", "constants.txt"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let read = |file: &str| fs::read_to_string(file).expect("a table of this crate");
    let write = |file: &str, text: String| fs::write(out.join(file), text).expect("cargo made the folder");
    write("exports.rs", exports(&read("functions.txt")));
    write("names.rs", names(&read("functions.txt")));
    write("constants.rs", constants(&read("constants.txt")));
    write("weak.map", "{ global: MPI_*; };\n".to_owned());
    abi_link::emit(Some("libmpi_abi.so.1"), Some(&out.join("weak.map")));
}

/// A function, from a line of functions.txt.
struct Function<'a> {
    returns: &'a str,
    name: &'a str,
    arguments: Vec<Argument>,
}

struct Argument {
    name: String,
    /// Its Rust type.
    kind: String,
    /// Whether it is the address of a single result, which must not be NULL.
    is_result: bool,
}

impl Function<'_> {
    /// The argument types; the two forms of a function are compared by them.
    fn shape(&self) -> Vec<&str> {
        self.arguments.iter().map(|argument| argument.kind.as_str()).collect()
    }
}

fn parse(line: &str) -> Function<'_> {
    let prototype = line.split(';').next().unwrap_or(line).trim();
    let (head, arguments) = prototype.split_once('(').expect("a prototype");
    let words: Vec<&str> = head.split(' ').collect();
    let [_state, returns, name] = words[..] else { panic!("no state, type and name: {line}") };
    let arguments = arguments.strip_suffix(')').expect("a prototype").split(", ");
    let arguments = arguments.filter(|argument| !matches!(*argument, "void" | "...")).map(argument);
    Function { returns, name, arguments: arguments.collect() }
}

/// Parses an argument of a C prototype.
fn argument(text: &str) -> Argument {
    let (text, is_array) = match text.split_once('[') {
        Some((before, _)) => (before, true),
        None => (text, false),
    };
    let start = text.rfind([' ', '*']).expect("a type before the name") + 1;
    let (kind, name) = (text[..start].trim(), &text[start..]);
    let is_const = kind.starts_with("const ");
    let kind = kind.trim_start_matches("const ");
    let stars = kind.matches('*').count();
    let base = kind.trim_end_matches(['*', ' ']);
    let rust = match (base, stars, is_array) {
        ("void", 1, false) => "Address".to_owned(),
        ("char", 0, true) | ("char", 1, false) if is_const => "Text".to_owned(),
        (base, 0, false) => plain(base).to_owned(),
        // Arguments that a call itself reads: vectors of strings, and functions.
        ("char", 2 | 3, _) | ("char", 1, true) => "Address".to_owned(),
        (base, 1, _) if base.ends_with("function") || base.ends_with("function_c") => "Address".to_owned(),
        (base, ..) if is_const => format!("In<{}>", plain(base)),
        (base, ..) => format!("Out<{}>", plain(base)),
    };
    // Statuses may be ignored, a string's buffer may have length 0, and a program may have no arguments.
    let may_miss = ["char", "MPI_Status"].contains(&base) || name == "argc";
    let is_result = rust.starts_with("Out<") && !is_array && !may_miss;
    Argument { name: name.to_owned(), kind: rust, is_result }
}

/// The Rust name of a type that is no pointer.
fn plain(base: &str) -> &str {
    match base {
        "int" | "MPI_T_cb_safety" | "MPI_T_source_order" => "i32",
        "char" => "u8",
        "double" => "f64",
        "MPI_Aint" | "MPI_Count" | "MPI_Offset" => "i64",
        "MPI_Status" => "Status",
        // C declares callback types of MPI_T as functions, passed without a star.
        tool if tool.starts_with("MPI_T_") => "Address",
        handle => handle.strip_prefix("MPI_").expect("a type of MPI's"),
    }
}

fn exports(table: &str) -> String {
    let functions: Vec<Function> =
        table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse).collect();
    let shapes: BTreeMap<&str, Vec<&str>> = functions.iter().map(|f| (f.name, f.shape())).collect();
    let mut text = String::new();
    for (at, function) in functions.iter().enumerate() {
        let Function { name, arguments, .. } = function;
        let list: Vec<String> =
            arguments.iter().map(|Argument { name, kind, .. }| format!("{name}: {kind}")).collect();
        let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
        let (list, names) = (list.join(", "), names.join(", "));
        // The large-count form is the same function with wider integers, unless it has more arguments or differs in C only.
        let shape = function.shape();
        let is_twin = |other: &Vec<&str>| other.len() == shape.len() && *other != shape;
        let twin = name.strip_suffix("_c").filter(|twin| shapes.get(twin).is_some_and(is_twin));
        let body = twin.unwrap_or(name).trim_start_matches("MPI_").to_lowercase();
        let returns = plain(function.returns);
        let is_value = returns != "i32" || name.ends_with("_toint");
        let how = if is_value {
            format!("value calls::{body}({names})")
        } else {
            format!("call {at} {} [{}] calls::{body}({names})", whose(function), results(function))
        };
        writeln!(text, "export! {{ P{name} \"{name}\" ({list}) -> {returns}, {how} }}").expect("a string");
    }
    text
}

/// The functions' names, for call counts and messages.
fn names(table: &str) -> String {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names: Vec<&str> = lines.map(|line| parse(line).name).collect();
    format!("pub(crate) static NAMES: [&str; {}] = {names:?};\n", names.len())
}

/// The results whose addresses must not be NULL. Functions of MPI_T require none.
fn results(function: &Function) -> String {
    if function.name.starts_with("MPI_T_") {
        return String::new();
    }
    let results = function.arguments.iter().filter(|argument| argument.is_result);
    results.map(|argument| argument.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The object whose error handler is called: the first communicator, window, file or session among the arguments, or a given
/// handler.
fn whose(function: &Function) -> String {
    if function.name.starts_with("MPI_T_") {
        return "(ErrhandlerOwner::Caller)".to_owned();
    }
    let owner = function.arguments.iter().find_map(|Argument { name, kind, .. }| match kind.as_str() {
        "Comm" => Some(format!("(ErrhandlerOwner::Comm({name}))")),
        "Win" => Some(format!("(ErrhandlerOwner::Win({name}))")),
        "File" => Some(format!("(ErrhandlerOwner::File({name}))")),
        "Session" => Some(format!("(ErrhandlerOwner::Session({name}))")),
        "Errhandler" => {
            let kind = if function.name.starts_with("MPI_Session") { "SESSION" } else { "COMM" };
            Some(format!("(ErrhandlerOwner::NewObject({name}, c::MPI_{kind}_NULL))"))
        }
        _ => None,
    });
    let is_file = function.name.starts_with("MPI_File_");
    owner.unwrap_or_else(|| {
        if is_file { "(ErrhandlerOwner::null_file())" } else { "(ErrhandlerOwner::Process)" }.to_owned()
    })
}

fn constants(table: &str) -> String {
    let mut text = String::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        let (kind, number) = match value.rsplit_once(' ') {
            Some(("(MPI_Offset)", number)) => ("i64", number),
            Some((kind, number)) if kind.starts_with("(enum ") => ("i32", number),
            Some((_, number)) => ("usize", number),
            None if value.starts_with("MPI_") => ("usize", value),
            None => ("i32", value),
        };
        writeln!(text, "pub(crate) const {name}: {kind} = {number};").expect("a string");
    }
    text
}
