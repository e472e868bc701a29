//! Size, bounds and alignment of a type map, without walking it (MPI 5.0, section 5.1.6).

/// The bounds of a type map, computed by constructors from their parts, in constant time for each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Bytes of data.
    pub(crate) size: i64,
    /// The start and end of the data; `None` without data.
    pub(crate) data: Option<(i64, i64)>,
    /// The start and end of the elements, including their padding.
    padded: Option<(i64, i64)>,
    /// The outermost lower and upper bounds set by `MPI_Type_create_resized`; `None` if none were set.
    marks: Option<(i64, i64)>,
    /// The strictest alignment of its elements, in bytes.
    pub(crate) align: i64,
}

impl Bounds {
    /// The bounds without elements.
    pub(crate) const EMPTY: Self = Self { size: 0, data: None, padded: None, marks: None, align: 1 };

    /// The bounds of contiguous data that begin at the origin.
    pub(crate) const fn new(size: i64, end: i64, align: i64) -> Self {
        Self { size, data: Some((0, end)), padded: Some((0, end)), marks: None, align }
    }

    /// The lower and upper bound. If they were not set, the bounds of the elements, padded so that the next element is aligned;
    /// `None` if the padding exceeds 64 bits.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        if let Some(marks) = self.marks {
            return Some(marks);
        }
        let Some((first, end)) = self.padded else { return Some((0, 0)) };
        let extent = end.checked_sub(first)?;
        let padding = (self.align - extent % self.align) % self.align;
        Some((first, end.checked_add(padding)?))
    }

    /// These elements with bounds set; `None` if the upper one exceeds 64 bits.
    pub(crate) fn resized(self, lb: i64, extent: i64) -> Option<Self> {
        Some(Self { marks: Some((lb, lb.checked_add(extent)?)), ..self })
    }

    /// These elements as a part of others, including their padding.
    pub(crate) fn as_part(self) -> Option<Self> {
        let padded = if self.padded.is_some() && self.marks.is_none() { self.bounds() } else { self.padded };
        Some(Self { padded, ..self })
    }

    /// Shifted by this many bytes.
    pub(crate) fn shifted(self, by: i64) -> Option<Self> {
        let (data, padded) = (shift(self.data, by)?, shift(self.padded, by)?);
        Some(Self { data, padded, marks: shift(self.marks, by)?, ..self })
    }

    /// Repeated with a stride.
    pub(crate) fn repeated(self, count: i64, stride: i64) -> Option<Self> {
        if count == 0 {
            return Some(Self::EMPTY);
        }
        let last = self.shifted(stride.checked_mul(count - 1)?)?;
        let size = self.size.checked_mul(count)?;
        let (data, padded) = (union(self.data, last.data), union(self.padded, last.padded));
        Some(Self { size, data, padded, marks: union(self.marks, last.marks), ..self })
    }

    /// The union of both type maps; `None` if anything exceeds 64 bits.
    pub(crate) fn union_with(self, other: Self) -> Option<Self> {
        Some(Self {
            size: self.size.checked_add(other.size)?,
            data: union(self.data, other.data),
            padded: union(self.padded, other.padded),
            marks: union(self.marks, other.marks),
            align: self.align.max(other.align),
        })
    }
}

fn shift(range: Option<(i64, i64)>, by: i64) -> Option<Option<(i64, i64)>> {
    match range {
        None => Some(None),
        Some((first, end)) => Some(Some((first.checked_add(by)?, end.checked_add(by)?))),
    }
}

fn union(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        _ => a.or(b),
    }
}
