//! Generates the entry points: functions with MPICH's arguments, which call those of the standard ABI.
//!
//! The texts use the modules `arg`, `handle`, `status` and `conversion` of this crate, and its macro `entry`. An argument is a word: an
//! integer, a handle or an address.

use std::fmt::Write as _;

use mpi_fortran::table::{Argument, Base, Direction, Function, Shape, functions_with};

use super::Constants;

const WORDS: &str = include_str!("../words.txt");

/// The kinds of handles that are integers in MPICH's ABI, and the name of each in the standard's conversions.
const HANDLES: [(&str, &str); 10] = [
    ("Comm", "Comm"),
    ("Datatype", "Type"),
    ("Errhandler", "Errhandler"),
    ("Group", "Group"),
    ("Info", "Info"),
    ("Message", "Message"),
    ("Op", "Op"),
    ("Request", "Request"),
    ("Session", "Session"),
    ("Win", "Win"),
];

/// All functions with the words about them.
fn all() -> Vec<Function> {
    functions_with(WORDS)
}

/// Whether the functions only convert handles to integers.
fn is_conversion(function: &Function) -> bool {
    function.name.ends_with("_toint") || function.name.ends_with("_fromint")
}

/// The functions of the standard ABI, as the macro `functions` takes them.
pub(crate) fn functions() -> String {
    let mut text = String::from("functions! {\n");
    for function in all() {
        let arguments: Vec<String> = function
            .arguments
            .iter()
            .enumerate()
            .map(|(at, argument)| format!("a{at}: {}", standard_type(argument)))
            .collect();
        writeln!(text, "{}({}) -> {};", function.name, arguments.join(", "), returns(&function))
            .expect("a string");
    }
    text + "}\n"
}

/// The Rust type of what a function returns.
fn returns(function: &Function) -> &'static str {
    match function.returns {
        Base::Double => "f64",
        Base::Aint => "i64",
        Base::Handle(_) => "usize",
        _ => "i32",
    }
}

/// The Rust type of an argument in the standard ABI.
fn standard_type(argument: &Argument) -> &'static str {
    match (argument.shape, argument.base) {
        (Shape::Value, Base::Int | Base::Handle("T_cb_safety" | "T_source_order")) => "i32",
        (Shape::Value, Base::Aint | Base::Count | Base::Offset) => "i64",
        _ => "usize",
    }
}

/// The Rust type of an argument in MPICH's ABI.
fn mpich_type(argument: &Argument) -> &'static str {
    match (argument.shape, kind_of(argument)) {
        (Shape::Value, Some(_)) => "i32",
        _ => standard_type(argument),
    }
}

/// The module of `handle` for a handle that is an integer in MPICH's ABI.
fn kind_of(argument: &Argument) -> Option<String> {
    let Base::Handle(kind) = argument.base else { return None };
    HANDLES.iter().any(|(known, _)| *known == kind).then(|| kind.to_lowercase())
}

/// The Rust code of all generated entry points.
pub(crate) fn entry_points(constants: &Constants) -> String {
    let generated = all().into_iter().filter(|function| !function.has("own") && !is_conversion(function));
    let mut text: String = generated.map(|function| entry(&function, constants)).collect();
    for (_, kind) in HANDLES {
        for way in ["c2f", "f2c", "toint", "fromint"] {
            let name = format!("{kind}_{way}");
            writeln!(text, "entry! {{ PMPI_{name} \"MPI_{name}\" (handle: i32) -> i32 {{ handle }} }}")
                .expect("a string");
        }
    }
    text
}

/// How an argument is passed: statements before the call, its expression, and statements after the call.
#[derive(Default)]
struct Passing {
    before: String,
    expression: String,
    after: String,
}

impl Passing {
    fn just(expression: String) -> Self {
        Self { expression, ..Self::default() }
    }
}

fn entry(function: &Function, constants: &Constants) -> String {
    let (name, lower) = (&function.name, function.name.to_lowercase());
    let parameters: Vec<String> =
        function.arguments.iter().map(|one| format!("{}: {}", one.name, mpich_type(one))).collect();
    let (mut before, mut after, mut expressions) = (String::new(), String::new(), Vec::new());
    for argument in &function.arguments {
        let passing = pass(function, argument, constants);
        before.push_str(&passing.before);
        after.push_str(&passing.after);
        expressions.push(passing.expression);
    }
    let finish = if name.starts_with("MPI_T_") { "arg::finish_tool" } else { "arg::finish" };
    let call = format!("c::{name}({})", expressions.join(", "));
    let body = match function.returns {
        Base::Int => format!("{before}let code = {call};\n{after}{finish}(code)"),
        _ => call,
    };
    let (list, returned) = (parameters.join(", "), returns(function));
    if !function.has("hot") {
        return format!("entry! {{ P{name} \"{name}\" ({list}) -> {returned} {{\n{body}\n}} }}\n");
    }
    // Their usual path, with frequent handles only, calls nothing else, and so saves no registers.
    let names: Vec<&str> = function.arguments.iter().map(|one| one.name.as_str()).collect();
    let names = names.join(", ");
    let handles = function.arguments.iter().filter(|one| one.shape == Shape::Value);
    let handles: Vec<(&str, String)> =
        handles.filter_map(|one| Some((one.name.as_str(), kind_of(one)?))).collect();
    let known: String = handles
        .iter()
        .map(|(name, kind)| format!("let Some({name}_f) = conversion::{kind}::frequent({name}) else {{ return other_{lower}({names}) }};\n"))
        .collect();
    let body_of_usual = body.replace(&format!("c::{name}("), &format!("(functions.{name})("));
    let usual = handles.iter().fold(body_of_usual, |body, (name, kind)| {
        body.replace(&format!("handle::{kind}::to_standard({name})"), &format!("{name}_f"))
    });
    let known =
        format!("let Some(functions) = c::loaded() else {{ return other_{lower}({names}) }};\n{known}");
    format!(
        "entry! {{ P{name} \"{name}\" ({list}) -> {returned} {{\n{known}{usual}\n}} }}\n\
         #[cold]\n#[inline(never)]\n#[allow(clippy::too_many_arguments)]\nextern \"C-unwind\" fn other_{lower}({list}) -> {returned} {{\n{body}\n}}\n"
    )
}

/// How an argument of a generated entry point is passed.
fn pass(function: &Function, argument: &Argument, constants: &Constants) -> Passing {
    let name = argument.name.as_str();
    if let Some(conversion) = argument.value("as") {
        return converted(argument, conversion);
    }
    match argument.base {
        Base::Handle("File") => handle(function, argument, "file"),
        Base::Handle(_) => match kind_of(argument) {
            Some(kind) => handle(function, argument, &kind),
            None => Passing::just(name.to_owned()),
        },
        Base::Status => status(function, argument),
        Base::Void if argument.has("detached") => Passing {
            expression: name.to_owned(),
            after: format!("arg::put_detached(code, {name});\n"),
            ..Passing::default()
        },
        Base::Void if ["sendbuf", "recvbuf", "buffer"].contains(&name) => {
            Passing::just(format!("conversion::address_to_standard({name})"))
        }
        Base::Char if argument.direction() == Direction::Out => text(argument, constants),
        _ => Passing::just(name.to_owned()),
    }
}

/// A number that has other values in MPICH's ABI.
fn converted(argument: &Argument, conversion: &str) -> Passing {
    let name = &argument.name;
    let module = match conversion {
        "code" => "code".to_owned(),
        "class" => "code::class".to_owned(),
        _ => format!("conversion::{conversion}"),
    };
    if argument.shape == Shape::Value {
        return Passing::just(format!("{module}::to_standard({name})"));
    }
    let first = match argument.direction() {
        Direction::InOut => format!("arg::number_at({name}).map_or(arg::UNSET, {module}::to_standard)"),
        _ => "arg::UNSET".to_owned(),
    };
    Passing {
        before: format!("let mut {name}_c = {first};\n"),
        expression: format!("arg::place({name}, &mut {name}_c)"),
        after: format!("arg::put_number({name}, {name}_c, {module}::to_mpich);\n"),
    }
}

/// The Rust expression of an array's length.
fn length(function: &Function, argument: &Argument) -> String {
    let word = argument.value("length").unwrap_or_else(|| panic!("{} has no length", argument.name));
    let Some((of, comm)) = word.trim_end_matches(')').split_once('(') else {
        let long = function.arguments.iter().any(|one| one.name == word && one.base == Base::Count);
        return format!("arg::count({word}{})", if long { "" } else { ".into()" });
    };
    let length = format!("crate::lengths::{of}(handle::comm::to_standard({comm}))");
    // The program may pass anything in place of an array that is not significant.
    match argument.value("unless_in_place") {
        Some(buffer) => format!("if arg::is_in_place({buffer}) {{ 0 }} else {{ {length} }}"),
        None => length,
    }
}

fn handle(function: &Function, argument: &Argument, kind: &str) -> Passing {
    let (name, direction) = (&argument.name, argument.direction());
    let module = format!("handle::{kind}");
    if argument.shape == Shape::Value {
        return Passing::just(format!("{module}::to_standard({name})"));
    }
    if argument.shape == Shape::Array {
        let length = length(function, argument);
        let before = format!("let mut {name}_c = {module}::List::read({name}, {length});\n");
        let after = match direction {
            Direction::In => String::new(),
            _ => format!("{name}_c.put_ended({name});\n"),
        };
        return Passing { before, expression: format!("{name}_c.address()"), after };
    }
    let before = match direction {
        Direction::Out => format!("let mut {name}_c = 0_usize;\n"),
        Direction::In => format!("let mut {name}_c = {module}::read({name});\n"),
        Direction::InOut => {
            format!("let {name}_old = {module}::read({name});\nlet mut {name}_c = {name}_old;\n")
        }
    };
    let after = match direction {
        Direction::In => String::new(),
        Direction::InOut => format!("if {name}_c != {name}_old {{ {module}::put({name}, {name}_c) }}\n"),
        Direction::Out => format!("if {name}_c != 0 {{ {module}::put({name}, {name}_c) }}\n"),
    };
    Passing { before, expression: format!("arg::place({name}, &mut {name}_c)"), after }
}

fn status(function: &Function, argument: &Argument) -> Passing {
    let name = &argument.name;
    if argument.shape == Shape::Array {
        let count = &function.arguments[0].name;
        return Passing {
            before: format!("let mut {name}_c = status::List::new({name}, arg::count({count}.into()));\n"),
            expression: format!("{name}_c.address()"),
            after: format!("{name}_c.put({name});\n"),
        };
    }
    let (before, after) = match argument.direction() {
        Direction::In => (format!("status::read({name})"), String::new()),
        Direction::InOut => (format!("status::read({name})"), format!("status::put({name}, &{name}_c);\n")),
        Direction::Out => ("status::Status::UNSET".to_owned(), format!("status::put({name}, &{name}_c);\n")),
    };
    Passing {
        before: format!("let mut {name}_c = {before};\n"),
        expression: format!("status::place({name}, &mut {name}_c)"),
        after,
    }
}

/// A string that C returns into a buffer, which may be shorter in MPICH's ABI.
fn text(argument: &Argument, constants: &Constants) -> Passing {
    let name = &argument.name;
    let sizes = argument.value("max").map(|max| constants.sizes(max));
    let Some((mpich, standard)) = sizes.filter(|(mpich, standard)| mpich < standard) else {
        return Passing::just(name.to_owned());
    };
    Passing {
        before: format!("let mut {name}_c = [0_u8; {standard}];\n"),
        expression: format!("arg::place({name}, &mut {name}_c)"),
        after: format!("let code = arg::put_text(code, {name}, &{name}_c, {mpich});\n"),
    }
}
