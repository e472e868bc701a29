//! Names of the machine files' values: those that published rows are compared with, and changes of them with which a
//! stated cause is tested.

/// Values that published rows are compared with.
pub(super) mod key {
    pub(in super::super) const BUS_WIDTH: &str = "bus.width_bytes";
    pub(in super::super) const BUS_CLOCK: &str = "bus.clock_mhz";
    pub(in super::super) const PORTS: &str = "link.port_count";
    /// Of data in one direction: the line code is taken off.
    pub(in super::super) const LINK_RATE: &str = "link.rate_mbps";
    pub(in super::super) const NIC_MEMORY: &str = "nic_memory.rate_mbps";
}

/// PCI-X at twice its clock. What split reads over it reach is doubled with it: their limit comes from the time that the
/// bus and its bridge take.
pub(super) const BUS_TWICE: &str = "bus.clock_mhz=266,dma.read_mbps=1772";
pub(super) const BUS_HALF: &str = "bus.clock_mhz=66.5,dma.read_mbps=443";
/// The data rate of every link.
pub(super) const LINK_TWICE: &str = "link.rate_mbps=2000";
/// The card's memory.
pub(super) const NIC_MEMORY_TWICE: &str = "nic_memory.rate_mbps=4000";
/// Both, where they limit together.
pub(super) const LINK_AND_NIC_MEMORY_TWICE: &str = "link.rate_mbps=2000,nic_memory.rate_mbps=4000";
/// DMA reads and writes of the card by themselves, on the bus as it is.
pub(super) const DMA_READ_FASTER: &str = "dma.read_mbps=1772,bus.read_overhead_clocks=0";
pub(super) const DMA_WRITE_FASTER: &str = "bus.write_overhead_clocks=0";
/// Calls of the processor.
pub(super) const REGISTRATION_SLOWER: &str = "host.register_ns=173060";
pub(super) const POLL_SLOWER: &str = "host.poll_full_ns=3100";
pub(super) const POST_SLOWER: &str = "host.post_send_ns=20000";
pub(super) const POST_AS_VAPI: &str = "host.post_send_ns=720";
