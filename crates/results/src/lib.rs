//! Results of measuring: the file that holds them, and the statistics on them. Nothing here opens a device or measures.
//!
//! | module | contents |
//! |---|---|
//! | [`schema`] | [`schema::Run`], a result file, and how it is read and written |
//! | [`variant`] | the factors of a cell |
//! | [`stats`] | medians, intervals, warm-up, and the comparison of two runs |
//! | [`plain`] | JSON and text of files and peers, made safe for a terminal |

#![forbid(unsafe_code)]

pub mod plain;
pub mod schema;
pub mod stats;
pub mod variant;
