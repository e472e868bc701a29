//! Cards: their list, and the choice of one with a port.

use std::path::PathBuf;
use std::sync::Arc;

use host::Span;
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_port_attr;
use verbs::{Error, Result};

use crate::gids::{self, GidEntry};
use crate::raw::context::{Context, card_names};
use crate::raw::library::Library;

/// Which card to open, and by which library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HwConfig {
    /// The name of the card, such as `mlx5_0`; the first one with an active port if not given.
    pub card: Option<String>,
    /// The number of the port, from 1; the first active one if not given.
    pub port: Option<u8>,
    /// The index in the port's GID table whose address connections use, on RoCE.
    pub gid: Option<u8>,
    /// A folder with libibverbs.so.1 and librdmacm.so.1, or a file that is both; the system's if not given. Only here
    /// our own library is accepted.
    pub lib_path: Option<PathBuf>,
    /// How long connections wait for a port that has lost its link or their address; then they end.
    pub patience: Span,
}

impl Default for HwConfig {
    fn default() -> Self {
        Self { card: None, port: None, gid: None, lib_path: None, patience: Span::from_ms(700) }
    }
}

/// A card, as [`cards`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInfo {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Its ports in words, such as `port 1 active, Ethernet`; or why it cannot be opened.
    pub ports: std::result::Result<Vec<String>, String>,
    /// Whether a port is active.
    pub is_usable: bool,
}

/// The cards of the library that `config` names.
///
/// # Errors
/// [`Error::System`] if the library is missing or lists no cards because the kernel's modules are missing;
/// [`Error::Invalid`] if it is our own.
pub fn cards(config: &HwConfig) -> Result<Vec<CardInfo>> {
    let library = Library::load(config.lib_path.as_deref())?;
    Ok(card_names(library)?.into_iter().map(|card| describe(library, card.name)).collect())
}

fn describe(library: &'static Library, name: String) -> CardInfo {
    let opened = Context::open(library, &name).and_then(|context| {
        let count = context.attr()?.phys_port_cnt;
        (1..=count).map(|port| Ok((port, context.port_attr(port)?))).collect::<Result<Vec<_>>>()
    });
    match opened {
        Err(why) => CardInfo { name, ports: Err(why.to_string()), is_usable: false },
        Ok(ports) => {
            let is_usable = ports.iter().any(|(_, attr)| is_active(attr));
            let words = ports.iter().map(|(port, attr)| format!("port {port} {}", port_words(attr)));
            CardInfo { name, ports: Ok(words.collect()), is_usable }
        }
    }
}

/// An opened card with the port that the device uses.
pub(crate) struct Card {
    pub(crate) context: Arc<Context>,
    pub(crate) port: u8,
    pub(crate) port_attr: ibv_port_attr,
    /// The GID that the configuration chooses.
    pub(crate) gid: Option<GidEntry>,
}

impl Card {
    /// Opens the card that the configuration names, or the first one with an active port.
    ///
    /// # Errors
    /// The library's; [`Error::Invalid`] if there is no such card; [`Error::System`] if no port is active.
    pub(crate) fn open(config: &HwConfig) -> Result<Self> {
        let library = Library::load(config.lib_path.as_deref())?;
        if let Some(name) = &config.card {
            return Self::open_named(library, name, config);
        }
        let names = card_names(library)?;
        let mut refusals = Vec::new();
        for card in &names {
            match Self::open_named(library, &card.name, config) {
                Ok(card) => return Ok(card),
                Err(why) => refusals.push(why.to_string()),
            }
        }
        let why = if refusals.is_empty() {
            "the kernel shows none (is the driver of the card loaded? see ls /sys/class/infiniband)"
                .to_owned()
        } else {
            refusals.join("; ")
        };
        Err(Error::System { what: "there is no usable card".to_owned(), why, errno: None })
    }

    fn open_named(library: &'static Library, name: &str, config: &HwConfig) -> Result<Self> {
        let context = Context::open(library, name)?;
        let count = context.attr()?.phys_port_cnt;
        let port = match config.port {
            Some(port) if port == 0 || port > count => {
                return Err(Error::Invalid(format!(
                    "card '{name}' has no port {port}; its ports have numbers from 1 to {count}"
                )));
            }
            Some(port) => port,
            None => (1..=count)
                .find(|port| context.port_attr(*port).is_ok_and(|attr| is_active(&attr)))
                .unwrap_or(1),
        };
        let port_attr = context.port_attr(port)?;
        if !is_active(&port_attr) {
            return Err(Error::System {
                what: format!("port {port} of card '{name}' cannot be used"),
                errno: None,
                why: format!(
                    "it is {} (is the cable plugged in, the interface up, and on InfiniBand a subnet manager running?)",
                    state_word(&port_attr)
                ),
            });
        }
        let gid = config.gid.map(|index| gids::choose(&context, port, &port_attr, index)).transpose()?;
        Ok(Self { context, port, port_attr, gid })
    }
}

fn is_active(attr: &ibv_port_attr) -> bool {
    attr.state.cast_unsigned() == n::IBV_PORT_ACTIVE
}

/// Whether a port of an opened card is active.
pub(crate) fn is_port_active(context: &Context, port: u8) -> bool {
    context.port_attr(port).is_ok_and(|attr| is_active(&attr))
}

/// The state of a port (`enum ibv_port_state`).
fn state_word(attr: &ibv_port_attr) -> &'static str {
    match attr.state {
        1 => "down",
        2 => "initializing",
        3 => "armed",
        4 => "active",
        5 => "deferred",
        _ => "in an unknown state",
    }
}

/// The state and the link layer of a port.
pub(crate) fn port_words(attr: &ibv_port_attr) -> String {
    let layer = match u32::from(attr.link_layer) {
        n::IBV_LINK_LAYER_INFINIBAND => "InfiniBand",
        n::IBV_LINK_LAYER_ETHERNET => "Ethernet",
        _ => "unknown link layer",
    };
    format!("{}, {layer}", state_word(attr))
}
