//! Plan files: several plans in one TOML text, each part a matrix of experiments, devices, sizes and settings.
//!
//! Everything that is wrong is said at once, with the line where it stands, before anything is measured. What was
//! measured of a plan file is kept by [`crate::launch::Journal`]. `docs/plan-files.md` has the format.
//!
//! | file | what it holds |
//! |---|---|
//! | `text` | from TOML to drafts: keys, types, lines |
//! | `parts` | from drafts to plans: defaults, the matrix, what a mistake is about |

mod mistake;
mod parts;
mod text;

pub use mistake::Mistake;
pub use parts::Part;

/// Reads a plan file.
///
/// # Errors
/// All mistakes, by line.
pub fn read(text: &str) -> Result<Vec<Part>, Vec<Mistake>> {
    let (drafts, (syntax, broken), mut mistakes) = text::drafts(text);
    let mut all = Vec::new();
    for draft in &drafts {
        all.extend(parts::of(draft, &mut mistakes));
    }
    // What is said of a line that could not be read is only half true.
    mistakes.retain(|mistake| !broken.iter().any(|lines| lines.contains(&mistake.line)));
    mistakes.extend(syntax);
    if drafts.is_empty() && mistakes.is_empty() {
        let what = "there is no part; begin one with [part.NAME], and see docs/plan-files.md".to_owned();
        mistakes.push(Mistake { line: 1, what });
    }
    let mut names: Vec<&str> = Vec::new();
    for part in &all {
        if names.contains(&part.name.as_str()) {
            let what =
                format!("two parts would both be {:?}, by their settings; give one another name", part.name);
            mistakes.push(Mistake { line: 1, what });
        }
        names.push(&part.name);
    }
    mistakes.sort();
    mistakes.dedup();
    if mistakes.is_empty() { Ok(all) } else { Err(mistakes) }
}

#[cfg(test)]
mod tests;
