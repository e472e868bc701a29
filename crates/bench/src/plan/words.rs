//! What several parts of a plan say in the same words.

/// Port of `nicety serve`, unless another is given.
pub const DEFAULT_PORT: u16 = 7471;

/// Numbers with commas between them.
pub(super) fn join_numbers(list: &[u64]) -> String {
    list.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// Names with commas between them.
pub(super) fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// What a library says in several lines, in one.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `, did you mean '...'?` for the closest name within two changes of a letter, else nothing.
#[must_use]
pub fn did_you_mean<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> String {
    let closest = names.map(|n| (distance(given, n), n)).min();
    match closest {
        Some((changes @ 1..=2, name)) if changes < name.len() => format!(", did you mean '{name}'?"),
        _ => String::new(),
    }
}

/// Letters to insert, delete, replace or swap with a neighbour to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    // A word of this length is no slip of the finger, and costs the square of it.
    if a.len() > 40 { usize::MAX } else { strsim::osa_distance(a, b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_have_small_distances() {
        assert_eq!(distance("latency", "latency"), 0);
        assert_eq!(distance("latnecy", "latency"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance(&"x".repeat(100), "abc"), usize::MAX);
    }
}
