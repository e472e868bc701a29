//! A checkout of MPICH's tests, with the folder in which they are built, its configuration, and the support code of programs.

use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::workspace::{Workspace, run};

/// Sources that are linked into programs that need them.
const HELPERS: [&str; 10] = [
    "util/mtest.c",
    "util/mtest_common.c",
    "util/dtypes.c",
    "util/run_mpitests.c",
    "dtpools/src/dtpools.c",
    "dtpools/src/dtpools_misc.c",
    "dtpools/src/dtpools_init_verify.c",
    "dtpools/src/dtpools_desc.c",
    "dtpools/src/dtpools_attr.c",
    "dtpools/src/dtpools_custom.c",
];
/// Features that MPICH's configuration would detect on Linux and in our header.
const FOUND: [&str; 37] = [
    "HAVE_ATOMIC",
    "HAVE_DOUBLE__COMPLEX",
    "HAVE_FLOAT__COMPLEX",
    "HAVE_GETRUSAGE",
    "HAVE_INT16_T",
    "HAVE_INT32_T",
    "HAVE_INT64_T",
    "HAVE_INT8_T",
    "HAVE_INTTYPES_H",
    "HAVE_LONG_DOUBLE",
    "HAVE_LONG_DOUBLE__COMPLEX",
    "HAVE_LONG_LONG",
    "HAVE_LONG_LONG_INT",
    "HAVE_MPI_INIT_THREAD",
    "HAVE_MPI_INTEGER16",
    "HAVE_MPI_IO",
    "HAVE_MPI_SPAWN",
    "HAVE_MPI_WIN_CREATE",
    "HAVE_PTHREAD_H",
    "HAVE_STDARG_H",
    "HAVE_STDINT_H",
    "HAVE_STDLIB_H",
    "HAVE_STRDUP",
    "HAVE_STRINGS_H",
    "HAVE_STRING_H",
    "HAVE_SYS_RESOURCE_H",
    "HAVE_SYS_STAT_H",
    "HAVE_SYS_TIME_H",
    "HAVE_SYS_TYPES_H",
    "HAVE_UINT16_T",
    "HAVE_UINT32_T",
    "HAVE_UINT64_T",
    "HAVE_UINT8_T",
    "HAVE_UNISTD_H",
    "HAVE_USLEEP",
    "HAVE__BOOL",
    "USE_LONG_DOUBLE_COMPLEX",
];
/// Further configuration: only the standard is tested, threads are POSIX threads, and Fortran's names end in an underscore.
const CHOSEN: &str = "#define HAVE_FORTRAN_BINDING 1\n#define F77_NAME_LOWER_USCORE 1\n#define USE_STRICT_MPI 1\n#define ENABLE_STRICTMPI 1\n#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX\n\
    #define POINTERINT_t long\n#define MPIO_USES_MPI_REQUEST 1\n#define HAVE_MPI_TYPE_CREATE_STRUCT 1\n";

/// The checkout, and the folder in which its tests are built.
pub(super) struct Suite {
    pub(super) tests: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) nicety: PathBuf,
    /// Compiled programs, with the error if that failed.
    pub(super) built: BTreeMap<String, Result<(), String>>,
}

impl Suite {
    pub(super) fn open(workspace: &Workspace, source: &Path) -> Result<Self> {
        let tests = source.join("test/mpi");
        ensure!(
            tests.join("util/mtest.c").exists(),
            "{}: not there; give a checkout of github.com/pmodels/mpich",
            tests.display()
        );
        let packages = ["nicety", "abi-mpi", "abi-mpi-fortran"].map(|package| ["--package", package]);
        run(workspace.cargo(&["build", "--quiet"]).args(packages.concat()))?;
        let (target, folder) = (workspace.target(), workspace.target().join("interop/mpich"));
        fs::create_dir_all(folder.join("include"))?;
        let found: Vec<String> = FOUND.iter().map(|what| format!("#define {what} 1\n")).collect();
        fs::write(folder.join("include/mpitestconf.h"), found.concat() + CHOSEN)?;
        fs::write(folder.join("include/mtest_mpix.h"), "")?;
        fs::write(folder.join("dtpoolsconf.h"), found.concat())?;
        let suite = Self { tests, folder, nicety: target.join("debug/nicety"), built: BTreeMap::new() };
        suite.helpers()?;
        Ok(suite)
    }

    pub(super) fn cc(&self) -> Command {
        let mut cc = Command::new(&self.nicety);
        cc.args(["mpicc", "-O1", "-w", "-D_GNU_SOURCE", "-DHAVE_CONFIG_H", "-I"])
            .arg(self.folder.join("include"));
        for include in ["include", "dtpools/include"] {
            cc.arg("-I").arg(self.tests.join(include));
        }
        cc
    }

    /// Compiles the support code of programs: an archive, and the helper for one thread and for several.
    fn helpers(&self) -> Result<()> {
        let compile = |source: &str, object: &Path| {
            let mut cc = self.cc();
            if object.ends_with("threads.o") {
                cc.arg("-DMTEST_USE_THREAD");
            }
            run(cc.arg("-c").arg(self.tests.join(source)).arg("-o").arg(object))
        };
        let archive = self.folder.join("libmtest.a");
        if archive.exists() {
            fs::remove_file(&archive)?;
        }
        let mut ar = Command::new("ar");
        ar.arg("rcs").arg(&archive);
        for source in HELPERS {
            let object = self.folder.join(source.replace('/', "-")).with_extension("o");
            compile(source, &object)?;
            ar.arg(object);
        }
        run(&mut ar)?;
        let handlers = Path::new(env!("CARGO_MANIFEST_DIR")).join("files/handlers.c");
        run(self.cc().arg("-c").arg(handlers).arg("-o").arg(self.folder.join("handlers.o")))?;
        compile("util/mtest_single.c", &self.folder.join("single.o"))?;
        compile("util/mtest_thread.c", &self.folder.join("threads.o"))
    }
}
