//! Comparison of the calls of all ranks before each blocking collective operation of a group.
//!
//! The exchange before a call makes it wait for all ranks, which MPI allows for every collective (MPI 5.0, section 6.1).

use findings::Stack;

use crate::active::checked;
use crate::library::{self, BYTE, MAX, PREDEFINED_MAX, SUCCESS, UINT64_T};
use crate::messages::place;
use crate::report::{self, COLLECTIVE_MISMATCH};
use crate::signature;
use crate::state;

/// Bytes of a call's place, and of a call as it is gathered.
const TEXT: usize = 200;
/// The most ranks whose calls are named.
const NAMED_MAX: usize = 8;

/// What must be the same on all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// The root, if the call has one.
    pub(crate) root: Option<i32>,
    pub(crate) op: Option<usize>,
    /// The datatype of a reduction.
    pub(crate) datatype: Option<usize>,
    /// The bytes that each rank contributes, or gets, if all have the same.
    pub(crate) bytes: Option<u64>,
}

impl Call {
    /// The words that are compared.
    fn words(&self, name: &str) -> [u64; 4] {
        let name = name.trim_end_matches("_c");
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let root = self.root.map_or(0, |root| root as u64 + 1);
        let op = self.op.map_or(0, |op| if op < PREDEFINED_MAX { op as u64 } else { 1 });
        // Operators of the program may have another datatype on each rank.
        let basic = self.datatype.filter(|_| op > 1).map_or(0, signature::basic);
        [hash, root, op << 48 ^ basic, self.bytes.map_or(0, |bytes| bytes + 1)]
    }

    /// The call in words.
    fn text(&self, name: &str, place: &str) -> String {
        let parts = [
            self.root.map(|root| format!("root {root}")),
            self.op.map(library::name).map(str::to_owned),
            self.datatype.map(library::name).map(str::to_owned),
            self.bytes.map(|bytes| format!("{bytes} bytes")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let list = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        format!("{name}{list} at {place}")
    }
}

/// Compares a call that is about to be made with those of the other ranks of the communicator.
pub(crate) fn compare(name: &'static str, comm: usize, call: &Call) {
    checked(|| {
        let second = state::with(|state| state.messages.second_of_group(comm))??;
        let words = call.words(name);
        // The greatest of a word and of its complement are complements if all are equal.
        let mut own = [0; 8];
        own[..4].copy_from_slice(&words);
        own[4..].copy_from_slice(&words.map(|word| !word));
        let mut most = [0; 8];
        if library::allreduce(&own, &mut most, 8, UINT64_T, MAX, second) != SUCCESS {
            return None;
        }
        let is_equal = (0..4).all(|at| most[at] == !most[at + 4]);
        if !is_equal {
            report_all(name, second, call);
        }
        Some(())
    });
}

/// Gathers the calls of all ranks; rank 0 of the communicator reports them.
#[cold]
fn report_all(name: &'static str, second: usize, call: &Call) {
    let stack = Stack::here();
    let (mut rank, mut size) = (0, 0);
    library::comm_rank(second, &mut rank);
    library::comm_size(second, &mut size);
    let mut own = [0_u8; TEXT];
    let text = call.text(name, &place(stack));
    let end = (0..=text.len().min(TEXT)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    own[..end].copy_from_slice(&text.as_bytes()[..end]);
    let mut all = vec![0_u8; if rank == 0 { TEXT * size.max(0) as usize } else { 0 }];
    let (from, to) = (own.as_ptr().expose_provenance(), all.as_mut_ptr().expose_provenance());
    library::gather(from, TEXT as i32, BYTE, to, TEXT as i32, BYTE, 0, second);
    if rank != 0 {
        return;
    }
    let texts: Vec<String> = all
        .chunks(TEXT)
        .map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
        .collect();
    let mut different: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, text) in texts.into_iter().enumerate() {
        match different.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => different.push((text, vec![rank])),
        }
    }
    let about: Vec<(&str, String)> = different
        .into_iter()
        .take(NAMED_MAX)
        .map(|(text, ranks)| {
            let named: Vec<String> = ranks.iter().take(NAMED_MAX).map(usize::to_string).collect();
            let more = if ranks.len() > NAMED_MAX { ", ..." } else { "" };
            let plural = if ranks.len() == 1 { "" } else { "s" };
            ("call", format!("rank{plural} {}{more}: {text}", named.join(", ")))
        })
        .collect();
    report::find(
        COLLECTIVE_MISMATCH,
        "the ranks of a communicator call different collectives",
        &about,
        &[("called", stack)],
    );
}
