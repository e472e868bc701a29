//! Checks whether a range of memory may be accessed, for registration.
//!
//! A hardware NIC pins each page, which also makes it resident. Here the first and the last page of a range
//! are touched, and all pages of a short range; that costs a few nanoseconds per page, without a system call.
//! For a long range only the mappings are checked, so that a large and little used range does not become
//! resident: by PROCMAP_QUERY (Linux 6.11), else by reading /proc/self/maps. Where neither is available,
//! msync(2) finds holes, and pages at equal distances are touched.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;

use crate::arch::{touch_to_read, touch_to_write};
use crate::handler::{self, unblock};

const PAGE: usize = 4096;
/// Ranges of up to this length are touched page by page: this is cheaper than one system call.
const TOUCH_ALL_MAX: usize = 64 * PAGE;
/// Number of pages of a long range that are touched where its mappings are not known.
const SAMPLES_MAX: usize = 4096;

/// Why a range may not be accessed as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// The range goes beyond the last address.
    #[error("it goes beyond the end of the address space")]
    Wraps,
    /// Part of the range is not mapped.
    #[error("nothing is mapped at {0:#x}")]
    NotMapped(usize),
    /// The range may not be read: protected, or beyond the end of its file.
    #[error("it may not be read at {0:#x} (PROT_NONE, or beyond the end of its file)")]
    NotReadable(usize),
    /// The range may be read but not written.
    #[error("it may be read but not written at {0:#x}")]
    NotWritable(usize),
}

/// Checks that all of `len` bytes at `at` may be read now, and written if `writes`. This may make pages
/// resident; it changes no byte.
///
/// # Errors
/// [`BadRange`], with the first bad address that was found.
pub fn check(at: *const u8, len: usize, writes: bool) -> Result<(), BadRange> {
    let start = at.addr();
    let end = start.checked_add(len).ok_or(BadRange::Wraps)?;
    if len == 0 {
        return Ok(());
    }
    let is_short = len <= TOUCH_ALL_MAX;
    if !is_short {
        check_mappings(start, end, writes)?;
    }
    let blocked = unblock();
    let found = if is_short {
        touch_pages(start, end, PAGE, writes)
    } else {
        touch_byte(start, writes).and_then(|()| touch_byte(end - 1, writes))
    };
    blocked.restore();
    found
}

/// An address in the first page of a range, then the start of each following page, or of one page per stride.
#[inline]
fn page_addresses(start: usize, end: usize, stride: usize) -> impl Iterator<Item = usize> {
    // The last page of the address space has no next page.
    let next = (start / PAGE + 1).saturating_mul(PAGE);
    std::iter::once(start).chain((next..end).step_by(stride))
}

/// Touches one byte of each page, or of one page per stride.
fn touch_pages(start: usize, end: usize, stride: usize, writes: bool) -> Result<(), BadRange> {
    page_addresses(start, end, stride).try_for_each(|at| touch_byte(at, writes))
}

#[inline]
fn touch_byte(at: usize, writes: bool) -> Result<(), BadRange> {
    let is_accessible = if writes { touch_to_write(at) } else { touch_to_read(at) };
    if is_accessible { Ok(()) } else { Err(bad_range(at, writes)) }
}

/// The reason why a byte faults.
#[cold]
fn bad_range(at: usize, writes: bool) -> BadRange {
    if !is_mapped(at & !(PAGE - 1), PAGE) {
        BadRange::NotMapped(at)
    } else if writes && touch_to_read(at) {
        BadRange::NotWritable(at)
    } else {
        BadRange::NotReadable(at)
    }
}

/// Whether a range of whole pages has no hole, whatever its protection.
fn is_mapped(at: usize, len: usize) -> bool {
    // SAFETY: MS_ASYNC does nothing but walk the mappings (msync(2), since Linux 2.6.19). Test:
    // check_reports_the_first_bad_address.
    unsafe { libc::msync(std::ptr::without_provenance_mut(at), len, libc::MS_ASYNC) == 0 }
}

/// A mapping and its access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
    reads: bool,
    writes: bool,
}

/// Checks the mappings of a long range.
fn check_mappings(start: usize, end: usize, writes: bool) -> Result<(), BadRange> {
    let Ok(maps) = File::open("/proc/self/maps") else { return check_without_proc(start, end, writes) };
    let mut at = start;
    while at < end {
        match query_mapping(&maps, at) {
            QueryResult::Found(mapping) => at = end_if_allowed(&mapping, at, writes)?,
            QueryResult::Nothing => return Err(BadRange::NotMapped(at)),
            QueryResult::Unknown => return check_maps_text(BufReader::new(maps), start, end, writes),
        }
    }
    Ok(())
}

/// The end of the mapping at `at`, if it allows the access.
fn end_if_allowed(mapping: &Mapping, at: usize, writes: bool) -> Result<usize, BadRange> {
    match mapping {
        Mapping { start, .. } if *start > at => Err(BadRange::NotMapped(at)),
        Mapping { reads: false, .. } => Err(BadRange::NotReadable(at)),
        Mapping { writes: false, .. } if writes => Err(BadRange::NotWritable(at)),
        Mapping { end, .. } => Ok(*end),
    }
}

enum QueryResult {
    Found(Mapping),
    Nothing,
    /// The kernel does not support the query.
    Unknown,
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl =
    (3 << 30 | size_of::<ProcmapQuery>() << 16 | 0x66 << 8 | 17) as libc::Ioctl;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

/// The mapping that contains an address.
fn query_mapping(maps: &File, at: usize) -> QueryResult {
    let mut query =
        ProcmapQuery { size: size_of::<ProcmapQuery>() as u64, query_addr: at as u64, ..Default::default() };
    // SAFETY: the kernel reads and writes the structure, no more than its size says. Test:
    // long_ranges_are_checked_by_mapping.
    let done = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } == 0;
    if done {
        let (start, end) = (query.vma_start as usize, query.vma_end as usize);
        let allows = |right| query.vma_flags & right != 0;
        return QueryResult::Found(Mapping { start, end, reads: allows(READABLE), writes: allows(WRITABLE) });
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOENT) => QueryResult::Nothing,
        _ => QueryResult::Unknown,
    }
}

/// Does as [`check_mappings`] from the text of /proc/self/maps: sorted by address, one mapping per line.
fn check_maps_text(text: impl BufRead, start: usize, end: usize, writes: bool) -> Result<(), BadRange> {
    let mut at = start;
    for mapping in text.lines().map_while(Result::ok).filter_map(|line| parse_maps_line(&line)) {
        if mapping.end > at {
            at = end_if_allowed(&mapping, at, writes)?;
        }
        if at >= end {
            return Ok(());
        }
    }
    Err(BadRange::NotMapped(at))
}

/// Parses a line such as `7f0000000000-7f0000001000 rw-p 00000000 00:00 0`.
fn parse_maps_line(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (reads, writes) = (rights.first()? == &b'r', rights.get(1)? == &b'w');
    Some(Mapping { start: address(start)?, end: address(end)?, reads, writes })
}

/// Does as [`check_mappings`] without /proc.
fn check_without_proc(start: usize, end: usize, writes: bool) -> Result<(), BadRange> {
    let first = start & !(PAGE - 1);
    if !is_mapped(first, end - first) {
        // Finding the exact page is not worth a search.
        return Err(BadRange::NotMapped(start));
    }
    let stride = ((end - start) / SAMPLES_MAX).next_multiple_of(PAGE).max(PAGE);
    let blocked = unblock();
    let found = touch_pages(start, end, stride, writes);
    blocked.restore();
    found
}

/// Whether every page of a range may be read now. This costs little more than 1 ns per page, so that a data
/// path can check before a system call that could not be undone. Returns true without a check where faults
/// are not errors.
#[inline]
#[must_use]
pub fn is_readable(at: *const u8, len: usize) -> bool {
    let end = at.addr().saturating_add(len);
    !handler::is_armed() || len == 0 || page_addresses(at.addr(), end, PAGE).all(touch_to_read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Pages;

    type Method = fn(usize, usize, bool) -> Result<(), BadRange>;

    /// Each method of checking the mappings of a long range.
    const METHODS: [Method; 3] = [
        check_mappings,
        |start, end, writes| {
            let maps = File::open("/proc/self/maps").expect("the file exists");
            check_maps_text(BufReader::new(maps), start, end, writes)
        },
        check_without_proc,
    ];

    /// The last page of the address space has no next page where the loop could continue.
    #[test]
    fn check_fails_on_the_last_page_of_the_address_space() {
        crate::arm().expect("a handler");
        for (at, len) in [(usize::MAX - 8, 8), (usize::MAX, 0), (usize::MAX - PAGE, PAGE)] {
            let found = check(std::ptr::without_provenance(at), len, true);
            assert_eq!(found.is_err(), len > 0, "{at:x}+{len}");
            assert_eq!(is_readable(std::ptr::without_provenance(at), len), len == 0, "{at:x}+{len}");
        }
    }

    #[test]
    fn check_reports_the_first_bad_address() {
        crate::arm().expect("a handler");
        let pages = Pages::new(8);
        pages.protect(1..2, libc::PROT_READ);
        pages.protect(3..4, libc::PROT_NONE);
        pages.unmap(5..6);
        let at = |page: usize| pages.ptr_at(page * PAGE).addr();
        let found = |page: usize, len, writes| check(pages.ptr_at(page * PAGE), len, writes);
        for writes in [false, true] {
            assert_eq!(found(0, PAGE, writes), Ok(()));
            assert_eq!(found(0, 0, writes), Ok(()));
            assert_eq!(found(6, 2 * PAGE, writes), Ok(()));
            assert_eq!(found(2, PAGE + 1, writes), Err(BadRange::NotReadable(at(3))));
            assert_eq!(found(5, 1, writes), Err(BadRange::NotMapped(at(5))));
            assert_eq!(found(4, PAGE + 1, writes), Err(BadRange::NotMapped(at(5))));
            assert_eq!(check(pages.ptr_at(5 * PAGE - 1), 2, writes), Err(BadRange::NotMapped(at(5))));
            assert_eq!(found(0, usize::MAX, writes), Err(BadRange::Wraps));
        }
        assert_eq!(
            (found(1, PAGE, false), found(0, 2 * PAGE, true)),
            (Ok(()), Err(BadRange::NotWritable(at(1))))
        );
        let file = Pages::map_new_file(2);
        file.truncate(PAGE);
        assert_eq!(check(file.ptr_at(0), PAGE, true), Ok(()));
        assert_eq!(
            check(file.ptr_at(0), PAGE + 1, true),
            Err(BadRange::NotReadable(file.ptr_at(PAGE).addr())),
            "beyond the end of its file"
        );
    }

    /// Goal: each method finds the fault in a long range, and its address. Method: ranges that begin and end
    /// within mappings of each kind.
    #[test]
    fn long_ranges_are_checked_by_mapping() {
        crate::arm().expect("a handler");
        let pages = Pages::new(400);
        pages.protect(100..101, libc::PROT_READ);
        pages.protect(200..201, libc::PROT_NONE);
        pages.unmap(300..301);
        let at = |page: usize| pages.ptr_at(page * PAGE).addr();
        for (index, method) in METHODS.into_iter().enumerate() {
            assert_eq!(method(at(0) + 5, at(100), true), Ok(()), "{index}");
            assert_eq!(method(at(0), at(200), false), Ok(()), "{index}");
            assert_eq!(method(at(0), at(101), true), Err(BadRange::NotWritable(at(100))), "{index}");
            assert_eq!(method(at(101), at(201), false), Err(BadRange::NotReadable(at(200))), "{index}");
            let hole = method(at(201), at(302), false);
            let found = if index == 2 { at(201) } else { at(300) };
            assert_eq!(hole, Err(BadRange::NotMapped(found)), "{index}");
        }
        assert_eq!(check(pages.ptr_at(0), 100 * PAGE, true), Ok(()));
        assert_eq!(check(pages.ptr_at(0), 101 * PAGE, true), Err(BadRange::NotWritable(at(100))));
    }

    /// Goal: a check of a large mapping makes hardly any of its pages resident.
    #[test]
    fn check_of_a_large_mapping_does_not_populate_it() {
        crate::arm().expect("a handler");
        let pages = Pages::new((5 << 30) / PAGE);
        assert_eq!(check(pages.ptr_at(0), 5 << 30, true), Ok(()));
        assert!(pages.count_resident() <= 1024, "{} pages are resident", pages.count_resident());
    }

    #[test]
    fn check_maps_text_parses_proc_self_maps() {
        let line = "7f00-8000 r-xp 00000000 fe:00 1234   /a path with spaces";
        let mapping = Mapping { start: 0x7f00, end: 0x8000, reads: true, writes: false };
        assert_eq!(parse_maps_line(line), Some(mapping));
        for bad in ["", "7f00", "7f00-8000", "7f00-8000 r", "x-8000 rw-p", "7f00-x rw-p"] {
            assert_eq!(parse_maps_line(bad), None, "{bad}");
        }
        let text = "1000-2000 rw-p 0 0:0 0\n2000-3000 rw-p 0 0:0 0\n4000-5000 r--p 0 0:0 0\n";
        let found = |start, end| check_maps_text(text.as_bytes(), start, end, true);
        assert_eq!((found(0x1800, 0x3000), found(0x2000, 0x2001)), (Ok(()), Ok(())));
        assert_eq!(found(0x1800, 0x3001), Err(BadRange::NotMapped(0x3000)));
        assert_eq!(found(0x0800, 0x1001), Err(BadRange::NotMapped(0x800)));
        assert_eq!(found(0x4000, 0x4001), Err(BadRange::NotWritable(0x4000)));
        assert_eq!(found(0x9000, 0x9001), Err(BadRange::NotMapped(0x9000)));
    }

    #[test]
    fn is_readable_is_false_for_unmapped_pages() {
        crate::arm().expect("a handler");
        let pages = Pages::new(8);
        let is = |from: usize, len| is_readable(pages.ptr_at(from), len);
        pages.protect(2..3, libc::PROT_READ);
        assert!(is(0, 8 * PAGE) && is(5 * PAGE, 0));
        pages.unmap(5..6);
        assert!(is(PAGE, 4 * PAGE) && is(5 * PAGE, 0));
        assert!(!is(PAGE, 5 * PAGE) && !is(5 * PAGE - 1, 2) && !is(5 * PAGE, 1));
    }
}
