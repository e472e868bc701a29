//! Checks what is generated from the tables of functions and constants: include/mpi.h, the exported symbols, the standard ABI. After a
//! change of a table, `BLESS=1 cargo test -p abi-mpi --test table` writes the header.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{compile, has_compiler, library, run};

/// The lines of a table, without comments.
fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A function of the table: its state, its missing parts, its name and its prototype.
struct Function<'a> {
    state: &'a str,
    left_out: Option<&'a str>,
    name: &'a str,
    prototype: &'a str,
}

fn functions() -> Vec<Function<'static>> {
    let parse = |line: &'static str| {
        let (prototype, left_out) = match line.split_once(';') {
            Some((prototype, left_out)) => (prototype.trim(), Some(left_out.trim())),
            None => (line, None),
        };
        let (state, prototype) = prototype.split_once(' ').expect("a state");
        let name = prototype.split(['(', ' ']).nth(1).expect("a name");
        Function { state, left_out, name, prototype }
    };
    lines(include_str!("../functions.txt")).map(parse).collect()
}

/// The enumerations and the macros of constants.txt.
fn constants() -> (String, String) {
    let (mut enumerations, mut macros): (BTreeMap<&str, Vec<String>>, String) = Default::default();
    for line in lines(include_str!("../constants.txt")) {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        if let Some((kind, value)) = value.strip_prefix("(enum ").and_then(|rest| rest.split_once(") ")) {
            enumerations.entry(kind).or_default().push(format!("{name} = {value}"));
        } else if value.starts_with('(') {
            writeln!(macros, "#define {name} ({value})").expect("a string");
        } else {
            writeln!(macros, "#define {name} {value}").expect("a string");
        }
    }
    let enumeration = |(kind, items): (&str, Vec<String>)| {
        format!("typedef enum {kind} {{\n    {}\n}} {kind};\n", items.join(",\n    "))
    };
    (enumerations.into_iter().map(enumeration).collect(), macros)
}

/// The expected text of `include/mpi.h`.
fn header() -> String {
    let (enumerations, macros) = constants();
    let mut text = include_str!("../header/types.h").replace("/* Enumerations. */\n", &enumerations);
    text.push_str("\n/* Constants. */\n");
    text.push_str(&macros);
    text.push_str("\n/* Functions. */\n");
    for prefix in ["", "P"] {
        for Function { name, prototype, .. } in functions() {
            let prototype = prototype.replacen(&format!(" {name}("), &format!(" {prefix}{name}("), 1);
            writeln!(text, "{prototype};").expect("a string");
        }
    }
    text.push_str(include_str!("../header/fortran.h"));
    for prefix in ["", "P"] {
        for Function { name, .. } in functions() {
            for (own, older) in [("_toint", "_c2f"), ("_fromint", "_f2c")] {
                if let Some(handle) = name.strip_suffix(own) {
                    writeln!(text, "#define {prefix}{handle}{older} {prefix}{name}").expect("a string");
                }
            }
        }
    }
    text.push_str("#endif\n");
    text.push_str(include_str!("../header/removed.h"));
    text.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    text
}

/// Checks that a file has the expected content, or writes it.
fn hold(path: &Path, expected: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, expected).expect("written");
        return;
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let (path, hint) = (path.display(), "BLESS=1 cargo test -p abi-mpi --test table writes it");
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {path}; {hint}", line + 1);
    }
    assert_eq!(found.len(), expected.len(), "{path} has another length; {hint}");
}

#[test]
fn the_header_matches_the_tables() {
    hold(&Path::new(env!("CARGO_MANIFEST_DIR")).join("include/mpi.h"), &header());
}

#[test]
fn every_function_is_listed_once_with_a_known_state() {
    let functions = functions();
    assert_eq!(functions.len(), 662);
    let mut names: Vec<&str> = functions.iter().map(|function| function.name).collect();
    names.dedup();
    assert_eq!(names.len(), 662, "a name occurs twice");
    for Function { state, left_out, name, .. } in functions {
        assert!(["done", "partial"].contains(&state), "{name}: {state}");
        assert_eq!(left_out.is_some(), state == "partial", "{name} says what is left out if it is partial");
    }
}

#[test]
fn every_function_is_exported_under_both_names() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no nm here; apt-get install binutils");
        return;
    };
    let mut symbols = BTreeMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, kind, name] = words[..] else { panic!("no symbol: {line}") };
        symbols.insert(name.to_owned(), (address.to_owned(), kind.to_owned()));
    }
    for Function { name, .. } in functions() {
        let (strong, kind) = symbols.remove(&format!("P{name}")).unwrap_or_else(|| panic!("no P{name}"));
        assert_eq!(kind, "T", "P{name} is strong");
        assert_eq!(symbols.remove(name), Some((strong, "W".to_owned())), "{name} is a weak name for it");
    }
    let more: Vec<_> = symbols.keys().filter(|name| name.contains("MPI")).collect();
    assert!(more.is_empty(), "exported without being in the table: {more:?}");
}

/// The facts of the ABI according to another implementation's header, each with its kind.
fn facts() -> Vec<(&'static str, &'static str)> {
    lines(include_str!("mpi_abi.txt")).map(|fact| fact.split_once(' ').expect("a kind")).collect()
}

fn last_word(text: &str) -> &str {
    text.rsplit([' ', '*']).next().unwrap_or_default()
}

/// A prototype's function name, and its argument names in order.
fn names_of(prototype: &str) -> (&str, Vec<&str>) {
    let (head, arguments) = prototype.trim_end_matches(')').split_once('(').expect("a prototype");
    let arguments =
        arguments.split(',').map(|argument| last_word(argument.split('[').next().unwrap_or_default()));
    (last_word(head), arguments.collect())
}

#[test]
fn functions_have_the_names_and_arguments_of_the_abi() {
    let facts = facts();
    let theirs =
        facts.iter().filter(|(kind, _)| *kind == "function").map(|(_, prototype)| names_of(prototype));
    let theirs: BTreeMap<&str, Vec<&str>> = theirs.collect();
    let functions = functions();
    let ours: BTreeMap<&str, Vec<&str>> =
        functions.iter().map(|function| names_of(function.prototype)).collect();
    for (name, arguments) in &theirs {
        assert_eq!(ours.get(name), Some(arguments), "{name}");
    }
    let more: Vec<_> = ours.keys().filter(|name| !theirs.contains_key(*name)).collect();
    assert!(more.is_empty(), "functions that the ABI does not have: {more:?}");
}

/// C code for file scope that compiles if a header states this fact, and a value that a program returns if the fact is wrong.
fn claim(kind: &str, fact: &str) -> (String, String) {
    let same = |one: &str, other: &str| {
        format!("_Static_assert(__builtin_types_compatible_p({one}, {other}), {fact:?});\n")
    };
    let (first, rest) = fact.split_once(' ').unwrap_or((fact, ""));
    let declared = match kind {
        "function" => {
            let (name, _) = names_of(fact);
            format!("extern {fact};\nextern {};\n", fact.replacen(name, &format!("P{name}"), 1))
        }
        "callback" => {
            let (name, _) = names_of(fact);
            same(name, &fact.replacen(name, "", 1))
        }
        "constant" => {
            let (kind, value) = rest.rsplit_once(' ').expect("a type and a value");
            let check = format!("if ((long long) ({first}) != {value}) return puts({first:?});\n");
            return (same(&format!("__typeof__({first})"), kind), check);
        }
        "type" => same(first, rest),
        "handle" => format!("_Static_assert(__builtin_classify_type(({first}) 0) == POINTER, {first:?});\n"),
        "struct" => {
            let field = |field: &str| {
                let name = last_word(field.split('[').next().unwrap_or_default());
                format!(
                    "_Static_assert(offsetof(struct its_{first}, {name}) == offsetof({first}, {name}), {name:?});\n{}",
                    same(
                        &format!("__typeof__((({first} *) 0)->{name})"),
                        &format!("__typeof__(((struct its_{first} *) 0)->{name})")
                    )
                )
            };
            let fields: String =
                rest.split(';').map(str::trim).filter(|text| !text.is_empty()).map(field).collect();
            format!(
                "struct its_{first} {{ {rest} }};\n{fields}_Static_assert(sizeof(struct its_{first}) == sizeof({first}), {first:?});\n"
            )
        }
        _ => panic!("no such kind: {kind}"),
    };
    (declared, String::new())
}

/// Goal: programs that were built against another header of the ABI, and tools that wrap its functions, agree with ours on every
/// prototype, callback type, handle, structure and constant. Method: each statement of that header is compiled against ours.
#[test]
fn the_header_states_what_the_abi_does() {
    if !has_compiler() {
        return;
    }
    let mut source = "#define NICETY_ABI_ONLY\n#include <mpi.h>\n#include <stddef.h>\n#include <stdio.h>\n\
        enum { POINTER = __builtin_classify_type((void *) 0) };\n"
        .to_owned();
    let (declared, checks): (Vec<String>, Vec<String>) =
        facts().into_iter().map(|(kind, fact)| claim(kind, fact)).unzip();
    source.extend(declared);
    source.push_str("int main(void) {\n");
    source.extend(checks);
    source.push_str("return 0;\n}\n");
    let strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"];
    run(Command::new(compile("facts", &source, &strict).path()));
}

/// The header compiles in C and C++ with all warnings, and passed structures have the standard layout.
#[test]
fn the_header_compiles() {
    if !has_compiler() {
        return;
    }
    let source = "#include <mpi.h>\n#include <stddef.h>\n\
        _Static_assert(sizeof(MPI_Status) == 32 && _Alignof(MPI_Status) == 4, \"\");\n\
        _Static_assert(offsetof(MPI_Status, MPI_TAG) == 4 && offsetof(MPI_Status, MPI_ERROR) == 8, \"\");\n\
        _Static_assert(sizeof(MPI_Aint) == 8 && sizeof(MPI_Count) == 8 && sizeof(MPI_Offset) == 8, \"\");\n\
        _Static_assert(sizeof(MPI_Comm) == 8, \"\");\n\
        int main(void) { return MPI_COMM_WORLD == (MPI_Comm) 0x101 && MPI_ANY_TAG == -2 ? 0 : 1; }\n";
    let strict = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"];
    let program = compile("header", source, &strict);
    run(Command::new(program.path()));
}

/// Goal: programs from before the standard ABI compile, and programs with their own definitions still do. Method: handles and a status
/// are converted to integers and back; a program defines these names itself.
#[test]
fn handles_have_their_older_names() {
    if !has_compiler() {
        return;
    }
    let source = "#include <mpi.h>\n\
        int main(void) {\n\
            MPI_Status status, other;\n\
            MPI_Fint integers[MPI_F_STATUS_SIZE];\n\
            status.MPI_SOURCE = 1, status.MPI_TAG = 2, status.MPI_ERROR = 3;\n\
            for (int at = 0; at < 5; at++) status.MPI_internal[at] = 4 + at;\n\
            MPI_Status_c2f(&status, integers);\n\
            PMPI_Status_f2c(integers, &other);\n\
            for (int at = 0; at < MPI_F_STATUS_SIZE; at++) if (integers[at] != at + 1) return 1;\n\
            if (other.MPI_TAG != 2 || other.MPI_internal[4] != 8) return 2;\n\
            if (MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_SELF)) != MPI_COMM_SELF) return 3;\n\
            if (MPI_Type_f2c(PMPI_Type_c2f(MPI_DOUBLE)) != MPI_DOUBLE) return 4;\n\
            return 0;\n\
        }\n";
    let strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"];
    let older = compile("older", source, &strict);
    run(Command::new(older.path()));
    let own = "#define NICETY_ABI_ONLY\n#include <mpi.h>\n\
        typedef long MPI_Fint;\n\
        static MPI_Fint MPI_Comm_c2f(MPI_Comm comm) { return MPI_Comm_toint(comm); }\n\
        int main(void) { return MPI_Comm_c2f(MPI_COMM_NULL) == MPI_Comm_c2f(MPI_COMM_SELF); }\n";
    let own = compile("own", own, &[]);
    run(Command::new(own.path()));
}

/// A preloaded tracer sees a call and passes it on.
#[test]
fn a_preloaded_tracer_sees_calls() {
    if !has_compiler() {
        return;
    }
    let tracer = "#include <mpi.h>\n#include <stdio.h>\n\
        int MPI_Get_version(int *version, int *subversion) {\n\
            int code = PMPI_Get_version(version, subversion);\n\
            *subversion += 40;\n\
            return code;\n\
        }\n";
    let program = "#include <mpi.h>\n#include <stdio.h>\n\
        int main(void) {\n\
            int version, subversion;\n\
            MPI_Get_version(&version, &subversion);\n\
            printf(\"%d.%d\\n\", version, subversion);\n\
            return 0;\n\
        }\n";
    let tracer = compile("tracer", tracer, &["-shared", "-fPIC"]);
    let program = compile("traced", program, &[]);
    assert_eq!(run(Command::new(program.path())), "5.0\n");
    let mut traced = Command::new(program.path());
    traced.env("LD_PRELOAD", tracer.path());
    assert_eq!(run(traced), "5.40\n");
}

/// Goal: what MPI 3.0 removed is an error of the compiler that names the successor, and works where a program asks for it.
#[test]
fn removed_functions_name_their_successors_or_work_on_request() {
    if !has_compiler() {
        return;
    }
    let source = include_str!("c/removed.c");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("removed.c");
    fs::write(&path, source).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let refused =
        Command::new("cc").arg("-I").arg(include).args(["-o", "/dev/null", "-c"]).arg(&path).output();
    let refused = refused.expect("the compiler runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    for (old, new) in [
        ("MPI_Address", "MPI_Get_address"),
        ("MPI_Errhandler_create", "MPI_Comm_create_errhandler"),
        ("MPI_Errhandler_get", "MPI_Comm_get_errhandler"),
        ("MPI_Errhandler_set", "MPI_Comm_set_errhandler"),
        ("MPI_Type_hindexed", "MPI_Type_create_hindexed"),
        ("MPI_Type_hvector", "MPI_Type_create_hvector"),
        ("MPI_Type_struct", "MPI_Type_create_struct"),
        ("MPI_Type_extent", "MPI_Type_get_extent"),
        ("MPI_Type_lb", "MPI_Type_get_extent"),
        ("MPI_Type_ub", "MPI_Type_get_extent"),
        ("MPI_UB", "MPI_Type_create_resized"),
    ] {
        assert!(said.contains(&format!("MPI 3.0 removed {old}; call {new}")), "{old}: {said}");
    }
    let works = compile("works", source, &["-std=c99", "-Wall", "-Wextra", "-Werror", "-DNICETY_MPI1"]);
    assert_eq!(run(Command::new(works.path())), "extent 12, bounds 0 and 12, 2 addresses apart by 4\n");
}
