//! Profiles of MPI jobs, as text and as a page.
//!
//! | file | contents |
//! |---|---|
//! | `job` | [`JobProfile`]: the profiles of the ranks, summed and ordered |
//! | `text` | tables for a terminal |
//! | `page`, `matrix` | the page; the traffic between ranks, as a drawing |

mod job;
mod matrix;
mod page;
mod text;

pub use job::JobProfile;
pub use page::profile_page;
pub use text::profile_text;
