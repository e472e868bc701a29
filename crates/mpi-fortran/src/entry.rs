//! Generates the entry points: Rust functions with Fortran's arguments, which are all addresses, that call the functions of C.
//!
//! The texts use the module `arg` of abi-mpi-fortran, which reads and writes through these addresses, and its macro `entry`.

use std::fmt::Write as _;

use crate::constants::c_value;
use crate::table::{self, Argument, Base, Direction, Function, Shape};

/// The Rust code of all generated entry points.
pub fn entry_points() -> String {
    let mut text = String::new();
    for function in table::functions().iter().filter(|function| !function.is_by_hand()) {
        text.push_str(&entry(function, false));
        if function.has_own_f08_entry() {
            text.push_str(&entry(function, true));
        }
    }
    text
}

/// The declarations of the C functions that entry points call, for Rust.
pub fn c_declarations() -> String {
    let mut text = String::new();
    for function in table::prototypes() {
        let kinds: Vec<&str> = function.arguments.iter().map(rust_type).collect();
        let arguments: Vec<String> =
            kinds.iter().enumerate().map(|(at, kind)| format!("a{at}: {kind}")).collect();
        let returns = match function.returns {
            Base::Int => "i32",
            Base::Double => "f64",
            _ => "i64",
        };
        writeln!(text, "pub(crate) safe fn {}({}) -> {returns};", function.name, arguments.join(", "))
            .expect("a string");
    }
    for (_, c) in HANDLES {
        writeln!(text, "pub(crate) safe fn MPI_{c}_fromint(integer: i32) -> usize;\npub(crate) safe fn MPI_{c}_toint(handle: usize) -> i32;")
            .expect("a string");
    }
    format!(
        "// SAFETY: these are the functions of the standard ABI, whose addresses and handles are words here. They check handles, and the\n\
         // program vouches for the addresses, as it does in C. Test: `programs_run_on_both_modules`.\n\
         unsafe extern \"C-unwind\" {{\n{text}}}\n"
    )
}

/// The kinds of handles: the type, and the name in its conversions.
pub(crate) const HANDLES: [(&str, &str); 11] = [
    ("Comm", "Comm"),
    ("Datatype", "Type"),
    ("Errhandler", "Errhandler"),
    ("File", "File"),
    ("Group", "Group"),
    ("Info", "Info"),
    ("Message", "Message"),
    ("Op", "Op"),
    ("Request", "Request"),
    ("Session", "Session"),
    ("Win", "Win"),
];

/// The name of a kind of handle in its conversions.
fn conversion(handle: &str) -> &'static str {
    let known = HANDLES.into_iter().find(|(kind, _)| *kind == handle);
    known.expect("a kind of handle").1
}

/// The Rust type of an argument in C; addresses and handles are words.
fn rust_type(argument: &Argument) -> &'static str {
    match (argument.shape, argument.base) {
        (Shape::Value, Base::Int) => "i32",
        (Shape::Value, Base::Aint | Base::Count | Base::Offset) => "i64",
        _ => "usize",
    }
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

/// An entry point. `is_f08` is the form for `mpi_f08`, where it is another one.
fn entry(function: &Function, is_f08: bool) -> String {
    let lower = function.name.to_lowercase();
    let suffix = if is_f08 { "_f08" } else { "" };
    let mut parameters: Vec<String> = function.fortran_arguments().map(|one| one.name.clone()).collect();
    parameters.push("ierror".to_owned());
    // The lengths of strings follow all other arguments.
    parameters.extend(
        function.fortran_arguments().filter(|one| one.is_text()).map(|one| format!("{}_len", one.name)),
    );
    let (mut before, mut after, mut expressions) = (String::new(), String::new(), Vec::new());
    for argument in &function.arguments {
        let passing = pass(function, argument, is_f08);
        before.push_str(&passing.before);
        after.push_str(&passing.after);
        expressions.push(passing.expression);
    }
    let mut names = vec![format!("{lower}{suffix}")];
    if !is_f08 && !function.has_own_f08_entry() {
        names.push(format!("{lower}_f08"));
    }
    if function.arguments.iter().any(|argument| argument.has("pointer")) {
        names.push(format!("{lower}_cptr"));
    }
    format!(
        "entry! {{ {lower}{suffix} [{}] ({}) {{\n{before}let code = {}({});\n{after}arg::finish(ierror, code);\n}} }}\n",
        names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" "),
        parameters.join(", "),
        function.name,
        expressions.join(", ")
    )
}

/// How an argument of a generated entry point is passed.
fn pass(function: &Function, argument: &Argument, is_f08: bool) -> Passing {
    let name = argument.name.as_str();
    if argument.has("absent") {
        return Passing::just("0".to_owned());
    }
    match (argument.base, argument.shape) {
        (Base::Void, _) if argument.has("detached") && !is_f08 => Passing {
            before: format!("let (mut {name}_c, _) = (0_usize, {name});\n"),
            expression: format!("arg::address_of(&mut {name}_c)"),
            after: String::new(),
        },
        (Base::Void, _) if argument.has("detached") => Passing {
            expression: name.to_owned(),
            after: format!("if code == 0 {{ arg::put_detached({name}) }}\n"),
            ..Passing::default()
        },
        (Base::Void, _) if argument.is_returned_address() => Passing::just(name.to_owned()),
        (Base::Void, _) => Passing::just(format!("arg::choice({name})")),
        (Base::Status, _) => Passing::just(format!("arg::status({name})")),
        (Base::Char, _) => text(argument),
        (Base::Handle(kind), _) => handle(function, argument, conversion(kind)),
        (Base::Int, _) if argument.has("logical") => logical(function, argument),
        (Base::Int, _) if argument.has("index") => index(argument),
        (Base::Int, Shape::Value) => Passing::just(format!("arg::int({name})")),
        (_, Shape::Value) => Passing::just(format!("arg::long({name})")),
        _ if argument.has("weights") => Passing::just(format!("arg::weights({name})")),
        _ => Passing::just(name.to_owned()),
    }
}

/// The Rust expression of an array's length.
fn length(function: &Function, argument: &Argument) -> String {
    let word = argument.value("length").unwrap_or_else(|| panic!("{} has no length", argument.name));
    match word.trim_end_matches(')').split_once('(') {
        Some((function, of)) => {
            let length = format!("crate::lengths::{function}(MPI_Comm_fromint(arg::int({of})))");
            // The program may pass anything in place of an array that is not significant.
            match argument.value("unless_in_place") {
                Some(buffer) => format!("if arg::is_in_place({buffer}) {{ 0 }} else {{ {length} }}"),
                None => length,
            }
        }
        None => {
            let is_long = function.arguments.iter().any(|one| one.name == word && one.base == Base::Count);
            format!("arg::{}({word})", if is_long { "long_count" } else { "count" })
        }
    }
}

fn text(argument: &Argument) -> Passing {
    let name = &argument.name;
    if argument.direction() == Direction::In {
        let trimmed = if argument.has("trim") { "arg::trimmed_text" } else { "arg::text" };
        return Passing {
            before: format!("let {name}_c = {trimmed}({name}, {name}_len);\n"),
            expression: format!("arg::address_of_text(&{name}_c)"),
            after: String::new(),
        };
    }
    let size = c_value(argument.value("max").unwrap_or_else(|| panic!("{name} has no size")));
    Passing {
        before: format!("let mut {name}_c = arg::text_buffer({size});\n"),
        expression: format!("arg::address_of_items(&mut {name}_c)"),
        after: format!("if code == 0 {{ arg::put_text({name}, {name}_len, &{name}_c) }}\n"),
    }
}

fn handle(function: &Function, argument: &Argument, kind: &str) -> Passing {
    let (name, direction) = (&argument.name, argument.direction());
    let (from, to) = (format!("MPI_{kind}_fromint"), format!("MPI_{kind}_toint"));
    if argument.shape == Shape::Value {
        return Passing::just(format!("{from}(arg::int({name}))"));
    }
    if argument.shape == Shape::Array {
        let before = match direction {
            Direction::Out => format!("let mut {name}_c = vec![0_usize; {}];\n", length(function, argument)),
            _ => {
                format!("let mut {name}_c = arg::handles({name}, {}, {from});\n", length(function, argument))
            }
        };
        let after = match direction {
            Direction::In => String::new(),
            _ => format!("arg::put_handles({name}, &{name}_c, {to});\n"),
        };
        return Passing { before, expression: format!("arg::address_of_items(&mut {name}_c)"), after };
    }
    let put = format!("arg::put({name}, {to}({name}_c))");
    let first = format!("{from}(arg::int({name}))");
    let (first, after) = match direction {
        Direction::In => (first, String::new()),
        // Also after an error: of a request that has failed, for example.
        Direction::InOut => (first.clone(), format!("if {name}_c != {first} {{ {put} }}\n")),
        Direction::Out => ("0_usize".to_owned(), format!("if code == 0 {{ {put} }}\n")),
    };
    Passing {
        before: format!("let mut {name}_c = {first};\n"),
        expression: format!("arg::address_of(&mut {name}_c)"),
        after,
    }
}

fn logical(function: &Function, argument: &Argument) -> Passing {
    let name = &argument.name;
    match (argument.shape, argument.direction()) {
        (Shape::Value, _) => Passing::just(format!("arg::logical({name})")),
        (Shape::Array, Direction::In) => Passing {
            before: format!("let mut {name}_c = arg::logicals({name}, {});\n", length(function, argument)),
            expression: format!("arg::address_of_items(&mut {name}_c)"),
            after: String::new(),
        },
        (Shape::Array, _) => Passing {
            before: format!("let mut {name}_c = vec![0_i32; {}];\n", length(function, argument)),
            expression: format!("arg::address_of_items(&mut {name}_c)"),
            after: format!("if code == 0 {{ arg::put_logicals({name}, &{name}_c) }}\n"),
        },
        _ => Passing {
            before: format!("let mut {name}_c = 0_i32;\n"),
            expression: format!("arg::address_of(&mut {name}_c)"),
            // Also after an error: that of an operation that `MPI_Test` has found complete, for example.
            after: format!("arg::put_logical({name}, {name}_c);\n"),
        },
    }
}

/// An index, which counts from 0 in C. It is also set if the operation that it names has failed.
fn index(argument: &Argument) -> Passing {
    let name = &argument.name;
    match argument.shape {
        Shape::Array => Passing {
            before: "arg::put(outcount, arg::UNDEFINED);\n".to_owned(),
            expression: name.clone(),
            after: format!("arg::count_from_one({name}, arg::count(outcount));\n"),
        },
        _ => Passing {
            before: format!("arg::put({name}, arg::UNDEFINED);\n"),
            expression: name.clone(),
            after: format!("arg::count_from_one({name}, 1);\n"),
        },
    }
}
