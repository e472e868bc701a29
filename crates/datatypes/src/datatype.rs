//! A datatype: its constructor's arguments, which may include other datatypes, its shape, its bounds, and its layout, which is
//! flattened once.

use crate::bounds::Bounds;
use crate::combiner::Combiner;
use crate::cursor::{Cursor, Runs};
use crate::layout::{Body, Builder, Piece, Run};
use crate::signature::Signature;
use crate::{Basic, Error, Result};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

/// A datatype. A clone is cheap and is the same object, like MPI's handles; counts, strides and addresses have 64 bits.
#[derive(Clone)]
pub struct Datatype {
    inner: Handle,
}

/// Predefined types are static and need no reference counting, because most messages use one.
#[derive(Clone)]
enum Handle {
    Predefined(&'static Inner),
    Constructed(Arc<Inner>),
}

impl Deref for Handle {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        match self {
            Self::Predefined(inner) => inner,
            Self::Constructed(inner) => inner,
        }
    }
}

/// A constructor's arguments, in the standard's order. Orders, distributions, the default argument of a distribution and undefined
/// precisions are the ABI's numbers.
#[derive(Clone, Default, Debug)]
pub struct Contents {
    /// Integers, and counts unless they were passed as large counts.
    pub integers: Vec<i64>,
    /// Addresses, unless they were passed as large counts.
    pub addresses: Vec<i64>,
    /// Large counts.
    pub counts: Vec<i64>,
    /// Datatypes.
    pub datatypes: Vec<Datatype>,
}

/// A constructor and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct ConstructorCall {
    pub(crate) combiner: Combiner,
    pub(crate) contents: Contents,
}

impl ConstructorCall {
    pub(crate) fn named() -> Self {
        Self { combiner: Combiner::Named, contents: Contents::default() }
    }

    pub(crate) fn new(
        combiner: Combiner,
        integers: Vec<i64>,
        addresses: Vec<i64>,
        datatypes: Vec<Datatype>,
    ) -> Self {
        Self { combiner, contents: Contents { integers, addresses, counts: Vec::new(), datatypes } }
    }

    /// The arguments that determine sizes and addresses, for an error's text.
    pub(crate) fn arguments(&self) -> &'static str {
        match self.combiner {
            Combiner::Named | Combiner::Dup | Combiner::ValueIndex => "the datatype",
            Combiner::F90Real | Combiner::F90Complex | Combiner::F90Integer => "precision and range",
            Combiner::Contiguous => "count",
            Combiner::Vector | Combiner::Hvector => "count, blocklength and stride",
            Combiner::Indexed | Combiner::Hindexed | Combiner::Struct => "blocklengths and displacements",
            Combiner::IndexedBlock | Combiner::HindexedBlock => "blocklength and displacements",
            Combiner::Subarray | Combiner::Darray => "the sizes of the array",
            Combiner::Resized => "lb and extent",
        }
    }
}

struct Inner {
    constructor_call: ConstructorCall,
    shape: Shape,
    bounds: Bounds,
    lb: i64,
    ub: i64,
    signature: Signature,
    committed: AtomicBool,
    /// The value of [`Datatype::contiguous_size`].
    dense: AtomicI64,
    /// Runs of bytes of any type.
    layout: OnceLock<Arc<[Piece]>>,
    /// Runs of one basic type each.
    typed: OnceLock<Arc<[Piece]>>,
}

/// The repetition that defines a type map.
#[derive(Clone)]
pub(crate) enum Shape {
    Basic(Basic),
    /// Another type's map, possibly with other bounds.
    Duplicate(Datatype),
    /// `count` blocks at a stride in bytes, each with `blocklength` consecutive elements.
    Strided {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Datatype,
    },
    Blocks(Vec<Block>),
}

/// Consecutive elements at a displacement in bytes.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) displacement: i64,
    pub(crate) count: i64,
    pub(crate) old: Datatype,
}

/// The form of an element for an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    Single(Basic),
    /// A pair of two basic types that are no pairs themselves.
    Pair(Basic, Basic),
}

/// The predefined types by their handles, which are 0x200 to 0x2ff.
static PREDEFINED: [OnceLock<Inner>; 256] = [const { OnceLock::new() }; 256];
const FIRST: usize = 0x200;

impl From<Basic> for Datatype {
    fn from(basic: Basic) -> Self {
        let place = &PREDEFINED[usize::from(basic.abi()) - FIRST];
        Self { inner: Handle::Predefined(place.get_or_init(|| Inner::predefined(basic))) }
    }
}

impl Inner {
    fn new(
        constructor_call: ConstructorCall,
        shape: Shape,
        bounds: Bounds,
        signature: Signature,
    ) -> Result<Self> {
        let overflow = || Error::overflow(constructor_call.arguments());
        let (lb, ub) = bounds.bounds().ok_or_else(overflow)?;
        ub.checked_sub(lb).ok_or_else(overflow)?;
        if let Some((first, end)) = bounds.data {
            end.checked_sub(first).ok_or_else(overflow)?;
        }
        let (committed, layout, typed) = (AtomicBool::new(false), OnceLock::new(), OnceLock::new());
        let dense = AtomicI64::new(0);
        Ok(Self { constructor_call, shape, bounds, lb, ub, signature, committed, dense, layout, typed })
    }

    fn predefined(basic: Basic) -> Self {
        let align = i64::from(basic.align());
        let end =
            basic.pair().map_or(basic.size(), |(value, index)| index_offset(value, index) + index.size());
        let bounds = Bounds::new(i64::from(basic.size()), i64::from(end), align);
        let inner =
            Self::new(ConstructorCall::named(), Shape::Basic(basic), bounds, Signature::from_basic(basic));
        let inner = inner.expect("a few bytes do not exceed 64 bits");
        inner.commit();
        inner
    }

    #[inline]
    fn layout(&self) -> &Arc<[Piece]> {
        self.layout.get_or_init(|| self.shape.flatten(false))
    }

    fn commit(&self) {
        if let [Piece { offset: 0, body: Body::Runs { length, count: 1, .. }, .. }] = &**self.layout()
            && i64::try_from(*length) == Ok(self.ub - self.lb)
        {
            self.dense.store(self.ub - self.lb, Ordering::Relaxed);
        }
        self.committed.store(true, Ordering::Release);
    }
}

/// The offset of a pair's index, in bytes: aligned after the value.
pub(crate) fn index_offset(value: Basic, index: Basic) -> u32 {
    value.size().next_multiple_of(index.align())
}

impl Datatype {
    /// A type of this shape, if its addresses fit into 64 bits.
    pub(crate) fn from_shape(constructor_call: ConstructorCall, shape: Shape) -> Result<Self> {
        let overflow = || Error::overflow(constructor_call.arguments());
        let bounds = shape.bounds().ok_or_else(overflow)?;
        let signature = shape.signature();
        Self::assemble(constructor_call, shape, bounds, signature)
    }

    /// The elements of another type with new bounds.
    pub(crate) fn with_bounds(
        constructor_call: ConstructorCall,
        old: &Self,
        lb: i64,
        extent: i64,
    ) -> Result<Self> {
        let bounds = old.inner.bounds.resized(lb, extent).ok_or_else(|| Error::overflow("lb and extent"))?;
        Self::assemble(constructor_call, Shape::Duplicate(old.clone()), bounds, old.inner.signature)
    }

    fn assemble(
        constructor_call: ConstructorCall,
        shape: Shape,
        bounds: Bounds,
        signature: Signature,
    ) -> Result<Self> {
        Ok(Self {
            inner: Handle::Constructed(Arc::new(Inner::new(constructor_call, shape, bounds, signature)?)),
        })
    }

    pub(crate) fn constructor_call(&self) -> &ConstructorCall {
        &self.inner.constructor_call
    }

    /// The constructor that made it.
    pub fn combiner(&self) -> Combiner {
        self.constructor_call().combiner
    }

    /// A new object for the same type with other constructor arguments.
    pub(crate) fn with_constructor_call(&self, constructor_call: ConstructorCall) -> Self {
        let inner = &self.inner;
        let again = Self::assemble(constructor_call, inner.shape.clone(), inner.bounds, inner.signature);
        again.expect("these bounds were checked when the type was made")
    }

    /// The predefined type, if it is one.
    pub fn basic(&self) -> Option<Basic> {
        match self.inner.shape {
            Shape::Basic(basic) => Some(basic),
            _ => None,
        }
    }

    /// Its form for operators: a basic type or a pair; `None` if it cannot be reduced.
    pub(crate) fn element(&self) -> Option<Element> {
        match (&self.inner.shape, self.combiner()) {
            (Shape::Basic(basic), _) => Some(match basic.pair() {
                Some((value, index)) => Element::Pair(value, index),
                None => Element::Single(*basic),
            }),
            (Shape::Blocks(blocks), Combiner::ValueIndex) => {
                Some(Element::Pair(blocks[0].old.basic()?, blocks[1].old.basic()?))
            }
            (
                Shape::Duplicate(old),
                Combiner::Dup | Combiner::F90Integer | Combiner::F90Real | Combiner::F90Complex,
            ) => old.element(),
            _ => None,
        }
    }

    /// Whether both are the same object: clones of each other, or the same predefined type.
    pub fn is_same_object(&self, other: &Self) -> bool {
        std::ptr::eq(&*self.inner, &*other.inner) || (self.basic().is_some() && self.basic() == other.basic())
    }

    /// Bytes of data in one element.
    pub fn size(&self) -> i64 {
        self.inner.bounds.size
    }

    /// The lower bound, in bytes from the origin.
    pub fn lb(&self) -> i64 {
        self.inner.lb
    }

    /// The upper bound, in bytes from the origin.
    pub fn ub(&self) -> i64 {
        self.inner.ub
    }

    /// The distance between consecutive elements, in bytes.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.inner.ub - self.inner.lb
    }

    /// The start of the data, in bytes from the origin; 0 without data.
    pub fn true_lb(&self) -> i64 {
        self.inner.bounds.data.map_or(0, |(first, _)| first)
    }

    /// The end of the data, in bytes from the origin; 0 without data.
    pub fn true_ub(&self) -> i64 {
        self.inner.bounds.data.map_or(0, |(_, end)| end)
    }

    /// The distance from the start to the end of the data, in bytes.
    pub fn true_extent(&self) -> i64 {
        self.true_ub() - self.true_lb()
    }

    /// `MPI_Type_commit`: flattens it, if that is not done yet. All clones are committed with it.
    pub fn commit(&self) {
        self.inner.commit();
    }

    /// Whether it may be used to communicate.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.inner.committed.load(Ordering::Acquire)
    }

    /// The predefined type with this handle, if there is one.
    #[inline]
    pub fn predefined(handle: usize) -> Option<Self> {
        match PREDEFINED.get(handle.wrapping_sub(FIRST))?.get() {
            Some(inner) => Some(Self { inner: Handle::Predefined(inner) }),
            None => Basic::from_abi(handle as u16).map(Self::from),
        }
    }

    /// The basic type with this handle, if it was used before.
    #[inline]
    pub fn predefined_basic(handle: usize) -> Option<Basic> {
        match PREDEFINED.get(handle.wrapping_sub(FIRST))?.get()?.shape {
            Shape::Basic(basic) => Some(basic),
            _ => None,
        }
    }

    /// The [`Datatype::contiguous_size`] of the predefined type with this handle; 0 also if there is none, or if it was not used
    /// before.
    #[inline]
    pub fn predefined_contiguous_size(handle: usize) -> i64 {
        let inner = PREDEFINED.get(handle.wrapping_sub(FIRST)).and_then(OnceLock::get);
        inner.map_or(0, |inner| inner.dense.load(Ordering::Relaxed))
    }

    /// Bytes of an element of a committed type whose data are contiguous and begin at the origin, as in most messages; 0 for other
    /// types.
    #[inline]
    pub fn contiguous_size(&self) -> i64 {
        self.inner.dense.load(Ordering::Relaxed)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.inner.bounds
    }

    #[inline]
    fn layout(&self) -> &Arc<[Piece]> {
        self.inner.layout()
    }

    pub(crate) fn typed_layout(&self) -> &Arc<[Piece]> {
        self.inner.typed.get_or_init(|| self.inner.shape.flatten(true))
    }

    fn pieces(&self, typed: bool) -> &Arc<[Piece]> {
        if typed { self.typed_layout() } else { self.layout() }
    }
}

/// The data of `count` elements. A negative count, and one with sizes or addresses beyond 64 bits, is an error of kind
/// [`Count`](crate::ErrorKind::Count).
impl Datatype {
    fn bounds_of(&self, count: i64) -> Result<Bounds> {
        if count < 0 {
            return Err(Error::new(crate::ErrorKind::Count, format!("count: {count} is negative")));
        }
        let bounds = self.inner.bounds.repeated(count, self.extent());
        bounds.filter(|all| all.data.is_none_or(|(first, end)| end.checked_sub(first).is_some())).ok_or_else(
            || {
                let each =
                    format!("count: {count} elements, each of {} bytes every {}", self.size(), self.extent());
                Error::overflow(&each)
            },
        )
    }

    /// Bytes of data in `count` elements.
    ///
    /// # Errors
    /// If the count is negative or too large.
    pub fn bytes(&self, count: i64) -> Result<u64> {
        Ok(self.bounds_of(count)?.size as u64)
    }

    /// The range from the first to the last accessed byte; empty without data.
    ///
    /// # Errors
    /// If the count is negative or too large.
    pub fn span(&self, count: i64) -> Result<Range<i64>> {
        let (first, end) = self.bounds_of(count)?.data.unwrap_or((0, 0));
        Ok(first..end)
    }

    /// The single run that `count` elements form in type-map order; `None` if there are gaps, if there is no data, or if the count
    /// is illegal.
    #[inline]
    pub fn single_run(&self, count: i64) -> Option<Run> {
        let [piece] = &**self.layout() else { return None };
        let Body::Runs { length, count: 1, .. } = piece.body else { return None };
        if count != 1 && (count < 1 || self.extent() != length as i64) {
            return None;
        }
        // The elements are contiguous, so no other size can be too large.
        let length = length.checked_mul(u64::try_from(count).ok()?)?;
        piece.offset.checked_add(i64::try_from(length).ok()?)?;
        Some(Run { offset: piece.offset, length })
    }

    /// All runs in type-map order, merged where they are adjacent.
    ///
    /// # Errors
    /// If the count is negative or too large.
    pub fn runs(&self, count: i64) -> Result<Runs> {
        Ok(Runs::new(self.cursor(count)?))
    }

    /// A cursor at the start of the packed form of `count` elements.
    ///
    /// # Errors
    /// If the count is negative or too large.
    pub fn cursor(&self, count: i64) -> Result<Cursor> {
        let total = self.bytes(count)?;
        Ok(Cursor::new(self.repeat_pieces(self.layout(), count), total))
    }

    /// A cursor over `count` elements in which each run has one basic type.
    pub(crate) fn typed_cursor(&self, count: i64) -> Result<Cursor> {
        let total = self.bytes(count)?;
        Ok(Cursor::new(self.repeat_pieces(self.typed_layout(), count), total))
    }

    fn repeat_pieces(&self, pieces: &Arc<[Piece]>, count: i64) -> Arc<[Piece]> {
        if count == 1 {
            return Arc::clone(pieces);
        }
        let mut builder = Builder::default();
        builder.repeat(pieces, 0, count as u64, self.extent());
        builder.finish()
    }

    /// The sequence of basic types of `count` elements; `None` if the count is negative.
    pub fn signature(&self, count: i64) -> Option<Signature> {
        Some(self.inner.signature.repeated(u64::try_from(count).ok()?))
    }
}

impl Shape {
    fn bounds(&self) -> Option<Bounds> {
        match self {
            Self::Basic(basic) => Some(Datatype::from(*basic).bounds()),
            Self::Duplicate(old) => Some(old.bounds()),
            Self::Strided { count, blocklength, stride, old } => {
                old.bounds().as_part()?.repeated(*blocklength, old.extent())?.repeated(*count, *stride)
            }
            Self::Blocks(blocks) => blocks.iter().try_fold(Bounds::EMPTY, |all, block| {
                let repeated = block.old.bounds().as_part()?.repeated(block.count, block.old.extent())?;
                all.union_with(repeated.shifted(block.displacement)?)
            }),
        }
    }

    fn signature(&self) -> Signature {
        match self {
            Self::Basic(basic) => Signature::from_basic(*basic),
            Self::Duplicate(old) => old.inner.signature,
            Self::Strided { count, blocklength, old, .. } => {
                old.inner.signature.repeated(*blocklength as u64).repeated(*count as u64)
            }
            Self::Blocks(blocks) => blocks.iter().fold(Signature::EMPTY, |all, block| {
                all.concat(block.old.inner.signature.repeated(block.count as u64))
            }),
        }
    }

    /// The pieces of the type map: with their basic types, or as bytes.
    fn flatten(&self, typed: bool) -> Arc<[Piece]> {
        let mut builder = Builder::default();
        match self {
            Self::Basic(basic) => flatten_basic(*basic, typed, &mut builder),
            Self::Duplicate(old) => return Arc::clone(old.pieces(typed)),
            Self::Strided { count, blocklength, stride, old } => {
                let mut block = Builder::default();
                block.repeat(old.pieces(typed), 0, *blocklength as u64, old.extent());
                builder.repeat(&block.finish(), 0, *count as u64, *stride);
            }
            Self::Blocks(blocks) => {
                for block in blocks {
                    let pieces = block.old.pieces(typed);
                    builder.repeat(pieces, block.displacement, block.count as u64, block.old.extent());
                }
            }
        }
        builder.finish()
    }
}

fn flatten_basic(basic: Basic, typed: bool, builder: &mut Builder) {
    let mut push = |basic: Basic, offset: u32| {
        let (basic, count) = if typed { (basic, 1) } else { (Basic::Byte, u64::from(basic.size())) };
        builder.push(Piece::run(basic, i64::from(offset), count));
    };
    match basic.pair() {
        Some((value, index)) => {
            push(value, 0);
            push(index, index_offset(value, index));
        }
        None => push(basic, 0),
    }
}

impl fmt::Debug for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.basic() {
            Some(basic) => f.write_str(basic.name()),
            None => {
                write!(f, "{:?} of {} bytes in [{}, {})", self.combiner(), self.size(), self.lb(), self.ub())
            }
        }
    }
}
