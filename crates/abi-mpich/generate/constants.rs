//! The constants of both ABIs, and the functions that convert them.

use mpi_fortran::table::lines;

const STANDARD: &str = include_str!("../../abi-mpi/constants.txt");
const MPICH: &str = include_str!("../constants.txt");

/// A section of constants.txt.
struct Section {
    kind: &'static str,
    name: &'static str,
    /// Name, value in MPICH's ABI, and value in the standard's.
    constants: Vec<(&'static str, i64, i64)>,
}

/// All sections of constants.txt.
pub(crate) struct Constants(Vec<Section>);

/// A number as C has it: decimal or hexadecimal.
fn number(text: &str) -> i64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("no number: {text}"))
}

/// The value of a constant in the standard ABI.
fn standard(name: &str) -> i64 {
    let value = lines(STANDARD).find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("the standard ABI has no constant {name}"));
    number(value.rsplit(' ').next().expect("a value"))
}

impl Constants {
    /// Reads the tables.
    pub(crate) fn read() -> Self {
        let mut sections: Vec<Section> = Vec::new();
        for line in lines(MPICH) {
            if let Some(head) = line.strip_prefix('[') {
                let (kind, name) = head.trim_end_matches(']').split_once(' ').unwrap_or((head, ""));
                sections.push(Section { kind: kind.trim_end_matches(']'), name, constants: Vec::new() });
                continue;
            }
            let (name, value) = line.split_once(' ').expect("a name and a value");
            let section = sections.last_mut().expect("a section before its constants");
            section.constants.push((name, number(value), standard(name)));
        }
        Self(sections)
    }

    /// The sizes of a string's buffer: in MPICH's ABI, and in the standard's.
    pub(crate) fn sizes(&self, name: &str) -> (i64, i64) {
        let all = self.0.iter().filter(|section| section.kind == "size");
        let found = all.flat_map(|section| &section.constants).find(|constant| constant.0 == name);
        let (_, mpich, standard) = found.unwrap_or_else(|| panic!("no size: {name}"));
        (*mpich, *standard)
    }

    /// The conversions: a module with two functions for each section.
    pub(crate) fn conversions(&self) -> String {
        let mut text = String::new();
        for section in &self.0 {
            text.push_str(&match section.kind {
                "handle" => section.handles(),
                "choice" | "number" => section.numbers(),
                "bits" => section.bits(),
                "address" => section.addresses(),
                "size" => String::new(),
                kind => panic!("no kind of section: {kind}"),
            });
        }
        text
    }
}

impl Section {
    /// The arms of a `match`, by a form for each constant.
    fn arms(&self, form: impl Fn(i64, i64) -> String) -> String {
        self.constants.iter().map(|(_, mpich, standard)| form(*mpich, *standard)).collect()
    }

    /// Two functions over `match`; `rest` are the arms for other values. If all special values are negative, others are found first.
    fn module(&self, kind: &str, rest: [&str; 2]) -> String {
        let all_negative = self.constants.iter().all(|(_, mpich, standard)| *mpich < 0 && *standard < 0);
        let first = if all_negative { "if value >= 0 { return value }\n" } else { "" };
        let name = self.name.to_lowercase();
        let into = self.arms(|mpich, standard| format!("{mpich} => {standard}, "));
        let back = self.arms(|mpich, standard| format!("{standard} => {mpich}, "));
        format!(
            "pub(crate) mod {name} {{\n\
             /// The standard's value.\n#[inline]\npub(crate) fn to_standard(value: {kind}) -> {kind} {{ {first}match value {{ {into}{} }} }}\n\
             /// MPICH's value.\n#[inline]\npub(crate) fn to_mpich(value: {kind}) -> {kind} {{ {first}match value {{ {back}{} }} }}\n}}\n",
            rest[0], rest[1]
        )
    }

    /// A choice, or a number with special values. Other arguments become a value which every call refuses, except
    /// numbers that are not negative.
    fn numbers(&self) -> String {
        let kind = if self.name == "displacement" { "i64" } else { "i32" };
        let refused = format!("_ => {kind}::MIN");
        let with_numbers = format!("0.. => value, {refused}");
        self.module(kind, [if self.kind == "number" { &with_numbers } else { &refused }, "_ => value"])
    }

    /// Bits: unknown bits become a value which every call refuses.
    fn bits(&self) -> String {
        let known: i64 = self.constants.iter().map(|(_, mpich, _)| mpich).sum();
        let pairs = self.arms(|mpich, standard| format!("({mpich}, {standard}), "));
        format!(
            "pub(crate) mod {} {{\n\
             /// Each bit: MPICH's and the standard's.\nconst BITS: &[(i32, i32)] = &[{pairs}];\n\
             /// The standard's bits.\npub(crate) fn to_standard(value: i32) -> i32 {{\n\
             if value & !{known} != 0 {{ return i32::MIN }}\n\
             BITS.iter().filter(|(mpich, _)| value & mpich != 0).map(|(_, standard)| standard).sum()\n}}\n\
             /// MPICH's bits.\npub(crate) fn to_mpich(value: i32) -> i32 {{\n\
             BITS.iter().filter(|(_, standard)| value & standard != 0).map(|(mpich, _)| mpich).sum()\n}}\n}}\n",
            self.name
        )
    }

    fn addresses(&self) -> String {
        let into = self.arms(|mpich, standard| format!("{} => {standard}, ", mpich as u64));
        let back = self.arms(|mpich, standard| format!("{standard} => {}, ", mpich as u64));
        format!(
            "/// The standard's value of a special address, or another address.\n#[inline]\n\
             pub(crate) fn address_to_standard(address: usize) -> usize {{ match address {{ {into} _ => address }} }}\n\
             /// MPICH's value of a special address, or another address.\n\
             pub(crate) fn address_to_mpich(address: usize) -> usize {{ match address {{ {back} _ => address }} }}\n"
        )
    }

    /// Predefined handles: a fast way for frequent handles, and all.
    fn handles(&self) -> String {
        let name = self.name.to_lowercase();
        let into = self.arms(|mpich, standard| format!("{} => Some({standard}), ", mpich as u32 as i32));
        let back = self.arms(|mpich, standard| format!("{standard} => Some({}), ", mpich as u32 as i32));
        format!(
            "pub(crate) mod {name} {{\n\
             /// The standard's value of a frequent handle.\n#[inline(always)]\npub(crate) fn frequent(handle: i32) -> Option<usize> {{ {} }}\n\
             /// The standard's value of a predefined handle.\npub(crate) fn predefined(handle: i32) -> Option<usize> {{ match handle {{ {into} _ => None }} }}\n\
             /// MPICH's value of a predefined handle.\n#[inline]\npub(crate) fn predefined_to_mpich(handle: usize) -> Option<i32> {{ match handle {{ {back} _ => None }} }}\n}}\n",
            self.frequent_handles()
        )
    }

    /// The body of the fast way: most datatypes are found by the last byte of their handles; of the others, one is compared.
    fn frequent_handles(&self) -> String {
        let usual = |name: &str| {
            let (_, mpich, standard) =
                self.constants.iter().find(|constant| constant.0 == name).expect("a handle of this kind");
            format!("(handle == {mpich}).then_some({standard})")
        };
        match self.name {
            "Comm" => usual("MPI_COMM_WORLD"),
            "Op" => usual("MPI_SUM"),
            "Request" => usual("MPI_REQUEST_NULL"),
            "Info" => usual("MPI_INFO_NULL"),
            "Datatype" => self.table_by_last_byte(),
            _ => "let _ = handle; None".to_owned(),
        }
    }

    fn table_by_last_byte(&self) -> String {
        let mut table = vec![(0, 0); 256];
        for (constant, mpich, standard) in self.constants.iter().filter(|constant| constant.1 >> 16 == 0x4c00)
        {
            let place = &mut table[(mpich & 0xff) as usize];
            assert!(*place == (0, 0), "the last byte of {constant} is that of another");
            *place = (*mpich, *standard);
        }
        let items: Vec<String> =
            table.iter().map(|(mpich, standard)| format!("({mpich}, {standard})")).collect();
        format!(
            "static TABLE: [(i32, u16); 256] = [{}];\nlet (known, standard) = TABLE[(handle & 0xff) as usize];\n\
             (known == handle).then_some(standard as usize)",
            items.join(", ")
        )
    }
}
