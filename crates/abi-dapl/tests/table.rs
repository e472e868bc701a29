//! functions.txt, from which the documentation of the supported functions is written, names the functions of the provider's table.

use nicety_dat::provider::NAMES;

/// Lines of functions.txt that are no comments: the state, the name without `dat_` and what is missing.
fn functions() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    let lines = include_str!("../functions.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (head, missing) = match line.split_once("; ") {
            Some((head, missing)) => (head, Some(missing)),
            None => (line, None),
        };
        let (state, name) = head.split_once(" dat_").expect("a state and a name of the standard");
        (state, name, missing)
    })
}

#[test]
fn functions_are_those_of_the_provider_in_its_order() {
    assert_eq!(functions().map(|(_, name, _)| name).collect::<Vec<_>>(), NAMES);
}

#[test]
fn states_are_known_and_partial_functions_say_what_is_missing() {
    for (state, name, missing) in functions() {
        assert!(["done", "partial", "unsupported"].contains(&state), "{name}: {state}");
        assert_eq!(missing.is_some(), state == "partial", "{name}");
    }
}
