//! A lane that dies, and one that comes back.

pub(crate) mod mail;
pub(crate) mod mend;
pub(crate) mod rejoin;
pub(crate) mod stay;
