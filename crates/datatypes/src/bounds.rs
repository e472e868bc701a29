//! Size, bounds and alignment of a type map, without walking it.

/// What the constructors compute from their children's, in constant time for each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Bytes of data.
    pub(crate) size: i64,
    /// Where the data begins and ends; none if there is no data.
    pub(crate) data: Option<(i64, i64)>,
    /// Where the elements begin and end, each with its padding.
    padded: Option<(i64, i64)>,
    /// Where the outermost lower and upper bounds are that `MPI_Type_create_resized` set; none if it never did.
    marks: Option<(i64, i64)>,
    /// The strictest alignment of what is inside, in bytes.
    pub(crate) align: i64,
}

impl Bounds {
    /// Of no elements.
    pub(crate) const EMPTY: Self = Self { size: 0, data: None, padded: None, marks: None, align: 1 };

    /// Of data without gaps from the origin on.
    pub(crate) const fn of(size: i64, end: i64, align: i64) -> Self {
        Self { size, data: Some((0, end)), padded: Some((0, end)), marks: None, align }
    }

    /// Lower and upper bound. Where nobody set them, those of the elements, padded so that the next one is aligned; none if the
    /// padding passes 64 bits.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        if let Some(marks) = self.marks {
            return Some(marks);
        }
        let Some((first, end)) = self.padded else { return Some((0, 0)) };
        let extent = end.checked_sub(first)?;
        let padding = (self.align - extent % self.align) % self.align;
        Some((first, end.checked_add(padding)?))
    }

    /// These elements with bounds set; none if the upper one passes 64 bits.
    pub(crate) fn resized(self, lb: i64, extent: i64) -> Option<Self> {
        Some(Self { marks: Some((lb, lb.checked_add(extent)?)), ..self })
    }

    /// These elements as a part of others: with their padding.
    pub(crate) fn as_part(self) -> Option<Self> {
        let padded = if self.padded.is_some() && self.marks.is_none() { self.bounds() } else { self.padded };
        Some(Self { padded, ..self })
    }

    /// All further by so many bytes.
    pub(crate) fn shifted(self, by: i64) -> Option<Self> {
        let (data, padded) = (shift(self.data, by)?, shift(self.padded, by)?);
        Some(Self { data, padded, marks: shift(self.marks, by)?, ..self })
    }

    /// Repeated, each time a stride further.
    pub(crate) fn repeated(self, count: i64, stride: i64) -> Option<Self> {
        if count == 0 {
            return Some(Self::EMPTY);
        }
        let last = self.shifted(stride.checked_mul(count - 1)?)?;
        let size = self.size.checked_mul(count)?;
        let (data, padded) = (union(self.data, last.data), union(self.padded, last.padded));
        Some(Self { size, data, padded, marks: union(self.marks, last.marks), ..self })
    }

    /// Both type maps together, one behind the other; none if anything passes 64 bits.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
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
