//! functions.txt, from which the documentation of the supported functions is written, names the functions of portals4.h.

/// Lines of functions.txt that are no comments: the state, the name and what is missing.
fn functions() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    let lines = include_str!("../functions.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (head, missing) = match line.split_once("; ") {
            Some((head, missing)) => (head, Some(missing)),
            None => (line, None),
        };
        let (state, name) = head.split_once(' ').expect("a state and a name");
        (state, name, missing)
    })
}

#[test]
fn functions_are_those_of_the_header_in_its_order() {
    let header = include_str!("../include/portals4.h").lines();
    let declared = header.filter_map(|line| {
        let rest = line.strip_prefix("int ").or_else(|| line.strip_prefix("void "))?;
        rest.starts_with("Ptl").then(|| rest.split('(').next())?
    });
    let listed: Vec<_> = functions().map(|(_, name, _)| name).collect();
    assert_eq!(listed, declared.collect::<Vec<_>>());
    assert_eq!(listed.len(), 54);
}

#[test]
fn states_are_known_and_partial_functions_say_what_is_missing() {
    for (state, name, missing) in functions() {
        assert!(["done", "partial"].contains(&state), "{name}: {state}");
        assert_eq!(missing.is_some(), state == "partial", "{name}");
    }
}
