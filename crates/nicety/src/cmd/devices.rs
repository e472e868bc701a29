//! `nicety devices`: lists the devices, their purpose, and whether they work on this machine.

use std::fmt::Write as _;

use fabric::{Baseline, DeviceInfo, Reach};
use host::Bytes;
use serde::Serialize;
use verbs::{Access, AtomicCap, DeviceAttr, DmAccess, FirmwareCap, WriteOrder};

use crate::args::DevicesArgs;
use crate::error::{OK, Outcome};
use crate::term::{Paint, Stream, wrap};

/// Type and version of the JSON.
const SCHEMA: &str = "nicety-devices/1";
/// The indentation of text below a device's name.
const MARGIN: usize = 4;

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    devices: Vec<ListedDevice>,
}

#[derive(Serialize)]
struct ListedDevice {
    name: String,
    about: String,
    options: Vec<[&'static str; 2]>,
    available: bool,
    why_not: Option<String>,
    /// What the device chose when it was opened, and why.
    notes: Vec<String>,
    limits: Vec<Limit>,
}

/// A limit or property of a device.
#[derive(Serialize)]
pub(crate) struct Limit {
    name: &'static str,
    #[serde(skip)]
    about: &'static str,
    value: serde_json::Value,
    #[serde(skip)]
    text: String,
}

/// Lists the devices.
///
/// # Errors
/// Output that cannot be written.
pub(crate) fn run(args: &DevicesArgs) -> Outcome {
    let devices: Vec<ListedDevice> = fabric::list()
        .into_iter()
        .chain([rails(), faults(), traced(), checked()])
        .map(open_and_describe)
        .collect();
    let (width, colour) = (Stream::Out.width(), Stream::Out.colour());
    if args.json {
        Stream::Out.json(&Document { schema: SCHEMA, devices })?;
    } else if args.verbose {
        Stream::Out.print(&details(&devices, width, colour))?;
    } else {
        Stream::Out.print(&screen(&devices, width, colour))?;
    }
    Ok(OK)
}

/// A representative entry for rails: their number is unlimited, as they combine other devices.
fn rails() -> DeviceInfo {
    DeviceInfo {
        name: "rails(shm,shm)".to_owned(),
        about: "devices of one kind as one; rails(iwarp@A,iwarp@B)".to_owned(),
        options: fabric::rails_options(),
        reach: Reach::Host,
        baseline: Baseline::Memory,
        available: Ok(()),
    }
}

/// A representative entry for devices with faults.
fn faults() -> DeviceInfo {
    DeviceInfo {
        name: "faults(shm)".to_owned(),
        about: "any device, whose requests fail by rules; faults(iwarp@A,rules=FILE)".to_owned(),
        options: fabric::faults_options(),
        reach: Reach::Host,
        baseline: Baseline::Memory,
        available: Ok(()),
    }
}

/// A representative entry for devices whose use is recorded.
fn traced() -> DeviceInfo {
    DeviceInfo {
        name: "trace(shm)".to_owned(),
        about: "any device, whose use is recorded or counted; trace(iwarp@A,file=FILE)".to_owned(),
        options: fabric::trace_options(),
        ..faults()
    }
}

/// A representative entry for devices whose use is checked.
fn checked() -> DeviceInfo {
    DeviceInfo {
        name: "check(shm)".to_owned(),
        about: "any device, wrong uses of which are reported; check(iwarp@A,strict=on)".to_owned(),
        options: fabric::check_options(),
        ..faults()
    }
}

/// Opens a device to find out whether it works and what it can do.
fn open_and_describe(entry: DeviceInfo) -> ListedDevice {
    let DeviceInfo { name, about, options, baseline, available, .. } = entry;
    let opened = available.and_then(|()| fabric::attr(&name).map_err(|why| why.to_string()));
    let (attr, why_not) = match opened {
        Ok(attr) => (Some(attr), None),
        Err(why) => (None, Some(why)),
    };
    let mut notes = attr.as_ref().map(|attr| attr.notes.clone()).unwrap_or_default();
    // The machine's network settings affect devices that use sockets.
    if baseline == Baseline::Sockets {
        notes.extend(crate::doctor::network::notes(&crate::doctor::System::real()));
    }
    ListedDevice {
        name,
        about,
        options: options.into_iter().map(|(form, meaning)| [form, meaning]).collect(),
        available: attr.is_some(),
        why_not,
        notes,
        limits: attr.as_ref().map(limits).unwrap_or_default(),
    }
}

/// The limits of a device, in the order in which they are shown.
pub(crate) fn limits(attr: &DeviceAttr) -> Vec<Limit> {
    let count = |name, about, n: u64| Limit { name, about, value: n.into(), text: n.to_string() };
    let bytes = |name, about, n: u64| Limit { name, about, value: n.into(), text: Bytes(n).to_string() };
    let words = |name, about, text: &str| Limit { name, about, value: text.into(), text: text.to_owned() };
    let mut all = vec![
        count("max_qp", "queue pairs", attr.max_qp.into()),
        count("max_qp_wr", "work requests in one queue", attr.max_qp_wr.into()),
        count("max_sge", "pieces in one request", attr.max_sge.into()),
        bytes("max_inline", "inline data in one request", attr.max_inline.into()),
        count("max_cq", "completion queues", attr.max_cq.into()),
        count("max_cqe", "entries of one completion queue", attr.max_cqe.into()),
        count("max_mr", "memory regions", attr.max_mr.into()),
        bytes("max_mr_size", "one memory region", attr.max_mr_size),
        bytes("max_msg_size", "one message", attr.max_msg_size),
        count("max_srq", "shared receive queues", attr.max_srq.into()),
        count("max_srq_wr", "work requests in one shared receive queue", attr.max_srq_wr.into()),
        bytes(
            "max_private_data",
            "private data of a connect, accept or reject",
            attr.max_private_data.into(),
        ),
        count("max_rd_atomic", "outstanding reads and atomics of a queue pair", attr.max_rd_atomic.into()),
        bytes("max_dm_size", "NIC memory", attr.max_dm_size),
        words("atomic_cap", "atomics on host memory", atomics(attr.atomic_cap)),
        words("atomic_cap_dm", "atomics on NIC memory", atomics(attr.atomic_cap_dm)),
        words("implicit_mr", "regions of all memory", implicit(attr.implicit_mr)),
        words("write_order", "the last byte of a write into host memory", order(attr.write_order)),
        words("write_order_dm", "the last byte of a write into NIC memory", order(attr.write_order_dm)),
        words("dm_access", "the processor's access to NIC memory", dm_access(attr.dm_access)),
        words("firmware", "programs that the NIC runs itself", &firmware(attr.firmware)),
        words("write_notify", "writes that notify", if attr.write_notify { "yes" } else { "no" }),
        words("maps_peers", "peers' memory mapped", if attr.maps_peers { "yes" } else { "no" }),
        count("ports", "ports", attr.ports.into()),
    ];
    if let Some(rate) = attr.link_rate {
        all.push(Limit { name: "link_rate", about: "link", value: rate.0.into(), text: rate.to_string() });
    }
    all
}

/// For whose requests a region of all memory can be used.
fn implicit(rights: Option<Access>) -> &'static str {
    match rights {
        None => "none",
        Some(rights) if rights.contains(Access::ALL) => "for peers, too",
        Some(_) => "for own requests",
    }
}

/// Whether programs can run on the card, and their limits.
fn firmware(cap: Option<FirmwareCap>) -> String {
    let Some(cap) = cap else { return "none".to_owned() };
    let (command, header) = (Bytes(cap.max_command.into()), Bytes(cap.max_header.into()));
    format!("yes; commands of {command}, messages of {header} and {} of payload", Bytes(cap.max_payload))
}

/// When the last byte of a write is seen, in relation to its other bytes.
fn order(order: WriteOrder) -> &'static str {
    match order {
        WriteOrder::None => "says nothing of the others",
        WriteOrder::LastByteLast => "is seen last",
    }
}

/// How a process accesses memory of the card.
fn dm_access(access: DmAccess) -> &'static str {
    match access {
        DmAccess::None => "none",
        DmAccess::Copy => "copies",
        DmAccess::Coherent => "load and store",
    }
}

/// With what else atomic operations are atomic.
fn atomics(cap: AtomicCap) -> &'static str {
    match cap {
        AtomicCap::None => "none",
        AtomicCap::Hca => "atomic among this device's queue pairs",
        AtomicCap::Global => "atomic for processors too",
    }
}

/// One line for each device, cut at the width: real devices, then simulated ones; then the reasons why devices do not work
/// here.
fn screen(devices: &[ListedDevice], width: usize, colour: bool) -> String {
    let column = devices.iter().map(|device| device.name.len()).max().unwrap_or(0);
    let room = MARGIN + column;
    let mut out = String::new();
    for (title, simulated) in [("Devices of this machine", false), ("Modelled cards, in virtual time", true)]
    {
        let _ = writeln!(out, "{}", Paint::Strong.on(title, colour));
        // A device with something in front of it is another device of the list; the details of `-v` describe it.
        let is_shown = |device: &&ListedDevice| {
            fabric::is_virtual(&device.name) == simulated && !fabric::is_wrapped(&device.name)
        };
        for device in devices.iter().filter(is_shown) {
            let about = device.about.strip_prefix("a model, in virtual time: ").unwrap_or(&device.about);
            let text = match &device.why_not {
                None => shorten(about, width.saturating_sub(room)),
                // Most machines have no card; the details of `-v` say what was tried.
                Some(why) if device.name == "hw" => {
                    shorten(&format!("not available: {why}"), width.saturating_sub(room))
                }
                Some(why) => Paint::Bad.on(&wrap(&format!("not available: {why}"), room, width), colour),
            };
            let _ = writeln!(out, "  {:<column$}  {text}", device.name);
        }
    }
    out + &examples(devices) + "Options, limits, and what each chose and why: nicety devices -v\n"
}

/// Cuts a text after a word, so that it fits into this many columns.
fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let first: String = text.chars().take(width.saturating_sub(2)).collect();
    let whole = first.rsplit_once(' ').map_or(first.as_str(), |(whole, _)| whole);
    format!("{}...", whole.trim_end_matches([',', ';']))
}

/// All limits of the devices.
fn details(devices: &[ListedDevice], width: usize, colour: bool) -> String {
    let mut out = String::new();
    let margin = " ".repeat(MARGIN);
    for device in devices {
        let state = match &device.why_not {
            None => Paint::Good.on("available", colour),
            Some(_) => Paint::Bad.on("not available", colour),
        };
        let _ = writeln!(out, "{}  {state}", Paint::Strong.on(&device.name, colour));
        let _ = writeln!(out, "{margin}{}", wrap(&device.about, MARGIN, width));
        for text in device.why_not.iter().chain(&device.notes) {
            let _ = writeln!(out, "{margin}{}", wrap(text, MARGIN, width));
        }
        let column = device.options.iter().map(|[form, _]| form.len()).max().unwrap_or(0);
        for [form, meaning] in &device.options {
            let room = MARGIN + 2 + column + 2;
            let _ = writeln!(out, "{margin}  {form:<column$}  {}", wrap(meaning, room, width));
        }
        limit_lines(&mut out, &device.limits, width);
    }
    out + &examples(devices)
}

/// Example commands that measure a device, with and without an option.
fn examples(devices: &[ListedDevice]) -> String {
    let mut out = String::new();
    if let Some(device) = devices.iter().find(|device| device.available) {
        let _ = writeln!(out, "\nMeasure one: nicety bench --device {}", device.name);
        if let Some(option) = device.options.iter().find_map(|[form, _]| example(form)) {
            let _ = writeln!(out, "With an option: nicety bench --device '{}({option})'", device.name);
        }
    }
    out
}

/// For an option with several possible words, such as `copy=auto|kernel|service`, the option with its last word.
fn example(form: &str) -> Option<String> {
    let (name, values) = form.split_once('=')?;
    let last = values.rsplit_once('|')?.1;
    last.chars().all(|c| c.is_ascii_lowercase()).then(|| format!("{name}={last}"))
}

/// A line for each limit, with names and values in columns.
fn limit_lines(out: &mut String, limits: &[Limit], width: usize) {
    let widest = |text: fn(&Limit) -> usize| limits.iter().map(text).max().unwrap_or(0);
    let (name, value) =
        (widest(|l| l.name.len()), widest(|l| if l.value.is_string() { 0 } else { l.text.len() }));
    for limit in limits {
        let room = MARGIN + 2 + name + 2 + value + 2;
        let text = if limit.value.is_string() {
            wrap(&format!("{}: {}", limit.about, limit.text), room, width)
        } else {
            wrap(limit.about, room, width)
        };
        let number = if limit.value.is_string() { "" } else { limit.text.as_str() };
        let _ = writeln!(out, "      {:<name$}  {number:>value$}  {text}", limit.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, why_not: Option<&str>) -> ListedDevice {
        ListedDevice {
            name: name.to_owned(),
            about: "sends, receives, and much more than one would think of at first sight".to_owned(),
            options: Vec::new(),
            available: why_not.is_none(),
            why_not: why_not.map(str::to_owned),
            notes: Vec::new(),
            limits: Vec::new(),
        }
    }

    #[test]
    fn reason_of_an_unusable_device_is_shown_in_full() {
        let why = "no address of this host is an address of this host; give it one with ip addr add";
        let devices = [listed("shm", None), listed("iwarp", Some(why)), listed("hw", Some(why))];
        let text = screen(&devices, 60, false);
        assert!(text.contains("\n  shm    sends, receives, and much more than one would...\n"), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("iwarp not available: {why}")), "{text}");
        assert!(text.contains("\n  hw     not available: no address of this host is an...\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 63), "{text}");
    }

    #[test]
    fn texts_are_shortened_after_a_word() {
        assert_eq!(shorten("one two", 7), "one two");
        assert_eq!(shorten("one, two three", 10), "one...");
        assert_eq!(shorten("one two three", 10), "one two...");
    }

    #[test]
    fn firmware_programs_are_shown_as_limits_or_none() {
        assert_eq!(firmware(None), "none");
        let cap = FirmwareCap { max_command: 64, max_header: 128, max_payload: 1 << 30, max_waiting: 8 };
        assert_eq!(firmware(Some(cap)), "yes; commands of 64 B, messages of 128 B and 1 GiB of payload");
    }
}
