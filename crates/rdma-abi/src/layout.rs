//! Types that say how they lie in memory.

/// Where a field lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in C, where a union without a name counts for nothing.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: usize,
}

/// How a type lies in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name in C, behind `struct`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields. Those whose names begin with an underscore are padding of ours, and not in here.
    pub fields: Vec<Field>,
}

/// Declares the structures of a header, and `layouts()` of them.
macro_rules! structures {
    ($(struct $name:ident { $($field:ident: $kind:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $(pub $field: $kind,)* }
        )*

        /// How they lie.
        pub(crate) fn layouts() -> Vec<crate::Layout> {
            vec![$(crate::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: [$((stringify!($field), std::mem::offset_of!($name, $field)),)*]
                    .into_iter()
                    .filter(|(name, _): &(&str, usize)| !name.starts_with('_'))
                    .map(|(name, offset)| crate::Field { name, offset })
                    .collect(),
            },)*]
        }
    };
}

pub(crate) use structures;
