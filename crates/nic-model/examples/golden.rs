//! The tables of the test `golden`: times of a fixed set of operations on each machine, to the picosecond.
//!
//! `cargo run -p nic-model --example golden` prints the differences to the tables in `tests/golden`; `... --
//! --bless` rewrites them.

#[path = "../tests/support/golden.rs"]
mod golden;
#[path = "../tests/support/storm.rs"]
mod storm;

fn main() -> std::io::Result<()> {
    let bless = std::env::args().skip(1).any(|arg| arg == "--bless");
    for name in golden::names() {
        let path = golden::path(&name);
        let (old, new) = (std::fs::read_to_string(&path).unwrap_or_default(), golden::table(&name));
        print!("{}:\n{}", path.display(), golden::diff(&old, &new));
        if bless {
            std::fs::write(path, new)?;
        }
    }
    Ok(())
}
