//! MPICH's tests in Fortran: `f77` includes `mpif.h`, `f90` is the same by `use mpi`, which a script of the checkout makes, with a few of its
//! own, and `f08` is by `use mpi_f08`. Some programs consist of Fortran and C.

use super::lists::{self, Entry};
use super::suite::Suite;
use crate::makefile::{joined, values};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;
use xtask::workspace::capture;

/// Folders of `test/mpi` with programs in Fortran.
pub(super) const FOLDERS: [&str; 42] = [
    "f77/attr",
    "f77/coll",
    "f77/comm",
    "f77/datatype",
    "f77/ext",
    "f77/info",
    "f77/init",
    "f77/io",
    "f77/pt2pt",
    "f77/rma",
    "f77/spawn",
    "f77/topo",
    "f90/attr",
    "f90/coll",
    "f90/comm",
    "f90/datatype",
    "f90/ext",
    "f90/info",
    "f90/init",
    "f90/io",
    "f90/misc",
    "f90/pt2pt",
    "f90/rma",
    "f90/spawn",
    "f90/timer",
    "f90/topo",
    "f08/attr",
    "f08/coll",
    "f08/comm",
    "f08/datatype",
    "f08/ext",
    "f08/info",
    "f08/init",
    "f08/io",
    "f08/misc",
    "f08/pt2pt",
    "f08/rma",
    "f08/spawn",
    "f08/subarray",
    "f08/timer",
    "f08/topo",
    "f08/profile",
];
/// Programs that require more than MPI does, with the requirement.
pub(super) const LEFT_OUT: [(&str, &str); 18] = [
    ("f77/pt2pt/greqf", CHANGED_STATE),
    ("f90/pt2pt/greqf90", CHANGED_STATE),
    ("f08/pt2pt/greqf08", CHANGED_STATE),
    ("f77/datatype/allctypesf", REMOVED),
    ("f90/datatype/allctypesf90", REMOVED),
    ("f08/datatype/allctypesf08", REMOVED),
    ("f77/datatype/hindex1f", REMOVED),
    ("f90/datatype/hindex1f90", REMOVED),
    ("f90/datatype/get_elem_u", REMOVED),
    ("f77/datatype/typecntsf", REMOVED),
    ("f08/ext/c2f2cf90", "its source in C is not in the checkout"),
    ("f08/io/c2f2ciof90", "its source in C does not compile: it uses a variable that it does not declare"),
    ("f08/misc/statusconv", "wants MPI_F08_status in C, which the standard ABI does not have"),
    ("f08/profile/profile1f90", NO_SECTIONS),
    ("f08/spawn/spawnargvf03", KEPT_BLANKS),
    ("f08/spawn/spawnargvf90", KEPT_BLANKS),
    ("f08/subarray/test14", NO_SECTIONS),
    ("f08/subarray/test15", NO_SECTIONS),
];
const CHANGED_STATE: &str =
    "wants a callback to change the variable that was passed as its extra state, which is INTENT(IN)";
const KEPT_BLANKS: &str =
    "wants blanks before an argument of a spawned program kept, which the same test in f77 wants removed";
const REMOVED: &str = "uses what MPI 3.0 removed";
const NO_SECTIONS: &str = "works only where MPI_SUBARRAYS_SUPPORTED is true";

/// The kinds of integers that configuration would put into headers.
const KINDS: [(&str, &str); 2] = [
    ("@F77_MPI_ADDRESS@", "INTEGER (KIND=MPI_ADDRESS_KIND)"),
    ("@F77_MPI_OFFSET@", "INTEGER (KIND=MPI_OFFSET_KIND)"),
];

/// The language of a folder, by the name of its folder, and the part after it.
fn parts(folder: &str) -> Option<(&str, &str)> {
    folder.split_once('/').filter(|(language, _)| matches!(*language, "f77" | "f90" | "f08"))
}

/// Whether a folder has programs in Fortran.
pub(super) fn is_of(folder: &str) -> bool {
    parts(folder).is_some()
}

/// The name that the script gives to a file or program of `f77`: `attrf` becomes `attrf90`, and `sizes` too gets this ending.
fn renamed(name: &str) -> String {
    format!("{}f90", name.strip_suffix('f').unwrap_or(name))
}

/// The harness of programs by `use mpi`, of that with `mpif.h`.
fn by_module(harness: &str) -> String {
    let line = |line: &str| match line {
        _ if line.contains("implicit") && line.contains("none") => String::new(),
        _ if line.contains("include") && line.contains("mpif") => "      use mpi\n".to_owned(),
        _ if line.contains("include") && line.contains("iooffset") => {
            "      integer (kind=MPI_OFFSET_KIND)offset\n".to_owned()
        }
        _ => {
            let line = line.replace("f.f\"", "f90.f90\"").replace("fheader", "f90header");
            format!("{}\n", line.strip_prefix('C').map_or(line.clone(), |rest| format!("!{rest}")))
        }
    };
    harness.lines().map(line).collect()
}

/// The texts of the files that exist among these.
fn texts(files: &[PathBuf]) -> Result<Vec<String>> {
    let existing = files.iter().filter(|file| file.is_file());
    existing.map(|file| fs::read_to_string(file).with_context(|| file.display().to_string())).collect()
}

/// A program's lists and makefiles, and whether its names are those of `f77`.
struct Place {
    folder: PathBuf,
    is_renamed: bool,
}

/// The folders with the lists of a folder's tests.
fn places(tests: &Path, folder: &str) -> Vec<Place> {
    let mut places = vec![Place { folder: tests.join(folder), is_renamed: false }];
    if let Some(("f90", part)) = parts(folder) {
        places.push(Place { folder: tests.join("f77").join(part), is_renamed: true });
    }
    places
}

/// The entries of a folder's lists.
pub(super) fn entries(tests: &Path, folder: &str) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    for Place { folder, is_renamed } in places(tests, folder) {
        let lists = ["testlist", "testlist.in", "testlist.ap"].map(|name| folder.join(name));
        for mut entry in texts(&lists)?.iter().flat_map(|list| lists::entries(list)) {
            if let Entry::Test(test) = &mut entry
                && is_renamed
            {
                test.program = renamed(&test.program);
            }
            all.push(entry);
        }
    }
    ensure!(!all.is_empty(), "{folder}: no list of tests");
    Ok(all)
}

impl Suite {
    fn fortran(&self, folder: &Path) -> Command {
        let mut compiler = Command::new(&self.nicety);
        compiler.args(["mpifort", "-O1", "-w", "-I", ".", "-J", "."]).current_dir(folder);
        compiler
    }

    /// The folder with the sources of a folder's tests, and a folder for what is built, with generated headers.
    fn prepare(&self, folder: &str) -> Result<(PathBuf, PathBuf)> {
        let (language, part) = parts(folder).context("a folder in Fortran")?;
        let (own, older) = (self.tests.join(folder), self.tests.join("f77").join(part));
        let built = self.folder.join(folder);
        fs::create_dir_all(&built)?;
        // Programs for windows include a header from the folder for attributes.
        let headers = [files(&older)?, files(&self.tests.join("f77/attr"))?].concat();
        for file in headers.iter().filter(|file| file.to_string_lossy().ends_with(".h.in")) {
            let text =
                KINDS.iter().fold(fs::read_to_string(file)?, |text, (word, kind)| text.replace(word, kind));
            fs::write(built.join(file.file_stem().context("a name")?), text)?;
        }
        if part == "io" {
            self.merge_files(&own, &older, &built)?;
        }
        if language != "f90" || !older.is_dir() {
            return Ok((own, built));
        }
        let sources = built.join("sources");
        fs::create_dir_all(&sources)?;
        capture(Command::new("perl").arg(self.tests.join("maint/f77tof90")).arg(&older).arg(&sources))?;
        let is_c = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "c");
        for file in files(&older)?.iter().filter(is_c).chain(&files(&own)?) {
            fs::copy(file, sources.join(file.file_name().context("a name")?))?;
        }
        Ok((sources, built))
    }

    /// Generates programs for files from a harness, in the folder of what is built. That of `f90` is made of that of `f77`.
    fn merge_files(&self, own: &Path, older: &Path, built: &Path) -> Result<()> {
        let harness = ["ioharness.defn", "ioharness.tlt"];
        for name in harness {
            let own = own.join(name);
            let text = match own.is_file() {
                true => fs::read_to_string(own)?,
                false => by_module(&fs::read_to_string(older.join(name))?),
            };
            fs::write(built.join(name), text)?;
        }
        let maint = self.tests.join("maint");
        let (common, script) = (maint.join("common.defn"), built.join("testmerge"));
        // Configuration would name the interpreter.
        fs::write(
            &script,
            fs::read_to_string(maint.join("testmerge.in"))?.replace("@PERL@", "/usr/bin/perl"),
        )?;
        let mut perl = Command::new("perl");
        perl.arg(script).arg(format!("-defn={}", common.display()));
        capture(perl.args(harness).current_dir(built)).map(drop)
    }

    /// The sources of a program, by its makefiles.
    fn sources(&self, folder: &str, program: &str) -> Result<Vec<String>> {
        for Place { folder, is_renamed } in places(&self.tests, folder) {
            let makefiles = ["Makefile.am", "Makefile.ap"].map(|name| folder.join(name));
            let makefile = joined(&texts(&makefiles)?.concat());
            let older = program.strip_suffix("f90").map(|name| [format!("{name}f"), name.to_owned()]);
            let names =
                if is_renamed { older.into_iter().flatten().collect() } else { vec![program.to_owned()] };
            let named = |name: &String| [format!("{name}_SOURCES"), format!("nodist_{name}_SOURCES")];
            for variable in names.iter().flat_map(named) {
                let found = values(&makefile, &variable);
                if !found.is_empty() {
                    let rename = |file: &str| match file.strip_suffix(".f") {
                        Some(stem) if is_renamed => format!("{}.f90", renamed(stem)),
                        _ => file.to_owned(),
                    };
                    return Ok(found.into_iter().map(rename).collect());
                }
            }
        }
        let ending = if folder.starts_with("f77") { "f" } else { "f90" };
        Ok(vec![format!("{program}.{ending}")])
    }

    /// Compiles a program with its helper for its interface.
    pub(super) fn build_fortran(&self, folder: &str, program: &str) -> Result<()> {
        let (sources, built) = self.prepare(folder)?;
        let (language, _) = parts(folder).context("a folder in Fortran")?;
        let ending = if language == "f77" { "f" } else { "f90" };
        let helper = self.tests.join("util").join(format!("mtest_{language}.{ending}"));
        let mut objects = Vec::new();
        let files = self.sources(folder, program)?;
        let is_all_c = files.iter().all(|file| file.ends_with(".c"));
        let part = folder.split_once('/').map_or("", |(_, part)| part);
        // What is built comes last: it has copies of earlier runs.
        let places = [sources.clone(), self.tests.join("f77").join(part), built.clone()];
        let find = |file: &String| {
            let found = places.iter().map(|place| place.join(file)).find(|path| path.is_file());
            found.with_context(|| format!("{file} is not in the checkout"))
        };
        let paths = files.iter().map(find).collect::<Result<Vec<_>>>()?.into_iter();
        for path in paths.chain((!is_all_c).then_some(helper)) {
            let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
            let object = built.join(format!("{program}-{name}.o"));
            let mut compiler = self.fortran(&built);
            compiler.arg("-I").arg(&sources);
            let mut path = path;
            if name.ends_with(".c") {
                // Sources in C name the generated headers by a path relative to their folder.
                let copy = built.join(&name);
                fs::copy(&path, &copy)?;
                (compiler, path) = (self.cc(), copy);
            }
            compiler.arg("-c").arg(&path).arg("-o").arg(&object);
            compile(&mut compiler, &built.join(format!("{program}.fc")))?;
            objects.push(object);
        }
        let mut link = self.fortran(&built);
        link.args(objects);
        link.args(["single.o", "handlers.o", "libmtest.a"].map(|file| self.folder.join(file)));
        compile(link.args(["-lpthread", "-o"]).arg(built.join(program)), &built.join(format!("{program}.fc")))
    }
}

/// Runs a compiler; its error is in the result.
fn compile(compiler: &mut Command, log: &Path) -> Result<()> {
    let finished = Running::start(compiler, log)?.finish(Duration::from_secs(120))?;
    let why = || finished.output.lines().find(|line| line.contains("rror") || line.contains("undefined"));
    ensure!(finished.is_good(), "does not compile: {}", why().unwrap_or("see its log"));
    Ok(())
}

/// The files of a folder, if it exists.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}
