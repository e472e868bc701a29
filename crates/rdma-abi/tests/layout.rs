//! Compares the types with a C compiler's layout of the installed headers, and with `offsets.txt` on machines without them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rdma_abi::{layouts, numbers::NUMBERS};

const HEADERS: [&str; 2] = ["infiniband/verbs.h", "rdma/rdma_cma.h"];

/// This crate's layouts and constants, as lines of `offsets.txt`.
fn ours() -> String {
    let mut text = String::new();
    for layout in layouts() {
        writeln!(text, "sizeof {} {}", layout.name, layout.size).expect("a string");
        for field in layout.fields {
            writeln!(text, "{}.{} {}", layout.name, field.name, field.offset).expect("a string");
        }
    }
    for (name, value) in NUMBERS {
        writeln!(text, "{name} {value}").expect("a string");
    }
    text
}

/// A C program that prints the same lines from the headers.
fn program() -> String {
    let mut text: String = HEADERS.map(|header| format!("#include <{header}>\n")).concat();
    text += "#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n";
    for layout in layouts() {
        let name = layout.name;
        writeln!(text, "printf(\"sizeof {name} %zu\\n\", sizeof(struct {name}));").expect("a string");
        for field in layout.fields {
            let field = field.name;
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));")
                .expect("a string");
        }
    }
    for (name, _) in NUMBERS {
        writeln!(text, "printf(\"{name} %u\\n\", (unsigned){name});").expect("a string");
    }
    text + "return 0;\n}\n"
}

/// Fails with the lines that differ.
fn compare(found: &str, what: &str) {
    let ours = ours();
    let differ: Vec<_> = found.lines().zip(ours.lines()).filter(|(theirs, ours)| theirs != ours).collect();
    assert!(differ.is_empty(), "{what} / ours: {differ:#?}");
    assert_eq!(found.lines().count(), ours.lines().count(), "{what}");
}

#[test]
fn types_lie_as_the_stored_offsets_say() {
    compare(include_str!("../offsets.txt"), "offsets.txt");
}

/// Goal: a mistake in both the types and the stored offsets is found where the headers are installed (`cargo xtask setup`).
#[test]
fn types_lie_as_the_installed_headers_say() {
    if !HEADERS.iter().all(|header| Path::new("/usr/include").join(header).exists()) {
        eprintln!("the headers of rdma-core are not installed: only the stored offsets are compared");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, program()).expect("a file");
    let cc = Command::new("cc").arg(&source).arg("-o").arg(&binary).output().expect("a C compiler");
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let printed = Command::new(&binary).output().expect("it runs").stdout;
    compare(&String::from_utf8(printed).expect("text"), "headers");
}
