//! Criteria changed without an entry in the log: `cargo run -p reproduce --example criteria` prints for each the
//! beginning of the line that `data/changes.csv` needs. With `-- --table` it prints the table of all criteria, from
//! which the frozen one was made.

use std::io::stdout;

fn main() -> Result<(), csv::Error> {
    let mut out = csv::Writer::from_writer(stdout());
    if std::env::args().skip(1).any(|arg| arg == "--table") {
        reproduce::criteria().into_iter().try_for_each(|one| out.serialize(one))?;
    } else {
        reproduce::unexplained().into_iter().try_for_each(|line| out.serialize(line))?;
    }
    out.flush()?;
    Ok(())
}
