//! Rules that a seed chooses: only what the specification allows at any time, so that a correct program survives them or
//! ends with an error of its own.

use host::Rng;

use crate::rule::Rule;

/// Kinds of rules, with the largest number or span that replaces `N`, and how many of ten seeds have them.
const KINDS: [(&str, u64, u64); 14] = [
    // The peer or the network may fail at any request.
    ("on=request nth=N status=RETRY_EXC_ERR", 2000, 3),
    ("on=send nth=N status=RNR_RETRY_EXC_ERR", 2000, 1),
    ("on=read nth=N status=REM_OP_ERR", 1000, 1),
    ("on=request nth=N event=QP_FATAL", 4000, 1),
    // Resources may run out at any call.
    ("on=reg_mr nth=N error=ENOMEM", 40, 2),
    ("on=create_qp nth=N error=ENOMEM", 20, 1),
    ("on=create_cq nth=N error=ENOMEM", 20, 1),
    // Requests of different queue pairs have no order, and any request may take long.
    ("on=request probability=0.01 delay=Nus jitter=2ms", 2000, 5),
    ("on=recv probability=0.01 delay=Nus jitter=2ms", 2000, 4),
    // Connecting may be slow, refused or without an answer.
    ("on=established delay=Nms jitter=20ms", 50, 4),
    ("on=connect_request delay=Nms jitter=20ms", 50, 4),
    ("on=connect nth=N action=reject", 20, 1),
    ("on=disconnected delay=Nms jitter=20ms", 50, 3),
    // A port may lose its link for a while.
    ("on=time after=Nms event=PORT_ERR", 3000, 2),
];

/// The rules of a seed: one at least.
#[must_use]
pub fn chaos(seed: u64) -> Vec<Rule> {
    let mut rng = Rng::new(seed);
    let chosen = |rng: &mut Rng, (text, most, of_ten): (&str, u64, u64)| {
        let (is_chosen, number) = (rng.below(10) < of_ten, 1 + rng.below(most));
        (is_chosen, text.replace("=N", &format!("={number}")))
    };
    let all: Vec<_> = KINDS.into_iter().map(|kind| chosen(&mut rng, kind)).collect();
    let always = rng.index(all.len());
    let kept = all.into_iter().enumerate().filter(|(at, (is_chosen, _))| *is_chosen || *at == always);
    kept.filter_map(|(_, (_, text))| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_a_rule_and_each_seed_has_its_own() {
        for (text, ..) in KINDS {
            text.replace("=N", "=1").parse::<Rule>().expect(text);
        }
        let of = |seed| chaos(seed).iter().map(Rule::to_string).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            assert!(!of(seed).is_empty(), "{seed}");
            seen.insert(of(seed));
        }
        assert!(seen.len() > 190, "{}", seen.len());
    }
}
