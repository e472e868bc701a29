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

/// The kind of card that a machine file describes; it determines the permitted sections.
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
    pub(super) fn of<'a>(mut sections: impl Iterator<Item = &'a str>) -> Self {
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
        post_send_ns "ns" 0..1_000_000: "posting a send request of one piece, doorbell included";
        post_receive_ns "ns" 0..1_000_000: "posting a receive of one piece";
        post_segment_ns "ns" 0..1_000_000: "each further piece of a request";
        poll_full_ns "ns" 0..1_000_000: "a poll that finds a completion";
        poll_empty_ns "ns" 1..1_000_000: "a poll that finds none";
        register_ns "ns" 0..1_000_000_000: "registering memory of one page";
        register_page_ns "ns" 0..1_000_000: "each further page of it";
        deregister_ns "ns" 0..1_000_000_000: "deregistering memory of one page";
        deregister_page_ns "ns" 0..1_000_000: "each further page of it";
        connect_ns "ns" 0..1_000_000_000: "bringing a queue pair to its connected state, at either end";
        destroy_ns "ns" 0..1_000_000_000: "destroying a queue pair";
        look_ns "ns" 1..1_000_000: "one look at memory that finds nothing new";
        copy_ns "ns" 0..1_000_000: "a copy by the processor, whatever its length";
        copy_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate of copies by the processor";
        thread_ns "ns" 0..1_000_000_000 = 0: "beginning a thread and joining it later, for the thread that does";
        wake_ns "ns" 0..1_000_000_000 = 0: "a thread that finds a completion where it has looked in vain: it slept";
        turn_ns "ns" 0..1_000_000_000 = 0: "a thread that finds a completion of another device than its last one";
        card_count "cards" 1..4 = 1: "cards of this kind in a machine";
    }
    /// Processor costs of libraries above the card, per step; zero unless a file gives them.
    software Software {
        call_ns "ns" 0..1_000_000 = 0: "a program's call into a library";
        request_ns "ns" 0..1_000_000 = 0: "making a request of a library's, or ending it";
        match_ns "ns" 0..1_000_000 = 0: "looking at one entry of a list for a match";
        event_ns "ns" 0..1_000_000 = 0: "handing out one event";
    }
    /// Notifying the card of new requests.
    doorbell Doorbell {
        pio_clocks "clocks of the bus" 0..10_000: "the processor's write to the card, on the bus";
        latency_ns "ns" 0..1_000_000: "from the bus to the card's scheduler";
        drain_ns "ns" 0..1_000_000 = 0: "until the card takes another such write; the processor waits";
    }
    /// Fetching descriptors from host memory.
    descriptor Descriptor {
        send_bytes "bytes" 1..4096: "descriptor of a send request without pieces";
        receive_bytes "bytes" 1..4096: "descriptor of a receive without pieces";
        segment_bytes "bytes" 0..4096: "each piece in a descriptor";
        ahead_requests "requests" 1..1024: "requests fetched before those in front of them are begun";
        pushed_flag bool: "the processor writes descriptors to the card, which fetches none";
        idle_flag bool = false: "fetched ahead only where the engine waits for a message's first read, or has nothing to read";
        limit_flag bool: "a descriptor has room for the pieces that its queue allows, not for those that it has";
        merge_send_bytes "bytes" 0..4096: "data of sends below this come within the descriptor";
        merge_write_bytes "bytes" 0..4096: "data of writes below this come within the descriptor";
    }
    /// The host bus: one transfer at a time, or one in each direction.
    bus Bus {
        width_bytes "bytes" 1..1024: "data moved in one clock";
        clock_mhz "MHz" 1..10_000: "clock";
        burst_bytes "bytes" 8..65_536: "longest burst";
        boundary_bytes "bytes" 1..65_536: "where a burst may be cut: what is left to write when a packet's end arrives";
        read_overhead_clocks "clocks" 0..10_000: "beside the data of a burst that the card reads";
        write_overhead_clocks "clocks" 0..10_000: "beside the data of a burst that the card writes";
        duplex_flag bool = false: "reads and writes have a direction each, as on PCI Express; otherwise they share one";
        other_ratio "of 1" 0..1 = 0: "share of a transfer's time that the other direction is kept busy by it, too";
    }
    /// The card's DMA engine.
    dma Dma {
        outstanding_requests "requests" 1..1024: "reads of a burst each that are under way at once";
        read_latency_ns "ns" 0..1_000_000: "of a read, beside the bus's time for its data";
        write_latency_ns "ns" 0..1_000_000: "from a write's turn on the bus until the processor sees it";
        first_alone_flag bool = false: "a message's first read from host memory is answered before the engine asks for more";
        port_switch_ns "ns" 0..100_000: "when a packet is read for another port than the one before";
        message_gap_ns "ns" 0..1_000_000 = 0: "from one message's beginning to that of the next one of its queue pair at least, beside its first request";
        context_flag bool = false: "messages that come in begin in turn with those that go out, for each queue pair";
        request_bytes "bytes" 0..65_536 = 0: "of a message's first read request, which the next message waits for";
    }
    /// The resources that all cards of a machine share: chipset and memory.
    chipset Chipset {
        read_mbps "MB/s (10^6 bytes)" 0..1_000_000 = 0: "of reads by all cards together; 0: no limit of its own";
        write_mbps "MB/s (10^6 bytes)" 0..1_000_000 = 0: "of writes by all cards together, which share it with reads; 0: none";
        awake_threads "threads" 1..64 = 1: "running threads from which on all processors are awake";
        asleep_ratio "of 1" 0.01..1 = 1: "speed of cards' accesses to the host while fewer threads run";
        memory_mbps "MB/s (10^6 bytes)" 1..1_000_000 = 10_000: "of its memory, where that is told apart by banks";
        banks_rows "rows" 0..65_536 = 0: "of memory that can be open at a time, one in each bank";
        row_bytes "bytes" 0..1_048_576 = 0: "of an open row, over all channels";
        cycle_ns "ns" 0..100_000 = 0: "from one opening of a bank's row to the next";
    }
    /// The card's own memory: one interface for reads and writes.
    nic_memory NicMemory {
        size_mib "MiB (2^20 bytes)" 0..65_536: "memory for programs";
        rate_mbps "MB/s (10^6 bytes)" 1..1_000_000: "peak of reads and writes together";
        efficiency_ratio "of 1" 0.01..1: "share of the peak that transfers of packets reach";
        open_ns "ns" 0..100_000 = 0: "of each packet that is read or written: another row is opened";
        latency_ns "ns" 0..1_000_000: "to the first byte";
        port_switch_ns "ns" 0..100_000: "when a packet belongs to another port than the one before";
    }
    /// The transport engine: one for all ports.
    transport Transport {
        send_request_ns "ns" 0..1_000_000: "each request that is begun";
        send_segment_ns "ns" 0..1_000_000: "each further piece in a packet";
        send_packet_ns "ns" 0..1_000_000: "each packet that is sent";
        ports_mbps "MB/s (10^6 bytes)" 1..1_000_000: "from the engine to all ports together";
        latency_ns "ns" 0..1_000_000: "through either side of the engine, beyond a packet's turn in it";
        processors_kind ProcessorsKind: "shared: one processor sends and receives in turn; separate: there is one for each";
        whole_flag bool: "packets are worked on once they have arrived whole, not as they come in";
        address_ns "ns" 0..1_000_000: "at either end of a request that names memory of the peer";
        receive_message_ns "ns" 0..1_000_000: "each message that takes a receive: behind its data, unless one processor does all";
        receive_packet_ns "ns" 0..1_000_000: "each packet that arrives";
        ack_ns "ns" 0..1_000_000: "each acknowledgement that arrives";
        begun_requests "requests" 1..16_384: "of a queue pair begun and not acknowledged, at most";
        reads_requests "requests" 1..128: "reads and atomics of a queue pair under way";
        retry_timeout_us "us" 10..10_000_000: "without an answer, until packets are sent again";
        retry_count "retries" 0..7: "in a row, until a connection is given up";
    }
    /// The translation cache for pages of host memory.
    translation Translation {
        cache_entries "entries" 0..1_000_000 = 0: "pages that it remembers, first in first out; 0: all";
        page_bytes "bytes" 512..1_073_741_824: "size of a page";
        entry_bytes "bytes" 1..4096: "read from host memory when a page is missing";
        miss_ns "ns" 0..1_000_000: "that the engine stands still then, beside the bus";
    }
    /// The ports, and a cable at each.
    link Link {
        port_count "ports" 1..2: "ports of a card";
        rate_mbps "MB/s (10^6 bytes)" 1..1_000_000: "of data in one direction, line code taken off";
        mtu_bytes "bytes" 256..65_536: "data in a packet, at most";
        header_bytes "bytes" 0..1024: "headers and check sums of each packet";
        address_bytes "bytes" 0..1024: "further header of a packet that says where data go or come from";
        gap_bytes "bytes" 0..4096 = 0: "time between packets, in bytes";
        ack_bytes "bytes" 0..1024: "an acknowledgement, with its gap";
        latency_ns "ns" 0..1_000_000: "of a cable, with both ends";
        send_packets "packets" 1..1024: "read ahead of the wire, for each port";
        receive_packets "packets" 1..1024: "under way to a port or waiting there: its credits";
    }
    /// The switch between the cards.
    switch Switch {
        latency_ns "ns" 0..1_000_000: "from a packet's head coming in to its going out";
    }
    /// Completions.
    completion Completion {
        entry_bytes "bytes" 1..4096: "written to host memory for each";
        fetch_ns "ns" 0..1_000_000: "of dma.write_latency_ns, the processor's own fetch, which a poll's cost contains";
        told_flag bool = false: "the processor writes to the card, over the bus, when it has taken completions or given a receive";
    }
    /// Sleeping until a completion.
    interrupt Interrupt {
        latency_ns "ns" 0..1_000_000_000: "from the completion to the event";
        wake_up_ns "ns" 0..1_000_000_000: "that the sleeping call takes from the event on, for each thread";
        woken_threads "threads" 1..8: "woken one after the other until the call goes on";
    }
    /// TCP in the host's kernel, for cards without offload; zero unless a file gives it.
    tcp Tcp {
        interrupt_ns "ns" 0..1_000_000_000 = 0: "from a segment's arrival until the kernel works on it, unless it still works on others";
        segment_ns "ns" 0..1_000_000 = 0: "each segment that has arrived: one after the other, for all of a machine";
        send_segment_ns "ns" 0..1_000_000 = 0: "each segment of a message, for the processor that sends it";
        byte_ps "ps" 0..1_000_000 = 0: "each byte that a call copies, from the program to the kernel or back";
        head_calls "calls" 0..16 = 0: "by which a library takes a message's head, before those for its data";
        buffer_bytes "bytes" 0..1_073_741_824 = 0: "that may wait in the kernel; one call takes half of them at most; 0: all that there are";
    }
    /// Features of the interface.
    api Api {
        atomics_flag bool: "it has atomics";
        shared_receives_flag bool: "it has receive queues that connections share";
        write_imm_kind WriteImmKind: "single: a write with immediate data is one request; split: a message of its own follows its data";
    }
    /// The connection manager.
    connection Connection {
        message_us "us" 0.1..1_000_000: "one way of a message between managers";
        lost_after_us "us" 1..60_000_000: "until a manager ends the connections of a peer that is unreachable";
    }
    /// How cards that run firmware are used.
    mode Mode {
        match_kind MatchKind: "nic: the card's processor runs the programs; host: the kernel does";
        flow_kind FlowKind: "what becomes of messages for which a card has no room: none, corpse, cop";
    }
    /// The processor of a host, as programs use it.
    processor Processor {
        look_ns "ns" 1..1_000_000: "one look at memory that finds nothing new";
        copy_ns "ns" 0..1_000_000: "a copy by the processor, whatever its length";
        copy_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate of copies by the processor";
    }
    /// The kernel of a host.
    kernel Kernel {
        trap_ns "ns" 0..1_000_000: "a program's call into it, and back";
        call_ns "ns" 0..1_000_000: "what a call does there";
        transmit_ns "ns" 0..1_000_000: "a message that it has the card send";
        receive_ns "ns" 0..1_000_000: "a message that the card tells of, but for matching";
        deposit_ns "ns" 0..1_000_000: "telling the card where a message goes";
        word_ns "ns" 0..1_000_000: "each eight bytes that it writes for a program: of an event, or of the answer to a call";
        match_ns "ns" 0..1_000_000: "looking at one entry of a list for a match";
        protocol_ns "ns" 0..1_000_000: "an acknowledgement of its flow control, at either end";
        number_ns "ns" 0..1_000_000: "giving a message its number, or checking it";
        interrupt_ns "ns" 0..1_000_000: "from an interrupt until its handler runs, and the way back";
        interrupt_reads "reads" 0..64: "of the card's memory that a handler waits for";
    }
    /// The connection between the host and its card.
    hypertransport HyperTransport {
        post_ns "ns" 0..1_000_000: "a command, written to the card's memory: what the processor takes";
        write_ns "ns" 0..1_000_000: "until either side sees what the other one has written";
        read_ns "ns" 0..1_000_000: "a read of memory on the other side, until its first byte is there";
        read_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate at which the card reads host memory";
        write_mbps "MB/s (10^6 bytes)" 1..1_000_000: "rate at which it writes there";
    }
    /// The processor on the card and its loop.
    firmware Firmware {
        turn_ns "ns" 1..1_000_000: "a turn of its loop, which looks for work";
        command_ns "ns" 0..1_000_000: "inspecting a command of a program that need not be trusted";
        transmit_ns "ns" 0..1_000_000: "setting a transmission up";
        transmit_match_ns "ns" 0..1_000_000: "more of that where the card runs the programs";
        receive_ns "ns" 0..1_000_000: "the header of a message that has come";
        receive_match_ns "ns" 0..1_000_000: "more of that where the card runs the programs";
        deposit_ns "ns" 0..1_000_000: "setting up where a message goes";
        complete_ns "ns" 0..1_000_000: "the end of a transfer";
        event_ns "ns" 0..1_000_000: "an event for the host";
        match_ns "ns" 0..1_000_000: "looking at one entry of a list for a match";
        protocol_ns "ns" 0..1_000_000: "an acknowledgement of its flow control, at either end";
        number_ns "ns" 0..1_000_000: "giving a message its number, or checking it";
        backoff_ns "ns" 0..1_000_000_000: "from a refusal until the message is sent again";
        pio_bytes "bytes" 0..4096: "data up to this travel with the header, and take no transfer of their own";
        stream_count "streams" 1..65_536: "long messages of different sources that come in at a time";
        memory_kib "KiB (2^10 bytes)" 1..1_048_576: "memory of the card";
        image_kib "KiB (2^10 bytes)" 0..1_048_576: "of it, the firmware";
        mailbox_kib "KiB (2^10 bytes)" 1..1_048_576: "of it, for each program that the card runs";
    }
    /// The routers, one on each card, and the cables between them.
    router Router {
        hop_ns "ns" 0..1_000_000: "a packet's head through a router and a cable";
        link_mbps "MB/s (10^6 bytes)" 1..1_000_000: "of data in one direction of a cable";
        packet_bytes "bytes" 8..65_536: "a packet; a header is one";
        x_nodes "nodes" 1..1024: "cards in the first direction";
        y_nodes "nodes" 1..1024: "in the second";
        z_nodes "nodes" 1..1024: "in the third, in which neighbours are numbered one after the other";
        x_torus_flag bool: "the last card of a row is the first one's neighbour";
        y_torus_flag bool: "the same in the second direction";
        z_torus_flag bool: "and in the third";
    }
    /// Injected faults; none by default.
    faults Faults {
        loss_ppm "packets per million" 0..1_000_000 = 0: "packets that are lost";
        delay_ns "ns" 0..1_000_000_000 = 0: "packets are delayed by up to this, at random";
        stall_ppm "packets per million" 0..1_000_000 = 0: "packets at which a receiver stands still";
        stall_ns "ns" 0..1_000_000_000 = 0: "for up to this, at random";
        cut_us "us" 0..1_000_000_000 = 0: "when a cable is cut; 0 for never";
        cut_for_us "us" 0..1_000_000_000 = 0: "after how long it is whole again; 0 for never";
        cut_node "number of a machine" 0..1_000_000 = 0: "whose cable that is";
        cut_port "port" 1..8 = 1: "at which port; those of further cards are counted on";
        death_us "us" 0..1_000_000_000 = 0: "when a machine dies; 0 for never";
        death_node "number of a machine" 0..1_000_000 = 0: "which one that is";
    }
}
