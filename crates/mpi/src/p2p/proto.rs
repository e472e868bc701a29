//! [`protocols`]: by which protocol data of a size go from one process to another, and why. The limits are those of the code that
//! sends.

use verbs::{Access, DeviceAttr};

use crate::p2p::shm_copy::SHARED_MIN;
use crate::p2p::wire::{HEAD, LINE_MAX};
use crate::peers::nic::{COPIED_MAX, Cut, INLINE, Sizes};

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

/// The protocols by which a message goes over a device to another process in a job of so many, by size. Modelled cards have shorter
/// slots than real devices.
pub fn protocols(attr: &DeviceAttr, ranks: u32, is_model: bool) -> Vec<Protocol> {
    let sizes = Sizes::of_device(attr.maps_peers, is_model, ranks);
    let eager = if attr.maps_peers { sizes.record_payload() } else { sizes.slot_payload() };
    let inline = INLINE - HEAD;
    let slots =
        format!("{} slots of {} B that each process has for each other one", sizes.slots, sizes.slot_bytes);
    let reached = match attr.implicit_mr {
        Some(_) => "a region of all memory, so that nothing is registered for it",
        None => "a region that is registered at either end, or on modelled cards kept from a message before",
    };
    let of = |from: usize, name, why| Protocol { from: from as u64, name, why };
    let read = of(
        eager + 1,
        "rendezvous, read",
        format!(
            "more than a message of a job of {ranks} frag_bytes along: the sender says where the data are, and the receiver reads \
             them by RDMA through {reached}"
        ),
    );
    if attr.maps_peers {
        let reached = attr.implicit_mr.is_some_and(|access| access.contains(Access::ALL));
        let both = of(
            SHARED_MIN as usize,
            "rendezvous, both sides copy",
            "the receiver reads pieces, and the sender writes others as soon as it hears of that: each claims a piece by a word \
             in NIC memory that both map"
                .into(),
        );
        let line = "stored in the receiver's NIC memory: a message that answers, in a line that both write in turn; others in the ring";
        let ring = format!(
            "stored in a ring of {} B in the receiver's NIC memory, and copied out of it",
            sizes.ring
        );
        let short = [of(0, "eager, line", line.into()), of(LINE_MAX + 1, "eager, ring", ring), read];
        return short.into_iter().chain(reached.then_some(both)).collect();
    }
    let short = format!("data go within the work request, and wait at the receiver in one of {slots}");
    let long = format!(
        "with its head a message has more than the {INLINE} B that go inline: copied into a slot, and out of one"
    );
    let eager_ones = [of(0, "eager, inline", short), of(inline + 1, "eager", long)];
    let others = match attr.implicit_mr {
        // As `Nic::lends`.
        Some(_) if !is_model => {
            let Cut { part, whole } = Cut::of(eager);
            let in_parts = format!(
                "parts of {part} B leave from where the program has them, and the receiver copies one out of its slot while the next \
                 one is on its way"
            );
            let begun = format!(
                "the sender announces it. If it waits, the first {part} B come at once, while the receiver answers, and it writes the \
                 rest where the receiver wants it; if it goes on, the receiver reads all"
            );
            let copied = eager.min(COPIED_MAX);
            vec![of(copied + 1, "eager, in parts", in_parts), of(whole as usize + 1, "rendezvous", begun)]
        }
        _ => vec![read],
    };
    eager_ones.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_follow_each_other_and_large_jobs_have_shorter_slots() {
        let attr = fabric::attr("model:mt23108-vapi").expect("a card");
        let limits = |ranks| protocols(&attr, ranks, true).iter().map(|p| p.from).collect::<Vec<_>>();
        assert_eq!(limits(4)[0], 0);
        assert!(limits(4).is_sorted() && limits(4096).is_sorted());
        assert!(limits(4096)[2] < limits(4)[2], "{:?}", limits(4096));
        let real = |ranks: u32| protocols(&attr, ranks, false).last().map(|read| read.from);
        assert_eq!([8, 9, 65].map(real), [(64 << 10) + 17, (8 << 10) + 17, limits(65)[2]].map(Some));
        let lends = verbs::DeviceAttr { implicit_mr: Some(Access::LOCAL_WRITE), ..attr.clone() };
        let of =
            |ranks| protocols(&lends, ranks, false).iter().map(|p| p.from).collect::<Vec<_>>()[2..].to_vec();
        assert_eq!(
            [8, 9].map(of),
            [vec![(32 << 10) + 1, (128 << 10) + 1], vec![(8 << 10) + 17, (32 << 10) + 65]]
        );
        let mapped = verbs::DeviceAttr { maps_peers: true, implicit_mr: None, ..attr.clone() };
        let reached = verbs::DeviceAttr { implicit_mr: Some(Access::ALL), ..mapped.clone() };
        let limits_of = |attr| protocols(attr, 4, false).iter().map(|p| p.from).collect::<Vec<_>>();
        let read_from = (16 << 10) + 1;
        assert_eq!(limits_of(&mapped), [0, 17, read_from]);
        assert_eq!(limits_of(&reached), [0, 17, read_from, SHARED_MIN]);
    }
}
