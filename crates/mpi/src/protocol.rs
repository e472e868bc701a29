//! [`protocols`]: by which protocol data of a size go from one process to another, and why. The limits are those of the code that
//! sends.

use verbs::DeviceAttr;

use crate::connection::Connection;
use crate::nic::{INLINE, Sizes};
use crate::wire::HEAD;

/// A protocol, and from which size on it carries messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The first size, in bytes.
    pub from: u64,
    /// Its name.
    pub name: &'static str,
    /// What happens, and why from this size on.
    pub why: String,
}

/// The protocols by which a message goes over a device to another process in a job of so many, by size.
pub fn protocols(attr: &DeviceAttr, ranks: u32) -> Vec<Protocol> {
    let sizes = Sizes::of_job(ranks);
    let (inline, eager) = (INLINE - HEAD, Connection::payload_max(sizes));
    let slots =
        format!("{} slots of {} B that each process has for each other one", sizes.slots, sizes.slot_bytes);
    let reached = match attr.implicit_mr {
        Some(_) => "a region of all memory, so that nothing is registered for it",
        None => "a region that is registered for the message at either end",
    };
    vec![
        Protocol {
            from: 0,
            name: "eager, inline",
            why: format!("data go within the work request, and wait at the receiver in one of {slots}"),
        },
        Protocol {
            from: inline as u64 + 1,
            name: "eager",
            why: format!(
                "with its head a message has more than the {INLINE} B that go inline: copied into a slot, and out of one"
            ),
        },
        Protocol {
            from: eager as u64 + 1,
            name: "rendezvous, read",
            why: format!(
                "more than a slot of a job of {ranks} has room for: the sender says where the data are, and the receiver reads \
                 them by RDMA through {reached}"
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_follow_each_other_and_large_jobs_have_shorter_slots() {
        let attr = fabric::attr("model:mt23108-vapi").expect("a card");
        let limits = |ranks| protocols(&attr, ranks).iter().map(|p| p.from).collect::<Vec<_>>();
        assert_eq!(limits(4)[0], 0);
        assert!(limits(4).is_sorted() && limits(4096).is_sorted());
        assert!(limits(4096)[2] < limits(4)[2], "{:?}", limits(4096));
    }
}
