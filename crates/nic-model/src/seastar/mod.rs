//! SeaStar: a card that runs firmware programs ([`verbs::Firmware`]) on its own processor, behind a router of
//! a three-dimensional mesh. It has no queue pairs and no connections.
//!
//! A program runs in one of two places. On the card: commands are written to the card's memory, the card's
//! loop finds them, and the program's output is written to the host's memory. Or in the host's kernel: a
//! command is a trap, and the card interrupts for each message and for the end of each transfer. It is the
//! same object in both.
//!
//! Up to `pio_bytes` of data travel with a message's header, in one packet. Longer data are read from the
//! sender's memory, and wait in the network until the target has specified their destination. The card can
//! distinguish a limited number of such sources. A message from one more source is refused: it is lost, or
//! retransmitted by flow control.
//!
//! | file | contents |
//! |---|---|
//! | `device` | the device as programs open it |
//! | `cards` | all cards of a world, and their events |
//! | `card` | one card: occupancy of its resources, its programs |
//! | `recorder` | a call of a program: its output, as steps |
//! | `work` | everything in flight: work for processors, messages, writes to memory |
//! | `flow` | sequence numbers of messages, and those kept until they are acknowledged |
//! | `mesh` | routers and cables |
//! | `costs` | processing times |
//! | `transfer_time` | how the time of a message is spent |

mod card;
mod cards;
mod costs;
mod device;
mod flow;
mod mesh;
mod recorder;
mod transfer_time;
mod work;

pub(crate) use device::open;
pub use device::{interrupted, profile};
pub use transfer_time::{COMPONENTS, Profile};
