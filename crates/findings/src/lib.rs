//! What a check of a program finds: a paragraph with the objects, the places in the program, and the remedy. Each is written once.
//!
//! | module | contents |
//! |---|---|
//! | `stack` | places in the program |
//! | `report` | the text of findings, and where it is written |
//! | `image` | what memory contained, in little space |

#![forbid(unsafe_code)]

mod image;
mod report;
mod stack;

pub use image::Image;
pub use report::{Kind, begin, conclude, count, end, exit_status, find, is_on, is_process};
pub use stack::Stack;
