//! Size, bounds and alignment of a type map, without walking it (MPI 5.0, section 5.1.6).

/// The bounds of a type map, computed by constructors from their parts, in constant time for each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Bytes of data.
    pub(crate) size: i64,
    /// The start and end of the data; `None` without data.
    pub(crate) data: Option<(i64, i64)>,
    /// The start and end of the elements, including the padding of each part, but not that of the whole.
    element_bounds: Option<(i64, i64)>,
    /// The outermost lower and upper bounds set by `MPI_Type_create_resized`; `None` if none were set.
    explicit_bounds: Option<(i64, i64)>,
    /// The strictest alignment of its elements, in bytes.
    pub(crate) align: i64,
}

impl Bounds {
    /// The bounds without elements.
    pub(crate) const EMPTY: Self =
        Self { size: 0, data: None, element_bounds: None, explicit_bounds: None, align: 1 };

    /// The bounds of contiguous data that begin at the origin.
    pub(crate) const fn new(size: i64, end: i64, align: i64) -> Self {
        Self { size, data: Some((0, end)), element_bounds: Some((0, end)), explicit_bounds: None, align }
    }

    /// The lower and upper bound: the explicit ones, or the bounds of the elements with padding after them, so that the next
    /// element is aligned; `None` if the upper bound exceeds 64 bits.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        if let Some(explicit_bounds) = self.explicit_bounds {
            return Some(explicit_bounds);
        }
        let Some((first, end)) = self.element_bounds else { return Some((0, 0)) };
        let extent = end.checked_sub(first)?;
        let padding = (self.align - extent % self.align) % self.align;
        Some((first, end.checked_add(padding)?))
    }

    /// These elements with bounds set; `None` if the upper one exceeds 64 bits.
    pub(crate) fn resized(self, lb: i64, extent: i64) -> Option<Self> {
        Some(Self { explicit_bounds: Some((lb, lb.checked_add(extent)?)), ..self })
    }

    /// These elements as a part of others, including their padding.
    pub(crate) fn as_part(self) -> Option<Self> {
        let element_bounds = if self.element_bounds.is_some() && self.explicit_bounds.is_none() {
            self.bounds()
        } else {
            self.element_bounds
        };
        Some(Self { element_bounds, ..self })
    }

    /// Shifted by this many bytes.
    pub(crate) fn shifted(self, by: i64) -> Option<Self> {
        let (data, element_bounds) = (shift(self.data, by)?, shift(self.element_bounds, by)?);
        Some(Self { data, element_bounds, explicit_bounds: shift(self.explicit_bounds, by)?, ..self })
    }

    /// Repeated with a stride.
    pub(crate) fn repeated(self, count: i64, stride: i64) -> Option<Self> {
        if count == 0 {
            return Some(Self::EMPTY);
        }
        let last = self.shifted(stride.checked_mul(count - 1)?)?;
        let size = self.size.checked_mul(count)?;
        let (data, element_bounds) =
            (union(self.data, last.data), union(self.element_bounds, last.element_bounds));
        Some(Self {
            size,
            data,
            element_bounds,
            explicit_bounds: union(self.explicit_bounds, last.explicit_bounds),
            ..self
        })
    }

    /// The union of both type maps; `None` if anything exceeds 64 bits.
    pub(crate) fn union_with(self, other: Self) -> Option<Self> {
        Some(Self {
            size: self.size.checked_add(other.size)?,
            data: union(self.data, other.data),
            element_bounds: union(self.element_bounds, other.element_bounds),
            explicit_bounds: union(self.explicit_bounds, other.explicit_bounds),
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
