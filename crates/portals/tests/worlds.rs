//! Random programs of several processes in virtual time, with faults, for some seeds; the example `worlds`
//! runs any number.

#[path = "worlds/mod.rs"]
mod programs;

/// Seeds for each fault setting.
const SEEDS: u64 = 24;

/// Goal: whatever the network does, the results match the model, and equal seeds give equal worlds.
#[test]
fn programs_go_as_in_the_model_in_any_weather() {
    for card in programs::WEATHERS {
        for seed in 1..=SEEDS {
            let once = programs::run(card, seed).expect("all ranks end");
            if seed.is_multiple_of(8) {
                assert_eq!(programs::run(card, seed), Ok(once), "{card}, seed {seed}: another world");
            }
        }
    }
}
