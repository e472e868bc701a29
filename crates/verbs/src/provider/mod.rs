//! The traits that a NIC implements. Each trait is one object of the API; its methods are called with arguments that
//! the API has checked against [`DeviceAttr`](crate::DeviceAttr). Operations that a NIC does not override are
//! unsupported.
//!
//! A NIC's objects come back as arguments: the NIC finds its own type behind them with [`downcast`], which refuses those of
//! another NIC. The traits name no object of the API, which is built on them.
//!
//! | file | contents |
//! |---|---|
//! | `queues` | domains, regions, queues, queue pairs |
//! | `connections` | connections, and the events that a NIC reports for them |
//! | `device` | devices, and programs that they run |

mod connections;
mod device;
mod queues;

pub use crate::memory::DmOps;
pub use crate::numbers::Numbers;
pub use connections::{BoundAddrOps, CmEvent, CmOps, ConnectRequest, ListenerOps, RequestOps, apply_screen};
pub use device::{DeviceOps, ProgramOps};
pub use queues::{CompChannelOps, CqOps, MrOps, MwOps, PdOps, QpOps, QpParts, SrqOps, downcast, no_windows};
