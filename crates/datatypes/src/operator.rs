//! [`Operator`]: the predefined operators, and the types that each reduces (MPI 5.0, section 6.9.2).

use crate::BasicKind;

macro_rules! operators {
    ($($(#[$doc:meta])* $variant:ident = $handle:literal, $name:literal;)*) => {
        /// A predefined operator. Its number is its handle in the ABI.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Operator { $($(#[$doc])* $variant = $handle,)* }

        impl Operator {
            /// All operators, in the order of their handles.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in C, such as `"MPI_SUM"`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

operators! {
    /// `MPI_SUM`; integers wrap.
    Sum = 0x21, "MPI_SUM";
    /// `MPI_MIN`.
    Min = 0x22, "MPI_MIN";
    /// `MPI_MAX`.
    Max = 0x23, "MPI_MAX";
    /// `MPI_PROD`; integers wrap.
    Prod = 0x24, "MPI_PROD";
    /// `MPI_BAND`.
    Band = 0x28, "MPI_BAND";
    /// `MPI_BOR`.
    Bor = 0x29, "MPI_BOR";
    /// `MPI_BXOR`.
    Bxor = 0x2a, "MPI_BXOR";
    /// `MPI_LAND`; true is 1.
    Land = 0x30, "MPI_LAND";
    /// `MPI_LOR`; true is 1.
    Lor = 0x31, "MPI_LOR";
    /// `MPI_LXOR`; true is 1.
    Lxor = 0x32, "MPI_LXOR";
    /// `MPI_MINLOC`; for equal values the smaller index.
    Minloc = 0x38, "MPI_MINLOC";
    /// `MPI_MAXLOC`; for equal values the smaller index.
    Maxloc = 0x39, "MPI_MAXLOC";
    /// `MPI_REPLACE`, for accumulate operations: the left operand.
    Replace = 0x3c, "MPI_REPLACE";
    /// `MPI_NO_OP`, for accumulate operations: the right operand.
    NoOp = 0x3d, "MPI_NO_OP";
}

impl Operator {
    /// The value of its handle in the ABI.
    pub const fn abi(self) -> u16 {
        self as u16
    }

    /// The operator with this handle.
    pub fn from_abi(handle: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|operator| operator.abi() == handle)
    }

    /// Whether it is one of the two that select one operand, and are no reductions.
    pub fn selects_operand(self) -> bool {
        matches!(self, Self::Replace | Self::NoOp)
    }

    /// Whether the standard allows it to reduce elements of a kind.
    pub(crate) fn reduces(self, kind: BasicKind) -> bool {
        let number = matches!(
            kind,
            BasicKind::CSigned
                | BasicKind::CUnsigned
                | BasicKind::FInteger
                | BasicKind::Multi
                | BasicKind::Real
        );
        match self {
            Self::Min | Self::Max => number,
            Self::Sum | Self::Prod => number || kind == BasicKind::Complex,
            Self::Band | Self::Bor | Self::Bxor => {
                (number && kind != BasicKind::Real) || kind == BasicKind::Byte
            }
            Self::Land | Self::Lor | Self::Lxor => {
                matches!(
                    kind,
                    BasicKind::CSigned | BasicKind::CUnsigned | BasicKind::Multi | BasicKind::Logical
                )
            }
            Self::Minloc | Self::Maxloc => kind == BasicKind::Pair,
            Self::Replace | Self::NoOp => true,
        }
    }
}
