//! Tests of the staged package as developers use it: programs are compiled against it by pkg-config and by CMake's FindMPI, and run.

use super::layout::{LIBRARIES, MPICH, UNIT, VERBS, soname, write};
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;
use xtask::packages;
use xtask::workspace::{capture, run as run_command};

/// How long a program may run on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The libraries that programs load, and their sonames.
const SONAMES: [(&str, &str); 5] = [
    ("libmpi_abi.so", "libmpi_abi.so.1"),
    ("libmpi_abi_fortran.so", "libmpi_abi_fortran.so.1"),
    (MPICH.0, "libmpi.so.12"),
    ("libportals.so", "libportals.so.4"),
    (VERBS.0, "libibverbs.so.1"),
];
/// The highest exposure of the unit, of 100, by the measure of systemd-analyze.
const EXPOSURE_MAX: &str = "20";

const PORTALS: &str = r#"
#include <portals4.h>
#include <stdio.h>

int main(void)
{
    ptl_handle_ni_t ni;
    if (PtlInit() != PTL_OK ||
        PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &ni) != PTL_OK)
        return 1;
    PtlNIFini(ni);
    PtlFini();
    puts("an interface");
    return 0;
}
"#;

const VERBS_PROGRAM: &str = r#"
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

int main(void)
{
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!devices || !count || !channel)
        return 1;
    puts(ibv_get_device_name(devices[0]));
    rdma_destroy_event_channel(channel);
    ibv_free_device_list(devices);
    return 0;
}
"#;

const FORTRAN: &str = "\
program ring
  use mpi_f08
  implicit none
  integer :: rank, total
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Allreduce(rank + 1, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) print '(a, i0)', 'the sum is ', total
  call MPI_Finalize()
end program
";

/// A project of one program, in a language by its name in CMake.
fn cmake_project(language: &str, source: &str) -> String {
    format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(ring {language})\n\
         find_package(MPI REQUIRED COMPONENTS {language})\nadd_executable(ring {source})\n\
         target_link_libraries(ring MPI::MPI_{language})\n"
    )
}

/// Where the package is staged, and where programs are built.
pub(super) struct Staged<'a> {
    /// The workspace.
    pub(super) root: &'a Path,
    pub(super) stage: &'a Path,
    pub(super) folder: &'a Path,
}

impl Staged<'_> {
    /// Runs all tests; returns what works, in a line.
    pub(super) fn check(&self) -> Result<String> {
        if self.folder.exists() {
            fs::remove_dir_all(self.folder)?;
        }
        fs::create_dir_all(self.folder)?;
        self.check_sonames()?;
        let ring = fs::read_to_string(self.root.join("crates/abi-mpi/examples/ring.c"))?;
        let ran = [
            ("mpi.pc", self.run_mpi(&self.compile("ring", &ring, &["mpi"])?)?, "the token is 2"),
            ("mpi-c.pc", self.run_mpi(&self.compile("ring-c", &ring, &["mpi-c"])?)?, "the token is 2"),
            ("FindMPI", self.run_mpi(&self.compile_by_cmake("C", "ring.c", &ring)?)?, "the token is 2"),
            (
                "FindMPI for Fortran",
                self.run_mpi(&self.compile_by_cmake("Fortran", "ring.f90", FORTRAN)?)?,
                "the sum is 3",
            ),
            (
                "portals4.pc",
                self.run(Command::new(self.compile("self", PORTALS, &["portals4"])?))?,
                "an interface",
            ),
            (
                "libibverbs.pc and librdmacm.pc",
                self.run(Command::new(self.compile(
                    "devices",
                    VERBS_PROGRAM,
                    &["libibverbs", "librdmacm"],
                )?))?,
                "nicety0",
            ),
        ];
        for (way, said, wanted) in &ran {
            ensure!(said.contains(wanted), "a program built by {way} prints {said:?}, not {wanted:?}");
        }
        let ways = ran.map(|(way, ..)| way).join(", ");
        Ok(format!("deb: programs run that were built by {ways}; sonames are right; {}", self.check_unit()?))
    }

    fn libraries(&self) -> PathBuf {
        self.stage.join(LIBRARIES)
    }

    fn check_sonames(&self) -> Result<()> {
        for (file, wanted) in SONAMES {
            let found = soname(&self.libraries().join(file))?;
            ensure!(found.as_deref() == Some(wanted), "{file} has the soname {found:?}, not {wanted}");
        }
        Ok(())
    }

    /// Compiles a program with the options that pkg-config prints for these packages.
    fn compile(&self, name: &str, source: &str, packages: &[&str]) -> Result<PathBuf> {
        let (text, program) = (self.folder.join(format!("{name}.c")), self.folder.join(name));
        write(&text, source)?;
        let mut config = Command::new("pkg-config");
        config.env("PKG_CONFIG_PATH", self.libraries().join("pkgconfig")).args(["--cflags", "--libs"]);
        let words = capture(config.args(packages))?;
        let folder = self.libraries().display().to_string();
        ensure!(words.contains(&folder), "pkg-config names other files than those in {folder}: {words}");
        run_command(Command::new("cc").arg("-o").arg(&program).arg(&text).args(words.split_whitespace()))?;
        Ok(program)
    }

    /// Compiles a program by CMake's FindMPI.
    fn compile_by_cmake(&self, language: &str, file: &str, source: &str) -> Result<PathBuf> {
        let folder = self.folder.join("cmake").join(language);
        let build = folder.join("build");
        write(&folder.join(file), source)?;
        write(&folder.join("CMakeLists.txt"), &cmake_project(language, file))?;
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&folder).arg("-B").arg(&build);
        configure.arg(format!("-DMPI_HOME={}", self.libraries().display()));
        configure.env("XDG_CACHE_HOME", self.folder.join("cache"));
        let said = capture(&mut configure)?;
        let cache = fs::read_to_string(build.join("CMakeCache.txt"))?;
        let wanted = format!("MPI_mpi_abi_LIBRARY:FILEPATH={}", self.libraries().display());
        ensure!(cache.contains(&wanted), "FindMPI has found another library: {said}");
        capture(
            Command::new("cmake").arg("--build").arg(&build).env("XDG_CACHE_HOME", self.folder.join("cache")),
        )?;
        Ok(build.join("ring"))
    }

    fn run_mpi(&self, program: &Path) -> Result<String> {
        let mut mpirun = Command::new(self.libraries().join("bin/mpirun"));
        mpirun.args(["-n", "2"]).arg(program);
        self.run(mpirun)
    }

    /// Runs a program; returns its output.
    fn run(&self, mut command: Command) -> Result<String> {
        let log = self.folder.join("log");
        command.env("NICETY_KEY_FILE", self.folder.join("key"));
        let finished = Running::start(&mut command, &log)?.finish(LIMIT)?;
        ensure!(finished.is_good(), "{}: {finished:?}", Path::new(command.get_program()).display());
        Ok(finished.output)
    }

    /// Has systemd check its unit, where it is installed.
    fn check_unit(&self) -> Result<String> {
        if !packages::exists("systemd-analyze") {
            return Ok("the unit was NOT CHECKED, as there is no systemd-analyze".to_owned());
        }
        let unit = self.stage.join(UNIT);
        let analyze = |words: &[&str]| {
            let output = Command::new("systemd-analyze").args(words).arg(&unit).output()?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            ensure!(output.status.success(), "systemd-analyze {}: {said}", words.join(" "));
            Ok(said)
        };
        let complaints = analyze(&["verify", "--man=no"])?;
        ensure!(complaints.is_empty(), "systemd does not accept the unit: {complaints}");
        analyze(&["security", "--offline=yes", "--no-pager", "--threshold", EXPOSURE_MAX])?;
        Ok("systemd accepts the unit".to_owned())
    }
}
