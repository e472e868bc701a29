//! A sanitizer for verbs: a device over another device that watches how a program uses it, and reports wrong uses that work by luck,
//! with the places in the program where they began and where they showed.
//!
//! A program that is checked needs no change: it opens `check(shm)` instead of `shm`. Where this device is not used, it costs nothing.
//! Requests pass unchanged. Memory of outstanding requests is compared at post and at completion; nothing in it is changed.
//!
//! | module | contents |
//! |---|---|
//! | `report` | the kinds of findings, and their remedies |
//! | `regions` | regions, alive and deregistered |
//! | `destinations` | memory to which outstanding requests write |
//! | `requests` | outstanding requests, and what is checked of each |
//! | `cards` | limits of cards |
//! | `objects` | objects of C programs, for what is left at the end |
//! | `shared` | the state that all objects of a device share |
//! | `queue_pairs` | an opened device with its queue pairs |
//! | `api` | the objects of `verbs` |

#![forbid(unsafe_code)]

mod api;
mod cards;
mod destinations;
mod objects;
mod queue_pairs;
mod regions;
mod report;
mod requests;
mod shared;

pub use api::device::{CheckConfig, check_private_data, check_wait, open, prepare, refuse, reported_attr};
pub use cards::{Message, cards};
pub use findings::{count, is_on};
pub use objects::{created, end, ended, unacknowledged};
