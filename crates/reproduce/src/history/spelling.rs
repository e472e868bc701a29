//! The spelling of a criterion: one line with everything that is measured and how it is compared, independent of the
//! program's data structures. Its hash changes exactly when the criterion does ([`mod@super::criteria`]).

use std::fmt::{self, Display, Formatter};

use crate::claims::check::{Check, Relation};
use crate::claims::claim::Answer;
use crate::claims::quantity::{Operator, Probe, Quantity, Tuning};

/// Items separated by spaces.
fn list<T: Display>(f: &mut Formatter<'_>, all: impl IntoIterator<Item = T>) -> fmt::Result {
    all.into_iter().try_for_each(|one| write!(f, " {one}"))
}

impl Display for Probe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Tuning { window, burst_bytes, signal } = self.tuning;
        write!(f, "[{} {}", self.device, self.cell.experiment)?;
        self.cell.variant.iter().try_for_each(|(factor, level)| write!(f, " {factor}={level}"))?;
        write!(f, " size={} window={window} burst={burst_bytes} signal={signal}]", self.cell.size)
    }
}

impl Operator {
    /// Its sign or name.
    fn name(self) -> &'static str {
        match self {
            Self::Sum => "+",
            Self::Difference => "-",
            Self::Product => "*",
            Self::Ratio => "/",
            Self::Greatest => "greatest",
            Self::Least => "least",
            Self::Mean => "mean",
        }
    }
}

impl Display for Quantity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => value.fmt(f),
            Self::Parameter(device, key) => write!(f, "[{device} {key}]"),
            Self::Measured(probe) => probe.fmt(f),
            Self::Joined(operator, parts) => {
                write!(f, "({}", operator.name())?;
                list(f, parts)?;
                f.write_str(")")
            }
            Self::Last(points, level) => {
                write!(f, "(last {level}")?;
                points.iter().try_for_each(|(x, q)| write!(f, " {x}:{q}"))?;
                f.write_str(")")
            }
            Self::Rounded(part, step) => write!(f, "(rounded {step} {part})"),
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(margin) => write!(f, "below {margin}"),
            Self::AtMost(tolerance) => write!(f, "at-most {tolerance}"),
            Self::Above(share) => write!(f, "above {share}"),
            Self::Alike(tolerance) => write!(f, "alike {tolerance}"),
        }
    }
}

impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(_, a, relation, b) => write!(f, "({relation} {a} {b})"),
            Self::Rising(_, points, tolerance) => {
                write!(f, "(rising {tolerance}")?;
                list(f, points)?;
                f.write_str(")")
            }
            Self::All(parts) => {
                f.write_str("(all")?;
                list(f, parts)?;
                f.write_str(")")
            }
        }
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(q) => write!(f, "number {q}"),
            Self::Exactly(q) => write!(f, "exactly {q}"),
            Self::Range(all) => {
                f.write_str("range")?;
                list(f, all)
            }
            Self::Within(all) => {
                f.write_str("within")?;
                list(f, all)
            }
            Self::Sizes(all, margin) => {
                write!(f, "sizes {margin}")?;
                all.iter().try_for_each(|(size, a, b)| write!(f, " {size}:{a}:{b}"))
            }
            Self::Check(check) => check.fmt(f),
            Self::Input(q) => write!(f, "input {q}"),
            Self::Unused(_) => f.write_str("unused"),
            Self::NotModelled(_) => f.write_str("not-modelled"),
        }
    }
}
