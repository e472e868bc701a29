//! What the papers printed: the rows of `data/published.csv`, and which are reproduced.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The dataset: every number, threshold and ordering of five papers, with a quote each.
const DATA: &str = include_str!("../../data/published.csv");

/// The kind of statement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A quantity.
    Absolute,
    /// One quantity divided by another.
    Ratio,
    /// A share, or an improvement.
    Percent,
    /// A size, count or share at which behaviour changes, or a limit.
    Threshold,
    /// A claim without a number.
    Qualitative,
}

/// One published fact.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Published {
    /// `NM-043`
    pub id: String,
    /// Key of the paper.
    pub paper: String,
    /// The section of the paper.
    pub section: String,
    /// The figure or table, if any.
    #[serde(rename = "figure_or_table")]
    pub figure: String,
    /// The measured system; several separated by `|` if one statement covers them together.
    pub system: String,
    /// Key of the experiment.
    pub experiment: String,
    /// The case within it, or the claim of a qualitative row.
    pub variant: String,
    /// Message size, if stated.
    #[serde(rename = "message_size_bytes")]
    pub size_bytes: Option<u64>,
    /// The quantity; for qualitative rows the kind of claim.
    pub metric: String,
    /// Its unit as printed.
    pub unit: String,
    /// As printed.
    pub value: Option<f64>,
    /// Lower end: of a printed range, or of the rounding interval of the printed number.
    #[serde(rename = "value_low")]
    pub low: Option<f64>,
    /// Upper end.
    #[serde(rename = "value_high")]
    pub high: Option<f64>,
    /// Kind of statement.
    pub kind: RowKind,
    /// The paper's words.
    pub quote: String,
}

/// Key of the paper about NIC memory on the MT23108.
pub const NICMEM: &str = "mt23108-nicmem";
/// Key of the thesis on InfiniBand, Myrinet and Quadrics.
pub const THESIS: &str = "miba-thesis";

/// Key of the paper about MPI over iWARP.
pub const IWARP: &str = "mpi-iwarp";
/// Key of the paper about uDAPL over several rails.
pub const MULTIRAIL: &str = "multirail-udapl";
/// Key of the paper about an accelerated Portals on SeaStar.
pub const ACCEL: &str = "accel-portals";

/// The keys of all papers, in the order in which they are shown.
pub const PAPERS: [&str; 5] = [NICMEM, THESIS, IWARP, MULTIRAIL, ACCEL];

/// The citation of a paper: authors, title, venue and year; its key if there is no such paper.
pub(crate) fn citation(paper: &str) -> &str {
    match paper {
        NICMEM => {
            "Jiesheng Wu, Amith R. Mamidala, Dhabaleswar K. Panda: Can NIC Memory in InfiniBand Benefit Communication \
             Performance? A Study with Mellanox Adapter. Technical report, The Ohio State University, 2004"
        }
        THESIS => {
            "Balasubramanian Chandrasekaran: Micro-benchmark Level Performance Evaluation and Comparison of High Speed \
             Cluster Interconnects. Master's thesis, The Ohio State University, 2003"
        }
        IWARP => {
            "Sundeep Narravula, Amith Mamidala, Abhinav Vishnu, Gopal Santhanaraman, Dhabaleswar K. Panda: High Performance \
             MPI over iWARP: Early Experiences. Technical Report OSU-CISRC-4/07-TR28, The Ohio State University, 2007"
        }
        MULTIRAIL => {
            "Jie Cai, Alistair P. Rendell, Peter E. Strazdins: Non-threaded and Threaded Approaches to MultiRail \
             Communication with uDAPL. Sixth IFIP International Conference on Network and Parallel Computing (NPC), 2009"
        }
        ACCEL => {
            "Ron Brightwell, Trammell Hudson, Kevin Pedretti, Keith D. Underwood: An Accelerated Implementation of Portals on \
             the Cray SeaStar. Cray User Group Annual Technical Conference (CUG), 2006"
        }
        other => other,
    }
}

impl Published {
    /// Whether it is a claim without a number.
    #[must_use]
    pub fn is_qualitative(&self) -> bool {
        self.kind == RowKind::Qualitative
    }
}

/// All rows of the dataset, in its order.
///
/// # Panics
/// Never: a test reads the dataset, which is part of the program.
#[must_use]
pub fn dataset() -> Vec<Published> {
    let mut reader = csv::Reader::from_reader(DATA.as_bytes());
    reader.deserialize().map(|row| row.expect("the built-in dataset is valid")).collect()
}

/// A selection that matches nothing, with the valid ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{asked}' is {problem}; there is: {valid}")]
pub struct Unknown {
    asked: String,
    problem: String,
    valid: String,
}

/// The rows of `PAPER`, of `PAPER/EXPERIMENT`, of a row's id, or all rows.
///
/// # Errors
/// [`Unknown`] with a list of valid selections.
pub fn select(asked: Option<&str>) -> Result<Vec<Published>, Unknown> {
    let all = dataset();
    let Some(asked) = asked else { return Ok(all) };
    let refuse = |problem: &str, valid: Vec<&str>| {
        let names: BTreeSet<&str> = valid.into_iter().collect();
        let valid = names.into_iter().collect::<Vec<_>>().join(", ");
        Unknown { asked: asked.to_owned(), problem: problem.to_owned(), valid }
    };
    if let Some(row) = all.iter().find(|row| row.id.eq_ignore_ascii_case(asked)) {
        return Ok(vec![row.clone()]);
    }
    let (paper, experiment) = match asked.split_once('/') {
        Some((paper, experiment)) => (paper, Some(experiment)),
        None => (asked, None),
    };
    let of_paper: Vec<Published> = all.iter().filter(|row| row.paper == paper).cloned().collect();
    if of_paper.is_empty() {
        let papers = all.iter().map(|row| row.paper.as_str()).collect();
        return Err(refuse("no paper and no row", papers));
    }
    let Some(experiment) = experiment else { return Ok(of_paper) };
    let wanted: Vec<Published> =
        of_paper.iter().filter(|row| row.experiment == experiment).cloned().collect();
    if wanted.is_empty() {
        return Err(refuse(
            "no experiment of that paper",
            of_paper.iter().map(|row| row.experiment.as_str()).collect(),
        ));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dataset_is_whole() {
        let all = dataset();
        let ids: BTreeSet<&str> = all.iter().map(|row| row.id.as_str()).collect();
        assert_eq!((all.len(), ids.len()), (759, 759));
        for row in &all {
            let number = row.value.is_some() || row.low.is_some() || row.high.is_some();
            assert_eq!(number, !row.is_qualitative(), "{}", row.id);
            assert!(!row.quote.is_empty() && !row.metric.is_empty(), "{}", row.id);
        }
    }

    #[test]
    fn five_papers_are_there_whole() {
        let rows = select(None).expect("all");
        let count = |paper| rows.iter().filter(|row| row.paper == paper).count();
        let counts = PAPERS.map(count);
        assert_eq!((counts, rows.len()), ([147, 250, 90, 144, 128], 759));
    }

    #[test]
    fn citations_are_those_of_the_papers_pages() {
        let pages = [
            (NICMEM, include_str!("../../../../docs/papers/nic-memory.md")),
            (THESIS, include_str!("../../../../docs/papers/interconnects.md")),
            (IWARP, include_str!("../../../../docs/papers/mpi-iwarp.md")),
            (MULTIRAIL, include_str!("../../../../docs/papers/multirail-udapl.md")),
            (ACCEL, include_str!("../../../../docs/papers/portals-seastar.md")),
        ];
        for (paper, page) in pages {
            let plain = page.replace(['>', '*'], "");
            let words: Vec<&str> = plain.split_whitespace().collect();
            assert!(words.join(" ").contains(citation(paper)), "{paper}: the page has another citation");
        }
    }

    #[test]
    fn one_may_ask_for_a_paper_an_experiment_or_a_row() {
        assert_eq!(select(Some("mt23108-nicmem")).expect("paper").len(), 147);
        let chain = select(Some("mt23108-nicmem/forward_chain_2port")).expect("experiment");
        assert_eq!(
            chain.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(),
            ["NM-001", "NM-122", "NM-123", "NM-124"]
        );
        assert_eq!(select(Some("nm-043")).expect("row")[0].id, "NM-043");
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let said = |asked| select(Some(asked)).expect_err("refused").to_string();
        assert!(said("nonsense").contains(
            "no paper and no row; there is: accel-portals, miba-thesis, mpi-iwarp, mt23108-nicmem, multirail-udapl"
        ));
        assert!(said("mt23108-nicmem/x").contains("no experiment of that paper; there is: bandwidth,"));
    }
}
