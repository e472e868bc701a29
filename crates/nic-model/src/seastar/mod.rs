//! SeaStar: a card that runs programs ([`verbs::Firmware`]) on a processor of its own, behind a router of a three-dimensional mesh. It
//! has no queue pairs and no connections.
//!
//! A program is run in one of two places. On the card: commands go into the card's memory, the card's loop finds them, and what the
//! program tells is written into the host's memory. Or in the kernel of the host: a command is a trap, and for each message, and for
//! the end of each transfer, the card interrupts. It is the same object in both.
//!
//! Up to `pio_bytes` of data travel with a message's header, in one packet. Longer ones are read from the sender's memory, and wait in
//! the network until somebody has said where they go; of these so many sources can be told apart. A message of one more is refused:
//! then it is lost, or sent again by flow control.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | the device as programs open it |
//! | `cards` | all cards of a world, and what happens when |
//! | `card` | one card: what is busy until when, its programs |
//! | `running` | a call of a program: what it tells, in steps |
//! | `work` | what is under way: work for processors, messages, effects in memory |
//! | `flow` | numbers of messages, what is kept until it is acknowledged |
//! | `mesh` | routers and cables |
//! | `costs` | what everything takes |
//! | `path` | where the time of a message goes |

mod card;
mod cards;
mod costs;
mod device;
mod flow;
mod mesh;
mod path;
mod running;
mod work;

pub(crate) use device::open;
pub use device::{interrupted, profile};
pub use path::{COMPONENTS, Profile};
