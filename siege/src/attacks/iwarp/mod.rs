//! Attacks on iWARP through TCP: a proxy or a hostile peer damages, cuts or forges the bytes.
//!
//! | file | what it holds |
//! |---|---|
//! | `endpoints` | two endpoints in this process, a batch of requests, and the comparison of what completed with what arrived |
//! | `proxy` | forwards TCP connections; flips a bit, cuts, dribbles, resets |
//! | `frames` | splits a stream into frames |
//! | `flips` | flips one bit, at every place of a handshake and a batch |
//! | `cuts` | TCP in tiny pieces, cut at every byte |
//! | `hostile` | peers with valid CRCs and one false field, by table |
//! | `floods` | silence and garbage instead of clients |

pub(super) mod cuts;
mod endpoints;
pub(super) mod flips;
pub(super) mod floods;
mod frames;
pub(super) mod hostile;
mod proxy;
