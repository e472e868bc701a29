//! Parses the server's answers, in either protocol.

use super::failure::{Failure, NAME_LEN_MAX};
use crate::wire::{Message, WireError, excerpt};

/// The next step of joining.
pub(super) enum Next {
    Send(Vec<u8>),
    /// Wait, because the server has more to send.
    Wait,
    Joined,
}

/// The reason if the server refuses. Servers of 1.1 omit the code in positive answers.
pub(super) fn refusal(message: &Message<'_>) -> Result<Option<String>, WireError> {
    let code = message.number::<i64>("rc")?.unwrap_or(0);
    let words = || message.get("msg").or_else(|| message.get("errmsg")).map(excerpt);
    Ok((code != 0).then(|| words().unwrap_or_else(|| format!("error {code}, without a message"))))
}

/// Checks that the answer to a step of joining is of the expected kind, and positive.
pub(super) fn check_granted(
    message: &Message<'_>,
    expected: &'static str,
    what: &'static str,
) -> Result<(), Failure> {
    if message.name() != expected {
        return Err(Failure::Unexpected { got: excerpt(message.name()), expected: Some(expected) });
    }
    match refusal(message)? {
        Some(why) => Err(Failure::Refused { what, why }),
        None => Ok(()),
    }
}

/// The version in a server's answer, which must be the requested one.
pub(super) fn version_of(message: &Message<'_>, wanted: u32) -> Result<(u32, u32), Failure> {
    const EXPECTED: &str = "response_to_init";
    let number = message.number("pmi_version")?.unwrap_or(wanted);
    if message.name() == EXPECTED && number != wanted {
        return Err(Failure::Version(number, message.number("pmi_subversion")?.unwrap_or(0)));
    }
    check_granted(message, EXPECTED, "to let this rank join")?;
    Ok((message.need_number("pmi_version")?, message.need_number("pmi_subversion")?))
}

/// The name of the job's key-value space.
pub(super) fn kvs_name(message: &Message<'_>, key: &'static str) -> Result<String, Failure> {
    let name = message.need(key)?;
    if (1..=NAME_LEN_MAX).contains(&name.len()) {
        Ok(name.to_owned())
    } else {
        Err(Failure::Name(name.len()))
    }
}

/// A number that is `None` if negative.
pub(super) fn non_negative(number: i64) -> Option<u32> {
    u32::try_from(number).ok()
}
