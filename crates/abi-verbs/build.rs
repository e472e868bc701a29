//! Generates the exported functions of functions.txt and private.txt, each under its version node, and sets the linker arguments.
//!
//! Programs link against e.g. `ibv_open_device` of node `IBVERBS_1.1`. The assembler sets such versioned symbols. rustc's own version
//! script does not list them and so makes them local. A second version script names the nodes and patterns that keep these symbols
//! global.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// C structures that this crate implements as objects, with the names of their Rust types.
const OBJECTS: [(&str, &str); 12] = [
    ("ibv_device", "Device"),
    ("ibv_context", "Context"),
    ("ibv_pd", "Pd"),
    ("ibv_mr", "Mr"),
    ("ibv_comp_channel", "Channel"),
    ("ibv_cq", "Cq"),
    ("ibv_qp", "Qp"),
    ("ibv_srq", "Srq"),
    ("ibv_ah", "Ah"),
    ("rdma_cm_id", "CmId"),
    ("rdma_event_channel", "EventChannel"),
    ("rdma_cm_event", "CmEvent"),
];

fn main() {
    for file in ["build.rs", "functions.txt", "private.txt"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let write = |file: &str, text: String| fs::write(out.join(file), text).expect("cargo made the folder");
    let (public, private) = (read("functions.txt"), read("private.txt"));
    let functions: Vec<Function> = lines(&public).map(Function::parse).collect();
    let private: Vec<(&str, &str)> =
        lines(&private).map(|line| line.split_once(' ').expect("a node and a name")).collect();
    write("exports.rs", exports(&functions, &private));
    write("nodes.map", nodes(&functions, &private));
    // librdmacm.so.1 is another name of the same file: objects of the two libraries refer to each other.
    abi_link::emit(Some("libibverbs.so.1"), Some(&out.join("nodes.map")));
}

fn read(file: &str) -> String {
    fs::read_to_string(file).expect("a table of this crate")
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A line of functions.txt.
struct Function<'a> {
    is_there: bool,
    node: &'a str,
    /// The return convention: a macro word of `answer.rs`, or a type.
    answer: &'a str,
    name: &'a str,
    /// Name and Rust type of each argument.
    arguments: Vec<(&'a str, String)>,
}

impl<'a> Function<'a> {
    fn parse(line: &'a str) -> Self {
        let line = line.split(';').next().unwrap_or(line).trim();
        let (head, arguments) = line.split_once('(').expect("arguments");
        let (state, head) = head.split_once(' ').expect("a state");
        let (node, head) = head.split_once(' ').expect("a node");
        let start = head.rfind([' ', '*']).expect("an answer before the name") + 1;
        let arguments = arguments.strip_suffix(')').expect("a closing parenthesis").split(", ");
        let arguments = arguments.filter(|argument| *argument != "void" && !argument.is_empty());
        let arguments = arguments.map(|text| {
            let start = text.rfind([' ', '*']).expect("a type before the name") + 1;
            (&text[start..], argument(text[..start].trim()))
        });
        let (answer, name) = (head[..start].trim(), &head[start..]);
        let is_there = state != "unsupported";
        // An unsupported function ignores its arguments.
        let arguments = if is_there { arguments.collect() } else { Vec::new() };
        Self { is_there, node, answer, name, arguments }
    }
}

/// Translates the C type of an argument to Rust.
fn argument(kind: &str) -> String {
    let is_const = kind.starts_with("const ");
    let kind = kind.trim_start_matches("const ");
    let stars = kind.matches('*').count();
    let base = kind.trim_end_matches(['*', ' ']);
    let plain = plain(base);
    let object = OBJECTS.iter().find(|(name, _)| *name == plain).map(|(_, object)| *object);
    match (object, stars) {
        (Some(object), 1) => format!("Handle<{object}>"),
        (Some(object), 2) => format!("Out<Handle<{object}>>"),
        _ if plain == "c_void" && stars == 1 => "Address".to_owned(),
        _ if plain == "sockaddr" => "SockAddr".to_owned(),
        _ if plain == "u8" && is_const => "Text".to_owned(),
        (None, 0) => plain.to_owned(),
        (None, 1) if is_const => format!("In<{plain}>"),
        (None, 1) => format!("Out<{plain}>"),
        (None, 2) => format!("Out<*mut {plain}>"),
        _ => panic!("a type that build.rs does not know: {kind}"),
    }
}

/// Translates a C type that is not a pointer.
fn plain(base: &str) -> &str {
    match base {
        "int" => "i32",
        "unsigned int" | "uint32_t" => "u32",
        "uint8_t" => "u8",
        "uint16_t" | "__be16" => "u16",
        "uint64_t" | "__be64" => "u64",
        "size_t" => "usize",
        "off_t" => "i64",
        "ssize_t" => "isize",
        "char" => "u8",
        "void" => "c_void",
        base if base.starts_with("enum ") => "i32",
        base => base.trim_start_matches("struct ").trim_start_matches("union "),
    }
    .trim()
}

/// The name with its version node in the linker's syntax: `@` marks the old of two versions, kept for old programs.
fn symbol(name: &str, node: &str, is_old: bool) -> String {
    format!("{name}{}{node}", if is_old { "@" } else { "@@" })
}

fn exports(functions: &[Function], private: &[(&str, &str)]) -> String {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    functions.iter().for_each(|function| *nodes.entry(function.name).or_default() += 1);
    let mut text = String::new();
    for function in functions {
        let Function { is_there, node, answer, name, arguments } = function;
        let is_old = *node == "IBVERBS_1.0" && nodes[name] > 1 || *name == "ibv_register_driver";
        let symbol = symbol(name, node, is_old);
        let list: Vec<String> = arguments.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
        let how = match *answer {
            "errno" | "minus" | "waits" | "completes" | "long" | "steps" | "numbers" | "void" => {
                (*answer).to_owned()
            }
            kind if kind.ends_with('*') => format!("pointer {}", returned(kind)),
            kind => format!("value {}", plain(kind)),
        };
        // The errors that rdma-core returns for what a device does not support, so that programs fall back.
        let what = if *is_there {
            "export! {"
        } else if node.starts_with("IBVERBS") {
            "missing! { OPNOTSUPP"
        } else {
            "missing! { NOSYS"
        };
        let suffix = if is_old { "_old" } else { "" };
        writeln!(text, "{what} \"{symbol}\" {name}{suffix} ({}) {how} }}", list.join(", "))
            .expect("a string");
    }
    for (node, name) in private {
        let symbol = symbol(name, node, false);
        writeln!(text, "missing! {{ NOSYS \"{symbol}\" {name} () errno }}").expect("a string");
    }
    text
}

/// The Rust type of a pointer that a function returns.
fn returned(kind: &str) -> String {
    match argument(kind).as_str() {
        "Text" => "*const c_char".to_owned(),
        handle if handle.starts_with("Handle<") => handle.to_owned(),
        out => format!(
            "*mut {}",
            out.trim_start_matches("Out<").trim_end_matches('>').to_owned()
                + if out.contains("Handle<") { ">" } else { "" }
        ),
    }
}

fn nodes(functions: &[Function], private: &[(&str, &str)]) -> String {
    let rows = functions.iter().map(|function| (function.node, function.name));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    rows.chain(private.iter().copied()).for_each(|(node, name)| {
        names.entry(node).or_default().insert(name);
    });
    let mut text = String::new();
    for (node, names) in names {
        writeln!(text, "{node} {{ global:").expect("a string");
        // `?*` matches the @, which a version script may not contain.
        names.iter().for_each(|name| writeln!(text, "  {name}?*;").expect("a string"));
        text += "};\n";
    }
    text
}
