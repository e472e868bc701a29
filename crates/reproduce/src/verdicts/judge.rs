//! From a published row and its computation to a [`Row`]: the model's value, and whether it holds.

use serde::Serialize;

use crate::claims::claim::{Answer, least_and_greatest, sizes};
use crate::claims::quantity::Source;
use crate::papers::contradictions;
use crate::papers::published::{Published, RowKind};

/// The class of a row; derived from the flow of data (`classes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The model knew nothing of it. Only these rows are scored.
    Predicted,
    /// A value of a machine file was once chosen to meet it, or only such values decide it.
    Fitted,
    /// A value of a machine file, a constant of the experiment, or decided by such alone.
    Input,
    /// An earlier row's number again.
    Repeats,
    /// A bound that cannot be missed decides it.
    Undecided,
    /// The row has no input to the model, or is not modelled; its reason says which.
    NotComputed,
}

impl Class {
    /// All classes, in the order of the score.
    pub const ALL: [Self; 6] =
        [Self::Predicted, Self::Fitted, Self::Input, Self::Repeats, Self::Undecided, Self::NotComputed];

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Fitted => "fitted",
            Self::Input => "input",
            Self::Repeats => "repeats",
            Self::Undecided => "undecided",
            Self::NotComputed => "not-computed",
        }
    }
}

/// A published row compared with the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Id of the published row.
    pub id: String,
    /// Key of the paper.
    pub paper: String,
    /// Key of the experiment.
    pub experiment: String,
    /// The measured system.
    pub system: String,
    /// The case, or the claim.
    pub variant: String,
    /// Message size, if stated.
    pub size_bytes: Option<u64>,
    /// The quantity, or the kind of claim.
    pub metric: String,
    /// Unit of all numbers of the row.
    pub unit: String,
    /// As printed.
    pub published: Option<f64>,
    /// Lower end, printed or by rounding.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The model's value; if both ends of a range are compared, the value of the end with the larger error.
    pub modelled: Option<f64>,
    /// The model's least value, if a range is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_low: Option<f64>,
    /// The model's greatest value, if a range is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_high: Option<f64>,
    /// The model divided by the paper. If only limits are published: relative to the nearer one, and 1 within them.
    pub ratio: Option<f64>,
    /// Powers of two between the paper's size and the model's, if sizes are known only as these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<f64>,
    /// The class of the row.
    pub class: Class,
    /// Why it is that.
    pub because: String,
    /// The class by the second rule.
    pub second_class: Class,
    /// Why it is that.
    pub second_because: String,
    /// Whether the paper contradicts itself in it, so that no model can meet all printed values: scored separately.
    pub apart: bool,
    /// For a number: within 10 %, or within the paper's rounding or limits. For a claim: whether it holds.
    pub holds: Option<bool>,
    /// The computation, in words.
    pub how: String,
    /// The numbers that decided a claim.
    pub evidence: Option<String>,
    /// Why there is no value.
    pub reason: Option<String>,
    /// Entries of the list of contradictions that concern it.
    pub contradictions: Vec<&'static str>,
    /// Figure or table of the paper.
    pub figure: String,
    /// Whether it is a claim without a number.
    pub qualitative: bool,
    /// The paper's words.
    pub quote: String,
}

/// A number is near if its error is at most this share.
pub const NEAR: f64 = 0.1;
/// Steps to a size that is nowhere.
const FAR: f64 = -64.0;
/// A share below which a difference is that of floating point.
const ROUNDING: f64 = 1e-9;

impl Row {
    /// The model's error, as a share; on a grid one step either way is half, two are three quarters.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        match self.steps {
            Some(steps) => Some(1.0 - (-steps.abs()).exp2()),
            None => self.ratio.map(|ratio| (ratio - 1.0).abs()),
        }
    }

    /// This row with another ratio to the paper.
    pub(crate) fn with_ratio(&self, ratio: f64) -> Self {
        let row = Self { ratio: Some(ratio), ..self.clone() };
        if row.steps.is_some() { row.on_grid() } else { row }
    }

    /// Whether it is scored with the others.
    #[must_use]
    pub fn is_scored(&self) -> bool {
        self.class == Class::Predicted && !self.apart
    }

    /// Whether a number with this ratio to the paper is within the interval that the print allows.
    pub(crate) fn is_within_print(&self, ratio: f64) -> bool {
        let (Some(published), Some(low), Some(high), None) =
            (self.published, self.low, self.high, self.steps)
        else {
            return false;
        };
        let (value, margin) = (published * ratio, published.abs() * ROUNDING);
        (low - margin..=high + margin).contains(&value)
    }

    /// This row with its class by the second rule as its class.
    pub(crate) fn by_second_rule(&self) -> Self {
        Self { class: self.second_class, because: self.second_because.clone(), ..self.clone() }
    }

    fn new(row: &Published) -> Self {
        Self {
            id: row.id.clone(),
            paper: row.paper.clone(),
            experiment: row.experiment.clone(),
            system: row.system.clone(),
            variant: row.variant.clone(),
            size_bytes: row.size_bytes,
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            published: row.value,
            low: row.low,
            high: row.high,
            modelled: None,
            modelled_low: None,
            modelled_high: None,
            ratio: None,
            steps: None,
            class: Class::Predicted,
            because: String::new(),
            second_class: Class::Predicted,
            second_because: String::new(),
            apart: contradictions::is_apart(&row.id),
            holds: None,
            how: String::new(),
            evidence: None,
            reason: None,
            contradictions: contradictions::of_row(&row.id),
            figure: row.figure.clone(),
            qualitative: row.is_qualitative(),
            quote: row.quote.clone(),
        }
    }

    /// Why the row has no value.
    fn without(mut self, why: &str) -> Self {
        self.class = Class::NotComputed;
        self.second_class = Class::NotComputed;
        self.reason = Some(why.to_owned());
        self
    }

    fn number(mut self, value: f64) -> Self {
        self.modelled = Some(value);
        self.ratio = Some(ratio(value, self.published, self.low, self.high));
        self.holds = Some(self.is_met(value));
        self
    }

    /// A number compared with the only printed limit.
    fn limit(mut self, value: f64) -> Self {
        self.modelled = Some(value);
        self.ratio = Some(ratio(value, self.published.or(self.low).or(self.high), None, None));
        self.holds = self.error().map(|error| error <= NEAR + ROUNDING);
        self
    }

    /// Sizes known only as powers of two differ by a number of steps; they hold only at 0 steps.
    fn on_grid(mut self) -> Self {
        self.steps = self.ratio.map(|ratio| if ratio > 0.0 { ratio.log2() } else { FAR });
        self.holds = self.steps.map(|steps| steps.abs() < 0.5);
        self
    }

    /// Compares both ends of a range with the published ones.
    fn range(mut self, least: f64, greatest: f64) -> Self {
        let low = ratio(least, self.low.or(self.published), None, None);
        let high = ratio(greatest, self.high.or(self.published), None, None);
        let (value, ratio) =
            if (low - 1.0).abs() > (high - 1.0).abs() { (least, low) } else { (greatest, high) };
        self.modelled = Some(value);
        (self.modelled_low, self.modelled_high) = (Some(least), Some(greatest));
        self.ratio = Some(ratio);
        self.holds = Some((ratio - 1.0).abs() <= NEAR + ROUNDING);
        self
    }

    /// Values that must be within published limits; `least` and `greatest` are their extremes.
    fn within(mut self, least: f64, greatest: f64) -> Self {
        let off = |value: f64| ratio(value, None, self.low, self.high);
        let far = |value: f64| (off(value) - 1.0).abs();
        let value = if far(least) > far(greatest) { least } else { greatest };
        let ratio = off(value);
        self.modelled = Some(value);
        (self.modelled_low, self.modelled_high) = (Some(least), Some(greatest));
        self.ratio = Some(ratio);
        self.holds = Some((ratio - 1.0).abs() <= NEAR + ROUNDING);
        self
    }

    /// Within published limits; near a published number, or within its rounding.
    fn is_met(&self, value: f64) -> bool {
        let reaches = |low: Option<f64>| low.is_none_or(|low| value >= low - low.abs() * ROUNDING);
        let stays = |high: Option<f64>| high.is_none_or(|high| value <= high + high.abs() * ROUNDING);
        let near = self.error().is_some_and(|error| error <= NEAR + ROUNDING);
        match (self.published, self.low, self.high) {
            (None, low, high) => reaches(low) && stays(high),
            (Some(_), low @ Some(_), high @ Some(_)) => near || (reaches(low) && stays(high)),
            (Some(_), _, _) => near,
        }
    }
}

/// The value divided by the published one; if only limits are published, by the nearer limit, and 1 within.
fn ratio(value: f64, published: Option<f64>, low: Option<f64>, high: Option<f64>) -> f64 {
    let over = |base: f64| if value == base { 1.0 } else { value / base };
    match (published, low, high) {
        (Some(published), _, _) => over(published),
        (None, Some(low), _) if value < low => over(low),
        (None, _, Some(high)) if value > high => over(high),
        _ => 1.0,
    }
}

/// The row, computed; which class it is of is found later.
pub(crate) fn judge(published: &Published, how: &str, answer: &Answer, source: &dyn Source) -> Row {
    let row = Row { how: how.to_owned(), ..Row::new(published) };
    let computed = match answer {
        Answer::NotModelled(why) | Answer::Unused(why) => return row.without(why),
        Answer::Number(q) | Answer::Input(q) => q.value(source).map(|value| row.clone().number(value)),
        Answer::Exactly(q) => q.value(source).map(|value| row.clone().limit(value)),
        Answer::Range(all) => {
            least_and_greatest(all, source).map(|[least, greatest]| row.clone().range(least, greatest))
        }
        Answer::Within(all) => {
            least_and_greatest(all, source).map(|[least, greatest]| row.clone().within(least, greatest))
        }
        Answer::Sizes(all, margin) => sizes(all, *margin, source).map(|[a, b]| row.clone().range(a, b)),
        Answer::Check(check) => check.verdict(source).map(|verdict| Row {
            holds: Some(verdict.holds),
            evidence: Some(verdict.evidence),
            ..row.clone()
        }),
    };
    let on_grid = published.unit == "bytes"
        && published.kind != RowKind::Qualitative
        && !matches!(answer, Answer::Input(_));
    match computed {
        Ok(row) if on_grid => row.on_grid(),
        Ok(row) => row,
        Err(why) => row.without(&format!("could not be computed: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::check::Check;
    use crate::claims::quantity::fakes::FakeSource;
    use crate::claims::quantity::{Probe, Quantity};
    use crate::error::NoValue;
    use crate::papers::published::dataset;

    fn judged(id: &str, answer: &Answer) -> Row {
        let row = dataset().into_iter().find(|row| row.id == id).expect("a row");
        judge(
            &row,
            "",
            answer,
            &FakeSource(|_: &Probe| Err(NoValue::Failed("the card is missing".to_owned()))),
        )
    }

    fn number(id: &str, value: f64) -> (Option<f64>, Option<bool>) {
        let row = judged(id, &Answer::Number(value.into()));
        (row.ratio, row.holds)
    }

    #[test]
    fn number_is_compared_with_the_printed_one() {
        // 936, as printed.
        assert_eq!(number("NM-054", 936.0 * 1.05), (Some(1.05), Some(true)));
        assert_eq!(number("NM-054", 936.0 * 1.25), (Some(1.25), Some(false)));
        // Around 20 %, so 15 to 25: the interval decides whether it holds, the ratio stays honest.
        assert_eq!(number("NM-093", 16.0), (Some(0.8), Some(true)));
        assert_eq!(number("NM-093", 26.0), (Some(1.3), Some(false)));
        // Below 2.
        assert_eq!(number("MT-099", 1.1), (Some(1.0), Some(true)));
        assert_eq!(number("MT-099", 2.5), (Some(1.25), Some(false)));
        // Up to 2.2.
        assert_eq!(number("NM-001", 2.2), (Some(1.0), Some(true)));
        // A reuse of nothing.
        assert_eq!(number("NM-103", 0.0), (Some(1.0), Some(true)));
    }

    #[test]
    fn of_a_range_the_end_that_is_further_off_counts() {
        let range = |least: f64, greatest: f64| {
            let row = judged("NM-038", &Answer::Range(vec![greatest.into(), least.into()]));
            (row.modelled, row.ratio, row.holds)
        };
        assert_eq!(range(7.0, 14.0), (Some(14.0), Some(1.0), Some(true)));
        assert_eq!(range(3.5, 14.0), (Some(3.5), Some(0.5), Some(false)));
        assert_eq!(range(6.8, 15.4), (Some(15.4), Some(1.1), Some(true)));
        let within = |least: f64, greatest: f64| {
            let row = judged("NM-038", &Answer::Within(vec![greatest.into(), least.into()]));
            (row.modelled, row.ratio, row.holds)
        };
        assert_eq!(within(8.0, 13.0), (Some(13.0), Some(1.0), Some(true)), "7 to 14");
        assert_eq!(within(3.5, 13.0), (Some(3.5), Some(0.5), Some(false)));
        assert_eq!(within(8.0, 21.0), (Some(21.0), Some(1.5), Some(false)));
        let at = |n: u64, a: f64| (n, Quantity::from(a), Quantity::from(1.0));
        let all = vec![at(512, 0.999), at(1024, 0.9), at(65536, 0.95), at(1 << 20, 1.0)];
        let row = judged("MT-093", &Answer::Sizes(all, 0.01));
        assert_eq!(
            (row.modelled_low, row.modelled_high, row.ratio),
            (Some(1024.0), Some(65536.0), Some(1.0))
        );
    }

    #[test]
    fn a_single_limit_that_is_meant_exactly_can_be_missed_on_either_side() {
        // Over 20 us.
        let exactly = |value: f64| judged("MT-203", &Answer::Exactly(value.into())).holds;
        assert_eq!([19.0, 21.0, 17.0, 23.0].map(exactly), [Some(true), Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn sizes_are_steps_of_a_grid_apart() {
        // 4096 bytes.
        let steps = |value: f64| {
            let row = judged("MR-069", &Answer::Number(value.into()));
            (row.steps, row.error(), row.holds)
        };
        assert_eq!(steps(4096.0), (Some(0.0), Some(0.0), Some(true)));
        assert_eq!(steps(8192.0), (Some(1.0), Some(0.5), Some(false)));
        assert_eq!(steps(2048.0), (Some(-1.0), Some(0.5), Some(false)));
        assert_eq!(steps(1024.0), (Some(-2.0), Some(0.75), Some(false)));
        assert!(steps(0.0).1.is_some_and(|error| error > 0.99));
    }

    #[test]
    fn row_that_cannot_be_computed_has_the_reason() {
        let lost = judged("NM-043", &Answer::Number(Quantity::Parameter("d", "x")));
        assert_eq!(lost.class, Class::NotComputed);
        assert_eq!(lost.reason.as_deref(), Some("could not be computed: no x"));
    }

    #[test]
    fn claims_carry_their_evidence() {
        let check = Check::below("it", 1.0.into(), 2.0.into(), 0.0);
        let row = judged("NM-033", &Answer::Check(check));
        assert_eq!((row.holds, row.ratio, row.qualitative), (Some(true), None, true));
        assert_eq!(row.evidence.as_deref(), Some("it: 1.000 < 2.000"));
    }
}
