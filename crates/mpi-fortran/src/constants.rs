//! The constants of the ABI, as Fortran has them.

use crate::table::lines;

const TABLE: &str = include_str!("../../abi-mpi/constants.txt");

/// The type of a constant in Fortran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Integer,
    /// An integer of kind `MPI_OFFSET_KIND`.
    Offset,
    /// A handle: its type without `MPI_`.
    Handle(&'static str),
}

/// A constant with its value in Fortran.
pub(crate) struct Constant {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) value: i64,
}

/// Constants that only Fortran has, or has with other values than C: positions in a status count from 1.
const FOR_FORTRAN: [(&str, i64); 8] = [
    ("MPI_STATUS_SIZE", 8),
    ("MPI_SOURCE", 1),
    ("MPI_TAG", 2),
    ("MPI_ERROR", 3),
    ("MPI_ADDRESS_KIND", 8),
    ("MPI_COUNT_KIND", 8),
    ("MPI_OFFSET_KIND", 8),
    ("MPI_INTEGER_KIND", 4),
];

/// Whether a value of the table is an address or a handle of the tool interface, which Fortran has not, or has as a symbol.
fn is_for_c(name: &str, kind: &str) -> bool {
    kind.ends_with('*') || name.starts_with("MPI_T_") || name.starts_with("MPI_F_")
}

/// The value of a number as C has it: decimal or hexadecimal.
fn number(text: &str) -> i64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("no number: {text}"))
}

/// The type and the value of a constant in C.
fn parse(value: &'static str) -> (&'static str, i64) {
    match value.strip_prefix('(').and_then(|rest| rest.split_once(") ")) {
        Some((kind, value)) => (kind, number(value)),
        None if value.starts_with("MPI_") => find(value),
        None => ("int", number(value)),
    }
}

/// The type and the value in C of a constant by its name.
fn find(name: &str) -> (&'static str, i64) {
    let mut all = lines(TABLE).filter_map(|line| line.split_once(' '));
    let (_, value) = all.find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no constant {name}"));
    parse(value)
}

/// The value of a constant in C.
pub(crate) fn c_value(name: &str) -> i64 {
    find(name).1
}

/// All constants of Fortran but the addresses. The longest strings have one character less than in C, which needs a byte for their
/// end (MPI 5.0, section 2.5.4).
pub(crate) fn constants() -> Vec<Constant> {
    let mut all: Vec<Constant> =
        FOR_FORTRAN.into_iter().map(|(name, value)| Constant { name, kind: Kind::Integer, value }).collect();
    for (name, value) in lines(TABLE).filter_map(|line| line.split_once(' ')) {
        let (kind, value) = parse(value);
        if is_for_c(name, kind) {
            continue;
        }
        let kind = match kind {
            "int" => Kind::Integer,
            "MPI_Offset" => Kind::Offset,
            handle => Kind::Handle(handle.strip_prefix("MPI_").expect("a type of MPI's")),
        };
        let is_length = name.starts_with("MPI_MAX_") && kind == Kind::Integer;
        all.push(Constant { name, kind, value: value - i64::from(is_length) });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_type_and_the_value_of_fortran() {
        let all = constants();
        let one = |name: &str| {
            let found = all.iter().find(|constant| constant.name == name).expect("a constant");
            (found.kind, found.value)
        };
        assert_eq!(one("MPI_COMM_WORLD"), (Kind::Handle("Comm"), 0x101));
        assert_eq!(one("MPI_LONG_LONG_INT"), (Kind::Handle("Datatype"), 0x20b));
        assert_eq!(one("MPI_MAX_PORT_NAME"), (Kind::Integer, 1023));
        assert_eq!(one("MPI_MAX"), (Kind::Handle("Op"), 0x23));
        assert_eq!(one("MPI_ORDER_FORTRAN"), (Kind::Integer, 15));
        assert_eq!(one("MPI_DISPLACEMENT_CURRENT"), (Kind::Offset, -1));
        assert!(all.iter().all(|constant| constant.name != "MPI_BOTTOM" && constant.name != "MPI_DUP_FN"));
    }
}
