//! [`AttachedRegions`]: the memory that a member of a dynamic window has attached, as kept by its owner; and its directory in the
//! member's control block, which others read. They cache the directory as long as its version stays the same.

use std::sync::atomic::{Ordering, fence};

use host::{EventCount, Lock, Span};
use verbs::{Buf, Mr, RemoteAddr, SendOp};

use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::peers::address::PORTS_MAX;
use crate::rma::control::DIRECTORY;
use crate::rma::control_words::ControlWords;

/// Maximum number of regions that a member may have attached at a time.
pub(super) const REGIONS_MAX: usize = 1024;

/// Offsets in the directory: its version, which is odd during a write, the number of regions, and the regions.
const VERSION: usize = DIRECTORY;
const COUNT: usize = DIRECTORY + 8;
const FIRST: usize = DIRECTORY + 16;
/// Bytes of a region: its address, its length, and a key for each port in a word.
const REGION: usize = 16 + 8 * PORTS_MAX;

/// The attached regions.
#[derive(Default)]
pub(super) struct AttachedRegions {
    pub(super) regions: Vec<AttachedRegion>,
}

/// Attached memory, with a key for each port.
pub(super) struct AttachedRegion {
    pub(super) address: usize,
    pub(super) size: u64,
    pub(super) keys: Vec<Mr>,
}

impl AttachedRegions {
    /// Bytes of the directory.
    pub(super) const BYTES: usize = 16 + REGIONS_MAX * REGION;

    /// Rewrites the directory.
    pub(super) fn publish(&self, block: &Buf) -> Result<()> {
        let store = |at: usize, value: u64| -> Result<()> {
            block.word(at)?.store(value, Ordering::Relaxed);
            Ok(())
        };
        let version = block.word(VERSION)?;
        let old = version.load(Ordering::Relaxed);
        version.store(old + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        store(COUNT, self.regions.len() as u64)?;
        for (region, at) in self.regions.iter().zip((FIRST..).step_by(REGION)) {
            store(at, region.address as u64)?;
            store(at + 8, region.size)?;
            for (key, at) in region.keys.iter().zip((at + 16..).step_by(8)) {
                store(at, key.rkey().into())?;
            }
        }
        fence(Ordering::SeqCst);
        version.store(old + 2, Ordering::SeqCst);
        Ok(())
    }

    /// Whether all bytes are within one region.
    pub(super) fn covers(&self, begin: u64, end: u64) -> bool {
        self.regions.iter().any(|region| {
            let first = region.address as u64;
            first <= begin && end <= first + region.size
        })
    }
}

/// Another member's directory, as last read.
pub(super) struct Directory {
    version: u64,
    /// Address, length, and the key of the port through which the member is reached.
    regions: Vec<(u64, u64, u32)>,
}

impl Directory {
    /// Decodes the bytes of a directory, which are in the host's byte order.
    fn parse(bytes: &[u8], port: usize) -> Option<Self> {
        let word = |at: usize| {
            bytes.get(at - DIRECTORY..at - DIRECTORY + 8)?.first_chunk().map(|w| u64::from_ne_bytes(*w))
        };
        let count = word(COUNT)? as usize;
        let region = |at: usize| Some((word(at)?, word(at + 8)?, word(at + 16 + 8 * port)? as u32));
        let regions = (FIRST..).step_by(REGION).take(count.min(REGIONS_MAX)).map(region);
        Some(Self { version: word(VERSION)?, regions: regions.collect::<Option<_>>()? })
    }

    fn key(&self, begin: u64, end: u64) -> Option<u32> {
        let covers = |(first, len, _): &&(u64, u64, u32)| {
            *first <= begin && first.checked_add(*len).is_some_and(|last| end <= last)
        };
        self.regions.iter().find(covers).map(|(_, _, rkey)| *rkey)
    }
}

/// How long a reader waits while the directory is being changed: its owner may be descheduled for a while.
const READ_TIMEOUT: Span = Span::from_secs(60);
/// Number of reads without a pause, and the pause before each further one.
const READS_WITHOUT_PAUSE: usize = 100;
const READ_PAUSE: Span = Span::from_us(50);

/// The cached directory of a member.
#[derive(Default)]
pub(super) struct DirectoryCache(Lock<Option<Directory>>);

/// A member's control block, and how to reach it.
pub(super) struct MemberBlock<'a> {
    pub(super) process: u32,
    pub(super) words: &'a ControlWords,
    pub(super) at: RemoteAddr,
    /// The member's port.
    pub(super) port: usize,
}

impl DirectoryCache {
    /// The key of the region that contains all bytes from `begin` to `end`; `None` if no region does at present.
    pub(super) fn key(
        &self,
        core: &Core,
        block: &MemberBlock<'_>,
        begin: u64,
        end: u64,
    ) -> Result<Option<u32>> {
        let (host, mut reads) = (core.host(), 0);
        let deadline = host.after(READ_TIMEOUT);
        while reads < READS_WITHOUT_PAUSE || deadline.is_none_or(|end| host.now() < end) {
            reads += 1;
            if reads > READS_WITHOUT_PAUSE {
                host.wait(
                    "a member that attaches memory",
                    &EventCount::new(),
                    host.after(READ_PAUSE),
                    || None::<()>,
                );
            }
            let head = block.read(core, VERSION, FIRST - VERSION)?;
            let word = |at: usize| head.get(at..at + 8)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
            let version = word(0).unwrap_or(1);
            if let Some(directory) = &*self.0.lock(core.host())
                && directory.version == version
            {
                return Ok(directory.key(begin, end));
            }
            if version % 2 == 1 {
                continue;
            }
            let count = word(COUNT - VERSION).map_or(0, |count| count.min(REGIONS_MAX as u64));
            let bytes = block.read(core, DIRECTORY, FIRST - DIRECTORY + count as usize * REGION)?;
            if block.read(core, VERSION, 8)? != version.to_ne_bytes() {
                continue;
            }
            let malformed = || Error::new(Class::OTHER, "a member's directory is malformed");
            let directory = Directory::parse(&bytes, block.port).ok_or_else(malformed)?;
            *self.0.lock(core.host()) = Some(directory);
        }
        let text = format!("the directory of process {} did not stop changing", block.process);
        Err(Error::new(Class::OTHER, text))
    }
}

impl MemberBlock<'_> {
    fn read(&self, core: &Core, at: usize, len: usize) -> Result<Vec<u8>> {
        if let ControlWords::Mapped(block, _) = self.words {
            let load = |at| Ok(block.word(at)?.load(Ordering::Acquire).to_ne_bytes());
            let words = (at..at + len).step_by(8).map(load);
            return words.collect::<Result<Vec<_>>>().map(|words| words.concat());
        }
        let into = Buffer::from_bytes(&vec![0; len])?;
        let from = [(self.at.offset(at as u64), len as u64)];
        let started = core.with(|engine| engine.rdma_transfer(self.process, &from, &into, SendOp::Read))?;
        core.finish("reading a member's directory", started).ok()?;
        Ok(into.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{Config, LocalKvs, Port, Process};

    #[test]
    fn regions_are_found_by_address_range() {
        let block = Buf::alloc(DIRECTORY + AttachedRegions::BYTES).expect("memory");
        let word = |at: usize, value: u64| block.word(at).expect("inside").store(value, Ordering::Relaxed);
        word(VERSION, 6);
        word(COUNT, 2);
        for (number, (address, size)) in [(1000_u64, 100_u64), (u64::MAX - 10, 100)].into_iter().enumerate() {
            let at = FIRST + number * REGION;
            word(at, address);
            word(at + 8, size);
            word(at + 16 + 8, 70 + number as u64);
        }
        let bytes = block.to_vec(DIRECTORY..DIRECTORY + AttachedRegions::BYTES).expect("inside");
        let directory = Directory::parse(&bytes, 1).expect("whole");
        assert_eq!(directory.key(1000, 1100), Some(70));
        for (begin, end) in [(999, 1001), (1099, 1101), (0, 1), (u64::MAX - 10, u64::MAX)] {
            assert_eq!(directory.key(begin, end), None, "{begin} to {end}");
        }
        assert!(Directory::parse(&bytes[..20], 1).is_none());
        word(COUNT, u64::MAX);
        let bytes = block.to_vec(DIRECTORY..DIRECTORY + AttachedRegions::BYTES).expect("inside");
        assert_eq!(Directory::parse(&bytes, 0).expect("cut").regions.len(), REGIONS_MAX);
    }

    /// A member may be descheduled during a write; the reader waits for it.
    #[test]
    fn reader_waits_while_directory_is_written() {
        let host = host::real::host();
        let device = fabric::open("shm", &host).expect("a device");
        let ports = vec![Port { device, address: Ipv4Addr::LOCALHOST.into(), fabric: "shm".into() }];
        let config = Config { ports, node: "here".into(), ..Config::default() };
        let process = Process::start(&host, &config, LocalKvs::new(1).bootstrap(0, &host)).expect("a job");
        let memory = Buf::alloc(DIRECTORY + AttachedRegions::BYTES).expect("memory");
        let word = |at: usize, value: u64| memory.word(at).expect("inside").store(value, Ordering::SeqCst);
        for (at, value) in [(VERSION, 7), (COUNT, 1), (FIRST, 1000), (FIRST + 8, 100), (FIRST + 16, 70)] {
            word(at, value);
        }
        let has_reader = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_reader.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // Longer than all reads without a pause take.
                host.wait("a processor", &EventCount::new(), host.after(Span::from_ms(20)), || None::<()>);
                word(VERSION, 8);
            });
            let words = ControlWords::mapped(memory.clone()).expect("words");
            let block =
                MemberBlock { process: 0, words: &words, at: RemoteAddr { addr: 0, rkey: 0 }, port: 0 };
            has_reader.store(true, Ordering::SeqCst);
            assert_eq!(DirectoryCache::default().key(process.core(), &block, 1000, 1100), Ok(Some(70)));
        });
        process.finalize().expect("an end");
    }
}
