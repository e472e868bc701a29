//! Profiles of MPI jobs, as text and as a page.
//!
//! | file | what it holds |
//! |---|---|
//! | `job` | [`JobProfile`]: what ranks told, summed and ordered |
//! | `text` | tables for a terminal |
//! | `page`, `matrix` | the page; who sends how much to whom, as a drawing |

mod job;
mod matrix;
mod page;
mod text;

pub use job::JobProfile;
pub use page::profile_page;
pub use text::profile_text;
