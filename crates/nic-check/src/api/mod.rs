//! The objects of `verbs`, each in front of the same object of the NIC below.

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;
