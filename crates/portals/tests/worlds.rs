//! Random programs of several processes in virtual time, with faults, for some seeds; the example `worlds`
//! runs any number.

#[path = "worlds/mod.rs"]
mod programs;

/// Seeds for each fault setting.
const SEEDS: u64 = 24;

/// Goal: whatever the network does, the results match the model, and equal seeds give equal worlds.
#[test]
fn programs_match_the_model_with_faults() {
    for card in programs::FAULT_SETTINGS {
        for seed in 1..=SEEDS {
            let once = programs::run(card, seed).expect("all ranks end");
            if seed.is_multiple_of(8) {
                assert_eq!(programs::run(card, seed), Ok(once), "{card}, seed {seed}: another world");
            }
        }
    }
}
