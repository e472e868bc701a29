//! Values that the thesis states rather than measures: the machines (3.1, 4.1), constants of its experiments (2), and
//! remarks.

use super::setups::{MYRINET, QUADRICS, VAPI};
use crate::claims::claim::ClaimTable;
use crate::claims::whatif::key;

const VERSION: &str = "names a version of software, of which nothing in the model depends";
const UNUSED: &str = "nothing in the model depends on it";

pub(super) fn table(table: &mut ClaimTable) {
    context(table);
    hardware(table);
    method(table);
    buffers(table);
    remarks(table);
}

fn context(table: &mut ClaimTable) {
    table.unused(
        &["MT-001", "MT-002", "MT-003", "MT-004", "MT-005", "MT-006"],
        "what such interconnects are designed for in general; what they reach are rows of their own",
    );
    table.unused(&["MT-231"], "a summary; its parts are rows of their own");
    table.method(&["MT-007"], "one buffer is used for all messages unless a test says otherwise", 100.0);
    table.method(&["MT-008"], "pieces of a message unless a test says otherwise", 1.0);
    table.method(&["MT-009"], "connections unless a test says otherwise", 1.0);
    table.method(&["MT-247"], "buffers at either side unless a test says otherwise", 1.0);
}

/// Sections 3.1 and 4.1.
fn hardware(table: &mut ClaimTable) {
    table.unused(
        &["MT-037", "MT-038", "MT-039", "MT-040", "MT-041", "MT-044", "MT-045", "MT-046", "MT-047", "MT-048"],
        UNUSED,
    );
    table.unused(&["MT-057"], UNUSED);
    table.unused(&["MT-056"], "what the processor does is measured in times, not in clocks");
    table.method(&["MT-036", "MT-043", "MT-058"], "nodes there are, and ranks of the largest hot spot", 8.0);
    table.input(&["MT-042", "MT-049"], key::PORTS, VAPI.parameter(key::PORTS));
    table.input(&["MT-050", "MT-052"], "bus.width_bytes, in bits", VAPI.parameter(key::BUS_WIDTH) * 8.0);
    table.input(&["MT-051", "MT-053"], key::BUS_CLOCK, VAPI.parameter(key::BUS_CLOCK));
    table.input(&["MT-054"], "bus.width_bytes, in bits", MYRINET.parameter(key::BUS_WIDTH) * 8.0);
    table.input(&["MT-055"], key::BUS_CLOCK, MYRINET.parameter(key::BUS_CLOCK));
    table.input(&["MT-059"], "bus.width_bytes, in bits", QUADRICS.parameter(key::BUS_WIDTH) * 8.0);
    table.input(&["MT-060"], key::BUS_CLOCK, QUADRICS.parameter(key::BUS_CLOCK));
    table.input(&["MT-176"], key::MERGED_SEND, MYRINET.parameter(key::MERGED_SEND));
    table.input(&["MT-200"], key::MERGED_WRITE, QUADRICS.parameter(key::MERGED_WRITE));
    table.not_modelled(&["MT-225", "MT-226", "MT-227", "MT-228", "MT-229", "MT-230"], VERSION);
    table.unused(
        &["MT-136"],
        "a mistake in a driver, not a habit of the interface: under IBAL nothing below eight pieces is measured here",
    );
}

/// The method of section 2.
fn method(table: &mut ClaimTable) {
    table.method(&["MT-010"], "a message posts one receive and one send", 2.0);
    table.method(&["MT-011"], "half of the round trip is reported", 0.5);
    table.method(&["MT-012"], "windows posted at first", 1.0);
    table.method(&["MT-013", "MT-014", "MT-015"], "half a window is awaited, then posted", 0.5);
    table.method(&["MT-016"], "at most one window is outstanding", 1.0);
    table.method(&["MT-018"], "posts receives, starts sends, computes, waits", 4.0);
    table.method(&["MT-028"], "the master awaits the answer of the last slave", 1.0);
    table.method(&["MT-029"], "each slave answers with one message", 1.0);
    table.method(&["MT-030"], "each piece is read by itself", 1.0);
    for (row, mtu) in
        [(&["MT-031"], 256.0), (&["MT-032"], 512.0), (&["MT-033"], 1024.0), (&["MT-034"], 2048.0)]
    {
        table.method(row, "MTU measured", mtu);
    }
    table.unused(&["MT-035"], "the specification's; packets of the modelled card carry 2048 bytes at most");
    table.method(&["MT-125"], "queue pairs measured, at most", 64.0);
    table.method(&["MT-126"], "queue pairs measured, at most", 64.0);
    table.method(&["MT-131"], "message size measured", 64.0);
    table.method(&["MT-238"], "completion queues that receives of all queue pairs come to", 1.0);
    table.unused(&["MT-244"], "the experiment's pieces are of equal size");
}

fn buffers(table: &mut ClaimTable) {
    const SEQUENCE: &str = "an illustration; that the experiment uses buffers in this order is tested there";
    table.unused(&["MT-022", "MT-023", "MT-024", "MT-025", "MT-026", "MT-027"], SEQUENCE);
    table.unused(
        &["MT-235", "MT-236"],
        "the definition of the second scheme; that the experiment follows N R and N (1 - R) is tested there",
    );
    table.method(&["MT-121", "MT-123"], "message size measured", 64.0);
    table.method(&["MT-122", "MT-124", "MT-207", "MT-212"], "message size measured", 524_288.0);
    table.method(&["MT-211"], "message size measured", 4096.0);
}

fn remarks(table: &mut ClaimTable) {
    table.not_modelled(
        &["MT-233"],
        "a warning of cards that write out of order; the modelled ones write a message's last byte last",
    );
    table.not_modelled(
        &["MT-237", "MT-239"],
        "what might be, said before it is measured; the results are rows of their own",
    );
    table.unused(
        &["MT-232"],
        "an interface without sends; those of its model stand for the queues which Elan has besides, and serve where an \
         experiment has no puts",
    );
    table.not_modelled(
        &["MT-240"],
        "the device API has reliable connections only, so there is nothing to try",
    );
}
