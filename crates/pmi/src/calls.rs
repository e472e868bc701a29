//! The note by which a rank's library reports to its launcher the MPI calls that it waits in: the format of a small file that both
//! have open.

/// The variable with the number of the descriptor of the file. It is set if the launcher may ask.
pub const CALLS_FD: &str = "NICETY_CALLS_FD";
/// The length of the file in bytes.
pub const NOTE_LEN: usize = 128;
/// What the file begins with, so that a library never writes to another file.
const MAGIC: &[u8; 15] = b"nicety-calls-1\n";
/// The byte behind it: whether the library notes its calls.
const STATE: usize = MAGIC.len();
const NOTES: u8 = b'.';

/// The file before the library has written to it.
#[must_use]
pub fn empty_note() -> [u8; NOTE_LEN] {
    let mut note = [0; NOTE_LEN];
    note[..STATE].copy_from_slice(MAGIC);
    note
}

/// A note of these calls; a longer text is cut off.
#[must_use]
pub fn note(calls: &[&str]) -> [u8; NOTE_LEN] {
    let mut note = empty_note();
    note[STATE] = NOTES;
    let (text, place) = (calls.join(", "), &mut note[STATE + 1..]);
    let len = text.len().min(place.len());
    place[..len].copy_from_slice(&text.as_bytes()[..len]);
    note
}

/// Whether this is the content of such a file.
#[must_use]
pub fn is_note(file: &[u8]) -> bool {
    file.len() == NOTE_LEN && file.starts_with(MAGIC)
}

/// The calls of a note, separated by commas; `None` if the library notes none.
#[must_use]
pub fn parse_note(note: &[u8]) -> Option<String> {
    let (state, text) = note.get(STATE..).filter(|_| is_note(note))?.split_first()?;
    let text = text.split(|byte| *byte == 0).next()?;
    let is_text = *state == NOTES && text.iter().all(|byte| (b' '..=b'~').contains(byte));
    is_text.then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        for (calls, text) in [(&[][..], ""), (&["MPI_Recv"], "MPI_Recv"), (&["a", "b"], "a, b")] {
            assert_eq!(parse_note(&note(calls)).as_deref(), Some(text));
        }
        let long = "x".repeat(2 * NOTE_LEN);
        assert_eq!(
            parse_note(&note(&[&long])).map(|text| text.len()),
            Some(NOTE_LEN - STATE - 1),
            "it is cut"
        );
        assert_eq!(parse_note(&empty_note()), None);
        assert!(is_note(&empty_note()) && is_note(&note(&[])));
    }

    #[test]
    fn other_files_are_no_notes() {
        let mut unprintable = note(&["x"]);
        unprintable[STATE + 1] = 0x1b;
        assert_eq!(parse_note(&unprintable), None);
        let whole = note(&["x"]);
        for bytes in [&b""[..], b"x", MAGIC, &whole[..NOTE_LEN - 1], &[b'x'; NOTE_LEN]] {
            assert!(!is_note(bytes) && parse_note(bytes).is_none(), "{bytes:?}");
        }
    }
}
