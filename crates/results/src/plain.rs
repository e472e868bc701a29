//! JSON of files and peers, whose texts become plain as they are read ([`from_file`], [`from_peer`]). Other texts
//! become plain by [`line()`]. Everything written to a terminal also passes through [`screen`], so that no other
//! input can act there.

mod json;

pub use host::plain::{is_terminal_control, line, screen};
pub use json::Numbers;
use json::{Budget, Plain};
use serde::de::DeserializeOwned;

/// Memory that the values of a file may take, by estimate: five times a file of 200 MiB in which most is samples.
const FILE_MEMORY_MAX: usize = 1 << 30;
/// Memory that the values of a message may take.
const MESSAGE_MEMORY_MAX: usize = 4 << 20;

/// Reads the JSON of a file: texts are plain and have at most 4096 characters.
///
/// # Errors
/// Invalid JSON, JSON that does not fit `T` or exceeds a limit, with its line and column.
pub fn from_file<T: DeserializeOwned>(text: &[u8], numbers: Numbers) -> serde_json::Result<T> {
    read(text, &Budget::new(FILE_MEMORY_MAX, numbers))
}

/// Reads the JSON of a message of a peer: texts are plain and have at most 4096 characters.
///
/// # Errors
/// As [`from_file`].
pub fn from_peer<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    read(text, &Budget::new(MESSAGE_MEMORY_MAX, Numbers::Any))
}

fn read<T: DeserializeOwned>(text: &[u8], budget: &Budget) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = T::deserialize(Plain::new(&mut json, budget))?;
    json.end()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Sample {
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        names: std::collections::BTreeMap<String, Vec<Kind>>,
        #[serde(default)]
        number: f64,
        #[serde(default)]
        whole: i64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Bare,
        Of(String),
        With { text: String },
    }

    /// Goal: no text is read unchanged, at any position. Method: the same one as value, key, and in enumerations.
    #[test]
    fn texts_of_json_are_plain_wherever_they_stand() {
        let json =
            r#"{"text": "E", "names": {"E": ["bare", {"of": "E"}, {"with": {"text": "E"}}]}, "number": 1}"#;
        let read: Sample =
            from_file(json.replace('E', r"\u001b[2J\u202e").as_bytes(), Numbers::Measured).expect("a sample");
        let plain = || "\\u{1b}[2J\\u{202e}".to_owned();
        let kinds = vec![Kind::Bare, Kind::Of(plain()), Kind::With { text: plain() }];
        let expected =
            Sample { text: Some(plain()), names: [(plain(), kinds)].into(), number: 1.0, whole: 0 };
        assert_eq!(read, expected);
        assert_eq!(
            from_file::<Sample>(br#"{"text": null}"#, Numbers::Measured).expect("a sample").text,
            None
        );
    }

    #[test]
    fn long_texts_are_cut_at_their_limit() {
        let read = |len: usize| {
            let json = format!("{{\"text\": \"{}\"}}", "x".repeat(len));
            from_peer::<Sample>(json.as_bytes()).expect("a sample").text.expect("a text")
        };
        assert_eq!(read(json::FIELD_MAX).len(), json::FIELD_MAX);
        assert_eq!(read(json::FIELD_MAX + 1), "x".repeat(json::FIELD_MAX) + "...");
    }

    #[test]
    fn measured_numbers_are_limited() {
        for (json, fits) in [
            (r#"{"number": 1e18}"#, true),
            (r#"{"number": -1.1e18}"#, false),
            (r#"{"whole": 281474976710655}"#, true),
            (r#"{"whole": 281474976710656}"#, false),
            (r#"{"whole": -281474976710656}"#, false),
        ] {
            let read = from_file::<Sample>(json.as_bytes(), Numbers::Measured);
            assert_eq!(read.is_ok(), fits, "{json}: {read:?}");
            assert!(from_file::<Sample>(json.as_bytes(), Numbers::Any).is_ok(), "{json}");
        }
        let error = from_file::<Sample>(b"{\n \"whole\": 281474976710656}", Numbers::Measured)
            .expect_err("too large");
        assert!(error.to_string().contains("beyond 281474976710655 at line 2"), "{error}");
    }

    /// Whatever a list may hold as `{}` is counted with the memory it takes.
    #[test]
    fn objects_of_lists_take_at_most_what_is_counted() {
        use crate::schema::{DeviceInfo, Launch, PeerInfo};
        let sizes = [size_of::<Launch>(), size_of::<DeviceInfo>(), size_of::<PeerInfo>()];
        assert!(sizes.into_iter().all(|size| size <= json::OBJECT_SIZE), "{sizes:?}");
    }

    /// Goal: a short text cannot become values that take much memory. Method: lists of the shortest value of each
    /// kind, up to the limit.
    #[test]
    fn memory_of_values_is_limited() {
        type Read = fn(usize) -> serde_json::Result<usize>;
        fn read<T: DeserializeOwned>(item: &str, count: usize) -> serde_json::Result<usize> {
            from_peer::<Vec<T>>(format!("[{}]", vec![item; count].join(",")).as_bytes()).map(|all| all.len())
        }
        let cases: [(Read, usize); 3] = [
            (|count| read::<Sample>("{}", count), json::OBJECT_SIZE),
            (|count| read::<String>("\"\"", count), json::TEXT_SIZE),
            (|count| read::<f64>("0", count), 8),
        ];
        for (read, size) in cases {
            let most = MESSAGE_MEMORY_MAX / size;
            assert_eq!(read(most).expect("within the limit"), most);
            assert!(read(most + 1).expect_err("beyond").to_string().contains("too many values"));
        }
    }
}
