//! Programs in Fortran, built with our modules and linked to our libraries: alone, and as ranks of a job. The sources are in
//! tests/fortran.

#[path = "../../abi-mpi/tests/common/job.rs"]
#[allow(dead_code, reason = "the tests in C use the rest")]
mod job;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use job::run_job;

/// A folder with the libraries under their sonames, `mpif.h` and the compiled modules; `None` without a compiler.
fn tools() -> Option<&'static Path> {
    static TOOLS: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let made = TOOLS.get_or_init(|| {
        let probe =
            Command::new("gfortran").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !probe.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: there is no gfortran here; apt-get install gfortran");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["libmpi_abi.so", "libmpi_abi_fortran.so"] {
            std::os::unix::fs::symlink(library(name), folder.path().join(format!("{name}.1")))
                .expect("a link");
        }
        for source in mpi_fortran::sources() {
            std::fs::write(folder.path().join(source.name), &source.text).expect("written");
            if source.is_module {
                let mut compiler = Command::new("gfortran");
                // All warnings are errors: the interfaces are for strict programs, too.
                compiler.args(["-fsyntax-only", "-std=f2018", "-Wall", "-Wextra", "-Werror", source.name]);
                run(compiler.current_dir(folder.path()));
            }
        }
        Some(folder)
    });
    made.as_ref().map(tempfile::TempDir::path)
}

/// A library that cargo has built for this test.
fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join(name));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).unwrap_or_else(|| panic!("cargo has built {name} for its tests"))
}

/// Runs a command, which must succeed; returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// A compiled program.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// Compiles a program of tests/fortran and links it; `None` without a compiler.
fn program(source: &str, options: &[&str]) -> Option<Program> {
    let tools = tools()?;
    let folder = tempfile::tempdir().expect("a folder");
    let mut compiler = Command::new("gfortran");
    compiler.args(options).arg("-o").arg(folder.path().join("program")).arg("-J").arg(folder.path());
    compiler
        .arg("-I")
        .arg(tools)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fortran").join(source));
    compiler.arg(tools.join("libmpi_abi_fortran.so.1")).arg(tools.join("libmpi_abi.so.1"));
    // By the older tag this folder precedes those of LD_LIBRARY_PATH: cargo sets it to a folder that may hold older libraries.
    run(compiler.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", tools.display())));
    Some(Program { folder })
}

/// Goal: programs with each of the three interfaces run, alone and as ranks of a job over both devices.
#[test]
fn programs_run_on_both_modules() {
    let outputs = [
        ("ring_mpi.f90", ["the token is 0", "the token is 3"]),
        ("../../examples/pi.f90", ["pi is 3.14159265", "pi is 3.14159265"]),
        ("hello_mpif.f", ["the total is 1", "the total is 6"]),
    ];
    for (source, [alone, of_three]) in outputs {
        let Some(program) = program(source, &["-fallow-argument-mismatch"]) else { return };
        if source != "ring_mpi.f90" {
            assert_eq!(run(&mut Command::new(program.path())).trim_end(), alone, "{source}");
        }
        for device in ["shm", "iwarp"] {
            assert_eq!(
                run_job(&program.path(), 3, &[("NICETY_DEVICE", device)]),
                [of_three],
                "{source} on {device}"
            );
        }
    }
}

/// Goal: strings, LOGICAL, indices, statuses, handles, large counts, datatypes and windows arrive as Fortran has them.
#[test]
fn arguments_are_converted() {
    let Some(program) = program("arguments_f08.f90", &["-fcheck=all"]) else { return };
    assert_eq!(run(&mut Command::new(program.path())), "all arguments are right\n");
}

/// Goal: C calls functions of the program with Fortran's arguments, for both kinds of handles.
#[test]
fn callbacks_run_in_both_modules() {
    let Some(older) = program("callbacks_mpi.f90", &[]) else { return };
    assert_eq!(run(&mut Command::new(older.path())), "all functions were called\n");
    let Some(newer) = program("callbacks_f08.f90", &[]) else { return };
    let file = newer.folder.path().join("file");
    assert_eq!(run(Command::new(newer.path()).arg(&file)), "all functions were called\n");
}

/// Goal: a program's own copy of a common block, and the modules' variables, are one address for the library, however the program
/// is linked. Method: the checks of `MPI_BOTTOM`, `MPI_IN_PLACE` and ignored statuses in programs with fixed addresses, too.
#[test]
fn special_arguments_have_one_address() {
    for options in [
        &["-fno-pie", "-no-pie", "-fallow-argument-mismatch"][..],
        &["-fPIC", "-O2", "-fallow-argument-mismatch"],
    ] {
        for (source, wanted) in
            [("hello_mpif.f", "the total is 6"), ("../../examples/pi.f90", "pi is 3.14159265")]
        {
            let Some(program) = program(source, options) else { return };
            assert_eq!(run_job(&program.path(), 3, &[]), [wanted], "{source} with {options:?}");
        }
    }
}

/// Goal: an operator too many is an error that says how many there may be. Method: a program with 257 functions.
#[test]
fn operator_too_many_is_an_error_with_a_remedy() {
    let functions: String = (0..257)
        .map(|number| format!("subroutine f{number}(a, b, n, t)\n  integer :: a(*), b(*), n, t\n  b(1) = a(1) + n + t\nend\n"))
        .collect();
    let creations: String = (0..257)
        .map(|number| format!("  call MPI_Op_create(f{number}, .true., op, ierror)\n  if (ierror /= 0) call show({number})\n"))
        .collect();
    let names: Vec<String> = (0..257).map(|number| format!("  external :: f{number}\n")).collect();
    let text = format!(
        "program many\n  use mpi\n  implicit none\n  integer :: op, ierror\n{}  call MPI_Init(ierror)\n  \
         call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, ierror)\n{creations}  call MPI_Finalize(ierror)\n\
         contains\n  subroutine show(number)\n    integer, intent(in) :: number\n    integer :: class, length\n    \
         character(len=MPI_MAX_ERROR_STRING) :: why\n    call MPI_Error_class(ierror, class, length)\n    \
         call MPI_Error_string(ierror, why, length, class)\n    print '(i0, a, a)', number, ': ', trim(why)\n  \
         end subroutine\nend program\n{functions}",
        names.concat()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("many.f90");
    std::fs::write(&source, text).expect("written");
    let Some(program) = program(source.to_str().expect("a path"), &[]) else { return };
    let said = run(&mut Command::new(program.path()));
    assert!(said.starts_with("256: ") && said.contains("256 different functions"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// The dynamic symbols of the library.
fn symbols() -> Vec<String> {
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library("libmpi_abi_fortran.so")));
    listed.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// Goal: every function of the table links in each interface, by both names. Method: the symbols that `mpif.h` and the modules refer to
/// are in the library.
#[test]
fn every_function_is_exported_for_each_interface() {
    let symbols = symbols();
    for name in mpi_fortran::bound_functions() {
        let lower = name.to_lowercase();
        for symbol in [format!("{lower}_"), format!("{lower}_f08_")] {
            let is_old = ["mpi_attr_", "mpi_keyval_"].iter().any(|old| lower.starts_with(old));
            let wanted = !(is_old && symbol.ends_with("_f08_"));
            for full in [symbol.clone(), format!("p{symbol}")] {
                assert!(!wanted || symbols.contains(&full), "{full}");
            }
        }
    }
}

/// Goal: as above, of what the linker sees. Method: a program that refers to every procedure of the modules, by its interface, is linked.
#[test]
fn a_program_with_every_procedure_links() {
    let Some(tools) = tools() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for module in ["mpi", "mpi_f08"] {
        let text = mpi_fortran::sources().into_iter().find(|source| source.name == format!("{module}.f90"));
        let text = text.expect("a module").text;
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("subroutine "))
            .filter_map(|line| line.split_once('(').map(|(name, _)| name))
            .filter(|name| name.starts_with("MPI_") || name.starts_with("PMPI_"))
            .filter(|name| !name.ends_with("_function") && !name.ends_with("_function_c"))
            .collect();
        assert!(names.len() > 800, "{module}: {}", names.len());
        let uses: String = names.iter().map(|name| format!("  call refer({name})\n")).collect();
        let source = format!(
            "program all\n  use {module}\n{uses}end program\nsubroutine refer(procedure)\n  external procedure\nend subroutine\n"
        );
        let path = folder.path().join(format!("{module}.f90"));
        std::fs::write(&path, source).expect("written");
        let mut compiler = Command::new("gfortran");
        compiler.arg("-I").arg(tools).arg("-o").arg(folder.path().join(module)).arg(&path);
        run(compiler.arg(tools.join("libmpi_abi_fortran.so.1")).arg(tools.join("libmpi_abi.so.1")));
    }
}
