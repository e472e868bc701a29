//! [`Session`]: the context of an experiment on one side: machine, device, cell, and messages with the others.

use results::variant::factor;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use verbs::Device;
use verbs::host::{Host, Span, Time};

use super::cell::{Cell, Settings};
use super::fault::Fault;
use super::limits::{self, BATCH, LEAD_IN, RANK, SAMPLES};
use crate::against::Against;
use results::plain;

/// Messages between the sides outside of timed regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Word {
    /// Client: the next cell, as rank `rank`.
    Begin {
        /// The cell to measure.
        cell: Cell,
        /// Which rank the receiver is.
        #[serde(deserialize_with = "limits::within::<RANK, _, _>")]
        rank: u32,
    },
    /// Both, after [`Word::Begin`] and after [`Word::Finish`]: this side is ready.
    Ready,
    /// Client: run this round.
    Round(Round),
    /// Server: running it from now on.
    Go,
    /// Client: make the memory warm.
    Warm,
    /// Client: no more rounds; check the data.
    Finish,
    /// Something of the experiment's own.
    Info {
        /// JSON.
        body: serde_json::Value,
    },
    /// This side could not do its part.
    Failed {
        /// Why.
        why: String,
        /// Whether only this cell is lost.
        local: bool,
    },
    /// Client: the end.
    Bye,
}

/// Work between two checks of the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Operations before the first sample, untimed.
    #[serde(deserialize_with = "limits::within::<LEAD_IN, _, _>")]
    pub lead_in: u64,
    /// Timed samples.
    #[serde(deserialize_with = "limits::within::<SAMPLES, _, _>")]
    pub samples: u64,
    /// Operations of each.
    #[serde(deserialize_with = "limits::within::<BATCH, _, _>")]
    pub batch: u64,
}

impl Round {
    /// Operations of a round, including the lead-in before its first sample.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lead_in.saturating_add(self.samples.saturating_mul(self.batch))
    }
}

/// The control connection to another rank. Used outside of timed regions only, so it may be slow.
pub trait Control {
    /// Sends a message to the other rank.
    ///
    /// # Errors
    /// [`Fault::Control`].
    fn send(&mut self, word: &Word) -> Result<(), Fault>;
    /// Waits for the next message of the other rank.
    ///
    /// # Errors
    /// [`Fault::Control`], also if nothing is received for too long.
    fn receive(&mut self) -> Result<Word, Fault>;
    /// The other rank's name, if it has one.
    fn name(&self) -> Option<&str> {
        None
    }
    /// The address of this side as the other reaches it.
    fn local_ip(&self) -> IpAddr;
    /// The address of the other side.
    fn peer_ip(&self) -> IpAddr;
    /// The other's process number, if it runs on this machine.
    fn neighbour(&self) -> Option<u32>;
}

/// Bytes of memory of this process (proportional set size); `None` where unknown.
pub type Gauge<'a> = &'a dyn Fn() -> Option<u64>;

/// The rails of the device under test; each opens as a separate device.
#[derive(Clone, Debug)]
pub struct Rails {
    /// Their names, in their order: the device's own if it is not several.
    pub names: Vec<String>,
    /// Opens a rail.
    pub open: fn(&str, &Host) -> verbs::Result<Device>,
}

/// Limits on what a side does for an unknown client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Maximum time of work between two messages; `None` for no limit.
    pub work: Option<Span>,
    /// Bytes of memory that a cell may need; `None` for all available memory.
    pub bytes: Option<u64>,
}

/// One side of one cell.
pub struct Session<'a> {
    /// The machine.
    pub host: &'a Host,
    /// The device under test.
    pub device: &'a Device,
    /// Its rails.
    pub rails: &'a Rails,
    /// 0 is the client, 1 the server, others are helpers.
    pub rank: u32,
    /// The client's control connections to ranks 1, 2, ...; the other ranks have only one, to the client.
    pub controls: Vec<&'a mut dyn Control>,
    /// The cell to measure.
    pub cell: &'a Cell,
    /// How.
    pub settings: &'a Settings,
    /// Another MPI library, if one is measured for comparison.
    pub against: Option<&'a Against>,
    /// Memory in use.
    pub gauge: Gauge<'a>,
    /// Connections whose other end has already reported failure: it sends nothing more about this cell.
    pub failed: Vec<usize>,
    /// The limits of this side.
    pub bounds: Bounds,
    /// Deadline of the current work.
    pub until: Option<Time>,
}

impl Session<'_> {
    /// Whether this side decides and times.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.rank == 0
    }

    /// A point that no wait may pass.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let patience = self.host.after(Span::from_ms(self.settings.patience_ms));
        match (patience, self.until) {
            (Some(patience), Some(until)) => Some(patience.min(until)),
            (patience, until) => patience.or(until),
        }
    }

    /// Starts the work time of a request from the other side.
    pub(crate) fn begin(&mut self) {
        self.until = self.bounds.work.and_then(|work| self.host.after(work));
    }

    /// Whether the current work exceeds its deadline.
    ///
    /// # Errors
    /// [`Fault::TimedOut`] if so.
    pub(crate) fn go_on(&self) -> Result<(), Fault> {
        match self.until {
            Some(until) if self.host.now() > until => Err(Fault::TimedOut("a round")),
            _ => Ok(()),
        }
    }

    /// Sends experiment-specific data to the other side (for the client: rank 1).
    ///
    /// # Errors
    /// [`Fault::Control`].
    pub fn send_info<T: Serialize>(&mut self, what: &T) -> Result<(), Fault> {
        self.send_info_to(1, what)
    }

    /// Receives the data that the other side sent.
    ///
    /// # Errors
    /// [`Fault::Peer`] when it failed instead, [`Fault::Control`].
    pub fn receive_info<T: DeserializeOwned>(&mut self) -> Result<T, Fault> {
        self.receive_info_from(1)
    }

    /// As [`send_info`](Self::send_info) to rank 1, but to any rank. Ranks other than the client know only the client.
    ///
    /// # Errors
    /// As [`send_info`](Self::send_info).
    pub fn send_info_to<T: Serialize>(&mut self, rank: usize, what: &T) -> Result<(), Fault> {
        let body = serde_json::to_value(what).map_err(|e| Fault::Control(e.to_string()))?;
        self.control(rank)?.send(&Word::Info { body })
    }

    /// As [`receive_info`](Self::receive_info), from any rank.
    ///
    /// # Errors
    /// As [`receive_info`](Self::receive_info).
    pub fn receive_info_from<T: DeserializeOwned>(&mut self, rank: usize) -> Result<T, Fault> {
        match self.control(rank)?.receive()? {
            Word::Info { body } => {
                self.begin();
                serde_json::from_value(body).map_err(|e| Fault::Control(plain::line(&e.to_string())))
            }
            Word::Failed { why, local } => {
                self.failed.push(self.index(rank));
                Err(peer_failed(with_peer_name(self.control(rank)?, why), local))
            }
            other => Err(Fault::Control(plain::line(&format!("{other:?} came out of turn")))),
        }
    }

    /// The index of the control connection to a rank.
    fn index(&self, rank: usize) -> usize {
        if self.is_client() { rank.wrapping_sub(1) } else { 0 }
    }

    /// The control connection to a rank.
    ///
    /// # Errors
    /// [`Fault::Meaningless`] when there is none.
    pub fn control(&mut self, rank: usize) -> Result<&mut dyn Control, Fault> {
        let index = self.index(rank);
        match self.controls.get_mut(index) {
            Some(control) => Ok(&mut **control),
            None => Err(Fault::Meaningless(format!("{} without a rank {rank}", self.cell.experiment))),
        }
    }

    /// Does something as if another cell were measured.
    ///
    /// # Errors
    /// Errors of `body`.
    pub fn with_cell<T>(
        &mut self,
        cell: &Cell,
        body: impl FnOnce(&mut Session<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut inner = Session {
            host: self.host,
            device: self.device,
            rails: self.rails,
            rank: self.rank,
            controls: self.controls.iter_mut().map(|control| &mut **control as &mut dyn Control).collect(),
            cell,
            settings: self.settings,
            against: self.against,
            gauge: self.gauge,
            failed: std::mem::take(&mut self.failed),
            bounds: self.bounds,
            until: self.until,
        };
        let done = body(&mut inner);
        let failed = std::mem::take(&mut inner.failed);
        drop(inner);
        self.failed = failed;
        done
    }

    /// The address to listen on, with any port number: the address of that port of the device; or if ports have none,
    /// the own address by which the other side reaches it.
    ///
    /// # Errors
    /// [`Fault::Meaningless`] for a port that the device does not have.
    pub fn listen_addr(&mut self, port: usize) -> Result<SocketAddr, Fault> {
        let ports = &self.device.attr().port_addrs;
        let ip = match ports.get(port) {
            Some(ip) => *ip,
            None if port > 0 || !ports.is_empty() => return Err(self.lacks_port()),
            // A process alone reaches itself.
            None => self.control(1).map_or(Ipv4Addr::LOCALHOST.into(), |control| control.local_ip()),
        };
        Ok(SocketAddr::new(ip, 0))
    }

    /// Over how many ports a message of the cell is split: the factor `ports`, 1 without it.
    ///
    /// # Errors
    /// [`Fault::Meaningless`] where the device has too few distinguishable ports, or the message too few bytes.
    pub fn ports(&self) -> Result<usize, Fault> {
        match self.cell.variant.get(factor::PORTS).unwrap_or("1") {
            "1" => Ok(1),
            "2" if self.device.attr().port_addrs.len() < 2 => Err(self.lacks_port()),
            "2" if self.cell.size < 2 => Err(Fault::Meaningless("half a message of 1 byte".into())),
            "2" => Ok(2),
            other => Err(Fault::Meaningless(format!("{other} ports"))),
        }
    }

    /// The fault of a cell that needs more ports than the device has.
    fn lacks_port(&self) -> Fault {
        let what = match self.device.attr().ports {
            0 | 1 => "has one port",
            _ => "does not say which addresses its ports have",
        };
        Fault::Meaningless(format!("two ports at once: {} {what}", self.device.name()))
    }

    /// The other side's process number.
    ///
    /// # Errors
    /// [`Fault::Machine`] when it runs elsewhere.
    pub fn neighbour(&mut self) -> Result<u32, Fault> {
        self.control(1)?.neighbour().ok_or_else(|| Fault::Machine("the peer runs on another machine".into()))
    }
}

/// A peer's error text, preceded by its name, if it has one.
#[must_use]
pub fn with_peer_name(control: &dyn Control, why: String) -> String {
    // A side that forwards another's error has already named it.
    control
        .name()
        .filter(|name| !why.contains(*name))
        .map_or_else(|| why.clone(), |name| format!("{name}: {why}"))
}

/// The fault for a peer's [`Word::Failed`].
#[must_use]
pub fn peer_failed(why: String, local: bool) -> Fault {
    if local { Fault::LostByPeer(why) } else { Fault::Peer(why) }
}
