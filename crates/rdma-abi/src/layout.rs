//! Memory layouts of C types.

/// The position of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in C; unnamed unions are omitted from the path.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
}

/// The memory layout of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name in C, after `struct`.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields, without our padding fields, whose names begin with an underscore.
    pub fields: Vec<Field>,
}

/// Declares the structures of a header, and a function `layouts()` that returns their layouts.
macro_rules! structures {
    ($(struct $name:ident { $($field:ident: $kind:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $(pub $field: $kind,)* }
        )*

        /// The layouts of these structures.
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
