//! The files of a device below `/sys/class/infiniband`, with the kernel's text format
//! (`Documentation/ABI/stable/sysfs-class-infiniband`).
//!
//! LID, GID 0 and datagram counters are those of this process and need the device open. Before that, the LID is 0, and GID 0 identifies
//! the host but no process.

use std::collections::BTreeMap;

use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_gid;

use crate::address;
use crate::discovery::device::{self, Device, DeviceKind};
use crate::discovery::interface;
use crate::discovery::port;
use crate::engine;
use crate::objects::Engine;
use crate::text::guid_text;

/// Content of files, by path below the device's folder; `None` is an empty folder.
pub(crate) type Files = BTreeMap<String, Option<String>>;

/// Physical error counters, always 0: there is no wire. Byte and packet counters are absent, as nothing counts them.
const NO_WIRE: [&str; 7] = [
    "VL15_dropped",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "symbol_error",
];

/// The files of the device with this index in the list.
pub(crate) fn files(index: usize) -> Option<Files> {
    let device = device::all().get(index)?.lookup().ok()?;
    let engine = Engine::opened(&device.name);
    let interface = interface::name_of(engine::side(&device.name));
    let mut files = Files::new();
    of_device(&mut files, &device, index);
    of_port(&mut files, engine.as_deref());
    let gids =
        engine.as_ref().map_or_else(|| engine::gids_before(&device.name), |engine| engine.gids.clone());
    of_gids(&mut files, &gids, interface.as_deref());
    of_counters(&mut files, engine.as_deref());
    files.extend(interface.map(|name| (format!("device/net/{name}"), None)));
    Some(files)
}

/// Adds a file with one line of text.
fn add(files: &mut Files, name: impl Into<String>, text: impl std::fmt::Display) {
    files.insert(name.into(), Some(format!("{text}\n")));
}

fn of_device(files: &mut Files, device: &Device, index: usize) {
    let node = rustix::system::uname();
    let guid = guid_text(device::guid(&device.name));
    add(files, "node_type", if device::device_kind() == DeviceKind::Hca { "1: CA" } else { "4: RNIC" });
    add(files, "node_desc", format!("{} nicety{index}", node.nodename().to_string_lossy()));
    add(files, "node_guid", &guid);
    add(files, "sys_image_guid", &guid);
    add(files, "fw_ver", env!("CARGO_PKG_VERSION"));
    add(files, "hw_rev", port::HW_VERSION);
    // Cards name their chip and their board here.
    add(files, "hca_type", format!("nicety {}", fabric::word(&device.name)));
    add(files, "board_id", format!("NCY_{}", fabric::word(&device.name)));
}

fn of_port(files: &mut Files, engine: Option<&Engine>) {
    let mut port = |name: &str, text: String| add(files, format!("ports/1/{name}"), text);
    port("state", format!("{}: ACTIVE", n::IBV_PORT_ACTIVE));
    port("phys_state", format!("{}: LinkUp", port::LINK_UP));
    port("rate", "100 Gb/sec (4X EDR)".to_owned());
    port("link_layer", "Ethernet".to_owned());
    port("lid", format!("{:#x}", engine.map_or(0, |engine| address::lid(engine.pairing.addr()))));
    port("lid_mask_count", "0".to_owned());
    port("sm_lid", "0x0".to_owned());
    port("sm_sl", "0".to_owned());
    port("cap_mask", format!("{:#010x}", port::CAPABILITIES));
    port("pkeys/0", format!("{:#06x}", port::PKEY));
}

fn of_gids(files: &mut Files, gids: &[ibv_gid], interface: Option<&str>) {
    for (at, gid) in gids.iter().enumerate() {
        add(files, format!("ports/1/gids/{at}"), gid_text(gid));
        add(files, format!("ports/1/gid_attrs/types/{at}"), port::gid_kind().1);
        if let Some(interface) = interface {
            add(files, format!("ports/1/gid_attrs/ndevs/{at}"), interface);
        }
    }
}

fn of_counters(files: &mut Files, engine: Option<&Engine>) {
    for name in NO_WIRE {
        add(files, format!("ports/1/counters/{name}"), 0);
    }
    for (name, count) in engine.map(Engine::datagram_counts).unwrap_or_default() {
        add(files, format!("ports/1/hw_counters/{name}"), count);
    }
}

/// A GID as eight groups, all written out.
fn gid_text(gid: &ibv_gid) -> String {
    let groups = gid.raw.chunks_exact(2).map(|two| format!("{:02x}{:02x}", two[0], two[1]));
    groups.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a device that is not opened has the files that programs read. Method: checks each name, and the text unless it depends on this
    /// machine.
    #[test]
    fn a_device_that_is_not_opened_has_its_files() {
        let files = files(0).expect("a device");
        let text = |name: &str| files.get(name).cloned().flatten().unwrap_or_default();
        for (name, expected) in [
            ("node_type", "1: CA\n"),
            ("hca_type", "nicety shm\n"),
            ("board_id", "NCY_shm\n"),
            ("hw_rev", "0\n"),
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/phys_state", "5: LinkUp\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            ("ports/1/lid", "0x0\n"),
            ("ports/1/lid_mask_count", "0\n"),
            ("ports/1/sm_lid", "0x0\n"),
            ("ports/1/sm_sl", "0\n"),
            ("ports/1/cap_mask", "0x04010000\n"),
            ("ports/1/pkeys/0", "0xffff\n"),
            ("ports/1/gids/0", "fe80:0000:0000:0000:7f00:0001:0000:0000\n"),
            ("ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001\n"),
            ("ports/1/gid_attrs/types/1", "RoCE v2\n"),
            ("ports/1/gid_attrs/ndevs/1", "lo\n"),
            ("ports/1/counters/link_downed", "0\n"),
        ] {
            assert_eq!(text(name), expected, "{name}");
        }
        assert!(text("node_desc").ends_with(" nicety0\n"));
        assert_eq!(text("node_guid").len(), "0000:0000:0000:0000\n".len());
        assert_eq!(files.get("device/net/lo"), Some(&None));
        assert!(!files.contains_key("ports/1/counters/port_xmit_data"), "nobody counts that");
        assert!(super::files(1).is_none());
    }
}
