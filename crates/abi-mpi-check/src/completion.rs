//! The end of requests: compares their buffers and their messages.

use findings::Stack;

use crate::active::checked;
use crate::library::{self, SUCCESS, Status};
use crate::memory::Difference;
use crate::messages::{self, Match};
use crate::report::{self, BUFFER_CHANGED, MEMORY_GONE};
use crate::state;

/// What the end of a request has shown.
#[derive(Default)]
pub(crate) struct Ended {
    matches: Vec<Match>,
    changed: Option<Changed>,
}

/// A send whose buffer has changed.
struct Changed {
    call: &'static str,
    difference: Difference,
    started: Stack,
}

/// Requests have ended, each with this status and this result.
pub(crate) fn ended(requests: &[(usize, Status, i32)]) {
    let found = checked(|| {
        let mut all = Vec::new();
        for (handle, status, code) in requests {
            let one = state::with(|state| {
                let request = state.requests.end(*handle)?;
                let mut ended = Ended::default();
                if let (Some(send), Some(before)) = (request.operation.send, &request.sends) {
                    let difference = send.memory.difference(before);
                    ended.changed = difference.map(|difference| Changed {
                        call: request.call,
                        difference,
                        started: request.started,
                    });
                }
                let comm = request.operation.comm;
                let mut is_cancelled = 0;
                library::test_cancelled(status, &mut is_cancelled);
                if let Some(number) = request.posted {
                    match *code {
                        _ if is_cancelled != 0 => state.messages.cancelled(comm, number),
                        SUCCESS => state.messages.received(comm, number, status.source, status.tag),
                        _ => state.messages.lose(comm, number),
                    }
                    ended.matches = state.messages.matches(comm);
                }
                Some(ended)
            });
            all.extend(one.flatten());
        }
        Some(all)
    });
    for Ended { matches, changed } in found.into_iter().flatten() {
        checked(|| {
            if let Some(changed) = changed {
                changed.report();
            }
            let is_strict = state::with(|state| state.is_strict)?;
            messages::compare(matches, is_strict);
            Some(())
        });
    }
}

impl Changed {
    fn report(self) {
        let stacks = [("started", self.started), ("completed", Stack::here())];
        let mut about = vec![("request", self.call.to_owned())];
        match self.difference {
            Difference::Gone => {
                report::find(
                    MEMORY_GONE,
                    "the buffer of a request was unmapped before it was completed",
                    &about,
                    &stacks,
                );
            }
            Difference::Bytes(bytes, address) => {
                let place = address.map(|address| format!(" at {address:#x}")).unwrap_or_default();
                let (len, plural) = (bytes.len(), if bytes.len() == 1 { "" } else { "s" });
                about.push((
                    "changed",
                    format!("{len} byte{plural}{place}, from byte {} of the data on", bytes.start),
                ));
                report::find(
                    BUFFER_CHANGED,
                    "a buffer changed while a nonblocking send used it",
                    &about,
                    &stacks,
                );
            }
        }
    }
}
