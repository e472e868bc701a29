//! The tables against the dataset, and a whole reproduction on a made-up card.

use results::variant::factor;
use std::collections::BTreeMap;
use std::sync::Mutex;

use super::claims::claim::Answer;
use super::claims::quantity;
use super::output::{page, plots};
use super::papers::rows::table;
use super::papers::{figure, figures};
use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// Goal: no row is forgotten, none made up, none computed in two ways.
#[test]
fn the_tables_have_every_covered_row_once() {
    let rows = select(None).expect("all rows");
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let table = table();
    for id in table.iter().flat_map(|claim| claim.rows) {
        *seen.entry(id).or_default() += 1;
    }
    let missing: Vec<&str> = rows.iter().map(|r| r.id.as_str()).filter(|id| !seen.contains_key(id)).collect();
    assert!(missing.is_empty(), "not in the tables: {missing:?}");
    let unknown: Vec<_> = seen.keys().filter(|id| !rows.iter().any(|row| row.id == **id)).collect();
    assert!(unknown.is_empty(), "in the tables, but not covered: {unknown:?}");
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "more than once: {twice:?}");
}

/// Goal: the kind of answer fits the kind of row.
#[test]
fn claims_answer_what_rows_ask() {
    let rows = select(None).expect("all rows");
    for claim in table() {
        for id in claim.rows {
            let row = rows.iter().find(|row| row.id == *id).expect("a covered row");
            match &claim.answer {
                Answer::Check(_) => assert!(row.is_qualitative(), "{id} has a number"),
                Answer::Number(_)
                | Answer::Exactly(_)
                | Answer::Input(_)
                | Answer::Range(_)
                | Answer::Within(_)
                | Answer::Sizes(..) => {
                    assert!(!row.is_qualitative(), "{id} has no number");
                }
                Answer::Unused(why) | Answer::NotModelled(why) => assert!(why.len() > 15, "{id}: {why}"),
            }
            let both_ends = row.value.is_none() && row.low.is_some() && row.high.is_some();
            if matches!(claim.answer, Answer::Range(_) | Answer::Within(_) | Answer::Sizes(..)) {
                assert!(both_ends, "{id} is no range");
            }
            let explained = matches!(claim.answer, Answer::Unused(_) | Answer::NotModelled(_));
            assert_ne!(claim.how.is_empty(), !explained, "{id}: {}", claim.how);
        }
    }
}

/// Goal: a measurement that the paper states twice cannot be fitted in one row and predicted in another.
#[test]
fn rows_with_equal_computations_share_one_claim() {
    let table = table();
    for (i, claim) in table.iter().enumerate() {
        for other in &table[..i] {
            if let (Answer::Number(a), Answer::Number(b)) = (&claim.answer, &other.answer) {
                assert_ne!(a, b, "{:?} and {:?}", claim.rows, other.rows);
            }
        }
    }
}

/// Goal: figures are in their paper's order, and each has verdicts. Method: numbers and letters rise within a paper,
/// and rows of the paper name each figure.
#[test]
fn figures_are_in_order_and_have_rows() {
    let rows = select(None).expect("all rows");
    let plans = figures::plans(&rows);
    let place = |number: &str| -> (Vec<u32>, String) {
        let (digits, letter) = number.split_once('(').unwrap_or((number, ""));
        (digits.split('.').map(|n| n.parse().expect("a number")).collect(), letter.to_owned())
    };
    for pair in plans.windows(2).filter(|pair| pair[0].paper == pair[1].paper) {
        assert!(
            place(pair[0].number) < place(pair[1].number),
            "{} before {}",
            pair[0].number,
            pair[1].number
        );
    }
    let bare = |plan: &&figure::FigurePlan| {
        !rows.iter().any(|row| row.paper == plan.paper && page::mentions_figure(&row.figure, plan.number))
    };
    let bare: Vec<_> = plans.iter().filter(bare).map(|plan| (plan.paper, plan.number)).collect();
    assert!(bare.is_empty(), "no row names {bare:?}");
    assert!(page::mentions_figure("Figures 3, 5", "5") && page::mentions_figure("Figure 3.8", "3.8(b)"));
    assert!(
        !page::mentions_figure("Figure 3.12(b,d)", "3.12(a)") && !page::mentions_figure("Table 3.1", "3.1")
    );
}

/// Goal: each bar has its name below it, also in groups of bars, and each number of processes its tick.
#[test]
fn bars_and_counts_are_named() {
    let source = quantity::fakes::FakeSource(|_: &Probe| Ok(2.0));
    let (mut bars, mut counts) = (0, Vec::new());
    for plan in figures::plans(&select(None).expect("all rows")) {
        let figure = plan.draw(&source);
        let chart = plots::chart(&figure, &|_| false).expect("a chart");
        let mut at: Vec<f64> =
            figure.curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let named: Vec<f64> = chart.x.names.iter().map(|(x, _)| *x).collect();
        if figure.bars {
            bars += 1;
            assert_eq!(named, at, "bars of figure {} of {}", figure.number, figure.paper);
        }
        if figure.number == "8(a)" && figure.paper == "mpi-iwarp" {
            counts = chart.x.names.iter().map(|(_, text)| text.clone()).collect();
        }
    }
    assert_eq!((bars, counts.join(" ").as_str()), (4, "4 8 16 32"));
}

/// Goal: every cell that is asked for exists.
#[test]
fn every_cell_is_of_a_known_experiment() {
    let mut probes = BTreeSet::new();
    table().iter().for_each(|claim| claim.answer.probes(&mut probes));
    figures::plans(&select(None).expect("rows")).iter().for_each(|plan| plan.probes(&mut probes));
    for Probe { device, cell, tuning } in &probes {
        assert!(bench::experiment::find(&cell.experiment).is_some(), "{cell}");
        assert!(device.starts_with("model:") && tuning.window > 1, "{device}");
    }
    assert!(probes.len() > 300, "{}", probes.len());
}

/// A synthetic card with simple times and rates: half as fast when host memory takes part.
fn made_up(probe: &Probe) -> Result<f64, NoValue> {
    let cell = &probe.cell;
    let level = |factor| cell.variant.get(factor).unwrap_or("");
    let hosts =
        [level(factor::SOURCE), level(factor::SINK)].iter().filter(|at| **at == "host").count() as f64;
    let kib = cell.size as f64 / 1024.0;
    Ok(match cell.experiment.as_str() {
        "bandwidth" | "nicmem" => 944.0 - 29.0 * hosts,
        "bibw" => 1859.0 - 460.0 * hosts,
        _ => 7.5 + (1.0 + 0.1 * hosts) * kib,
    })
}

fn made_up_machine() -> Machine {
    Machine {
        card: "model:mt23108-nicmem".to_owned(),
        values: vec![
            Value::new("bus.width_bytes", 8.0, Origin::Published, "NM-002"),
            Value::new("bus.clock_mhz", 133.0, Origin::Published, "NM-003"),
            Value::new("link.port_count", 2.0, Origin::Published, "NM-004"),
            Value::new("link.rate_mbps", 1000.0, Origin::Derived, "NM-014"),
            Value::new("nic_memory.rate_mbps", 2000.0, Origin::Published, "NM-017"),
            Value::new("link.gap_bytes", 95.0, Origin::Fitted, "NM-044, NM-045"),
        ],
    }
}

fn run(asked: &str, figures: bool) -> Reproduction {
    let request = Request {
        rows: select(Some(asked)).expect("rows"),
        figures,
        machines: vec![made_up_machine()],
        moves: Moves::default(),
        changes: Vec::new(),
        measure: &made_up,
        threads: 2,
    };
    reproduce(request, &mut (), &AtomicBool::new(false)).expect("not stopped")
}

fn row<'a>(all: &'a Reproduction, id: &str) -> &'a Row {
    all.rows.iter().find(|row| row.id == id).expect("a row")
}

#[test]
fn rows_get_value_class_and_verdict() {
    let all = run("mt23108-nicmem", false);
    assert_eq!(all.rows.len(), 147);
    let uni = row(&all, "NM-043");
    assert_eq!((uni.modelled, uni.ratio, uni.class), (Some(886.0), Some(1.0), Class::Predicted));
    assert_eq!((row(&all, "NM-044").class, row(&all, "NM-076").class), (Class::Fitted, Class::Fitted));
    let clock = row(&all, "NM-024");
    assert_eq!((clock.class, clock.modelled, clock.holds), (Class::Input, Some(133.0), Some(true)));
    let next = row(&all, "NM-129");
    assert_eq!((next.class, next.modelled), (Class::NotComputed, None));
    assert!(next.reason.as_deref().is_some_and(|why| why.contains("never measured")));
    assert_eq!(row(&all, "NM-065").holds, Some(true));
    assert_eq!(row(&all, "NM-087").holds, Some(false), "nic-to-nic is the fastest here");
    for row in &all.rows {
        let answered = row.modelled.is_some() || row.holds.is_some() || row.reason.is_some();
        assert!(answered, "{} has neither value nor reason", row.id);
    }
}

#[test]
fn the_score_counts_predictions_only() {
    let all = run("mt23108-nicmem/bandwidth", false);
    let scored = all.rows.iter().filter(|row| row.is_scored()).count();
    assert_eq!(all.score.numeric + all.score.qualitative, scored);
    assert_eq!((all.score.count(Class::Fitted), all.score.fitted_values), (3, 1));
    assert_eq!(all.score.rows.values().sum::<usize>(), all.rows.len(), "each row is of one class");
    assert!(all.score.near <= all.score.numeric && all.score.holding <= all.score.qualitative);
    let shown: Vec<&str> = worst(&all.rows, 2).iter().map(|row| row.id.as_str()).collect();
    assert_eq!(shown.len(), 2);
    assert!(!shown.contains(&"NM-044"), "a fitted row is no prediction");
}

/// Goal: the JSON contains what people and programs rely on.
#[test]
fn json_has_the_documented_keys() {
    let json = serde_json::to_value(run("NM-038", false)).expect("JSON");
    assert_eq!(json["schema"], "nicety-reproduction/2");
    for key in [
        "id",
        "paper",
        "experiment",
        "system",
        "variant",
        "size_bytes",
        "metric",
        "unit",
        "published",
        "low",
        "high",
        "modelled",
        "ratio",
        "class",
        "holds",
    ] {
        assert!(json["rows"][0].get(key).is_some(), "{key}");
    }
    assert_eq!(json["rows"][0]["class"], "predicted");
    assert!(json["rows"][0]["modelled_low"].is_number());
}

#[test]
fn only_what_is_needed_is_measured_and_a_stop_ends_it() {
    let count = Mutex::new(0);
    let measure = |probe: &Probe| {
        *count.lock().expect("no panic") += 1;
        made_up(probe)
    };
    let request = |rows| Request {
        rows,
        figures: false,
        machines: Vec::new(),
        moves: Moves::default(),
        changes: Vec::new(),
        measure: &measure,
        threads: 1,
    };
    let rows = || select(Some("NM-043")).expect("a row");
    let all = reproduce(request(rows()), &mut (), &AtomicBool::new(false)).expect("done");
    assert_eq!((all.measured, *count.lock().expect("no panic")), (4, 4));
    assert!(reproduce(request(rows()), &mut (), &AtomicBool::new(true)).is_none());
}

#[test]
fn figures_are_drawn_with_the_published_points() {
    let all = run("mt23108-nicmem", true);
    let numbers: Vec<&str> = all.figures.iter().map(|figure| figure.number).collect();
    assert_eq!(numbers, ["2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"]);
    for figure in &all.figures {
        assert!(figure.curves.iter().all(|curve| !curve.points.is_empty()), "Figure {}", figure.number);
    }
    let five = &all.figures[3];
    assert_eq!(five.marks.iter().map(|mark| mark.y).collect::<Vec<_>>(), [886.0, 944.0, 944.0, 886.0]);
}

#[test]
fn terminal_text_has_the_main_results() {
    let text = terminal(&run("mt23108-nicmem", false), 100, false);
    for part in ["bibw_2port", "NM-081", "predicted", "within 10 %", "contradict", "N6", "largest errors"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(!text.contains('\x1b'));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "a line is too long");
    let narrow = terminal(&run("NM-043", false), 70, false);
    assert!(narrow.lines().all(|line| line.chars().count() <= 70), "{narrow}");
    let ranges = terminal(&run("multirail-udapl/bandwidth_multiport", false), 80, false);
    assert!(ranges.lines().all(|line| line.chars().count() <= 80), "{ranges}");
    assert!(ranges.contains("what") && ranges.contains("single-rail"), "words are whole:\n{ranges}");
}

/// Goal: the layout shows where a claim ends and its evidence begins, and which end of a range a ratio refers to.
#[test]
fn the_terminal_sets_evidence_apart() {
    let all = run("mt23108-nicmem", false);
    let text = terminal(&all, 1000, false);
    let failed = |row: &&Row| row.holds == Some(false);
    let evidence = |row: &Row| row.evidence.as_ref().map(|text| format!("{} – {text}", row.variant));
    let shown: Vec<String> = all.rows.iter().filter(failed).filter_map(evidence).collect();
    assert!(!shown.is_empty());
    for one in shown {
        assert!(text.contains(&one), "no {one} in:\n{text}");
    }
    assert!(all.rows.iter().any(|row| row.modelled_low.is_some()) && text.contains("further off"), "{text}");
}

#[test]
fn the_page_is_one_file_with_everything() {
    let page = html(&run("mt23108-nicmem", true)).expect("a page");
    for part in ["Figure 14", "NM-137", "<svg", "Content-Security-Policy", "nicety-reproduction/2"] {
        assert!(page.contains(part), "no {part}");
    }
}

#[test]
fn the_page_names_its_papers() {
    let mut all = run("NM-038", false);
    let row = all.rows[0].clone();
    let of = |paper: &&str| Row { paper: (*paper).to_owned(), ..row.clone() };
    for (papers, said) in [
        (&["one"][..], "one"),
        (&["one", "two"][..], "one and two"),
        (&["one", "two", "three"][..], "one, two and three"),
    ] {
        all.rows = papers.iter().map(of).collect();
        let page = html(&all).expect("a page");
        assert!(page.contains(&format!("facts of {said}, next to")), "{said}");
    }
}
