//! The program's memory: the only place that copies from it and into it, and that registers it with NICs.

use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datatypes::{Basic, Datatype, Memory, Op, Operator};
use verbs::{Access, Buf, DmAccess, ImplicitMr, MemoryKind, Mr, Pd};

use crate::error::{Class, Error, Result};

/// A program's buffer: `count` elements of a datatype at an address. An operation may use its memory until the operation has
/// completed, as MPI specifies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Buffer {
    address: usize,
    count: i64,
    datatype: Datatype,
    /// If the buffer is a part of the elements: bytes of their packed form before the buffer's first byte.
    packed_start: u64,
    /// The number of data bytes, without gaps.
    packed_len: u64,
    /// The offset of the elements' bytes from the address, if they are contiguous and in order.
    contiguous_offset: Option<i64>,
    /// Owns the memory, if it was allocated by this library.
    owner: Option<Arc<BufferOwner>>,
}

/// The owner of a buffer's memory.
#[derive(Debug)]
enum BufferOwner {
    /// Memory of the device API.
    Device(Buf),
    /// Memory of the device API that a pool takes back.
    Pooled(PooledMemory),
    /// A short allocation of this library.
    Blocks(Vec<AlignedBlock>),
}

impl BufferOwner {
    /// The address of its first byte.
    fn begin(&self) -> usize {
        match self {
            Self::Blocks(blocks) => blocks.as_ptr().expose_provenance(),
            _ => self.memory().map_or(0, |memory| memory.as_ptr().expose_provenance()),
        }
    }

    /// The memory of the device API.
    fn memory(&self) -> Option<&Buf> {
        match self {
            Self::Device(memory) => Some(memory),
            Self::Pooled(pooled) => pooled.memory.as_ref(),
            Self::Blocks(_) => None,
        }
    }
}

/// Scratch memory of collective calls that have ended, for later calls. New memory costs a page fault for each 4 KiB: an allreduce
/// of 64 KiB by four ranks over TCP spent 20 % of its processor time on mapping, faults and unmapping.
#[derive(Clone, Debug)]
pub(crate) struct ScratchPool {
    kept: Arc<Mutex<Vec<Buf>>>,
    /// The most bytes that it keeps. Longer memory is not kept.
    bytes_max: usize,
}

impl ScratchPool {
    /// A pool that keeps up to 4 MiB; in virtual time, where mapping memory takes no time, it keeps nothing, because modelled cards
    /// would find the registrations of an earlier call.
    pub(crate) fn new(is_virtual: bool) -> Self {
        Self { kept: Arc::default(), bytes_max: if is_virtual { 0 } else { 4 << 20 } }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Buf>> {
        // No holder of this lock can panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of at least `len` bytes, with any content.
    fn take(&self, len: usize) -> Result<Buf> {
        let mut kept = self.list();
        let fits = |at: &usize| kept[*at].len() >= len;
        if let Some(at) = (0..kept.len()).filter(fits).min_by_key(|at| kept[*at].len()) {
            return Ok(kept.remove(at));
        }
        drop(kept);
        // Memory is committed on first touch, so a size that more calls can use costs nothing.
        let whole = if len <= self.bytes_max { len.next_power_of_two() } else { len };
        Ok(Buf::alloc(whole)?)
    }

    /// Keeps memory, in place of memory that was kept long ago if there is too much.
    fn put_back(&self, memory: Buf) {
        if memory.len() > self.bytes_max {
            return;
        }
        let mut kept = self.list();
        kept.push(memory);
        while kept.iter().map(Buf::len).sum::<usize>() > self.bytes_max {
            kept.remove(0);
        }
    }
}

/// Memory that its pool takes back when it is dropped.
#[derive(Debug)]
struct PooledMemory {
    /// `None` only while it is dropped.
    memory: Option<Buf>,
    pool: ScratchPool,
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        self.memory.take().into_iter().for_each(|memory| self.pool.put_back(memory));
    }
}

/// Memory with the alignment of a C allocator.
#[derive(Debug, Default)]
#[repr(align(16))]
struct AlignedBlock(#[expect(dead_code, reason = "only its address is used")] [AtomicU8; 16]);

/// The bytes of a shorter integer are the low bytes of a word.
const LITTLE_ENDIAN: bool = cfg!(target_endian = "little");

/// Contiguous bytes of a program: a [`Buffer`] without a datatype.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    address: usize,
    len: usize,
}

impl Piece {
    /// `len` bytes at an address.
    ///
    /// # Safety
    /// As for [`Buffer::new`].
    #[inline]
    pub unsafe fn new(address: usize, len: usize) -> Self {
        Self { address, len }
    }

    /// Its address and its length.
    #[inline]
    pub(crate) fn addr_len(self) -> (u64, u64) {
        (self.address as u64, self.len as u64)
    }

    /// Splits it after `at` bytes.
    pub(crate) fn split(self, at: usize) -> [Self; 2] {
        let at = at.min(self.len);
        [Self { len: at, ..self }, Self { address: self.address + at, len: self.len - at }]
    }

    /// An empty piece, for calls without data.
    #[inline]
    pub(crate) fn empty() -> Self {
        Self { address: 0, len: 0 }
    }

    /// `len` bytes of it from an offset, limited to its end.
    #[inline]
    pub(crate) fn part(self, from: usize, len: usize) -> Self {
        let from = from.min(self.len);
        Self { address: self.address + from, len: len.min(self.len - from) }
    }

    /// Whether it has bytes in common with another piece.
    #[inline]
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let ends = (self.address + self.len, other.address + other.len);
        self.len > 0 && other.len > 0 && self.address < ends.1 && other.address < ends.0
    }

    /// Copies from another piece, as many bytes as fit; the two may overlap.
    #[inline]
    pub(crate) fn copy_data_from(self, from: Self) {
        // SAFETY: readable and writable, as promised to `Piece::new`; no reference to either is alive. Test:
        // pieces_are_moved_as_buffers.
        unsafe { copy_bytes(from.address, self.address, from.len.min(self.len)) }
    }

    /// Reduces the elements of another piece into this one in place: `self = from op self`. Both have equally many, and do not
    /// overlap. A concurrent store by another process, where MPI leaves the result undefined, may be lost or kept.
    pub(crate) fn reduce(self, from: Self, operator: Operator, basic: Basic) {
        let len = self.len.min(from.len);
        if operator == Operator::Replace || len == 0 {
            return self.copy_data_from(from);
        }
        // SAFETY: readable and writable, as promised to `Piece::new`, and not overlapping, as promised here; no other reference to
        // either is alive. Test: fast_reductions_match_operators.
        let (left, right) = unsafe {
            let right = std::slice::from_raw_parts_mut(pointer(self.address), len);
            (std::slice::from_raw_parts(pointer(from.address), len), right)
        };
        basic.reduce(operator, left, right);
    }

    /// Copies all bytes to the start of a slice, which has room for them.
    #[inline]
    pub(crate) fn load(self, into: &mut [u8]) {
        copy_from(self.address, &mut into[..self.len]);
    }

    /// Copies the bytes of a slice into it, as many as fit.
    #[inline]
    pub(crate) fn store(self, from: &[u8]) {
        copy_to(self.address, &from[..from.len().min(self.len)]);
    }

    /// A buffer of these bytes, for an operation that outlives the call. The creator of the piece has promised its memory for that
    /// long.
    pub(crate) fn buffer(self) -> Buffer {
        Buffer {
            address: self.address,
            count: self.len as i64,
            datatype: Datatype::from(Basic::Byte),
            packed_start: 0,
            packed_len: self.len as u64,
            contiguous_offset: (self.len > 0).then_some(0),
            owner: None,
        }
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty one needs no special case")]
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// The bytes of a piece of at most 16, padded with zeros.
    #[inline]
    pub(crate) fn words(self) -> [u64; 2] {
        let at = pointer(self.address);
        // SAFETY: readable during the call, as promised to `Piece::new`. Test: pieces_are_moved_as_buffers.
        let short = unsafe {
            match self.len {
                8 => Some(at.cast::<u64>().read_unaligned()),
                4 if LITTLE_ENDIAN => Some(at.cast::<u32>().read_unaligned().into()),
                _ => None,
            }
        };
        if let Some(word) = short {
            return [word, 0];
        }
        let mut bytes = [0; 16];
        copy_from(self.address, &mut bytes[..self.len]);
        let word = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_ne_bytes(*part));
        [word(bytes.first_chunk()), word(bytes.last_chunk())]
    }

    /// Copies the first `len` bytes of two words into it, as many as fit.
    #[inline]
    pub(crate) fn put_words(self, words: [u64; 2], len: usize) {
        let (at, len) = (pointer(self.address), len.min(self.len));
        // SAFETY: writable during the call, as promised to `Piece::new`. Test: as above.
        unsafe {
            match len {
                8 => at.cast::<u64>().write_unaligned(words[0]),
                4 if LITTLE_ENDIAN => at.cast::<u32>().write_unaligned(words[0] as u32),
                _ => copy_to(self.address, &words.map(u64::to_ne_bytes).as_flattened()[..len]),
            }
        }
    }

    /// Copies all bytes to an address.
    ///
    /// # Safety
    /// As many bytes there are writable, and no reference to them is alive.
    #[inline]
    pub(crate) unsafe fn copy_to(self, to: usize) {
        // SAFETY: readable, as promised to `Piece::new`, and writable, as promised here. Test: puts_and_gets_move_elements.
        unsafe { copy_bytes(self.address, to, self.len) }
    }

    /// Fills it with bytes from an address.
    ///
    /// # Safety
    /// They are readable there, and no exclusive reference to them is alive.
    #[inline]
    pub(crate) unsafe fn copy_from(self, from: usize) {
        // SAFETY: as above, in the other direction.
        unsafe { copy_bytes(from, self.address, self.len) }
    }

    /// Copies all bytes to an offset in a NIC's memory.
    #[inline]
    pub(crate) fn load_to(self, buf: &Buf, at: usize) -> verbs::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: readable during the call, as promised to `Piece::new`, and no byte of it is written. Test: as above.
        buf.write(at, unsafe { std::slice::from_raw_parts(pointer(self.address), self.len) })
    }

    /// As [`Piece::load_to`], by stores that bypass the caches.
    pub(crate) fn load_past_caches(self, buf: &Buf, at: usize) -> verbs::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        self.buffer().load_for_peer(buf, at, true)
    }

    /// Copies `len` bytes at an offset in a NIC's memory into it, as many as fit.
    #[inline]
    pub(crate) fn store_from(self, buf: &Buf, at: usize, len: usize) -> verbs::Result<()> {
        let len = len.min(self.len);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: writable during the call, as promised to `Piece::new`, and not in use elsewhere. Test: as above.
        buf.read(at, unsafe { std::slice::from_raw_parts_mut(pointer(self.address), len) })
    }
}

impl transport::Payload for Piece {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn words(&self) -> Option<[u64; 2]> {
        (self.len <= 16).then(|| Self::words(*self))
    }

    #[inline]
    fn load(&self, into: &mut [u8]) {
        self.buffer().load(into);
    }

    #[inline]
    fn copy_to(&self, memory: &Buf, at: usize) -> verbs::Result<()> {
        self.load_to(memory, at)
    }

    fn copy_past_caches(&self, memory: &Buf, at: usize) -> verbs::Result<()> {
        self.load_past_caches(memory, at)
    }
}

/// No program has memory below this address, as Linux does not map it (`vm.mmap_min_addr`). A lower address is NULL, a constant
/// such as `MPI_IN_PLACE`, or a displacement from either.
pub const ADDRESS_MIN: usize = 1 << 16;

/// From this many bytes on, memory allocated by this library has pages of its own.
const OWN_PAGES_MIN: usize = 4096;

impl Buffer {
    /// A buffer of `count` elements at an address.
    ///
    /// # Safety
    /// The memory of `count` elements of `datatype` at `address` is readable, and writable where an operation receives into it,
    /// until every operation that gets this buffer or a clone of it has completed; meanwhile it is not used in a way that MPI
    /// forbids.
    ///
    /// # Errors
    /// [`Class::COUNT`] for a negative count, or one whose bytes exceed the address space; [`Class::TYPE`] for a datatype that is
    /// not committed; [`Class::BUFFER`] for elements that begin below [`ADDRESS_MIN`]. Address 0 is `MPI_BOTTOM`, with a datatype
    /// that has the addresses.
    #[inline(always)] // built in its final place, not copied
    pub unsafe fn new(address: usize, count: i64, datatype: Datatype) -> Result<Self> {
        let each = datatype.contiguous_size();
        // Most buffers take this path.
        if each > 0
            && address >= ADDRESS_MIN
            && count >= 0
            && let Some(len) = each.checked_mul(count)
        {
            let contiguous_offset = (len > 0).then_some(0);
            let packed_len = len as u64;
            return Ok(Self {
                address,
                count,
                datatype,
                packed_start: 0,
                packed_len,
                contiguous_offset,
                owner: None,
            });
        }
        Self::new_checked(address, count, datatype)
    }

    fn new_checked(address: usize, count: i64, datatype: Datatype) -> Result<Self> {
        if !datatype.is_committed() {
            return Err(Error::new(Class::TYPE, "the datatype is not committed; call MPI_Type_commit first"));
        }
        let Layout { contiguous_offset, packed_len, start } = layout_of(&datatype, count)?;
        if packed_len > 0 && address.wrapping_add_signed(start as isize) < ADDRESS_MIN {
            return Err(invalid_address(address, packed_len));
        }
        Ok(Self { address, count, datatype, packed_start: 0, packed_len, contiguous_offset, owner: None })
    }

    /// An empty buffer.
    pub fn empty() -> Self {
        let datatype = Datatype::from(Basic::Byte);
        Self {
            address: 0,
            count: 0,
            datatype,
            packed_start: 0,
            packed_len: 0,
            contiguous_offset: None,
            owner: None,
        }
    }

    /// A buffer of `count` elements at an offset in memory of the device API, which it keeps as long as it and its clones live. If
    /// bytes are written elsewhere while an operation reads them, or the reverse, the result is as with a NIC: old, new, or a mix.
    ///
    /// # Errors
    /// As [`Buffer::new`]; [`Class::BUFFER`] for elements that exceed the memory, and for memory of a NIC.
    pub fn of(memory: &Buf, at: usize, count: i64, datatype: &Datatype) -> Result<Self> {
        let address = (memory.addr() as usize).wrapping_add(at);
        let span = datatype.span(count).map_err(|error| Error::new(Class::COUNT, error.text))?;
        let room = memory.len().checked_sub(at).map_or(-1, |room| room as i64);
        if memory.kind() != MemoryKind::Host || span.start < 0 || span.end > room {
            let text =
                format!("{count} elements from byte {at} on exceed {memory:?}, or it is not host memory");
            return Err(Error::new(Class::BUFFER, text));
        }
        // SAFETY: inside memory that stays mapped as long as the buffer has its handle. Test: memory_of_devices_holds_elements.
        let buffer = unsafe { Self::new(address, count, datatype.clone()) }?;
        Ok(Self { owner: Some(Arc::new(BufferOwner::Device(memory.clone()))), ..buffer })
    }

    /// A buffer of `count` elements in NIC memory of a peer that this process maps, to read them while the peer keeps them
    /// unchanged. The first byte of the first element is at `at`.
    ///
    /// # Errors
    /// As [`Buffer::of`].
    pub(crate) fn of_mapped(memory: &Buf, at: usize, count: i64, datatype: &Datatype) -> Result<Self> {
        let Layout { contiguous_offset, packed_len, start } = layout_of(datatype, count)?;
        let end = at.checked_add(packed_len as usize);
        if contiguous_offset.is_none()
            || memory.access() != DmAccess::Coherent
            || end.is_none_or(|end| end > memory.len())
        {
            return Err(Error::new(Class::BUFFER, "the elements have gaps, or are not in mapped memory"));
        }
        let address = (memory.addr() as usize).wrapping_add(at).wrapping_add_signed(-start as isize);
        Ok(Self {
            address,
            count,
            datatype: datatype.clone(),
            packed_start: 0,
            packed_len,
            contiguous_offset,
            owner: Some(Arc::new(BufferOwner::Device(memory.clone()))),
        })
    }

    /// Allocates memory with these bytes, which lives as long as the buffer and its clones.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let buffer = Self::zeroed(Datatype::from(Basic::Byte), bytes.len() as i64)?;
        buffer.store(bytes);
        Ok(buffer)
    }

    /// Allocates zeroed memory for `count` elements, with the alignment of a C allocator.
    pub(crate) fn zeroed(datatype: Datatype, count: i64) -> Result<Self> {
        Self::allocate(datatype, count, |bytes| Ok(BufferOwner::Device(Buf::alloc(bytes)?)))
    }

    /// As [`Buffer::zeroed`], but with any content, in memory of a pool if it is long.
    pub(crate) fn scratch(datatype: Datatype, count: i64, pool: &ScratchPool) -> Result<Self> {
        Self::allocate(datatype, count, |bytes| {
            let memory = Some(pool.take(bytes)?);
            Ok(BufferOwner::Pooled(PooledMemory { memory, pool: pool.clone() }))
        })
    }

    /// Memory for `count` elements, from `pages` if it is long.
    fn allocate(
        datatype: Datatype,
        count: i64,
        pages: impl FnOnce(usize) -> Result<BufferOwner>,
    ) -> Result<Self> {
        let wide = |error: datatypes::Error| Error::new(Class::COUNT, error.text);
        let span = datatype.span(count).map_err(wide)?;
        let Layout { contiguous_offset, packed_len, .. } = layout_of(&datatype, count)?;
        // The first element is aligned, wherever its first byte is.
        let pad = span.start.rem_euclid(size_of::<AlignedBlock>() as i64);
        let bytes = (span.end - span.start + pad) as usize;
        let owner = if bytes < OWN_PAGES_MIN {
            let mut blocks = Vec::new();
            blocks.resize_with(bytes.div_ceil(size_of::<AlignedBlock>()), AlignedBlock::default);
            BufferOwner::Blocks(blocks)
        } else {
            pages(bytes)?
        };
        let address = owner.begin().wrapping_add_signed((pad - span.start) as isize);
        let owner = Some(Arc::new(owner));
        Ok(Self { address, count, datatype, packed_start: 0, packed_len, contiguous_offset, owner })
    }

    /// Memory allocated by this library, as `count` elements of a type; `None` if they exceed it.
    pub(crate) fn as_elements(&self, count: i64, datatype: &Datatype) -> Option<Self> {
        let span = datatype.span(count).ok()?;
        let Layout { contiguous_offset, packed_len, .. } = layout_of(datatype, count).ok()?;
        let is_inside = span.start >= 0 && u64::try_from(span.end).is_ok_and(|end| end <= self.packed_len);
        let is_own =
            self.owner.is_some() && self.contiguous_range().is_some_and(|(begin, _)| begin == self.address);
        let owner = self.owner.clone();
        (is_inside && is_own).then(|| Self {
            count,
            datatype: datatype.clone(),
            packed_start: 0,
            packed_len,
            contiguous_offset,
            owner,
            ..*self
        })
    }

    /// `count` elements of a type, at `displacement` bytes from this buffer's address.
    ///
    /// # Safety
    /// These elements are part of the memory promised for this buffer.
    pub(crate) unsafe fn at_displacement(
        &self,
        displacement: i64,
        count: i64,
        datatype: &Datatype,
    ) -> Result<Self> {
        let Layout { contiguous_offset, packed_len, .. } = layout_of(datatype, count)?;
        let address = self.address.wrapping_add_signed(displacement as isize);
        Ok(Self {
            address,
            count,
            datatype: datatype.clone(),
            packed_start: 0,
            packed_len,
            contiguous_offset,
            owner: self.owner.clone(),
        })
    }

    /// The memory of the device API that contains it, if any.
    pub(crate) fn memory(&self) -> Option<&Buf> {
        self.owner.as_deref()?.memory()
    }

    /// `count` of its elements from one on, limited to its last element.
    pub(crate) fn elements(&self, first: i64, count: i64) -> Result<Self> {
        let first = first.clamp(0, self.count);
        let count = count.clamp(0, self.count - first);
        let Layout { contiguous_offset, packed_len, .. } = layout_of(&self.datatype, count)?;
        let address = self.address.wrapping_add_signed((first * self.datatype.extent()) as isize);
        Ok(Self {
            address,
            count,
            datatype: self.datatype.clone(),
            packed_start: 0,
            packed_len,
            contiguous_offset,
            owner: self.owner.clone(),
        })
    }

    /// `len` bytes of its packed form from an offset.
    pub(crate) fn packed_range(self, from: u64, len: u64) -> Self {
        let from = from.min(self.packed_len);
        Self { packed_start: self.packed_start + from, packed_len: len.min(self.packed_len - from), ..self }
    }

    /// A newly allocated buffer with a copy of this one's data.
    pub(crate) fn copied(&self) -> Result<Self> {
        Self::from_bytes(&self.to_vec())
    }

    /// Copies all its bytes, in the order of the type map.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.packed_len as usize];
        self.load(&mut bytes);
        bytes
    }

    /// The number of data bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty one needs no special case")]
    #[inline]
    pub fn len(&self) -> u64 {
        self.packed_len
    }

    /// Its address, as it was given.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its count, as it was given.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Its datatype, as it was given.
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// A buffer of `count` elements that begins `extents` extents of the datatype after this one.
    ///
    /// # Safety
    /// As [`Buffer::new`].
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub unsafe fn part(&self, extents: i64, count: i64) -> Result<Self> {
        let bytes = self.datatype.extent().wrapping_mul(extents);
        // SAFETY: promised by the caller.
        unsafe { Self::new(self.address.wrapping_add_signed(bytes as isize), count, self.datatype.clone()) }
    }

    /// Address and length of the bytes, if they are contiguous and in order.
    #[inline]
    pub(crate) fn contiguous_range(&self) -> Option<(usize, usize)> {
        let (first, len) =
            (self.contiguous_offset? + self.packed_start as i64, usize::try_from(self.packed_len).ok()?);
        (len > 0).then(|| (self.address.wrapping_add_signed(first as isize), len))
    }

    /// The bytes, if they are contiguous or there are none. Memory allocated by this library lives only as long as the buffer.
    #[inline]
    pub(crate) fn piece(&self) -> Option<Piece> {
        match self.contiguous_range() {
            Some((address, len)) => Some(Piece { address, len }),
            None if self.packed_len == 0 => Some(Piece::empty()),
            None => None,
        }
    }

    /// The bytes as by [`Buffer::piece`], but only of memory that the buffer does not own.
    #[inline]
    pub(crate) fn unowned_piece(&self) -> Option<Piece> {
        if self.owner.is_none() { self.piece() } else { None }
    }

    /// Whether a device can access the bytes only through a contiguous copy.
    pub(crate) fn is_noncontiguous(&self) -> bool {
        self.packed_len > 0 && self.contiguous_range().is_none()
    }

    /// Whether it has bytes in common with another buffer. Returns false if either is not contiguous.
    #[inline]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (Some((first, len)), Some((second, other))) = (self.contiguous_range(), other.contiguous_range())
        else {
            return false;
        };
        first < second.saturating_add(other) && second < first.saturating_add(len)
    }

    /// Copies all bytes to `into`, which has the same length.
    #[inline]
    pub(crate) fn load(&self, into: &mut [u8]) {
        match self.contiguous_range() {
            Some((address, len)) => copy_from(address, &mut into[..len]),
            None => {
                if let Some(mut cursor) = self.cursor() {
                    cursor.pack(&AddressMemory(self.address), into);
                }
            }
        }
    }

    /// Copies `from` into the first bytes, as many as fit.
    pub(crate) fn store(&self, from: &[u8]) {
        match self.contiguous_range() {
            Some((address, len)) => copy_to(address, &from[..from.len().min(len)]),
            None => {
                let from = &from[..from.len().min(usize::try_from(self.packed_len).unwrap_or(usize::MAX))];
                if let Some(mut cursor) = self.cursor() {
                    cursor.unpack(from, &mut AddressMemory(self.address));
                }
            }
        }
    }

    /// Calls `act` with all bytes: in place if they are contiguous, else with a copy.
    pub(crate) fn with_bytes<T>(&self, act: impl FnOnce(&[u8]) -> T) -> T {
        match self.contiguous_range() {
            // SAFETY: readable during the operation, as promised to `Buffer::new`, and no byte of it is written. Test:
            // files_match_a_model.
            Some((address, len)) => act(unsafe { std::slice::from_raw_parts(pointer(address), len) }),
            None => act(&self.to_vec()),
        }
    }

    /// Calls `act` to write the first bytes; it returns how many.
    pub(crate) fn with_bytes_mut(&self, act: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<usize> {
        match self.contiguous_range() {
            // SAFETY: writable during the operation, as promised to `Buffer::new`, and not in use elsewhere. Test: as above.
            Some((address, len)) => act(unsafe { std::slice::from_raw_parts_mut(pointer(address), len) }),
            None => {
                let mut bytes = vec![0; self.packed_len as usize];
                let count = act(&mut bytes)?;
                self.store(&bytes[..count]);
                Ok(count)
            }
        }
    }

    /// Packs its elements in external32.
    pub(crate) fn to_external32(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let packed = self.datatype.pack_external32(self.count, &AddressMemory(self.address), &mut bytes);
        packed.map(|()| bytes).map_err(|error| Error::new(Class::CONVERSION, error.text))
    }

    /// Unpacks its first `count` elements from external32.
    pub(crate) fn store_external32(&self, count: i64, from: &[u8]) -> Result<()> {
        let stored = self.datatype.unpack_external32(count, from, &mut AddressMemory(self.address));
        stored.map(drop).map_err(|error| Error::new(Class::CONVERSION, error.text))
    }

    /// A cursor in the elements, at the buffer's first byte.
    fn cursor(&self) -> Option<datatypes::Cursor> {
        let mut cursor = self.datatype.cursor(self.count).ok()?;
        if self.packed_start > 0 {
            cursor.seek(self.packed_start);
        }
        Some(cursor)
    }

    /// Copies all bytes of another buffer of the same length.
    pub(crate) fn copy_data_from(&self, from: &Self) {
        match from.contiguous_range() {
            Some((address, len)) if len > 0 => {
                // SAFETY: readable during the operation, as promised to `Buffer::new`, and no byte of it is written. Test:
                // collectives_match_a_reference.
                self.store(unsafe { std::slice::from_raw_parts(pointer(address), len) });
            }
            _ => self.store(&from.to_vec()),
        }
    }

    /// Copies all bytes of another buffer of the same length; the two may overlap.
    pub(crate) fn copy_overlapping_from(&self, from: &Self) {
        match (from.contiguous_range(), self.contiguous_range()) {
            (Some((from, len)), Some((to, room))) => {
                // SAFETY: readable and writable, as promised to `Buffer::new`; no reference to either is alive. Test:
                // puts_and_gets_move_elements.
                unsafe { copy_bytes(from, to, len.min(room)) }
            }
            _ => self.store(&from.to_vec()),
        }
    }

    /// Copies all bytes to an address, if they are contiguous; returns whether they are.
    ///
    /// # Safety
    /// As many bytes there are writable, and no reference to them is alive.
    #[inline]
    pub(crate) unsafe fn copy_to(&self, to: usize) -> bool {
        let Some((from, len)) = self.contiguous_range() else { return false };
        // SAFETY: readable, as promised to `Buffer::new`, and writable, as promised here. Test: puts_and_gets_move_elements.
        unsafe { copy_bytes(from, to, len) };
        true
    }

    /// Fills it with bytes from an address, if it is contiguous; returns whether it is.
    ///
    /// # Safety
    /// They are readable there, and no exclusive reference to them is alive.
    #[inline]
    pub(crate) unsafe fn copy_from(&self, from: usize) -> bool {
        let Some((to, len)) = self.contiguous_range() else { return false };
        // SAFETY: as above, in the other direction.
        unsafe { copy_bytes(from, to, len) };
        true
    }

    /// Checks that an operator can reduce these elements in a collective operation. Every operator reduces zero elements.
    ///
    /// # Errors
    /// [`Class::OP`] if not.
    pub(crate) fn check_reduced_by(&self, op: &Op) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        op.check_reduction(&self.datatype).map_err(|error| Error::new(Class::OP, error.text))
    }

    /// Reduces the elements of another buffer into this one: `self = from op self`. Both have equally many.
    pub(crate) fn reduce(&self, from: &Self, op: &Op) -> Result<()> {
        let wrong = |error: datatypes::Error| Error::new(Class::OP, error.text);
        let span = self.datatype.span(self.count).map_err(wrong)?;
        let len = (span.end - span.start) as usize;
        if len == 0 {
            return Ok(());
        }
        let first = |buffer: &Self| pointer(buffer.address.wrapping_add_signed(span.start as isize));
        // SAFETY: readable and writable during the operation, as promised to `Buffer::new` for as many elements, which do not
        // overlap. Test: collectives_match_a_reference.
        let (left, right) = unsafe {
            (std::slice::from_raw_parts(first(from), len), std::slice::from_raw_parts_mut(first(self), len))
        };
        op.apply(left, right, self.count, &self.datatype).map_err(wrong)
    }

    /// Copies all bytes to an offset in a NIC's buffer.
    #[inline]
    pub(crate) fn load_to(&self, buf: &Buf, at: usize) -> verbs::Result<()> {
        match self.contiguous_range() {
            Some((address, len)) => {
                // SAFETY: readable during the operation, as promised to `Buffer::new`; nothing writes to it meanwhile. Test:
                // buffers_are_packed_and_unpacked.
                buf.write(at, unsafe { std::slice::from_raw_parts(pointer(address), len) })
            }
            None => {
                let mut bytes = vec![0; self.packed_len as usize];
                self.load(&mut bytes);
                buf.write(at, &bytes)
            }
        }
    }

    /// As [`Buffer::load_to`], for bytes that a peer reads next. With `bypasses`, they do not go through this processor's caches.
    pub(crate) fn load_for_peer(&self, buf: &Buf, at: usize, bypasses: bool) -> verbs::Result<()> {
        match self.contiguous_range() {
            Some((address, len)) if bypasses => {
                // SAFETY: as in `load_to`. Test: buffers_are_packed_and_unpacked.
                buf.write_nontemporal(at, unsafe { std::slice::from_raw_parts(pointer(address), len) })
            }
            _ if self.packed_len == 0 => Ok(()),
            _ => self.load_to(buf, at),
        }
    }

    /// Copies `len` bytes at an offset in a NIC's buffer into the first bytes.
    #[inline]
    pub(crate) fn store_from(&self, buf: &Buf, at: usize, len: usize) -> verbs::Result<()> {
        let len = len.min(usize::try_from(self.packed_len).unwrap_or(usize::MAX));
        match self.contiguous_range() {
            Some((address, _)) if len > 0 => {
                // SAFETY: writable during the operation, as promised to `Buffer::new`, and not in use elsewhere; `len` is within
                // it. Test: buffers_are_packed_and_unpacked.
                buf.read(at, unsafe { std::slice::from_raw_parts_mut(pointer(address), len) })
            }
            _ => {
                self.store(&buf.to_vec(at..at + len)?);
                Ok(())
            }
        }
    }
}

/// Where the bytes of elements are, relative to the address of the elements.
struct Layout {
    /// The offset of the bytes, if they are contiguous and in order.
    contiguous_offset: Option<i64>,
    /// The number of data bytes, without gaps.
    packed_len: u64,
    /// The offset of the byte with the lowest address.
    start: i64,
}

/// The layout of `count` elements of a type.
#[inline]
fn layout_of(datatype: &Datatype, count: i64) -> Result<Layout> {
    if let Some(run) = datatype.single_run(count) {
        return Ok(Layout { contiguous_offset: Some(run.offset), packed_len: run.length, start: run.offset });
    }
    let wide = |error: datatypes::Error| Error::new(Class::COUNT, error.text);
    Ok(Layout {
        contiguous_offset: None,
        packed_len: datatype.bytes(count).map_err(wide)?,
        start: datatype.span(count).map_err(wide)?.start,
    })
}

/// The error for data at an invalid address.
#[cold]
fn invalid_address(address: usize, len: u64) -> Error {
    let what =
        if address == 0 { "it is NULL".to_owned() } else { format!("there is no memory at {address:#x}") };
    Error::new(Class::BUFFER, format_args!("{what}, where {len} bytes should be"))
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Copies bytes between two ranges, which may overlap; a word in one step.
///
/// # Safety
/// The first is readable and the second writable for this many bytes.
#[inline]
unsafe fn copy_bytes(from: usize, to: usize, len: usize) {
    const WORD: usize = size_of::<u64>();
    let (from, to) = (pointer(from), pointer(to));
    // SAFETY: as the caller promises. Test: puts_and_gets_move_elements.
    unsafe {
        match len {
            WORD => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => uaccess::copy(to, from, len),
        }
    }
}

fn copy_from(address: usize, into: &mut [u8]) {
    if !into.is_empty() {
        // SAFETY: readable during the operation, as promised to `Buffer::new`; `into` belongs to this library. Test:
        // buffers_are_packed_and_unpacked.
        unsafe { uaccess::copy(into.as_mut_ptr(), pointer(address), into.len()) }
    }
}

fn copy_to(address: usize, from: &[u8]) {
    if !from.is_empty() {
        // SAFETY: as above, for writing.
        unsafe { uaccess::copy(pointer(address), from.as_ptr(), from.len()) }
    }
}

/// A buffer's memory, for datatypes with gaps.
struct AddressMemory(usize);

impl Memory for AddressMemory {
    fn load(&self, offset: i64, into: &mut [u8]) {
        copy_from(self.0.wrapping_add_signed(offset as isize), into);
    }

    fn store(&mut self, offset: i64, from: &[u8]) {
        copy_to(self.0.wrapping_add_signed(offset as isize), from);
    }
}

/// Registers all memory, with all access rights that the device allows; `None` if it cannot. If peers get rights, they must be
/// trusted as much as this process's user: they are of the same job.
pub(crate) fn register_all_memory(pd: &Pd) -> verbs::Result<Option<ImplicitMr>> {
    let Some(access) = pd.device().attr().implicit_mr else { return Ok(None) };
    // SAFETY: requests name only memory of operations in progress, which stays mapped as promised to `Buffer::new`, or of buffers
    // that the operation keeps. Test: messages_of_all_sizes_arrive.
    unsafe { pd.reg_all(access) }.map(Some)
}

/// Registers memory for as long as an operation uses it, or as long as the region keeps its owner.
pub(crate) fn register(
    pd: &Pd,
    (address, len): (usize, usize),
    access: Access,
    owner: Arc<dyn Send + Sync>,
) -> Result<Mr> {
    let base = NonNull::new(pointer(address))
        .ok_or_else(|| Error::new(Class::BUFFER, "memory at address 0 cannot be registered"))?;
    // SAFETY: mapped during the operation, as promised to `Buffer::new`, and the operation drops the region when it completes; or
    // kept mapped by the owner. References to its bytes are alive only inside the copies of this file. Test:
    // messages_of_all_sizes_arrive.
    let buf = unsafe { Buf::from_raw(base, len, MemoryKind::Host, 0, owner) };
    Ok(pd.reg_mr(&buf, access)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(memory: &mut [u8], count: i64, datatype: Datatype) -> Buffer {
        // SAFETY: the tests keep the memory, and the datatypes do not exceed it.
        unsafe { Buffer::new(memory.as_mut_ptr().expose_provenance(), count, datatype) }.expect("a buffer")
    }

    /// Every second byte.
    fn comb(len: i64) -> Datatype {
        let comb = Datatype::vector(len, 1, 2, &Basic::Byte.into()).expect("a vector");
        comb.commit();
        comb
    }

    #[test]
    fn memory_of_devices_holds_elements() {
        let memory = Buf::alloc(64).expect("memory");
        memory.write(8, &[1, 2, 3, 4, 5, 6]).expect("inside");
        let combed = Buffer::of(&memory, 8, 1, &comb(3)).expect("inside");
        assert_eq!(combed.to_vec(), [1, 3, 5]);
        combed.store(&[7]);
        assert_eq!(memory.to_vec(8..10).expect("inside"), [7, 2]);
        let kept = {
            let short_lived = Buf::alloc(4).expect("memory");
            short_lived.write(0, b"abcd").expect("inside");
            Buffer::of(&short_lived, 0, 4, &Basic::Byte.into()).expect("inside")
        };
        assert_eq!(kept.to_vec(), b"abcd");
        let of = |at, count| Buffer::of(&memory, at, count, &Basic::Byte.into()).map(|buffer| buffer.len());
        assert_eq!((of(0, 64), of(64, 0)), (Ok(64), Ok(0)));
        for (at, count) in [(0, 65), (64, 1), (65, 0), (usize::MAX, 1), (0, -1)] {
            assert!(of(at, count).is_err(), "{count} from {at}");
        }
        let nic = Buf::alloc_nic(64, 0).expect("memory");
        assert_eq!(
            Buffer::of(&nic, 0, 1, &Basic::Byte.into()).map_err(|error| error.class).err(),
            Some(Class::BUFFER)
        );
    }

    #[test]
    fn buffers_are_packed_and_unpacked() {
        let nic = Buf::alloc(64).expect("memory");
        for (datatype, count) in [(Datatype::from(Basic::Byte), 5), (comb(5), 1)] {
            let mut source: Vec<u8> = (1..=10).collect();
            let step = if count == 5 { 1 } else { 2 };
            let want: Vec<u8> = source.iter().copied().step_by(step).take(5).collect();
            let from = buffer(&mut source, count, datatype.clone());
            let mut packed = [0; 5];
            from.load(&mut packed);
            assert_eq!(packed, want[..]);
            from.load_to(&nic, 7).expect("inside");
            assert_eq!(nic.to_vec(7..12).expect("inside"), want);
            for bypasses in [false, true] {
                nic.fill(0);
                from.load_for_peer(&nic, 7, bypasses).expect("inside");
                assert_eq!(nic.to_vec(6..13).expect("inside"), [&[0], &want[..], &[0]].concat());
            }
            for by_nic in [false, true] {
                let mut target = vec![0; 10];
                let to = buffer(&mut target, count, datatype.clone());
                if by_nic {
                    to.store_from(&nic, 7, 3).expect("inside");
                } else {
                    to.store(&packed[..3]);
                }
                let got: Vec<u8> = target.iter().copied().step_by(step).take(5).collect();
                assert_eq!(got, [&want[..3], &[0, 0]].concat());
                assert_eq!(target.iter().filter(|byte| **byte != 0).count(), 3, "nothing between");
            }
        }
    }

    #[test]
    fn pieces_are_moved_as_buffers() {
        let nic = Buf::alloc(64).expect("memory");
        for len in [0, 1, 4, 7, 8, 9, 15, 16] {
            let mut source: Vec<u8> = (1..=len as u8).collect();
            // SAFETY: the bytes belong to vectors that live longer.
            let piece = |bytes: &mut Vec<u8>| unsafe {
                Piece::new(bytes.as_mut_ptr().expose_provenance(), bytes.len())
            };
            let from = piece(&mut source);
            let as_bytes = from.words().map(u64::to_ne_bytes).concat();
            assert_eq!((&as_bytes[..len], from.buffer().to_vec()), (&source[..], source.clone()));
            from.load_to(&nic, 3).expect("inside");
            assert_eq!(nic.to_vec(3..3 + len).expect("inside"), source);
            for part in 0..=len {
                let (mut by_words, mut by_nic) = (vec![0; len], vec![0; len]);
                piece(&mut by_words).put_words(from.words(), part);
                piece(&mut by_nic).store_from(&nic, 3, part).expect("inside");
                let want = [&source[..part], &vec![0; len - part][..]].concat();
                assert_eq!((by_words, by_nic), (want.clone(), want));
            }
        }
    }

    #[test]
    fn owned_memory_is_used_as_elements_that_fit() {
        let owner = Buffer::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).expect("memory");
        let seen = |count, datatype: &Datatype| owner.as_elements(count, datatype).map(|seen| seen.to_vec());
        assert_eq!(seen(3, &comb(3)), None, "they end behind it");
        assert_eq!(seen(1, &comb(3)), Some(vec![1, 3, 5]));
        assert_eq!(seen(2, &Basic::Int32.into()), Some(vec![1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(seen(3, &Basic::Int32.into()), None);
        let mut foreign = [0; 8];
        assert!(buffer(&mut foreign, 8, Basic::Byte.into()).as_elements(1, &Basic::Byte.into()).is_none());
    }

    #[test]
    fn store_truncates_to_the_buffer() {
        let mut target = vec![0; 4];
        buffer(&mut target[..3], 3, Basic::Byte.into()).store(&[9; 100]);
        assert_eq!(target, [9, 9, 9, 0]);
    }

    #[test]
    fn invalid_buffers_are_rejected() {
        // SAFETY: the buffers are never accessed.
        let new =
            |address, count, datatype| unsafe { Buffer::new(address, count, datatype) }.map(|b| b.len());
        let byte = || Datatype::from(Basic::Byte);
        assert_eq!(new(0, 0, byte()), Ok(0));
        assert_eq!(new(0, 1, byte()).expect_err("null").class, Class::BUFFER);
        assert_eq!(new(8, -1, byte()).expect_err("negative").class, Class::COUNT);
        let raw = Datatype::contiguous(2, &byte()).expect("a type");
        assert_eq!(new(8, 1, raw).expect_err("not committed").class, Class::TYPE);
        assert_eq!(Buffer::empty().len(), 0);
    }

    /// Goal: scratch memory of calls that have ended is used again, and a pool keeps a bounded amount of it. Method: buffers that live
    /// at the same time and one after the other, of sizes up to more than the pool keeps; and a pool that keeps nothing.
    #[test]
    fn scratch_memory_is_reused_and_bounded() {
        let pool = ScratchPool::new(false);
        let of = |bytes: i64| Buffer::scratch(Basic::Byte.into(), bytes, &pool).expect("memory");
        let kept = || pool.list().iter().map(Buf::len).sum::<usize>();
        let (first, second) = (of(60 << 10), of(60 << 10));
        let [one, other] = [&first, &second].map(|buffer| buffer.contiguous_range().expect("bytes").0);
        assert!(one.abs_diff(other) >= 60 << 10, "both are in use");
        let part = first.clone().packed_range(8, 8);
        drop(first);
        assert_eq!(kept(), 0, "a part of it is in use");
        drop(part);
        assert_eq!(kept(), 64 << 10);
        let longer = of(64 << 10);
        assert_eq!((longer.contiguous_range().expect("bytes").0, kept()), (one, 0));
        assert!(longer.memory().is_some_and(|memory| memory.len() == 64 << 10));
        drop((longer, second));
        (0..20).for_each(|at| drop((of(1 << at), of((5 << 20) >> at))));
        assert!((64 << 10..=pool.bytes_max).contains(&kept()), "{} bytes", kept());
        drop(of(5 << 20));
        assert!(pool.list().iter().all(|memory| memory.len() <= pool.bytes_max));
        let none = ScratchPool::new(true);
        drop(Buffer::scratch(Basic::Byte.into(), 1 << 16, &none).expect("memory"));
        assert!(none.list().is_empty(), "in virtual time");
    }
}
