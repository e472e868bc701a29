//! Interfaces of the entry points, as Fortran's modules have them.

use std::fmt::Write as _;

use crate::table::{Argument, Base, Direction, Function, Shape};

/// The interface that a text is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Module {
    /// `mpi`: handles are integers.
    Mpi,
    /// The forms of `mpi` that return a `TYPE(C_PTR)`.
    MpiPointer,
    /// `mpi_f08`: handles are types, and the error code may be left out.
    F08,
}

/// The longest line that every compiler accepts in free form is longer; this one is easy to read.
const LINE_MAX: usize = 110;

/// The interface body of a function under a name, indented.
pub(crate) fn body(function: &Function, module: Module, name: &str) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = function.fortran_arguments().map(|argument| argument.name.as_str()).collect();
    if function.has_error_code() {
        names.push("ierror");
    }
    let (word, result) = match function.returns {
        _ if !function.returns_value() => ("subroutine", ""),
        Base::Double => ("function", "      double precision :: "),
        _ => ("function", "      integer(kind=MPI_ADDRESS_KIND) :: "),
    };
    text.push_str(&head(&format!("    {word} {name}("), &names));
    text.push_str("      import\n");
    for argument in function.fortran_arguments() {
        text.push_str(&declaration(function, argument, module));
    }
    if function.returns_value() {
        writeln!(text, "{result}{name}").expect("a string");
    }
    if function.has_error_code() {
        let optional = if module == Module::F08 { ", optional" } else { "" };
        writeln!(text, "      integer{optional}, intent(out) :: ierror").expect("a string");
    }
    writeln!(text, "    end {word}").expect("a string");
    text
}

/// The first lines of a procedure, broken between arguments.
fn head(start: &str, names: &[&str]) -> String {
    let mut lines = vec![start.to_owned()];
    for (at, name) in names.iter().enumerate() {
        let line = lines.last_mut().expect("there is one");
        if line.len() + name.len() > LINE_MAX {
            line.push('&');
            lines.push("        ".to_owned());
        }
        let line = lines.last_mut().expect("there is one");
        line.push_str(name);
        line.push_str(if at + 1 < names.len() { ", " } else { "" });
    }
    format!("{})\n", lines.join("\n"))
}

/// The declaration of an argument, in lines.
fn declaration(function: &Function, argument: &Argument, module: Module) -> String {
    let name = &argument.name;
    let is_choice = argument.is_choice() || argument.has("detached") && module != Module::F08;
    if is_choice {
        // Each compiler reads its own directive: an actual argument may have any type and rank. A target may be accessed after the call:
        // gfortran would otherwise keep what a nonblocking call receives in a register.
        let intent = if argument.is_const { ", intent(in)" } else { "" };
        return format!(
            "      !GCC$ ATTRIBUTES NO_ARG_CHECK :: {name}\n      !DIR$ IGNORE_TKR {name}\n      type(*), target, dimension(*){intent} :: {name}\n"
        );
    }
    if let Base::Callback(kind) = argument.base {
        return match module {
            Module::F08 => format!("      procedure({kind}) :: {name}\n"),
            _ => format!("      external :: {name}\n"),
        };
    }
    let is_status_array = argument.base == Base::Status && module != Module::F08;
    let shape = match argument.shape {
        Shape::Array if is_status_array => "(MPI_STATUS_SIZE, *)",
        _ if is_status_array => "(MPI_STATUS_SIZE)",
        Shape::Array if name == "array_of_argv" => "(count, *)",
        Shape::Array => "(*)",
        Shape::Triples => "(3, *)",
        _ => "",
    };
    format!("      {}{} :: {name}{shape}\n", kind(function, argument, module), intent(function, argument))
}

/// The type of an argument that is neither a buffer nor a function.
fn kind(function: &Function, argument: &Argument, module: Module) -> String {
    match argument.base {
        Base::Void if argument.is_returned_address() && module != Module::Mpi => "type(c_ptr)".to_owned(),
        Base::Void if function.is_old() => "integer".to_owned(),
        Base::Void | Base::Aint => "integer(kind=MPI_ADDRESS_KIND)".to_owned(),
        Base::Count => "integer(kind=MPI_COUNT_KIND)".to_owned(),
        Base::Offset => "integer(kind=MPI_OFFSET_KIND)".to_owned(),
        Base::Char => "character(len=*)".to_owned(),
        Base::Double => "double precision".to_owned(),
        Base::Int if argument.has("logical") => "logical".to_owned(),
        Base::Status if module == Module::F08 => "type(MPI_Status)".to_owned(),
        Base::Handle(kind) if module == Module::F08 => format!("type(MPI_{kind})"),
        Base::Int | Base::Status | Base::Handle(_) | Base::Callback(_) => "integer".to_owned(),
    }
}

/// The attribute for the direction. Arrays and statuses that are written have none, as their place may be taken by constants such as
/// `MPI_STATUS_IGNORE`.
fn intent(function: &Function, argument: &Argument) -> &'static str {
    let is_attribute = argument.has("address") && !function.name.to_lowercase().contains("get");
    match argument.direction() {
        _ if is_attribute => ", intent(in)",
        Direction::In => ", intent(in)",
        _ if argument.base == Base::Status || argument.shape == Shape::Array => "",
        Direction::Out => ", intent(out)",
        Direction::InOut => ", intent(inout)",
    }
}

/// Whether the arguments of two functions differ, so that one generic name can have both.
pub(crate) fn is_distinct(one: &Function, other: &Function) -> bool {
    let kinds = |function: &Function| -> Vec<String> {
        let kind = |argument: &Argument| match argument.base {
            // All integers of 64 bits are of one kind.
            Base::Void | Base::Aint | Base::Count | Base::Offset => "64 bits".to_owned(),
            Base::Callback(_) => "a procedure".to_owned(),
            _ => kind(function, argument, Module::F08),
        };
        function.fortran_arguments().map(kind).collect()
    };
    kinds(one).into_iter().zip(kinds(other)).any(|(one, other)| one != other)
}
