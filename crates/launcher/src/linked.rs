//! Finds the MPI library that a program is linked to, from its ELF file: for hints when a program did not start, or when its
//! ranks did not find each other.
//!
//! The file is not trusted. Reads are bounded in number and size, and a file that does not parse counts as one without an MPI
//! library. Libraries that its libraries are linked to, or that it loads later, are not examined.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use host::bounded;

use crate::install_paths;

/// The most program headers, dynamic entries and library names that are examined.
const HEADERS_MAX: usize = 128;
const ENTRIES_MAX: usize = 4096;
const NEEDED_MAX: usize = 256;
/// The longest string of the file, in bytes.
const TEXT_MAX: usize = 4096;
/// The loader's cache of libraries, and its largest size in bytes.
const CACHE: &str = "/etc/ld.so.cache";
const CACHE_MAX: u64 = 64 << 20;

/// Tags of the dynamic section.
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// Types of program headers.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// The MPI implementation that a library name belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MpiFamily {
    /// MPI's standard ABI, which several implementations provide, ours among them.
    Standard,
    OpenMpi,
    Mpich,
}

impl MpiFamily {
    /// From the name that a program is linked to.
    fn of_library(library: &str) -> Option<Self> {
        let (stem, version) = library.split_once(".so")?;
        let version = version.trim_start_matches('.').split('.').next().unwrap_or_default();
        match stem {
            "libmpi_abi" => Some(Self::Standard),
            // Version 12 is the ABI of MPICH, Intel MPI and MVAPICH; all other versions are Open MPI's.
            "libmpi" if version == "12" => Some(Self::Mpich),
            "libmpich" | "libmpicxx" | "libmpifort" | "libmpi_cray" => Some(Self::Mpich),
            "libmpi" | "libmpi_cxx" | "libmpi_mpifh" | "libmpi_ibm" => Some(Self::OpenMpi),
            _ if stem.starts_with("libmpi_usempi") => Some(Self::OpenMpi),
            _ => None,
        }
    }

    /// Its name for the user.
    fn name(self) -> &'static str {
        match self {
            Self::Standard => "MPI's standard ABI",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH or a library of its ABI",
        }
    }
}

/// The MPI library that a program is linked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LinkedMpi {
    library: String,
    family: MpiFamily,
    is_fortran: bool,
    /// Whether the loader does not find the library, as far as known.
    is_missing: bool,
}

impl LinkedMpi {
    /// Examines a program that is started with `search` as LD_LIBRARY_PATH; `None` if it is not linked to an MPI library.
    pub(super) fn examine(file: &Path, search: Option<&OsStr>) -> Option<Self> {
        let program = File::open(file).ok()?;
        program.metadata().ok()?.is_file().then_some(())?;
        let dynamic = Dynamic::read(&|at, len| read_piece(&program, at, len))?;
        let mpi = |name: &String| Some((name.clone(), MpiFamily::of_library(name)?));
        let all: Vec<(String, MpiFamily)> = dynamic.needed.iter().filter_map(mpi).collect();
        let fortran = |name: &str| ["fort", "mpifh", "usempi"].iter().any(|part| name.contains(part));
        let is_fortran = all.iter().any(|(name, _)| fortran(name));
        let (library, family) =
            all.iter().find(|(name, _)| name.starts_with("libmpi.so")).or(all.first())?.clone();
        let is_missing = !dynamic.is_found(&library, file, search);
        Some(Self { library, family, is_fortran, is_missing })
    }

    /// The message for a program that the loader could not start; `None` if the library is not the reason.
    pub(super) fn missing_hint(&self, program: &str) -> Option<String> {
        let Self { library, family, .. } = self;
        let what = format!("{program} needs {library} ({}), which the loader cannot find; ", family.name());
        let remedy = match family {
            MpiFamily::Standard => {
                format!("name the directory of {} by --library", install_paths::MPI_SONAME)
            }
            _ => self.remedy(),
        };
        self.is_missing.then(|| what + &remedy)
    }

    /// The message for a program whose ranks did not join the job; `None` if its library supports that.
    pub(super) fn not_joined_hint(&self, program: &str) -> Option<String> {
        let Self { library, family, .. } = self;
        let hint = || {
            format!(
                "{program} is linked to {library} ({}), so no rank has joined the job: each is rank 0 of 1; {}",
                family.name(),
                self.remedy()
            )
        };
        (*family != MpiFamily::Standard).then(hint)
    }

    /// What the user can do about it.
    fn remedy(&self) -> String {
        let compiler = if self.is_fortran { "mpifort" } else { "mpicc" };
        if self.family == MpiFamily::Mpich && !self.is_fortran {
            return "start it with --abi mpich, for which abi-mpich must be built or installed; or recompile it with `nicety mpicc`"
                .to_owned();
        }
        format!("recompile it with `nicety {compiler}`, or start it with that library's own mpirun")
    }
}

/// Reads up to this many bytes of a file at an offset; fewer at its end.
fn read_piece(file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
    let (mut bytes, mut got) = (vec![0; len], 0);
    while got < len {
        match file.read_at(&mut bytes[got..], at.checked_add(got as u64)?) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(got);
    Some(bytes)
}

/// Reads bytes of an image at an offset; fewer at its end.
type Reader<'a> = dyn Fn(u64, usize) -> Option<Vec<u8>> + 'a;

/// The entries of a program's dynamic section.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Dynamic {
    needed: Vec<String>,
    /// RPATH and RUNPATH.
    search: Vec<String>,
}

impl Dynamic {
    /// Parses the dynamic section; `None` unless the file is a 64-bit little-endian ELF file with one.
    fn read(read: &Reader<'_>) -> Option<Self> {
        const HEAD: usize = 64;
        const HEADER: usize = 56;
        let head = read(0, HEAD)?;
        // ELF, 64 bits, little-endian.
        if !head.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]) {
            return None;
        }
        let count = usize::from(u16_at(&head, 56)?).min(HEADERS_MAX);
        let headers = read(u64_at(&head, 32)?, count * HEADER)?;
        let headers: Vec<&[u8]> = headers.chunks_exact(HEADER).collect();
        let of_kind = |kind: u32| headers.iter().filter(move |header| u32_at(header, 0) == Some(kind));
        let dynamic = of_kind(PT_DYNAMIC).next()?;
        let len = usize::try_from(u64_at(dynamic, 32)?).ok()?.min(ENTRIES_MAX * 16);
        let dynamic = read(u64_at(dynamic, 8)?, len)?;
        let entries = dynamic.chunks_exact(16).filter_map(|e| Some((u64_at(e, 0)?, u64_at(e, 8)?)));
        let entries: Vec<(u64, u64)> = entries.take_while(|(tag, _)| *tag != DT_NULL).collect();
        let (_, address) = *entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?;
        // Translates the table's address in memory to an offset in the file.
        let texts = of_kind(PT_LOAD).find_map(|header| {
            let within = address.checked_sub(u64_at(header, 16)?)?;
            (within < u64_at(header, 32)?).then(|| u64_at(header, 8)?.checked_add(within))?
        })?;
        let text = |at: u64| {
            let bytes = read(texts.checked_add(at)?, TEXT_MAX)?;
            let end = bytes.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
        };
        let of = |tags: &[u64]| {
            let found = entries.iter().filter(|(tag, _)| tags.contains(tag)).take(NEEDED_MAX);
            found.filter_map(|(_, at)| text(*at)).collect()
        };
        Some(Self { needed: of(&[DT_NEEDED]), search: of(&[DT_RPATH, DT_RUNPATH]) })
    }

    /// Whether the loader finds a library of this program.
    fn is_found(&self, library: &str, file: &Path, search: Option<&OsStr>) -> bool {
        let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let own = self.search.iter().flat_map(|paths| paths.split(':'));
        let own = own.map(|path| path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into());
        let search = search.into_iter().flat_map(std::env::split_paths);
        let mut places = search.chain(own).chain(default_directories());
        places.any(|place| place.join(library).exists()) || is_cached(library)
    }
}

/// The loader's default directories, and Debian's.
fn default_directories() -> impl Iterator<Item = PathBuf> {
    let debian = ["/lib", "/usr/lib"].map(|folder| format!("{folder}/{}-linux-gnu", std::env::consts::ARCH));
    ["/lib", "/usr/lib", "/lib64", "/usr/lib64"]
        .map(str::to_owned)
        .into_iter()
        .chain(debian)
        .map(PathBuf::from)
}

/// Whether the loader's cache contains a library; names in it end with a zero byte.
fn is_cached(library: &str) -> bool {
    let wanted: Vec<u8> = library.bytes().chain([0]).collect();
    let has = |cache: Vec<u8>| cache.windows(wanted.len()).any(|window| window == wanted);
    bounded::read(CACHE, CACHE_MAX).is_ok_and(has)
}

/// Eight bytes of a file as a number.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Four bytes of a file as a number.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Two bytes of a file as a number.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Rng;

    /// The load address of the image.
    const BASE: u64 = 0x40_0000;

    /// Builds an ELF file from headers, a dynamic section and a string table.
    fn image(entries: &[(u64, &str)]) -> Vec<u8> {
        let (dynamic, count) = (64 + 2 * 56, entries.len() as u64 + 2);
        let texts = dynamic + 16 * count;
        let mut table = vec![0];
        let mut words: Vec<u64> = Vec::new();
        for (tag, text) in entries {
            words.extend([*tag, table.len() as u64]);
            table.extend_from_slice(text.as_bytes());
            table.push(0);
        }
        words.extend([DT_STRTAB, BASE + texts, DT_NULL, 0]);
        let len = texts + table.len() as u64;
        let header = |kind: u32, at: u64, len: u64| -> Vec<u8> {
            let words = [at, BASE + at, BASE + at, len, len, 1].map(u64::to_le_bytes).concat();
            [&kind.to_le_bytes()[..], &4_u32.to_le_bytes(), &words].concat()
        };
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[56..58].copy_from_slice(&2_u16.to_le_bytes());
        let words: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        [head, header(PT_LOAD, 0, len), header(PT_DYNAMIC, dynamic, 16 * count), words, table].concat()
    }

    fn read(image: &[u8]) -> Option<Dynamic> {
        Dynamic::read(&|at, len| {
            let rest = image.get(usize::try_from(at).ok()?.min(image.len())..)?;
            Some(rest[..len.min(rest.len())].to_vec())
        })
    }

    fn linked(entries: &[(u64, &str)]) -> Option<LinkedMpi> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("program");
        std::fs::write(&path, image(entries)).expect("a file");
        LinkedMpi::examine(&path, None)
    }

    #[test]
    fn needed_libraries_are_read_from_image() {
        let found = read(&image(&[
            (DT_NEEDED, "libmpi.so.40"),
            (DT_RUNPATH, "$ORIGIN/lib"),
            (DT_NEEDED, "libc.so.6"),
        ]));
        let dynamic = found.expect("a dynamic section");
        assert_eq!(
            (dynamic.needed, dynamic.search),
            (vec!["libmpi.so.40".to_owned(), "libc.so.6".to_owned()], vec!["$ORIGIN/lib".to_owned()])
        );
        let own = LinkedMpi::examine(&std::env::current_exe().expect("this test"), None);
        assert_eq!(own, None, "this test needs no MPI library");
    }

    #[test]
    fn makers_are_known_by_their_libraries() {
        for (library, family) in [
            ("libmpi.so.40", Some(MpiFamily::OpenMpi)),
            ("libmpi.so.12", Some(MpiFamily::Mpich)),
            ("libmpich.so.12", Some(MpiFamily::Mpich)),
            ("libmpi_abi.so.1", Some(MpiFamily::Standard)),
            ("libmpi_usempif08.so.40", Some(MpiFamily::OpenMpi)),
            ("libmpifort.so.12", Some(MpiFamily::Mpich)),
            ("libmpi", None),
            ("libmpix.so.1", None),
            ("libc.so.6", None),
        ] {
            assert_eq!(MpiFamily::of_library(library), family, "{library}");
        }
    }

    #[test]
    fn hints_name_library_maker_and_remedy() {
        let open = linked(&[(DT_NEEDED, "libmpi_mpifh.so.40"), (DT_NEEDED, "libmpi.so.41")]).expect("one");
        let said = open.missing_hint("./a").expect("the library is missing");
        assert!(
            said.starts_with("./a needs libmpi.so.41 (Open MPI), which the loader cannot find; "),
            "{said}"
        );
        assert!(said.contains("nicety mpifort"), "{said}");
        let mpich = linked(&[(DT_NEEDED, "libmpich.so.12")]).expect("one");
        assert!(
            mpich
                .not_joined_hint("a")
                .is_some_and(|said| said.contains("MPICH") && said.contains("nicety mpicc"))
        );
        let standard = linked(&[(DT_NEEDED, "libmpi_abi.so.1")]).expect("one");
        assert!(
            standard.not_joined_hint("a").is_none()
                && standard.missing_hint("a").is_some_and(|s| s.contains("--library"))
        );
        assert_eq!(linked(&[(DT_NEEDED, "libm.so.6")]), None);
    }

    #[test]
    fn libraries_are_found_where_the_loader_looks() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("program");
        std::fs::create_dir(dir.path().join("lib")).expect("a directory");
        std::fs::write(dir.path().join("lib/libmpi.so.41"), "").expect("a file");
        let is_missing = |runpath: &str, search: Option<&Path>| {
            std::fs::write(&program, image(&[(DT_NEEDED, "libmpi.so.41"), (DT_RUNPATH, runpath)]))
                .expect("a file");
            LinkedMpi::examine(&program, search.map(Path::as_os_str))
                .expect("one")
                .missing_hint("a")
                .is_some()
        };
        assert!(is_missing("", None) && is_missing("$ORIGIN", None));
        assert!(!is_missing("/nowhere:$ORIGIN/lib", None) && !is_missing("", Some(&dir.path().join("lib"))));
        let dynamic = Dynamic::default();
        assert!(
            dynamic.is_found("libc.so.6", &program, None) && !dynamic.is_found("libc.so.67", &program, None)
        );
    }

    /// Goal: no file causes a panic or an unbounded read. Method: an image cut at every length, with every byte replaced by
    /// several values, and with many random bytes; no read returns more than requested.
    #[test]
    fn damaged_images_are_read_without_panic() {
        let whole = image(&[(DT_NEEDED, "libmpi.so.40"), (DT_RPATH, "/a:/b")]);
        for len in 0..whole.len() {
            read(&whole[..len]);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                read(&damaged);
            }
        }
        for seed in 0..20_000 {
            let (rng, mut damaged) = (&mut Rng::new(seed), whole.clone());
            for _ in 0..=rng.index(8) {
                let at = rng.index(damaged.len());
                damaged[at] = rng.below(256) as u8;
            }
            let most = std::cell::Cell::new(0);
            let found = Dynamic::read(&|at, len| {
                most.set(most.get().max(len));
                let rest = damaged.get(usize::try_from(at).ok()?.min(damaged.len())..)?;
                Some(rest[..len.min(rest.len())].to_vec())
            });
            assert!(
                most.get() <= ENTRIES_MAX * 16 && found.is_none_or(|found| found.needed.len() <= NEEDED_MAX)
            );
        }
    }
}
