//! Plan files: several plans in one TOML text, each part a matrix of experiments, devices, sizes and settings.
//!
//! All mistakes are reported together, each with its line, before anything is measured. Results of a plan file are
//! stored by [`crate::launch::Journal`]. `docs/reference/plan-files.md` has the format.
//!
//! | file | what it holds |
//! |---|---|
//! | `text` | from TOML to drafts: keys, types, lines |
//! | `parts` | from drafts to plans: defaults, the matrix, what a mistake is about |

mod mistake;
mod parts;
mod text;

use std::collections::BTreeSet;

pub use mistake::Mistake;
pub use parts::Part;
use text::MISTAKES_MAX;

/// Bytes of a plan file at most.
pub const TEXT_MAX: u64 = 1 << 20;
/// Parts of a file at most, each combination of settings counted.
const PARTS_MAX: usize = 1024;
/// Cells of all parts at most.
const CELLS_MAX: usize = 1 << 20;

/// Reads a plan file.
///
/// # Errors
/// All mistakes, by line; of more than 100 some.
pub fn read(text: &str) -> Result<Vec<Part>, Vec<Mistake>> {
    let (drafts, (syntax, broken), mut mistakes) = text::drafts(text);
    let (mut all, mut cells) = (Vec::<Part>::new(), 0);
    for draft in &drafts {
        let parts = parts::of(draft, &mut mistakes);
        cells += parts.iter().map(|part| part.plan.cells.len()).sum::<usize>();
        all.extend(parts);
        if all.len() > PARTS_MAX || cells > CELLS_MAX {
            let what = format!(
                "with this part there are {} parts with {cells} cells, {PARTS_MAX} and {CELLS_MAX} at most; make several \
                 plans",
                all.len()
            );
            mistakes.push(Mistake { line: draft.line, what });
        }
        if mistakes.len() >= MISTAKES_MAX || all.len() > PARTS_MAX || cells > CELLS_MAX {
            break;
        }
    }
    // What is said of a line that could not be read is only half true.
    mistakes.retain(|mistake| !broken.iter().any(|lines| lines.contains(&mistake.line)));
    mistakes.extend(syntax);
    if drafts.is_empty() && mistakes.is_empty() {
        let what =
            "there is no part; begin one with [part.NAME], and see docs/reference/plan-files.md".to_owned();
        mistakes.push(Mistake { line: 1, what });
    }
    let mut names = BTreeSet::new();
    for part in &all {
        if !names.insert(part.name.as_str()) {
            let what =
                format!("two parts would both be '{}', by their settings; give one another name", part.name);
            mistakes.push(Mistake { line: 1, what });
        }
    }
    mistakes.sort();
    mistakes.dedup();
    mistakes.truncate(MISTAKES_MAX);
    if mistakes.is_empty() { Ok(all) } else { Err(mistakes) }
}

#[cfg(test)]
mod tests;
