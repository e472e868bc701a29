//! [`Setup`]: a card and how it is measured; makes the quantities that the tables of the papers are written in.

use super::check::Check;
use super::quantity::{Quantity, Tuning};

/// Where the data is before and after the transfer: memory of the source and of the sink.
pub(crate) type Ends = (&'static str, &'static str);

pub(crate) const HOST_HOST: Ends = ("host", "host");
pub(crate) const NIC_NIC: Ends = ("nic", "nic");
pub(crate) const NIC_HOST: Ends = ("nic", "host");
pub(crate) const HOST_NIC: Ends = ("host", "nic");

/// The papers' name of a case: `nic-to-host`.
pub(crate) fn case(ends: Ends) -> String {
    format!("{}-to-{}", ends.0, ends.1)
}

/// Sizes of a whole figure.
pub(crate) const SWEEP: [u64; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Sizes searched for the peak bandwidth.
pub(crate) const LARGE: [u64; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Sizes of a latency figure.
pub(crate) const LATENCY_SIZES: [u64; 7] = [4, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// A card and how it is measured. The methods return quantities that are measured when rows are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Device name without options.
    pub(crate) card: &'static str,
    pub(crate) tuning: Tuning,
    /// Changed parameters, `key=value`.
    pub(crate) options: &'static str,
}

impl Setup {
    /// This setup with a parameter changed, for a what-if.
    pub(crate) const fn with(self, options: &'static str) -> Self {
        Self { options, ..self }
    }

    /// This setup with another window.
    pub(crate) const fn window(self, window: u32) -> Self {
        Self { tuning: Tuning { window, ..self.tuning }, ..self }
    }

    /// The device with its options.
    fn device(self) -> String {
        match self.options {
            "" => self.card.to_owned(),
            options => format!("{}({options})", self.card),
        }
    }

    /// Any cell of it.
    pub(crate) fn cell(self, experiment: &str, factors: &[(&str, &str)], size: u64) -> Quantity {
        Quantity::cell(&self.device(), self.tuning, experiment, factors, size)
    }

    /// A value of the card's machine file.
    pub(crate) fn parameter(self, key: &'static str) -> Quantity {
        Quantity::Parameter(self.card, key)
    }

    /// Microseconds one way.
    pub(crate) fn latency(self, op: &str, ends: Ends, size: u64) -> Quantity {
        self.cell("latency", &[("op", op), ("source", ends.0), ("sink", ends.1)], size)
    }

    /// Microseconds from sending the own message to receiving the peer's, both sent simultaneously.
    pub(crate) fn bilat(self, op: &str, size: u64) -> Quantity {
        self.cell("bilat", &[("op", op), ("source", "host"), ("sink", "host")], size)
    }

    /// A cell of a stream over one or more ports.
    fn stream(self, experiment: &str, op: &str, ends: Ends, ports: u32, size: u64) -> Quantity {
        let ports = ports.to_string();
        let mut factors = vec![("op", op), ("source", ends.0), ("sink", ends.1)];
        if ports != "1" {
            factors.push(("ports", &ports));
        }
        self.cell(experiment, &factors, size)
    }

    /// 10^6 bytes per second, one way.
    pub(crate) fn bandwidth(self, op: &str, ends: Ends, ports: u32, size: u64) -> Quantity {
        self.stream("bandwidth", op, ends, ports, size)
    }

    /// 10^6 bytes per second, both ways together.
    pub(crate) fn bibw(self, op: &str, ends: Ends, ports: u32, size: u64) -> Quantity {
        self.stream("bibw", op, ends, ports, size)
    }

    /// The largest bandwidth one way.
    pub(crate) fn peak(self, op: &str, ends: Ends, ports: u32) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.bandwidth(op, ends, ports, size)))
    }

    /// The largest bandwidth both ways.
    pub(crate) fn bipeak(self, op: &str, ends: Ends, ports: u32) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.bibw(op, ends, ports, size)))
    }

    /// 10^6 bytes per second of a copy that the card makes within its node.
    pub(crate) fn copy(self, ends: Ends, size: u64) -> Quantity {
        self.cell("nicmem", &[("op", "copy"), ("source", ends.0), ("sink", ends.1)], size)
    }

    /// 10^6 bytes per second of a copy that the processor makes.
    pub(crate) fn memcpy(self, size: u64) -> Quantity {
        self.cell("nicmem", &[("op", "memcpy"), ("source", "host"), ("sink", "host")], size)
    }

    /// The largest bandwidth of a copy that the card makes within its node.
    pub(crate) fn copy_peak(self, ends: Ends) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.copy(ends, size)))
    }

    /// The largest bandwidth of a copy that the processor makes.
    pub(crate) fn memcpy_peak(self) -> Quantity {
        Quantity::greatest(LARGE.map(|size| self.memcpy(size)))
    }

    /// Microseconds until the last of `slaves` slaves has its 2048 bytes.
    pub(crate) fn hotspot(self, op: &str, ends: Ends, slaves: u32) -> Quantity {
        let slaves = slaves.to_string();
        let factors = [("op", op), ("source", ends.0), ("sink", ends.1), ("slaves", &slaves)];
        self.cell("hotspot", &factors, 2048)
    }

    /// Microseconds to send eight blocks: `time` until they have arrived, `cpu` of the sender's processor.
    pub(crate) fn pack(self, how: Pack, quantity: &str, block: u64) -> Quantity {
        let reuse = how.reuse.to_string();
        let mut factors = vec![("op", how.op), ("quantity", quantity)];
        if how.op == GATHER {
            factors.push(("reuse", &reuse));
        }
        self.cell("pack", &factors, block)
    }

    /// Microseconds until the last of `nodes` has the data that the first sent down the chain.
    pub(crate) fn chain(self, via: &str, ports: u32, nodes: u32, size: u64) -> Quantity {
        let (nodes, ports) = (nodes.to_string(), ports.to_string());
        let mut factors = vec![("via", via), ("nodes", &nodes)];
        if ports != "1" {
            factors.push(("ports", &ports));
        }
        self.cell("chain", &factors, size)
    }

    /// A cell of a test of sends or writes between host memories.
    fn hosts(
        self,
        experiment: &str,
        op: &str,
        more: (&str, &str),
        last: (&str, &str),
        size: u64,
    ) -> Quantity {
        let factors = [("op", op), ("source", "host"), ("sink", "host"), more, last];
        let all: Vec<(&str, &str)> = factors.into_iter().filter(|(key, _)| !key.is_empty()).collect();
        self.cell(experiment, &all, size)
    }

    /// Microseconds of the processor for a message of a ping-pong: the posts of a receive and of the message, and a poll of an empty
    /// queue.
    pub(crate) fn overhead(self, size: u64) -> Quantity {
        let post = self.hosts("overhead", "send", ("part", "post"), ("", ""), size);
        self.call_time("post", "op", "recv") + post + self.call_time("poll", "state", "empty")
    }

    /// Per cent of the time available for computation during messages both ways, without loss of bandwidth.
    pub(crate) fn share(self, size: u64) -> Quantity {
        self.hosts("availability", "send", ("quantity", "share"), ("", ""), size)
    }

    /// 10^6 bytes per second both ways, when `percent` per cent of an iteration's time is computation.
    pub(crate) fn busy(self, percent: u64, size: u64) -> Quantity {
        self.hosts("availability", "send", ("compute", &percent.to_string()), ("", ""), size)
    }

    /// Microseconds that notifying the target adds to a write.
    pub(crate) fn notify(self, size: u64) -> Quantity {
        self.hosts("notify", "write", ("by", "imm"), ("part", "extra"), size)
    }

    /// Microseconds that a send after a write adds, where a send notifies the target.
    pub(crate) fn notify_by_send(self, size: u64) -> Quantity {
        self.hosts("notify", "write", ("by", "send"), ("part", "extra"), size)
    }

    /// Microseconds that sleeping until an event adds to polling, one way.
    pub(crate) fn blocking(self, size: u64) -> Quantity {
        self.hosts("blocking", "send", ("wait", "event"), ("part", "extra"), size)
    }

    /// Latency or bandwidth with messages from and to many buffers.
    pub(crate) fn reuse(self, quantity: &str, reuse: Reuse, size: u64) -> Quantity {
        let (scheme, key, level) = match reuse {
            Reuse::Set(buffers) => ("1", "buffers", buffers),
            Reuse::Fresh(share) => ("2", "reuse", share),
        };
        let level = level.to_string();
        self.cell("reuse", &[("quantity", quantity), ("scheme", scheme), (key, &level)], size)
    }

    /// Latency or bandwidth of an experiment with one additional numeric factor.
    pub(crate) fn level(self, experiment: &str, quantity: &str, factor: (&str, u64), size: u64) -> Quantity {
        let level = factor.1.to_string();
        self.cell(experiment, &[("quantity", quantity), (factor.0, &level)], size)
    }

    /// Microseconds of a round of the thesis's hot spots.
    pub(crate) fn spot(self, op: &str, slaves: u32, size: u64) -> Quantity {
        self.hosts("hotspot", op, ("slaves", &slaves.to_string()), ("", ""), size)
    }

    /// A cell of the experiments over several rails.
    pub(crate) fn rails(self, experiment: &str, engine: &str, part: &str, size: u64) -> Quantity {
        let mut factors = vec![("engine", engine)];
        if !part.is_empty() {
            factors.push(("part", part));
        }
        self.cell(experiment, &factors, size)
    }

    /// A cell of the experiments over Portals.
    pub(crate) fn portals(self, experiment: &str, factors: &[(&str, &str)], size: u64) -> Quantity {
        self.cell(experiment, factors, size)
    }

    /// Microseconds of a call: `reg` or `dereg` of 4 KiB, `post` of a `send` or `recv`, and so on.
    pub(crate) fn call_time(self, experiment: &str, key: &str, level: &str) -> Quantity {
        let size = match experiment {
            "reg" => 4096,
            "connect" => 0,
            _ => CALL_SIZE,
        };
        self.cell(experiment, &[(key, level)], size)
    }
}

/// Message size if a call is timed, not a transfer.
const CALL_SIZE: u64 = 8;

/// Which buffers messages use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reuse {
    /// This many buffers in turn.
    Set(u64),
    /// One buffer for this percentage of the messages, and a fresh one for each other.
    Fresh(u64),
}

/// A way to send non-contiguous data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pack {
    pub(crate) op: &'static str,
    /// Per cent of the buffers that are registered already.
    pub(crate) reuse: u32,
}

const GATHER: &str = "gather";

pub(crate) const HOST_PACK: Pack = Pack { op: "host-pack", reuse: 100 };
pub(crate) const NIC_PACK: Pack = Pack { op: "nic-pack", reuse: 100 };

/// Gathering by the card; this percentage of the buffers is already registered.
pub(crate) const fn gather(reuse: u32) -> Pack {
    Pack { op: GATHER, reuse }
}

/// A change of this share shows that the changed value is a limit; one below [`UNMOVED`] that it is not.
const MOVED: f64 = 0.05;
const UNMOVED: f64 = 0.02;

/// `changed` is significantly above `base`: the changed value is a limit.
pub(crate) fn raises(what: impl Into<String>, changed: Quantity, base: Quantity) -> Check {
    Check::above(what, changed, base, MOVED)
}

/// `changed` equals `base`: the changed value is no limit.
pub(crate) fn leaves(what: impl Into<String>, changed: Quantity, base: Quantity) -> Check {
    Check::alike(what, changed, base, UNMOVED)
}
