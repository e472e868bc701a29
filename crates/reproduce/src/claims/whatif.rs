//! Names of the machine files' values: values that published rows are compared with, and changes of values to test a
//! stated cause.

/// Values that published rows are compared with.
pub(crate) mod key {
    pub(crate) const BUS_WIDTH: &str = "bus.width_bytes";
    pub(crate) const BUS_CLOCK: &str = "bus.clock_mhz";
    pub(crate) const PORTS: &str = "link.port_count";
    /// Data rate in one direction, without the line code's overhead.
    pub(crate) const LINK_RATE: &str = "link.rate_mbps";
    pub(crate) const NIC_MEMORY: &str = "nic_memory.rate_mbps";
    pub(crate) const MERGED_SEND: &str = "descriptor.merge_send_bytes";
    pub(crate) const MERGED_WRITE: &str = "descriptor.merge_write_bytes";
}

/// PCI-X at twice its clock, and at half of it.
pub(crate) const BUS_TWICE: &str = "bus.clock_mhz=266";
pub(crate) const BUS_HALF: &str = "bus.clock_mhz=66.5";
/// The data rate of every link.
pub(crate) const LINK_TWICE: &str = "link.rate_mbps=2000";
/// The card's memory.
pub(crate) const NIC_MEMORY_TWICE: &str = "nic_memory.rate_mbps=4000";
/// Both, as they limit together.
pub(crate) const LINK_AND_NIC_MEMORY_TWICE: &str = "link.rate_mbps=2000,nic_memory.rate_mbps=4000";
/// DMA reads and writes of the card alone, without changing the bus.
pub(crate) const DMA_READ_FASTER: &str = "dma.read_latency_ns=0";
pub(crate) const DMA_WRITE_FASTER: &str = "bus.write_overhead_clocks=0";
/// PCI Express with twice the lanes.
pub(crate) const EXPRESS_TWICE: &str = "bus.width_bytes=16";
/// The links of that machine.
pub(crate) const EXPRESS_LINK_TWICE: &str = "link.rate_mbps=4000";
/// A thread loses no time when switching from one device's events to another's.
pub(crate) const NO_TURNS: &str = "software.turn_ns=0";
/// Threads that start and join in no time.
pub(crate) const FREE_THREADS: &str = "host.thread_ns=0";
/// Calls of the processor.
pub(crate) const REGISTRATION_SLOWER: &str = "host.register_ns=173060";
pub(crate) const POLL_SLOWER: &str = "host.poll_full_ns=3100";
pub(crate) const POST_SLOWER: &str = "host.post_send_ns=20000";
pub(crate) const POST_AS_VAPI: &str = "host.post_send_ns=720";
pub(crate) const CALLS_AS_VAPI: &str =
    "host.post_send_ns=720,host.post_receive_ns=560,host.poll_full_ns=1080,host.poll_empty_ns=280";
pub(crate) const NO_WAKE_UP: &str = "interrupt.wake_up_ns=0";
/// No descriptor is merged with the data.
pub(crate) const NOTHING_MERGED: &str = "descriptor.merge_send_bytes=0";
pub(crate) const SMALL_DESCRIPTORS: &str = "descriptor.limit_flag=0";
/// A miss in the translation cache costs nothing.
pub(crate) const NO_MISS_COST: &str = "translation.miss_ns=0";
pub(crate) const LARGE_CACHE: &str = "translation.cache_entries=1000000";
/// Reads of the card over the bus.
pub(crate) const READS_SLOWER: &str = "bus.read_overhead_clocks=49";
/// The overhead of a packet in addition to its data.
pub(crate) const FREE_PACKETS: &str = "link.header_bytes=0,link.address_bytes=0,link.gap_bytes=0,link.ack_bytes=0,transport.send_packet_ns=0,\
     transport.receive_packet_ns=0";
/// SeaStar: headers that need only one transfer.
pub(crate) const NO_SECOND_HEADER: &str = "firmware.transmit_match_ns=0";
/// Handlers of interrupts that do not wait for the card.
pub(crate) const HANDLERS_WITHOUT_READS: &str = "mode.match_kind=host,kernel.interrupt_reads=0";
/// Each side sees the other's writes immediately.
pub(crate) const SEEN_AT_ONCE: &str = "hypertransport.write_ns=0";
pub(crate) const SEEN_AT_ONCE_HOST: &str = "mode.match_kind=host,hypertransport.write_ns=0";
/// Entries that are fetched from memory, which takes some 60 ns there.
pub(crate) const EVERY_ENTRY_MISSES: &str = "mode.match_kind=host,kernel.match_ns=60";
