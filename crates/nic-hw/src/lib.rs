//! The NIC `hw`: a card behind the system's libibverbs and librdmacm, which are loaded when the device is opened.
//!
//! A card executes requests; this crate only translates. Requests and completions are translated on the stack, and reach
//! the provider by one call through the context's table, without a lock or an allocation of this crate. What a card
//! lacks is missing in its [`verbs::DeviceAttr`].
//!
//! One thread for each device serves what is not the data path: events of connections, their deadlines, and asynchronous
//! events. No thread watches completions: a thread that is about to sleep arms the queue and sleeps on the descriptor of
//! the queue's channel.
//!
//! Queue pairs are created before they are connected, and on a context of this crate, so librdmacm gets their numbers
//! only. This crate moves them through their states, with the attributes that librdmacm gives.
//!
//! | file | contents |
//! |---|---|
//! | `raw` | owners of the C objects; all unsafe code |
//! | `card` | finding and opening a card and its port |
//! | `gids` | the GID table of a port, and the choice of an entry |
//! | `attr` | the attributes of a device |
//! | `pair` | a queue pair with its state |
//! | `connect` | connections |
//! | `shared` | what the objects of a device share |
//! | `service` | the device's thread |
//! | `port_watch` | what it does when the port loses its link or an address |
//! | `queues` | completion queues, their channels, shared receive queues |
//! | `qp`, `pd`, `cm` | the API's queue pairs, domains and regions, and connections |
//! | `device` | the API's device |

mod attr;
mod card;
mod cm;
mod connect;
mod device;
mod gids;
mod pair;
mod pd;
mod port_watch;
mod qp;
mod queues;
mod raw;
mod service;
mod shared;

pub use card::{CardInfo, HwConfig, cards};
pub use device::open;
