//! Attacks on iWARP by TCP: what stands between the two ends, or is one of them, does as it likes with the bytes.
//!
//! | file | what it holds |
//! |---|---|
//! | `ends` | two ends in this process, a batch of requests, and the account of what completed and what came |
//! | `proxy` | what stands between them: flips a bit, cuts, dribbles, resets |
//! | `frames` | what a stream consists of |
//! | `flips` | one bit, behind TCP's back, at every place of a handshake and a batch |
//! | `cuts` | TCP in tiny pieces, and its end at every byte |
//! | `hostile` | peers with valid CRCs whose fields lie, by table |
//! | `floods` | silence and garbage in the place of clients |

pub(super) mod cuts;
mod ends;
pub(super) mod flips;
pub(super) mod floods;
mod frames;
pub(super) mod hostile;
mod proxy;
