//! [`Source`]: where a value of a machine comes from, and the words for that in machine files.

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A paper says so.
    Published {
        /// Numbers of the published rows.
        rows: Vec<String>,
    },
    /// A data sheet or a specification says so.
    Datasheet {
        /// Which one, where.
        doc: String,
    },
    /// The value follows from others.
    Derived {
        /// The arithmetic by which it follows.
        how: String,
    },
    /// The value that another machine with the same part has, wherever that has it from.
    Carried {
        /// The name of that machine.
        from: String,
    },
    /// Chosen so that the model comes near published results: these are no predictions then.
    Fitted {
        /// Numbers of the published rows.
        rows: Vec<String>,
    },
    /// Nobody says: it is an assumption.
    Assumed {
        /// Why this value.
        why: String,
        /// Between which values it may as well be; `None`: from half of it to twice as much.
        range: Option<[f64; 2]>,
    },
    /// Given as an option.
    Given,
    /// The file does not say, and it is off.
    Default,
}

impl Source {
    /// Its class in a word, as machine files have it.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Published { .. } => "published",
            Self::Datasheet { .. } => "datasheet",
            Self::Derived { .. } => "derived",
            Self::Carried { .. } => "carried",
            Self::Fitted { .. } => "fitted",
            Self::Assumed { .. } => "assumed",
            Self::Given => "given",
            Self::Default => "default",
        }
    }
}

/// A class of sources, and the field that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name in machine files.
    pub name: &'static str,
    /// The field that says more.
    pub field: &'static str,
}

pub(super) const CLASSES: [Class; 6] = [
    Class { name: "published", field: "rows" },
    Class { name: "datasheet", field: "doc" },
    Class { name: "derived", field: "how" },
    Class { name: "carried", field: "from" },
    Class { name: "fitted", field: "rows" },
    Class { name: "assumed", field: "why" },
];

/// All classes, for errors.
pub(super) fn classes() -> String {
    CLASSES.map(|Class { name, field }| format!("\"{name}\" (with {field})")).join(", ")
}

impl Class {
    /// What is expected of its field, for errors.
    pub(super) fn expected(self) -> &'static str {
        match self.field {
            "rows" => "expected rows = [\"NM-003\"], the numbers of published rows",
            "doc" => "expected doc = \"...\", the document and its section",
            "from" => "expected from = \"...\", a machine with the same value",
            "how" => "expected how = \"...\", the arithmetic",
            _ => "expected why = \"...\", the reason",
        }
    }
}
