//! The device that a server opens for a client, by name.

/// Bytes of the name of a device that a client asks for at most.
const NAME_MAX: usize = 512;

/// Why a server opens no device for a client, which hears it behind the words "cannot measure".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("a device whose name is too long; see `nicety devices`")]
    TooLong,
    #[error("{word} with a server that offers {offered}; use --device {own}", own = fabric::word(.offered))]
    Other { word: String, offered: String },
    /// Sides again, which the server's host does not have.
    #[error("rails without a server that has as many; start it with --device rails(...)")]
    Rails,
    #[error("{word} with a server; use one of {served}", served = fabric::served().collect::<Vec<_>>().join(", "))]
    NotServed { word: String },
}

/// The device that a server opens for a client: `offered` if it is of the same kind, else what the client asked for,
/// on any side: the side that the client named is its own. Nothing is opened or searched for here.
pub(super) fn device_for_client(asked: &str, offered: Option<&str>) -> Result<String, Refusal> {
    let word = fabric::word(asked);
    match offered {
        _ if asked.len() > NAME_MAX => Err(Refusal::TooLong),
        Some(offered) if fabric::word(offered) == word => Ok(offered.to_owned()),
        Some(offered) => Err(Refusal::Other { word: word.to_owned(), offered: offered.to_owned() }),
        None if fabric::is_rails(asked) => Err(Refusal::Rails),
        None if fabric::served().all(|served| served != word) => {
            Err(Refusal::NotServed { word: word.to_owned() })
        }
        None => Ok(fabric::without_side(asked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_uses_its_own_addresses() {
        let plain = |asked| device_for_client(asked, None).expect("any");
        assert_eq!(plain("iwarp@10.0.0.1(crc=on)"), "iwarp(crc=on)");
        assert_eq!(plain("iwarp@fd00::1"), "iwarp");
        assert_eq!(plain("shm(dm=1M)"), "shm(dm=1M)");
        // A client names no file that the server would write.
        assert_eq!(plain("iwarp@10.0.0.1(crc=on, pcap=/tmp/x)"), "iwarp(crc=on)");
        assert_eq!(plain("iwarp(pcap=/tmp/x)"), "iwarp");
        assert_eq!(plain("trace(shm(dm=1M),file=/tmp/x)"), "shm(dm=1M)");
        let own = "iwarp@10.0.0.2(mpa=1)";
        assert_eq!(device_for_client("iwarp", Some(own)).as_deref(), Ok(own));
        assert_eq!(device_for_client("iwarp@10.0.0.1(crc=on)", Some(own)).as_deref(), Ok(own));
        let why = device_for_client("shm", Some(own)).expect_err("another kind").to_string();
        let rails = device_for_client("rails(iwarp@10.0.0.1,iwarp@10.1.0.1)", None)
            .expect_err("local or remote is unknown")
            .to_string();
        assert!(rails.contains("--device rails"), "{rails}");
        // A name that contains a file is refused for its kind, whether the file exists or not.
        for asked in [
            "model:/dev/null.toml",
            "model:mt23108-vapi",
            " model:x",
            "rails (model:/x.toml,shm)",
            "/etc/passwd",
        ] {
            let why = device_for_client(asked, None).expect_err(asked).to_string();
            assert!(!why.contains("no such") && !why.contains("cannot be read"), "{why}");
        }
        assert!(device_for_client(&"shm".repeat(200), None).is_err());
        assert!(why.contains("offers iwarp@10.0.0.2") && why.contains("--device iwarp"), "{why}");
    }
}
