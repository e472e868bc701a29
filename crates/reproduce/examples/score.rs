//! The terminal's text of a whole reproduction, for who works on the model: `cargo run --release -p reproduce --example score`.
//! Arguments: what is wanted, as `nicety reproduce` takes it, and changes `key=value`.

use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (changes, asked): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.contains('='));
    let changes =
        changes.iter().filter_map(|arg| arg.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let options = reproduce::Options { figures: false, changes: changes.collect() };
    let rows = reproduce::select(asked.first().map(String::as_str))?;
    if let Some(all) = reproduce::run(rows, &options, &mut (), &AtomicBool::new(false))? {
        println!("{}", reproduce::terminal(&all, 200, false));
    }
    Ok(())
}
