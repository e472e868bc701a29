//! The terminal's text of a whole reproduction, for developers of the model: `cargo run --release -p reproduce
//! --example whole_reproduction`. Arguments: the selection, as `nicety reproduce` takes it, changes `key=value`, a file
//! `*.html` for the page, and a file `*.json` for the rows.

use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (changes, asked): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.contains('='));
    let (page, asked): (Vec<String>, Vec<String>) = asked.into_iter().partition(|arg| arg.ends_with(".html"));
    let (rows_file, asked): (Vec<String>, Vec<String>) =
        asked.into_iter().partition(|arg| arg.ends_with(".json"));
    let changes =
        changes.iter().filter_map(|arg| arg.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let options = reproduce::Options { figures: !page.is_empty(), changes: changes.collect() };
    let rows = reproduce::select(asked.first().map(String::as_str))?;
    if let Some(all) = reproduce::run(rows, &options, &mut (), &AtomicBool::new(false))? {
        println!("{}", reproduce::terminal(&all, 200, false));
        for path in page {
            std::fs::write(path, reproduce::html(&all)?)?;
        }
        for path in rows_file {
            std::fs::write(path, serde_json::to_string(&all)?)?;
        }
    }
    Ok(())
}
