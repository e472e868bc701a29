//! The sources that programs include and use: `mpif.h`, and the modules `mpi` and `mpi_f08`.

use std::fmt::Write as _;

use crate::constants::{Constant, Kind, constants};
use crate::entry::HANDLES;
use crate::interface::{Module, body, is_distinct};
use crate::table::{self, Function};

/// A generated file.
pub struct Source {
    /// Its file name.
    pub name: &'static str,
    /// Its text.
    pub text: String,
    /// Whether it has modules to compile; others are included.
    pub is_module: bool,
}

/// All generated files, each module after the modules that it uses.
pub fn sources() -> Vec<Source> {
    let module = |name, text| Source { name, text, is_module: true };
    vec![
        Source { name: "mpif.h", text: header(), is_module: false },
        module("nicety_mpi_base.f90", base()),
        module("mpi.f90", mpi()),
        module("mpi_f08.f90", mpi_f08()),
    ]
}

/// The kinds of objects that have attributes, in callbacks and predefined functions.
const WITH_ATTRIBUTES: [(&str, &str); 3] = [("Comm", "Comm"), ("Type", "Datatype"), ("Win", "Win")];
/// The kinds of objects with error handlers.
const WITH_HANDLERS: [&str; 4] = ["Comm", "File", "Session", "Win"];
/// Constants about what the interfaces can do: a compiler copies a section of an array to pass it, and buffers have no attribute
/// `ASYNCHRONOUS` (MPI 5.0, section 19.1.2).
const ABILITIES: [&str; 2] = ["MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"];
/// Functions of MPI that return values.
const VALUES: [(&str, &str); 4] = [
    ("MPI_WTIME", "DOUBLE PRECISION"),
    ("MPI_WTICK", "DOUBLE PRECISION"),
    ("MPI_AINT_ADD", "INTEGER(KIND=MPI_ADDRESS_KIND)"),
    ("MPI_AINT_DIFF", "INTEGER(KIND=MPI_ADDRESS_KIND)"),
];
/// Constants that are known by their address: the name with its shape in mpif.h, its type, and its common block.
const ADDRESSES: [(&str, &str, &str); 10] = [
    ("MPI_BOTTOM", "INTEGER", "mpi_fortran_bottom"),
    ("MPI_IN_PLACE", "INTEGER", "mpi_fortran_in_place"),
    ("MPI_BUFFER_AUTOMATIC", "INTEGER", "mpi_fortran_buffer_automatic"),
    ("MPI_UNWEIGHTED(1)", "INTEGER", "mpi_fortran_unweighted"),
    ("MPI_WEIGHTS_EMPTY(1)", "INTEGER", "mpi_fortran_weights_empty"),
    ("MPI_ERRCODES_IGNORE(1)", "INTEGER", "mpi_fortran_errcodes_ignore"),
    ("MPI_STATUS_IGNORE(MPI_STATUS_SIZE)", "INTEGER", "mpi_fortran_status_ignore"),
    ("MPI_STATUSES_IGNORE(MPI_STATUS_SIZE,1)", "INTEGER", "mpi_fortran_statuses_ignore"),
    ("MPI_ARGV_NULL(1)", "CHARACTER*1", "mpi_fortran_argv_null"),
    ("MPI_ARGVS_NULL(1,1)", "CHARACTER*1", "mpi_fortran_argvs_null"),
];

/// The names of the predefined attribute functions; those of MPI 1 first.
fn attribute_functions() -> Vec<String> {
    let mut names: Vec<String> =
        ["NULL_COPY_FN", "NULL_DELETE_FN", "DUP_FN"].map(|name| format!("MPI_{name}")).into();
    for (kind, _) in WITH_ATTRIBUTES {
        names.extend(
            ["NULL_COPY_FN", "NULL_DELETE_FN", "DUP_FN"]
                .map(|name| format!("MPI_{}_{name}", kind.to_uppercase())),
        );
    }
    names
}

/// `mpif.h`, in lines that both source forms accept: columns 7 to 72.
fn header() -> String {
    let mut lines = Vec::new();
    for Constant { name, kind, value } in constants() {
        let words = if kind == Kind::Offset { "INTEGER(KIND=MPI_OFFSET_KIND)" } else { "INTEGER" };
        lines.push(format!("{words} {name}"));
        lines.push(format!("PARAMETER ({name}={value})"));
    }
    for name in ABILITIES {
        lines.push(format!("LOGICAL {name}"));
        lines.push(format!("PARAMETER ({name}=.FALSE.)"));
    }
    for (name, kind, block) in ADDRESSES {
        let (bare, _) = name.split_once('(').unwrap_or((name, ""));
        lines.push(format!("{kind} {name}"));
        lines.push(format!("COMMON /{block}/ {bare}"));
    }
    for (name, kind) in VALUES {
        lines.extend(
            ["", "P"].into_iter().flat_map(|p| [format!("{kind} {p}{name}"), format!("EXTERNAL {p}{name}")]),
        );
    }
    lines.extend(attribute_functions().into_iter().map(|name| format!("EXTERNAL {name}")));
    lines.push("EXTERNAL MPI_CONVERSION_FN_NULL".to_owned());
    let mut text = "! Nicety: MPI 5.0 for Fortran, by include 'mpif.h'. Generated.\n".to_owned();
    for line in lines {
        assert!(line.len() <= 66, "too long for a line of fixed form: {line}");
        writeln!(text, "      {line}").expect("a string");
    }
    text
}

/// The declaration of a constant in a module.
fn parameter(kind: &str, name: &str, value: impl std::fmt::Display) -> String {
    format!("  {kind}, parameter :: {name} = {value}\n")
}

/// The module that the others use.
fn base() -> String {
    let mut text = String::new();
    for Constant { name, kind, value } in constants() {
        match kind {
            Kind::Integer => text.push_str(&parameter("integer", name, value)),
            Kind::Offset => {
                text.push_str(&parameter(
                    "integer(kind=MPI_OFFSET_KIND)",
                    name,
                    format!("{value}_MPI_OFFSET_KIND"),
                ));
            }
            Kind::Handle(_) => {}
        }
    }
    for name in ABILITIES {
        text.push_str(&parameter("logical", name, ".false."));
    }
    let types: String = HANDLES.into_iter().map(|(kind, _)| handle_type(kind)).collect();
    let operators: String =
        [("==", "equal"), ("/=", "differ")].map(|(sign, name)| operator(sign, name)).concat();
    let frame = include_str!("../fortran/base.f90");
    frame.replace("! CONSTANTS\n", &text).replace("! TYPES\n", &format!("{types}{operators}"))
}

/// The type of a kind of handle: an integer, which is passed like one.
fn handle_type(kind: &str) -> String {
    format!("  type, bind(C) :: MPI_{kind}\n    integer(c_int) :: MPI_VAL\n  end type\n")
}

/// A comparison of handles.
fn operator(sign: &str, name: &str) -> String {
    let one = |(kind, _): (&str, &str)| {
        format!(
            "    elemental function nicety_{kind}_{name}(one, other)\n      import\n      type(MPI_{kind}), intent(in) :: one, other\n      \
             logical :: nicety_{kind}_{name}\n    end function\n"
        )
    };
    format!("  interface operator({sign})\n{}  end interface\n", HANDLES.map(one).concat())
}

/// The module `mpi`.
fn mpi() -> String {
    let mut text = "module mpi\n  use nicety_mpi_base\n  implicit none\n  public\n".to_owned();
    for Constant { name, kind, value } in constants() {
        if matches!(kind, Kind::Handle(_)) {
            text.push_str(&parameter("integer", name, value));
        }
    }
    text.push_str(
        "  integer(c_int), bind(C, name=\"mpi_fortran_status_ignore_\") :: MPI_STATUS_IGNORE(MPI_STATUS_SIZE)\n  \
         integer(c_int), bind(C, name=\"mpi_fortran_statuses_ignore_\") :: MPI_STATUSES_IGNORE(MPI_STATUS_SIZE, 1)\n",
    );
    for name in attribute_functions() {
        writeln!(text, "  external :: {name}").expect("a string");
    }
    text.push_str("  external :: MPI_CONVERSION_FN_NULL\n");
    let functions = table::functions();
    for prefix in ["", "P"] {
        text.push_str("  interface\n");
        let is_plain = |function: &&Function| !function.is_large() && !returns_pointer(function);
        for function in functions.iter().filter(is_plain) {
            text.push_str(&body(function, Module::Mpi, &format!("{prefix}{}", function.name)));
        }
        text.push_str(&only_in_fortran(prefix));
        text.push_str("  end interface\n");
        for function in functions.iter().filter(|function| !function.is_large() && returns_pointer(function))
        {
            let name = format!("{prefix}{}", function.name);
            let integer = body(function, Module::Mpi, &name);
            let pointer = body(function, Module::MpiPointer, &format!("{name}_cptr"));
            write!(text, "  interface {name}\n{integer}{pointer}  end interface\n").expect("a string");
        }
    }
    text.push_str("end module\n");
    text
}

/// Whether a function returns an address, which may be a `TYPE(C_PTR)` in the module `mpi`.
fn returns_pointer(function: &Function) -> bool {
    function.arguments.iter().any(|argument| argument.has("pointer"))
}

/// The module `mpi_f08`.
fn mpi_f08() -> String {
    let mut text = "module mpi_f08\n  use nicety_mpi_base\n  implicit none\n  public\n".to_owned();
    for Constant { name, kind, value } in constants() {
        if let Kind::Handle(kind) = kind {
            text.push_str(&parameter(&format!("type(MPI_{kind})"), name, format!("MPI_{kind}({value})")));
        }
    }
    text.push_str(
        "  type(MPI_Status), bind(C, name=\"mpi_f08_status_ignore_\") :: MPI_STATUS_IGNORE\n  \
         type(MPI_Status), bind(C, name=\"mpi_f08_statuses_ignore_\") :: MPI_STATUSES_IGNORE(1)\n",
    );
    text.push_str(&callbacks());
    let functions: Vec<Function> =
        table::functions().into_iter().filter(|function| !function.is_old()).collect();
    let small = |large: &Function| {
        let twin = functions.iter().find(|one| large.name.strip_suffix("_c") == Some(one.name.as_str()));
        twin.filter(|_| large.is_large())
    };
    for prefix in ["", "P"] {
        for function in &functions {
            let name = format!("{prefix}{}", function.name);
            let is_merged = small(function).is_some_and(|twin| !takes_function(twin));
            if function.returns_value() {
                let body = body(function, Module::F08, &name);
                write!(text, "  interface\n{body}  end interface\n").expect("a string");
                continue;
            }
            if is_merged {
                continue;
            }
            write!(text, "  interface {name}\n{}", body(function, Module::F08, &format!("{name}_f08")))
                .expect("a string");
            let large =
                functions.iter().find(|one| one.name.strip_suffix("_c") == Some(function.name.as_str()));
            let large = large.filter(|large| !takes_function(large) && is_distinct(function, large));
            if let Some(large) = large {
                text.push_str(&body(large, Module::F08, &format!("{prefix}{}_f08", large.name)));
            }
            text.push_str("  end interface\n");
        }
        write!(text, "  interface\n{}  end interface\n", only_in_fortran(prefix)).expect("a string");
    }
    text.push_str("end module\n");
    text
}

/// Whether a function takes a function of the program. Such an argument does not make two specific procedures distinguishable.
fn takes_function(function: &Function) -> bool {
    function.arguments.iter().any(|argument| matches!(argument.base, table::Base::Callback(_)))
}

/// Interfaces of what C does not have.
fn only_in_fortran(prefix: &str) -> String {
    format!(
        "    subroutine {prefix}MPI_F_sync_reg(buf)\n      import\n      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf\n      \
         !DIR$ IGNORE_TKR buf\n      type(*), target, dimension(*) :: buf\n    end subroutine\n    \
         subroutine {prefix}MPI_Status_f2f08(f_status, f08_status, ierror)\n      import\n      \
         integer, intent(in) :: f_status(MPI_STATUS_SIZE)\n      type(MPI_Status), intent(out) :: f08_status\n      \
         integer, optional, intent(out) :: ierror\n    end subroutine\n    \
         subroutine {prefix}MPI_Status_f082f(f08_status, f_status, ierror)\n      import\n      \
         type(MPI_Status), intent(in) :: f08_status\n      integer, intent(out) :: f_status(MPI_STATUS_SIZE)\n      \
         integer, optional, intent(out) :: ierror\n    end subroutine\n"
    )
}

/// The abstract interfaces of functions that a program passes, and predefined functions with these interfaces.
fn callbacks() -> String {
    let mut text = include_str!("../fortran/callbacks.f90").to_owned();
    text.push_str("  abstract interface\n");
    for (name, kind) in WITH_ATTRIBUTES {
        text.push_str(&copy_function(&format!("MPI_{name}_copy_attr_function"), kind));
        text.push_str(&delete_function(&format!("MPI_{name}_delete_attr_function"), kind));
    }
    for kind in WITH_HANDLERS {
        write!(
            text,
            "    subroutine MPI_{kind}_errhandler_function(handle, error_code)\n      import\n      \
             type(MPI_{kind}) :: handle\n      integer :: error_code\n    end subroutine\n"
        )
        .expect("a string");
    }
    text.push_str("  end interface\n  interface\n");
    for (name, kind) in WITH_ATTRIBUTES {
        let name = name.to_uppercase();
        text.push_str(&copy_function(&format!("MPI_{name}_NULL_COPY_FN"), kind));
        text.push_str(&copy_function(&format!("MPI_{name}_DUP_FN"), kind));
        text.push_str(&delete_function(&format!("MPI_{name}_NULL_DELETE_FN"), kind));
    }
    text.push_str("  end interface\n");
    text
}

fn copy_function(name: &str, kind: &str) -> String {
    format!(
        "    subroutine {name}(handle, keyval, extra_state, attribute_val_in, &\n        attribute_val_out, flag, ierror)\n      \
         import\n      type(MPI_{kind}) :: handle\n      integer :: keyval, ierror\n      \
         integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out\n      \
         logical :: flag\n    end subroutine\n"
    )
}

fn delete_function(name: &str, kind: &str) -> String {
    format!(
        "    subroutine {name}(handle, keyval, attribute_val, extra_state, ierror)\n      import\n      \
         type(MPI_{kind}) :: handle\n      integer :: keyval, ierror\n      \
         integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state\n    end subroutine\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str) -> String {
        sources().into_iter().find(|source| source.name == name).expect("a source").text
    }

    #[test]
    fn lines_fit_into_both_forms() {
        for line in source("mpif.h").lines().skip(1) {
            assert!(line.len() <= 72 && line.starts_with("      ") && line.as_bytes()[6] != b' ', "{line}");
        }
        for source in sources().iter().filter(|source| source.is_module) {
            for line in source.text.lines() {
                assert!(line.len() <= 132, "{}: {line}", source.name);
            }
        }
    }

    #[test]
    fn every_function_has_an_interface_in_its_modules() {
        let (mpi, f08) = (source("mpi.f90"), source("mpi_f08.f90"));
        let functions = table::functions();
        for function in &functions {
            let name = &function.name;
            for prefix in ["", "P"] {
                let is_in = |text: &str, suffix: &str| text.contains(&format!(" {prefix}{name}{suffix}("));
                assert!(function.is_large() || is_in(&mpi, ""), "{prefix}{name} in mpi");
                let twin = |one: &Function| {
                    name.strip_suffix("_c") == Some(one.name.as_str()) && !is_distinct(one, function)
                };
                let suffix = if function.returns_value() { "" } else { "_f08" };
                let is_same_as_small = functions.iter().any(twin) && !takes_function(function);
                assert!(
                    is_in(&f08, suffix) || function.is_old() || is_same_as_small,
                    "{prefix}{name} in mpi_f08"
                );
            }
        }
    }
}
