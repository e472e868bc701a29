//! The tables of functions: the C prototypes, with the words of fortran.txt about them.

use std::collections::BTreeSet;

const PROTOTYPES: &str = include_str!("../../abi-mpi/functions.txt");
const WORDS: &str = include_str!("../fortran.txt");

/// A function with a Fortran binding.
pub struct Function {
    /// Its name in C.
    pub name: String,
    /// What it returns in C: `int`, which is an error code, or a value.
    pub returns: Base,
    /// Its arguments, in the order of C.
    pub arguments: Vec<Argument>,
    words: Words,
}

/// The words of fortran.txt about a function or an argument.
#[derive(Default)]
struct Words(BTreeSet<&'static str>);

impl Words {
    fn has(&self, word: &str) -> bool {
        self.0.contains(word)
    }

    /// The value of a word such as `name=index`; the last line counts.
    fn value(&self, key: &str) -> Option<&'static str> {
        self.0.iter().rev().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Adds words; a value replaces an earlier one.
    fn add(&mut self, words: impl Iterator<Item = &'static str>) {
        for word in words {
            if let Some((key, _)) = word.split_once('=') {
                self.0.retain(|old| !old.strip_prefix(key).is_some_and(|rest| rest.starts_with('=')));
            }
            self.0.insert(word);
        }
    }
}

/// The type of an argument in C, without stars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Data of any type, or an address.
    Void,
    /// A character of a string.
    Char,
    /// `int`.
    Int,
    /// `double`.
    Double,
    /// `MPI_Aint`: 64 bits, as the next two.
    Aint,
    /// `MPI_Count`.
    Count,
    /// `MPI_Offset`.
    Offset,
    /// `MPI_Status`.
    Status,
    /// A handle: the part of its name after `MPI_`.
    Handle(&'static str),
    /// A function of the program: the name of its type.
    Callback(&'static str),
}

impl Base {
    fn parse(text: &'static str) -> Self {
        match text {
            "void" => Self::Void,
            "char" => Self::Char,
            "int" => Self::Int,
            "double" => Self::Double,
            "MPI_Aint" => Self::Aint,
            "MPI_Count" => Self::Count,
            "MPI_Offset" => Self::Offset,
            "MPI_Status" => Self::Status,
            function if function.ends_with("function") || function.ends_with("function_c") => {
                Self::Callback(function)
            }
            handle => Self::Handle(handle.strip_prefix("MPI_").expect("a type of MPI's")),
        }
    }
}

/// The shape of an argument in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Passed by value.
    Value,
    /// The address of one, or of a string.
    Pointer,
    /// The address of several.
    Array,
    /// An array of triples.
    Triples,
}

/// An argument of a function.
pub struct Argument {
    /// Its name in Fortran.
    pub name: String,
    /// Its type, without stars.
    pub base: Base,
    /// How it is passed.
    pub shape: Shape,
    /// Whether C declares that it only reads it.
    pub is_const: bool,
    words: Words,
}

/// Whether an argument is read, written or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Read only.
    In,
    /// Written only.
    Out,
    /// Read, then written.
    InOut,
}

impl Argument {
    /// Whether a table says this word about it.
    pub fn has(&self, word: &str) -> bool {
        self.words.has(word)
    }

    /// The value of a word about it.
    pub fn value(&self, key: &str) -> Option<&'static str> {
        self.words.value(key)
    }

    /// Whether it is a choice buffer: data of any type.
    pub(crate) fn is_choice(&self) -> bool {
        self.base == Base::Void && !["address", "pointer", "detached"].iter().any(|word| self.has(word))
    }

    /// Whether it is a string or an array of strings.
    pub(crate) fn is_text(&self) -> bool {
        self.base == Base::Char
    }

    /// Whether it is an address that the library returns.
    pub fn is_returned_address(&self) -> bool {
        self.has("pointer") || self.has("detached")
    }

    /// Whether C reads it, writes it, or both.
    pub fn direction(&self) -> Direction {
        let is_text_array = self.base == Base::Char && self.shape == Shape::Array;
        let is_function = matches!(self.base, Base::Callback(_));
        let is_value = matches!(self.shape, Shape::Value | Shape::Triples);
        if self.is_const || is_value || is_text_array || is_function || self.has("in") {
            Direction::In
        } else if self.has("inout") {
            Direction::InOut
        } else {
            Direction::Out
        }
    }
}

impl Function {
    /// Whether a table says this word about it.
    pub fn has(&self, word: &str) -> bool {
        self.words.has(word)
    }

    /// Whether its entry point is written by hand.
    pub(crate) fn is_by_hand(&self) -> bool {
        self.has("hand")
    }

    /// Whether only the older interfaces have it.
    pub(crate) fn is_old(&self) -> bool {
        self.has("old")
    }

    /// Whether it is the form of another function with large counts.
    pub(crate) fn is_large(&self) -> bool {
        self.name.ends_with("_c")
    }

    /// Its arguments in Fortran, without the error code.
    pub(crate) fn fortran_arguments(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| !argument.has("absent"))
    }

    /// Whether it returns an error code, so that it is a subroutine with a last argument `ierror`.
    pub(crate) fn has_error_code(&self) -> bool {
        self.returns == Base::Int && self.name != "MPI_Pcontrol"
    }

    /// Whether it is a function in Fortran, too.
    pub(crate) fn returns_value(&self) -> bool {
        self.returns != Base::Int
    }

    /// Whether `mpi_f08` has an entry point of its own.
    pub(crate) fn has_own_f08_entry(&self) -> bool {
        self.arguments.iter().any(|argument| argument.has("detached"))
    }
}

/// The lines of a table, without comments.
pub fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// All functions, in the order of functions.txt, with the words of fortran.txt and of another table of this format.
pub fn functions_with(words: &'static str) -> Vec<Function> {
    let words = [word_lines(WORDS), word_lines(words)].concat();
    lines(PROTOTYPES).map(|line| parse(&words, line)).collect()
}

/// All functions but those for tools and the conversions of handles, in the order of functions.txt.
pub(crate) fn prototypes() -> Vec<Function> {
    let is_other = |line: &&str| [" MPI_T_", "_toint(", "_fromint("].iter().any(|part| line.contains(part));
    let words = word_lines(WORDS);
    lines(PROTOTYPES).filter(|line| !is_other(line)).map(|line| parse(&words, line)).collect()
}

/// All functions with a Fortran binding, in the order of functions.txt.
pub(crate) fn functions() -> Vec<Function> {
    prototypes().into_iter().filter(|function| !function.has("none")).collect()
}

/// The lines of fortran.txt: function, argument and words.
type WordLines = Vec<(&'static str, &'static str, Vec<&'static str>)>;

fn word_lines(table: &'static str) -> WordLines {
    let parse = |line: &'static str| {
        let mut parts = line.split(' ');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.collect())
    };
    lines(table).map(parse).collect()
}

/// The words about an argument of a function; `-` is the function itself.
fn words_about(all: &WordLines, function: &str, argument: &str) -> Words {
    let mut words = Words::default();
    for (of, about, more) in all {
        if *about == argument && (*of == function || *of == "*") {
            words.add(more.iter().copied());
        }
    }
    words
}

fn parse(all: &WordLines, line: &'static str) -> Function {
    let prototype = line.split(';').next().unwrap_or(line).trim();
    let (head, arguments) = prototype.split_once('(').expect("a prototype");
    let mut parts = head.split(' ').skip(1);
    let (returns, name) = (parts.next().expect("a type"), parts.next().expect("a name"));
    let arguments = arguments.strip_suffix(')').expect("a prototype").split(", ");
    let arguments =
        arguments.filter(|text| !matches!(*text, "void" | "...")).map(|text| argument(all, name, text));
    Function {
        name: name.to_owned(),
        returns: Base::parse(returns),
        arguments: arguments.collect(),
        words: words_about(all, name, "-"),
    }
}

/// Parses an argument of a C prototype.
fn argument(all: &WordLines, function: &str, text: &'static str) -> Argument {
    let (text, brackets) = text.split_once('[').map_or((text, ""), |(text, brackets)| (text, brackets));
    let start = text.rfind([' ', '*']).expect("a type before the name") + 1;
    let (kind, name) = (text[..start].trim(), &text[start..]);
    let is_const = kind.starts_with("const ");
    let kind = kind.trim_start_matches("const ");
    let is_pointer = kind.contains('*');
    let words = words_about(all, function, name);
    let shape = match (brackets, is_pointer) {
        ("", false) => Shape::Value,
        ("", true) if name.starts_with("array_of_") => Shape::Array,
        ("", true) => Shape::Pointer,
        ("]", _) if name == "datarep" => Shape::Pointer,
        ("]", _) => Shape::Array,
        _ => Shape::Triples,
    };
    Argument {
        name: words.value("name").unwrap_or(name).to_owned(),
        base: Base::parse(kind.trim_end_matches(['*', ' '])),
        shape,
        is_const,
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_about_a_function_or_an_argument_that_exists() {
        let words = word_lines(WORDS);
        let all: Vec<Function> = lines(PROTOTYPES).map(|line| parse(&words, line)).collect();
        let names = |function: &Function| -> Vec<String> {
            let line = lines(PROTOTYPES).find(|line| line.contains(&format!(" {}(", function.name)));
            let arguments = line.expect("its line").split_once('(').expect("a prototype").1;
            arguments.split([' ', '*', ',', '[', ')']).map(str::to_owned).collect()
        };
        for line in lines(WORDS) {
            let parts: Vec<&str> = line.split(' ').collect();
            let about = |function: &&Function| {
                (parts[0] == "*" || function.name == parts[0])
                    && (parts[1] == "-" || names(function).iter().any(|name| name == parts[1]))
            };
            assert!(all.iter().any(|function| about(&function)), "{line}");
        }
    }

    #[test]
    fn later_words_replace_values_of_earlier_ones() {
        let words = word_lines(WORDS);
        assert_eq!(words_about(&words, "MPI_Waitsome", "array_of_requests").value("length"), Some("incount"));
        assert_eq!(words_about(&words, "MPI_Waitall", "array_of_requests").value("length"), Some("count"));
        assert!(words_about(&words, "MPI_Cart_get", "periods").has("logical"));
    }
}
