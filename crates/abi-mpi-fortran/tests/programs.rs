//! Programs in Fortran, built with our modules and linked to our libraries: alone, and as ranks of a job. The sources are in
//! tests/fortran.

#[path = "../../abi-mpi/tests/common/job.rs"]
#[allow(dead_code, reason = "the tests in C use the rest")]
mod job;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use job::run_job;

/// Commands of compilers. Each installed compiler is tested. Debian's command for flang has a version in its name.
const COMPILERS: [&str; 3] = ["gfortran", "flang-new", "flang-new-19"];
/// Options that only gfortran has.
const OF_GFORTRAN: [&str; 2] = ["-fallow-argument-mismatch", "-fcheck=all"];

/// A compiler, with a folder of the libraries under their sonames, `mpif.h` and the modules that it has compiled.
struct Tools {
    compiler: &'static str,
    folder: tempfile::TempDir,
}

/// All compilers that are installed; prints what is skipped if there is none.
fn tools() -> &'static [Tools] {
    static TOOLS: OnceLock<Vec<Tools>> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let is_there = |compiler: &&str| {
            let mut probe = Command::new(compiler);
            let probe = probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            probe.is_ok_and(|status| status.success())
        };
        let found: Vec<Tools> = COMPILERS.into_iter().filter(is_there).map(Tools::new).collect();
        if found.is_empty() {
            eprintln!("SKIPPED: there is no Fortran compiler here; apt-get install gfortran");
        }
        found
    })
}

impl Tools {
    fn new(compiler: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["libmpi_abi.so", "libmpi_abi_fortran.so"] {
            std::os::unix::fs::symlink(library(name), folder.path().join(format!("{name}.1")))
                .expect("a link");
        }
        for source in mpi_fortran::sources() {
            std::fs::write(folder.path().join(source.name), &source.text).expect("written");
            if source.is_module {
                let mut command = Command::new(compiler);
                command.args(["-fsyntax-only", source.name]);
                if compiler == "gfortran" {
                    // All warnings are errors: the interfaces are for strict programs, too.
                    command.args(["-std=f2018", "-Wall", "-Wextra", "-Werror"]);
                }
                run(command.current_dir(folder.path()));
            }
        }
        Self { compiler, folder }
    }

    /// The compiler, with the paths of the modules.
    fn command(&self) -> Command {
        let mut command = Command::new(self.compiler);
        command.arg("-I").arg(self.folder.path());
        command
    }

    /// Adds the libraries to a command, which a program loads from their folder. By the older tag that folder precedes those of
    /// LD_LIBRARY_PATH: cargo sets it to a folder that may hold older libraries.
    fn link(&self, command: &mut Command) {
        let folder = self.folder.path();
        command.args(["libmpi_abi_fortran.so.1", "libmpi_abi.so.1"].map(|name| folder.join(name)));
        command.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()));
    }
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

/// Compiles a program of tests/fortran by each compiler, and links it.
fn programs(source: &str, options: &[&str]) -> Vec<Program> {
    let compile = |tools: &Tools| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut compiler = tools.command();
        let is_known = |option: &&&str| tools.compiler == "gfortran" || !OF_GFORTRAN.contains(*option);
        compiler.args(options.iter().filter(is_known));
        // Modules of the program are written to the working directory.
        compiler.current_dir(folder.path()).args(["-o", "program"]);
        compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fortran").join(source));
        tools.link(&mut compiler);
        run(&mut compiler);
        Program { folder }
    };
    tools().iter().map(compile).collect()
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
        for program in programs(source, &["-fallow-argument-mismatch"]) {
            if source != "ring_mpi.f90" {
                assert_eq!(run(&mut Command::new(program.path())).trim_end(), alone, "{source}");
            }
            for device in ["shm", "iwarp"] {
                let said = run_job(&program.path(), 3, &[("NICETY_DEVICE", device)]);
                assert_eq!(said, [of_three], "{source} on {device}");
            }
        }
    }
}

/// Goal: strings, LOGICAL, indices, statuses, handles, large counts, datatypes and windows arrive as Fortran has them.
#[test]
fn arguments_are_converted() {
    for options in ["-fcheck=all", "-O2"] {
        for program in programs("arguments_f08.f90", &[options]) {
            assert_eq!(run(&mut Command::new(program.path())), "all arguments are right\n", "{options}");
        }
    }
}

/// Goal: programs without `MPI_F_sync_reg` see what nonblocking calls have received, also if the compiler optimizes.
#[test]
fn nonblocking_buffers_are_read_again() {
    for source in ["nonblocking_f08.f90", "nonblocking_mpi.f90"] {
        for options in ["-O0", "-O1", "-O2", "-O3"] {
            for program in programs(source, &[options]) {
                assert_eq!(run(&mut Command::new(program.path())), "received 789\n", "{source} {options}");
            }
        }
    }
}

/// Goal: C calls functions of the program with Fortran's arguments, for both kinds of handles.
#[test]
fn callbacks_run_in_both_modules() {
    for source in ["callbacks_mpi.f90", "callbacks_f08.f90"] {
        for program in programs(source, &[]) {
            let file = program.folder.path().join("file");
            assert_eq!(
                run(Command::new(program.path()).arg(&file)),
                "all functions were called\n",
                "{source}"
            );
        }
    }
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
            for program in programs(source, options) {
                assert_eq!(run_job(&program.path(), 3, &[]), [wanted], "{source} with {options:?}");
            }
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
    for program in programs(source.to_str().expect("a path"), &[]) {
        let said = run(&mut Command::new(program.path()));
        assert!(said.starts_with("256: ") && said.contains("256 different functions"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
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
        for tools in tools() {
            let mut compiler = tools.command();
            compiler.arg("-o").arg(folder.path().join(module)).arg(&path);
            tools.link(&mut compiler);
            run(&mut compiler);
        }
    }
}
