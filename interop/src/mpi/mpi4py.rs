//! mpi4py, built from its source against our header and library, and its own tests: by module, ranks and device.

use super::launchers::Mpich;
use crate::case::{Case, Verdict};
use crate::guest::tail;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::limited::Running;
use xtask::workspace::run;

pub(crate) const CASES: &[Case<Mpich>] = &[
    Case {
        name: "mpi4py-import",
        shows: "mpi4py built against libmpi_abi.so.1, imported, alone and by 2 ranks",
        run: |mpich| import(mpich),
    },
    Case {
        name: "mpi4py",
        shows: "mpi4py's tests by module, with 1, 2 and 4 ranks, on shm and iwarp",
        run: |mpich| modules(mpich, &[("shm", "verbs"), ("iwarp", "verbs")]),
    },
    Case {
        name: "mpi4py-portals",
        shows: "the same with messages over Portals, on shm",
        run: |mpich| modules(mpich, &[("shm", "portals")]),
    },
];

/// The version that this was written against.
const MPI4PY: &str = "mpi4py==4.1.2";
const RANKS: [&str; 3] = ["1", "2", "4"];
/// How long a module may take. Some take half a minute on idle cores.
const LIMIT: Duration = Duration::from_secs(300);

/// All modules of the tests.
const MODULES: &[&str] = &[
    "test_address",
    "test_attributes",
    "test_buffer",
    "test_cco_buf",
    "test_cco_buf_inter",
    "test_cco_nb_buf",
    "test_cco_nb_vec",
    "test_cco_ngh_buf",
    "test_cco_ngh_obj",
    "test_cco_obj",
    "test_cco_obj_inter",
    "test_cco_pr_buf",
    "test_cco_pr_ngh_buf",
    "test_cco_pr_vec",
    "test_cco_vec",
    "test_cco_vec_inter",
    "test_cffi",
    "test_comm",
    "test_comm_inter",
    "test_comm_topo",
    "test_ctypes",
    "test_datatype",
    "test_doc",
    "test_dynproc",
    "test_environ",
    "test_errhandler",
    "test_errorcode",
    "test_exceptions",
    "test_file",
    "test_grequest",
    "test_group",
    "test_handle",
    "test_info",
    "test_io",
    "test_mpiabi",
    "test_mpiapi",
    "test_mpimem",
    "test_msgspec",
    "test_msgzero",
    "test_objmodel",
    "test_op",
    "test_p2p_buf",
    "test_p2p_buf_matched",
    "test_p2p_buf_part",
    "test_p2p_obj",
    "test_p2p_obj_matched",
    "test_pack",
    "test_package",
    "test_pickle",
    "test_request",
    "test_rma",
    "test_rma_nb",
    "test_session",
    "test_spawn",
    "test_status",
    "test_subclass",
    "test_threads",
    "test_toplevel",
    "test_ulfm",
    "test_util_dtlib",
    "test_util_pkl5",
    "test_util_pool",
    "test_util_sync",
    "test_win",
];

/// Python in a virtual environment with mpi4py, built against our header and our library.
struct Python {
    python: PathBuf,
    tests: PathBuf,
    logs: PathBuf,
}

impl Python {
    fn open(mpich: &Mpich) -> Result<Self> {
        let mut build = Command::new(env!("CARGO"));
        run(build.args(["build", "--quiet", "--release", "--package", "abi-mpi"]).current_dir(&mpich.root))?;
        let folder = mpich.target.join("interop/mpi4py");
        let (environment, source) = (folder.join("env"), folder.join("mpi4py-4.1.2"));
        let logs = folder.join("logs");
        fs::create_dir_all(&logs)?;
        let python = environment.join("bin/python");
        let is_built = environment.join("built");
        if !is_built.exists() {
            run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
            install(mpich, &folder, &python, &source)?;
            fs::write(is_built, MPI4PY)?;
        }
        Ok(Self { python, tests: source.join("test/main.py"), logs })
    }
}

/// Downloads mpi4py's source, and builds it.
fn install(mpich: &Mpich, folder: &Path, python: &Path, source: &Path) -> Result<()> {
    let library = folder.join("libmpi_abi.so.1");
    if library.symlink_metadata().is_err() {
        symlink(mpich.target.join("release/libmpi_abi.so"), &library)?;
    }
    let pip = || {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip
    };
    run(pip().args(["install", "setuptools", "wheel", "cython", "numpy"]))?;
    let from_source = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"];
    run(pip().arg("download").args(from_source).args([MPI4PY, "--dest"]).arg(folder))?;
    let archive = source.with_extension("2.tar.gz");
    run(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(folder))?;
    let compiler = folder.join("mpicc");
    let include = mpich.root.join("crates/abi-mpi/include");
    let (include, library, place) = (include.display(), library.display(), folder.display());
    fs::write(&compiler, format!("#!/bin/sh\nexec cc \"$@\" -I{include} {library} -Wl,-rpath,{place}\n"))?;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))?;
    let mut install = pip();
    install.args(["install", "--no-build-isolation"]).arg(source);
    run(install.env("MPI4PY_BUILD_MPICC", compiler))
}

fn import(mpich: &Mpich) -> Result<Verdict> {
    let python = Python::open(mpich)?;
    let program = "from mpi4py import MPI; print(MPI.Get_library_version(), MPI.COMM_WORLD.Get_size())";
    let log = python.logs.join("import");
    let mut said = Vec::new();
    for ranks in ["1", "2"] {
        let mut command = Command::new(mpich.program("mpiexec.hydra"));
        command.args(["-n", ranks]).arg(&python.python).args(["-c", program]);
        let finished = Running::start(&mut command, &log)?.finish(LIMIT)?;
        let line = finished.output.lines().next().filter(|_| finished.is_good());
        said.push(line.with_context(|| format!("{ranks} ranks: {}", tail(&finished.output)))?.to_owned());
    }
    Ok(Verdict(said.join("; ")))
}

/// The number of ranks, the device, and the transport of messages.
type Column = (&'static str, &'static str, &'static str);

/// Runs a module; returns its duration in seconds if it passed.
fn module(mpich: &Mpich, python: &Python, name: &str, (ranks, device, lane): Column) -> Result<Option<f64>> {
    let mut command = Command::new(mpich.program("mpiexec.hydra"));
    command.args(["-n", ranks, "-genv", "NICETY_DEVICE", device, "-genv", "NICETY_LANE", lane]);
    command.arg(&python.python).arg(&python.tests).args(["-q", name]);
    let began = Instant::now();
    let log = python.logs.join(format!("{name}-{ranks}-{device}-{lane}"));
    let finished = Running::start(&mut command, &log)?.finish(LIMIT)?;
    // A module in which no test ran does not count as passed.
    let has_run = finished.output.lines().any(|line| line.starts_with("Ran ") && !line.starts_with("Ran 0"));
    Ok((finished.is_good() && has_run).then(|| began.elapsed().as_secs_f64()))
}

fn modules(mpich: &Mpich, ways: &[(&'static str, &'static str)]) -> Result<Verdict> {
    let python = Python::open(mpich)?;
    let columns: Vec<Column> = ways
        .iter()
        .flat_map(|(device, lane)| RANKS.iter().map(move |ranks| (*ranks, *device, *lane)))
        .collect();
    let heads: String =
        columns.iter().map(|(ranks, device, _)| format!("{:>9}", format!("{device} {ranks}"))).collect();
    println!("{:<24}{heads}   seconds by device and ranks", "");
    let (mut passed, mut failed) = (0, Vec::new());
    for tests in MODULES {
        let mut row = String::new();
        for column in &columns {
            let cell = match module(mpich, &python, tests, *column)? {
                Some(seconds) => {
                    passed += 1;
                    format!("{seconds:.1}")
                }
                None => {
                    let (ranks, device, lane) = column;
                    failed.push(format!("{tests}-{ranks}-{device}-{lane}"));
                    "FAILED".to_owned()
                }
            };
            row.push_str(&format!("{cell:>9}"));
        }
        println!("{:<24}{row}", tests);
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} runs failed; see in {}: {}",
            failed.len(),
            failed.len() + passed,
            python.logs.display(),
            failed.join(", ")
        );
    }
    Ok(Verdict(format!("{} modules, {passed} runs", MODULES.len())))
}
