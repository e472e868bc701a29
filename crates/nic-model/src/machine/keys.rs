//! The table of all values that describe a machine: name, unit, range, meaning. Files, options, errors and
//! lists of parameters use this table.

use std::fmt;

/// A value of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An amount, in the key's unit.
    Number(f64),
    /// A boolean.
    Flag(bool),
    /// One of the names that the key allows.
    Choice(&'static str),
}

impl Value {
    /// The value as a number, for lists: 1 for true; 0 for false and for names.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            Self::Flag(flag) => f64::from(u8::from(flag)),
            Self::Choice(_) => 0.0,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Choice(name) => name.fmt(f),
        }
    }
}

/// The permitted values of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// An amount in a range.
    Number {
        /// Its unit, in words.
        unit: &'static str,
        /// The smallest permitted value.
        min: f64,
        /// The largest permitted value.
        max: f64,
    },
    /// `true` or `false`.
    Flag,
    /// A name from this list.
    Choice(&'static [&'static str]),
}

/// A key of machine files.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section: the component of the card.
    pub section: &'static str,
    /// Its name in the section. It ends in the unit of an amount, in `flag`, or in `kind`.
    pub name: &'static str,
    /// The permitted values.
    pub domain: Domain,
    /// A description.
    pub meaning: &'static str,
    /// The value if the file does not give one; `None` if a file must give it.
    pub default: Option<Value>,
    pub(crate) get: fn(&Params) -> Value,
    /// Sets a value that the key [permits](Key::allows).
    pub(crate) set: fn(&mut Params, Value),
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.section, self.name) == (other.section, other.name)
    }
}

impl Eq for Key {}

impl Key {
    /// `section.name`, as options name it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Its unit, in words; empty if it is not an amount.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self.domain {
            Domain::Number { unit, .. } => unit,
            Domain::Flag | Domain::Choice(_) => "",
        }
    }

    /// Whether it is a count, which has no fraction.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        const MEASURED: [&str; 7] = ["_ns", "_us", "_mhz", "_mbps", "_clocks", "_ratio", "_ps"];
        !MEASURED.iter().any(|suffix| self.name.ends_with(suffix))
    }

    /// Whether it permits this value.
    #[must_use]
    pub fn allows(&self, value: Value) -> bool {
        match (self.domain, value) {
            (Domain::Number { min, max, .. }, Value::Number(v)) => {
                v.is_finite() && v >= min && v <= max && !(self.is_whole() && v.fract() != 0.0)
            }
            (Domain::Flag, Value::Flag(_)) => true,
            (Domain::Choice(names), Value::Choice(name)) => names.contains(&name),
            _ => false,
        }
    }

    /// Parses the value of an option; `None` if it is not permitted. A flag may be 1 or 0 there.
    #[must_use]
    pub fn read(&self, text: &str) -> Option<Value> {
        let value = match self.domain {
            Domain::Number { .. } => Value::Number(text.replace('_', "").parse().ok()?),
            Domain::Flag => Value::Flag(match text {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return None,
            }),
            Domain::Choice(names) => Value::Choice(names.iter().find(|name| **name == text)?),
        };
        self.allows(value).then_some(value)
    }

    /// The permitted values, for errors: `1 to 10000 MHz`.
    #[must_use]
    pub fn expected(&self) -> String {
        match self.domain {
            Domain::Number { unit, min, max } => {
                let whole = if self.is_whole() { "a whole number, " } else { "" };
                format!("{whole}{min} to {max} {unit}")
            }
            Domain::Flag => "true or false".to_owned(),
            Domain::Choice(names) => names.join(" or "),
        }
    }
}

/// A type of a machine's values.
trait Field: Copy {
    /// The permitted values; amounts get their range from the table.
    const DOMAIN: Domain;
    fn value(self) -> Value;
    /// The value; unchanged if `value` has another type.
    fn replaced_by(self, value: Value) -> Self;
}

impl Field for f64 {
    const DOMAIN: Domain = Domain::Number { unit: "", min: Self::MIN, max: Self::MAX };

    fn value(self) -> Value {
        Value::Number(self)
    }

    fn replaced_by(self, value: Value) -> Self {
        if let Value::Number(number) = value { number } else { self }
    }
}

impl Field for bool {
    const DOMAIN: Domain = Domain::Flag;

    fn value(self) -> Value {
        Value::Flag(self)
    }

    fn replaced_by(self, value: Value) -> Self {
        if let Value::Flag(flag) = value { flag } else { self }
    }
}

macro_rules! choices {
    ($($(#[doc = $about:literal])* $Choice:ident { $($(#[doc = $meaning:literal])* $Name:ident $name:literal,)* })*) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $Choice {
            #[default]
            $($(#[doc = $meaning])* $Name,)*
        }

        impl Field for $Choice {
            const DOMAIN: Domain = Domain::Choice(&[$($name),*]);

            fn value(self) -> Value {
                match self { $(Self::$Name => Value::Choice($name),)* }
            }

            fn replaced_by(self, value: Value) -> Self {
                match value { $(Value::Choice($name) => Self::$Name,)* _ => self }
            }
        }
    )*};
}

choices! {
    /// How a write with immediate data is sent.
    WriteImmKind {
        /// As one request.
        Single "single",
        /// As a write, followed by a message of its own.
        Split "split",
    }
    /// The processors of a transport engine.
    ProcessorsKind {
        /// One processor for each direction.
        Separate "separate",
        /// One processor for both directions.
        Shared "shared",
    }
    /// Which processor runs the firmware loaded into a card, which matches messages.
    MatchKind {
        /// The card's processor.
        Nic "nic",
        /// The host's kernel, which the card interrupts.
        Host "host",
    }
    /// What happens to messages for which a card has no room.
    FlowKind {
        /// They are lost.
        None "none",
        /// The target's card refuses them, and the initiator's retransmits them in order.
        Corpse "corpse",
        /// As `Corpse`, but between the hosts' kernels.
        Cop "cop",
    }
}

/// The family of cards that a machine file describes; it determines the permitted sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Queue pairs: InfiniBand and its predecessors.
    #[default]
    QueuePairs,
    /// Firmware on the card, and a mesh of routers: SeaStar. Its files have a section `firmware`.
    Mesh,
}

impl Family {
    /// The family of a file with these sections.
    pub(super) fn of_sections<'a>(mut sections: impl Iterator<Item = &'a str>) -> Self {
        if sections.any(|section| section == "firmware") { Self::Mesh } else { Self::QueuePairs }
    }

    /// Whether its files may have a section.
    #[must_use]
    pub fn has(self, section: &str) -> bool {
        const MESH: [&str; 6] = ["mode", "processor", "kernel", "hypertransport", "firmware", "router"];
        match section {
            "software" => true,
            other => MESH.contains(&other) == (self == Self::Mesh),
        }
    }
}

macro_rules! keys {
    ($($(#[doc = $about:literal])* $section:ident $Section:ident {
        $($name:ident $($Kind:ident)? $($unit:literal $min:literal .. $max:literal)? $(= $default:literal)?
            : $meaning:literal;)*
    })*) => {
        $($(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $Section {
            $(#[doc = $meaning] pub $name: keys!(@type $($Kind)?),)*
        })*

        /// All values of a machine, by component.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Params {
            $($(#[doc = $about])* pub $section: $Section,)*
        }

        /// All values, in the order of machine files.
        pub static KEYS: &[Key] = &[$($(Key {
            section: stringify!($section),
            name: stringify!($name),
            domain: keys!(@domain $($Kind)? $($unit $min $max)?),
            meaning: $meaning,
            default: keys!(@default [$($Kind)?] $($default)?),
            get: |p| p.$section.$name.value(),
            set: |p, v| p.$section.$name = p.$section.$name.replaced_by(v),
        },)*)*];
    };
    (@type) => { f64 };
    (@type $Kind:ident) => { $Kind };
    (@domain $unit:literal $min:literal $max:literal) => {
        Domain::Number { unit: $unit, min: $min as f64, max: $max as f64 }
    };
    (@domain $Kind:ident) => { <$Kind as Field>::DOMAIN };
    (@default [$($Kind:ident)?]) => { None };
    (@default [] $default:literal) => { Some(Value::Number($default as f64)) };
    (@default [bool] $default:literal) => { Some(Value::Flag($default)) };
}

keys! {
    /// Processor costs of calls.
    host Host {
        post_send_ns "ns" 0..1_000_000: "posting a send request of one piece, including the doorbell";
        post_receive_ns "ns" 0..1_000_000: "posting a receive of one piece";
        post_segment_ns "ns" 0..1_000_000: "each further piece of a request";
        poll_full_ns "ns" 0..1_000_000: "a poll that finds a completion";
        poll_empty_ns "ns" 1..1_000_000: "a poll that finds none";
        register_ns "ns" 0..1_000_000_000: "registering memory of one page";
        register_page_ns "ns" 0..1_000_000: "each further page of it";
        deregister_ns "ns" 0..1_000_000_000: "deregistering memory of one page";
        deregister_page_ns "ns" 0..1_000_000: "each further page of it";
        connect_ns "ns" 0..1_000_000_000: "connecting a queue pair, at either end";
        destroy_ns "ns" 0..1_000_000_000: "destroying a queue pair";
        poll_word_ns "ns" 1..1_000_000: "one poll of a memory word that has not changed";
        copy_ns "ns" 0..1_000_000: "a copy by the processor, independent of its length";
        copy_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate of copies by the processor";
        thread_ns "ns" 0..1_000_000_000 = 0: "starting a thread and joining it later, for the calling thread";
        wake_ns "ns" 0..1_000_000_000 = 0: "waking up: a thread finds a completion after an empty poll of the same queue";
        card_count "cards" 1..4 = 1: "cards of this kind in a machine";
    }
    /// Processor costs of libraries above the card, per step; zero unless a file gives them.
    software Software {
        call_ns "ns" 0..1_000_000 = 0: "a program's call of a library";
        request_ns "ns" 0..1_000_000 = 0: "starting or completing a request of a library";
        match_ns "ns" 0..1_000_000 = 0: "comparing one list entry for a match";
        event_ns "ns" 0..1_000_000 = 0: "returning one event";
        wake_ns "ns" 0..1_000_000_000 = 0: "waking up: a library's wait that has slept returns";
        turn_ns "ns" 0..1_000_000_000 = 0: "switching: a thread's wait returns an event of another adapter than its last one";
    }
    /// Notifying the card of new requests.
    doorbell Doorbell {
        pio_clocks "clocks of the bus" 0..10_000: "the processor's write to the card, on the bus";
        latency_ns "ns" 0..1_000_000: "from the bus to the card's scheduler";
        drain_ns "ns" 0..1_000_000 = 0: "until the card accepts another such write; the processor waits";
    }
    /// Fetching descriptors from host memory.
    descriptor Descriptor {
        send_bytes "bytes" 1..4096: "descriptor of a send request without pieces";
        receive_bytes "bytes" 1..4096: "descriptor of a receive without pieces";
        segment_bytes "bytes" 0..4096: "each piece in a descriptor";
        ahead_requests "requests" 1..1024: "requests fetched before earlier ones have begun";
        pushed_flag bool: "the processor writes descriptors to the card, which fetches none";
        idle_flag bool = false: "prefetch descriptors only while the engine waits for a message's first read, or has nothing to read";
        limit_flag bool: "a descriptor has room for as many pieces as its queue allows, not only for its own";
        merge_send_bytes "bytes" 0..4096: "data of shorter sends are in the descriptor";
        merge_write_bytes "bytes" 0..4096: "data of shorter writes are in the descriptor";
    }
    /// The host bus: one transfer at a time, or one in each direction.
    bus Bus {
        width_bytes "bytes" 1..1024: "data moved per clock";
        clock_mhz "MHz" 1..10_000: "clock";
        burst_bytes "bytes" 8..65_536: "longest burst";
        boundary_bytes "bytes" 1..65_536: "where a burst may be cut: the part left to write when a packet's end arrives";
        read_overhead_clocks "clocks" 0..10_000: "in addition to the data of a burst that the card reads";
        write_overhead_clocks "clocks" 0..10_000: "in addition to the data of a burst that the card writes";
        duplex_flag bool = false: "reads and writes have separate directions, as on PCI Express; otherwise they share one";
        other_ratio "of 1" 0..1 = 0: "share of a transfer's time during which the other direction is busy, too";
    }
    /// The card's DMA engine.
    dma Dma {
        outstanding_requests "requests" 1..1024: "burst reads in flight";
        read_latency_ns "ns" 0..1_000_000: "of a read, in addition to its time on the bus";
        write_latency_ns "ns" 0..1_000_000: "from the end of a write on the bus until the processor sees it";
        first_alone_flag bool = false: "the engine waits for a message's first read from host memory before it requests more";
        port_switch_ns "ns" 0..100_000: "when a packet is read for another port than the previous one";
        message_gap_ns "ns" 0..1_000_000 = 0: "least time between the starts of two messages of a queue pair, in addition to the first read request";
        context_flag bool = false: "incoming messages take turns with outgoing ones, for each queue pair";
        request_bytes "bytes" 0..65_536 = 0: "of a message's first read request, for which the next message waits";
    }
    /// The resources that all cards of a machine share: chipset and memory.
    chipset Chipset {
        read_mbps "MB/s (10^6 bytes)" 0..1_000_000 = 0: "of reads by all cards together; 0: unlimited";
        write_mbps "MB/s (10^6 bytes)" 0..1_000_000 = 0: "of writes by all cards together, shared with reads; 0: unlimited";
        awake_threads "threads" 1..64 = 1: "with this many running threads or more all processors are awake";
        asleep_ratio "of 1" 0.01..1 = 1: "speed of cards' accesses to the host while fewer threads run";
        memory_mbps "MB/s (10^6 bytes)" 1..1_000_000 = 10_000: "of host memory, if its banks are modelled";
        banks_rows "rows" 0..65_536 = 0: "open rows of memory, one per bank; 0: banks are not modelled";
        row_bytes "bytes" 0..1_048_576 = 0: "of an open row, over all channels";
        cycle_ns "ns" 0..100_000 = 0: "from one opening of a bank's row to the next";
    }
    /// The card's own memory: one interface for reads and writes.
    nic_memory NicMemory {
        size_mib "MiB (2^20 bytes)" 0..65_536: "memory for programs";
        rate_mbps "MB/s (10^6 bytes)" 1..1_000_000: "peak of reads and writes together";
        efficiency_ratio "of 1" 0.01..1: "share of the peak that transfers of packets reach";
        open_ns "ns" 0..100_000 = 0: "for each packet read or written, which opens another row";
        latency_ns "ns" 0..1_000_000: "to the first byte";
        port_switch_ns "ns" 0..100_000: "when a packet belongs to another port than the previous one";
    }
    /// The transport engine: one for all ports.
    transport Transport {
        send_request_ns "ns" 0..1_000_000: "each request, at its start";
        send_segment_ns "ns" 0..1_000_000: "each further piece in a packet";
        send_packet_ns "ns" 0..1_000_000: "each packet sent";
        ports_mbps "MB/s (10^6 bytes)" 1..1_000_000: "from the engine to all ports together";
        latency_ns "ns" 0..1_000_000: "through either side of the engine, in addition to a packet's processing";
        processors_kind ProcessorsKind: "shared: one processor sends and receives in turn; separate: one for each";
        whole_flag bool: "packets are processed only when they have arrived completely";
        address_ns "ns" 0..1_000_000: "at either end of a request that names memory of the peer";
        receive_message_ns "ns" 0..1_000_000: "each message that takes a receive: after its data, unless one processor does everything";
        receive_packet_ns "ns" 0..1_000_000: "each packet that arrives";
        ack_ns "ns" 0..1_000_000: "each acknowledgement that arrives";
        begun_requests "requests" 1..16_384: "maximum number of requests of a queue pair that have begun and are not acknowledged";
        reads_requests "requests" 1..128: "maximum number of reads and atomics of a queue pair in flight";
        retry_timeout_us "us" 10..10_000_000: "without an answer, until packets are retransmitted";
        retry_count "retries" 0..7: "in a row, until a connection fails";
    }
    /// The translation cache for pages of host memory.
    translation Translation {
        cache_entries "entries" 0..1_000_000 = 0: "cached pages, first in first out; 0: unlimited";
        page_bytes "bytes" 512..1_073_741_824: "size of a page";
        entry_bytes "bytes" 1..4096: "read from host memory for a missing page";
        miss_ns "ns" 0..1_000_000: "for which the engine stalls at a missing page, in addition to the bus";
    }
    /// The ports, and a cable at each.
    link Link {
        port_count "ports" 1..2: "ports of a card";
        rate_mbps "MB/s (10^6 bytes)" 1..1_000_000: "of data in one direction, without line coding";
        mtu_bytes "bytes" 256..65_536: "maximum data in a packet";
        header_bytes "bytes" 0..1024: "headers and checksums of each packet";
        address_bytes "bytes" 0..1024: "additional header of a packet with a memory address";
        gap_bytes "bytes" 0..4096 = 0: "time between packets, in bytes";
        ack_bytes "bytes" 0..1024: "an acknowledgement, with its gap";
        latency_ns "ns" 0..1_000_000: "of a cable, including both ends";
        send_packets "packets" 1..1024: "read ahead of the wire, per port";
        receive_packets "packets" 1..1024: "in flight to a port or queued there: its credits";
    }
    /// The switch between the cards.
    switch Switch {
        latency_ns "ns" 0..1_000_000: "from the arrival of a packet's head to its departure";
    }
    /// Completions.
    completion Completion {
        entry_bytes "bytes" 1..4096: "written to host memory per completion";
        fetch_ns "ns" 0..1_000_000: "the part of dma.write_latency_ns in which the processor fetches the entry, which a poll's cost includes";
        notify_flag bool = false: "the processor writes to the card, over the bus, after it has polled completions or posted a receive";
    }
    /// Sleeping until a completion.
    interrupt Interrupt {
        latency_ns "ns" 0..1_000_000_000: "from the completion to the event";
        wake_up_ns "ns" 0..1_000_000_000: "from the event until the sleeping call continues, for each thread";
        woken_threads "threads" 1..8: "woken one after the other until the call continues";
    }
    /// TCP in the host's kernel, for cards without offload; zero unless a file gives it.
    tcp Tcp {
        interrupt_ns "ns" 0..1_000_000_000 = 0: "from a segment's arrival until the kernel processes it, unless it still processes others";
        segment_ns "ns" 0..1_000_000 = 0: "each segment that arrives: one after the other, for the whole machine";
        send_segment_ns "ns" 0..1_000_000 = 0: "each segment of a message, for the processor that sends it";
        byte_ps "ps" 0..1_000_000 = 0: "each byte that a call copies between program and kernel";
        head_calls "calls" 0..16 = 0: "by which a library receives a message's header, before those for its data";
        buffer_bytes "bytes" 0..1_073_741_824 = 0: "of the kernel's socket buffer; one call returns at most half of it; 0: unlimited";
    }
    /// Features of the interface.
    api Api {
        atomics_flag bool: "atomics are supported";
        shared_receives_flag bool: "shared receive queues are supported";
        write_imm_kind WriteImmKind: "single: a write with immediate data is one request; split: a separate message follows its data";
    }
    /// The connection manager.
    connection Connection {
        message_us "us" 0.1..1_000_000: "one-way latency of a message between connection managers";
        lost_after_us "us" 1..60_000_000: "until a connection manager ends the connections of an unreachable peer";
    }
    /// How cards that run firmware are used.
    mode Mode {
        match_kind MatchKind: "nic: the card's processor runs the firmware; host: the kernel does";
        flow_kind FlowKind: "what happens to messages for which a card has no room: none (lost), corpse (cards retransmit), cop (kernels retransmit)";
    }
    /// The processor of a host, as programs use it.
    processor Processor {
        poll_word_ns "ns" 1..1_000_000: "one poll of a memory word that has not changed";
        copy_ns "ns" 0..1_000_000: "a copy by the processor, independent of its length";
        copy_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate of copies by the processor";
    }
    /// The kernel of a host.
    kernel Kernel {
        trap_ns "ns" 0..1_000_000: "a program's call into the kernel, and back";
        call_ns "ns" 0..1_000_000: "the work of a call in the kernel";
        transmit_ns "ns" 0..1_000_000: "a message that the kernel sends by the card";
        receive_ns "ns" 0..1_000_000: "a message of which the card notifies the kernel, without matching";
        deposit_ns "ns" 0..1_000_000: "giving the card the destination of a message";
        word_ns "ns" 0..1_000_000: "each eight bytes that the kernel writes for a program: of an event, or of a reply";
        match_ns "ns" 0..1_000_000: "comparing one list entry for a match";
        protocol_ns "ns" 0..1_000_000: "an acknowledgement of its flow control, at either end";
        number_ns "ns" 0..1_000_000: "assigning or checking the number of a message";
        interrupt_ns "ns" 0..1_000_000: "from an interrupt until its handler runs, and the return";
        interrupt_reads "reads" 0..64: "of the card's memory that a handler waits for";
    }
    /// The connection between the host and its card.
    hypertransport HyperTransport {
        post_ns "ns" 0..1_000_000: "writing a command to the card's memory, for the processor";
        write_ns "ns" 0..1_000_000: "until either side sees a write of the other one";
        read_ns "ns" 0..1_000_000: "a read of the other side's memory, until its first byte arrives";
        read_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate at which the card reads host memory";
        write_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate at which the card writes host memory";
    }
    /// The processor on the card and its loop.
    firmware Firmware {
        turn_ns "ns" 1..1_000_000: "a turn of its loop, which polls for work";
        command_ns "ns" 0..1_000_000: "checking a command of an untrusted program";
        transmit_ns "ns" 0..1_000_000: "preparing a transmission";
        transmit_match_ns "ns" 0..1_000_000: "additional time if the card runs the firmware";
        receive_ns "ns" 0..1_000_000: "the header of a message that has arrived";
        receive_match_ns "ns" 0..1_000_000: "additional time if the card runs the firmware";
        deposit_ns "ns" 0..1_000_000: "preparing the destination of a message";
        complete_ns "ns" 0..1_000_000: "the end of a transfer";
        event_ns "ns" 0..1_000_000: "an event for the host";
        match_ns "ns" 0..1_000_000: "comparing one list entry for a match";
        protocol_ns "ns" 0..1_000_000: "an acknowledgement of its flow control, at either end";
        number_ns "ns" 0..1_000_000: "assigning or checking the number of a message";
        backoff_ns "ns" 0..1_000_000_000: "from a refusal until the message is retransmitted";
        pio_bytes "bytes" 0..4096: "up to this length data travel with the header, without a transfer of their own";
        stream_count "streams" 1..65_536: "long messages of different sources that can arrive at the same time";
        memory_kib "KiB (2^10 bytes)" 1..1_048_576: "memory of the card";
        image_kib "KiB (2^10 bytes)" 0..1_048_576: "of it, the card's own code";
        mailbox_kib "KiB (2^10 bytes)" 1..1_048_576: "of it, for each program that the card runs";
    }
    /// The routers, one on each card, and the cables between them.
    router Router {
        hop_ns "ns" 0..1_000_000: "a packet's head through a router and a cable";
        link_mbps "MB/s (10^6 bytes)" 1..1_000_000: "of data in one direction of a cable";
        packet_bytes "bytes" 8..65_536: "a packet; a header is one packet";
        x_nodes "nodes" 1..1024: "cards in the first dimension";
        y_nodes "nodes" 1..1024: "cards in the second dimension";
        z_nodes "nodes" 1..1024: "cards in the third dimension, in which neighbours have consecutive numbers";
        x_torus_flag bool: "the last card of a row is connected to the first one";
        y_torus_flag bool: "the same in the second dimension";
        z_torus_flag bool: "the same in the third dimension";
    }
    /// Injected faults; none by default.
    faults Faults {
        loss_ppm "packets per million" 0..1_000_000 = 0: "packets that are lost";
        delay_ns "ns" 0..1_000_000_000 = 0: "maximum random delay of a packet";
        stall_ppm "packets per million" 0..1_000_000 = 0: "packets at which a receiver stalls";
        stall_ns "ns" 0..1_000_000_000 = 0: "maximum random duration of a stall";
        cut_us "us" 0..1_000_000_000 = 0: "when a cable is cut; 0 for never";
        cut_for_us "us" 0..1_000_000_000 = 0: "time until it is repaired; 0 for never";
        cut_node "number of a machine" 0..1_000_000 = 0: "the machine whose cable is cut";
        cut_port "port" 1..8 = 1: "the port whose cable is cut; ports of further cards are counted on";
        death_us "us" 0..1_000_000_000 = 0: "when a machine dies; 0 for never";
        death_node "number of a machine" 0..1_000_000 = 0: "the machine that dies";
    }
}
