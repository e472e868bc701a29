//! [`Source`]: where a value of a machine comes from, and its syntax in machine files.

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Published in a paper.
    Published {
        /// Numbers of the published rows.
        rows: Vec<String>,
    },
    /// From a data sheet or a specification.
    Datasheet {
        /// The document and the place in it.
        doc: String,
    },
    /// Computed from other values.
    Derived {
        /// The computation.
        how: String,
    },
    /// The value of another machine with the same part, whatever its source there.
    Carried {
        /// The name of that machine.
        from: String,
    },
    /// Chosen so that the model comes near published results, which are then not predictions.
    Fitted {
        /// Numbers of the published rows.
        rows: Vec<String>,
    },
    /// An assumption, as no source gives it.
    Assumed {
        /// The reason for this value.
        why: String,
        /// Its plausible range; `None`: from half of it to twice as much.
        range: Option<[f64; 2]>,
    },
    /// Given as an option.
    Given,
    /// Absent from the file, so the feature is off.
    Default,
}

impl Source {
    /// The name of its class in machine files.
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

/// A class of sources, and its required field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name in machine files.
    pub name: &'static str,
    /// Its required field.
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
    /// The expected contents of its field, for errors.
    pub(super) fn expected(self) -> &'static str {
        match self.field {
            "rows" => "expected rows = [\"NM-003\"], the numbers of published rows",
            "doc" => "expected doc = \"...\", the document and its section",
            "from" => "expected from = \"...\", a machine with the same value",
            "how" => "expected how = \"...\", the computation",
            _ => "expected why = \"...\", the reason",
        }
    }
}
