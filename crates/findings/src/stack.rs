//! [`Stack`]: where the program was when it made a call: return addresses, which get names only when they are printed.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Calls that a stack keeps, from the innermost of the program on.
const CALLS: usize = 10;
/// Crates whose functions are not the program's, for programs that contain them.
const OWN_CRATES: &[&str] =
    &["backtrace", "findings", "nic_check", "verbs", "fabric", "core", "alloc", "std", "conformance"];
/// Functions that call the program: C's start, and that of a thread.
const CALLERS: &[&str] =
    &["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"];

/// The calls of a thread at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stack {
    /// Return addresses; 0 behind the last.
    addresses: [usize; CALLS],
}

impl Stack {
    /// The calls of this thread now, without those inside of the library.
    #[must_use]
    pub fn here() -> Self {
        let (own, mut stack, mut count) = (library(), Self::default(), 0);
        backtrace::trace(|frame| {
            let address = frame.ip().addr();
            // A program that contains the NIC has no library to leave out; then the names decide, when they are printed.
            if count != 0 || !own.contains(&address) {
                stack.addresses[count] = address;
                count += 1;
            }
            count < CALLS
        });
        stack
    }

    /// A line for each call, from the innermost on.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let (mut lines, mut is_inside) = (Vec::new(), true);
        for address in self.addresses.into_iter().filter(|address| *address != 0) {
            let (mut found, mut is_behind) = (Vec::new(), false);
            // The call is in front of the address to which it returns.
            backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(address - 1), |symbol| {
                let name = symbol.name().map(|name| format!("{name:#}"));
                is_behind |= name.as_deref().is_some_and(|name| CALLERS.contains(&name));
                let place = symbol.filename().zip(symbol.lineno());
                let mut line = name.unwrap_or_else(|| "?".to_owned());
                if let Some((file, number)) = place {
                    let _ = write!(line, " at {}:{number}", file.display());
                }
                found.push(line);
            });
            if is_behind {
                break;
            }
            if found.is_empty() {
                found.push(unnamed(address));
            }
            if is_inside && found.iter().all(|line| is_own(line)) {
                continue;
            }
            is_inside = false;
            lines.extend(found);
        }
        lines
    }
}

/// Whether a function belongs to one of [`OWN_CRATES`].
fn is_own(line: &str) -> bool {
    let name = line.trim_start_matches(['<', '&']);
    OWN_CRATES.iter().any(|own| name.strip_prefix(own).is_some_and(|rest| rest.starts_with("::")))
}

/// An address without a name: the file that is mapped there, and the offset in it, as addr2line(1) takes it.
fn unnamed(address: usize) -> String {
    match mappings().into_iter().find(|mapping| mapping.range.contains(&address)) {
        Some(Mapping { range, offset, file }) => {
            format!("{}+{:#x}", file.display(), address - range.start + offset)
        }
        None => format!("{address:#x}"),
    }
}

/// The addresses of the library that contains this code; none if that is the program itself.
fn library() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| {
        let (here, all) = ((Stack::here as fn() -> Stack) as usize, mappings());
        let own = all.iter().find(|mapping| mapping.range.contains(&here)).map(|own| &own.file);
        match own {
            Some(own) if std::fs::read_link("/proc/self/exe").ok().as_ref() != Some(own) => {
                let parts = || all.iter().filter(|mapping| mapping.file == *own).map(|part| &part.range);
                let (start, end) = (parts().map(|part| part.start).min(), parts().map(|part| part.end).max());
                start.unwrap_or(0)..end.unwrap_or(0)
            }
            _ => 0..0,
        }
    })
}

/// A file that this process maps.
struct Mapping {
    range: Range<usize>,
    /// The offset in the file at which the range begins.
    offset: usize,
    file: PathBuf,
}

/// The files that this process maps (proc_pid_maps(5)).
fn mappings() -> Vec<Mapping> {
    let text = host::bounded::kernel_text("/proc/self/maps").unwrap_or_default();
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let offset = number(words.nth(1)?)?;
        let file = PathBuf::from(&line[line.find('/')?..]);
        Some(Mapping { range: number(start)?..number(end)?, offset, file })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_are_known_by_their_crate() {
        assert!(is_own("nic_check::api::qp::f at x.rs:1") && is_own("<nic_check::T as verbs::P>::f"));
        assert!(!is_own("verbs_of_mine::f") && !is_own("main"));
    }

    #[test]
    fn file_of_this_program_is_among_its_mappings() {
        let exe = std::env::current_exe().expect("a path");
        assert!(mappings().iter().any(|mapping| mapping.file == exe && mapping.offset == 0));
        assert!(unnamed(1).contains("0x1"));
    }
}
