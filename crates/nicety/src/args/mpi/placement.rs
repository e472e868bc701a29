//! The options of `nicety mpirun` that say where ranks run and what they are bound to.

use std::path::PathBuf;

use clap::Args;
use launcher::{Bind, MapBy, RankBy, Resource};
use pmi::mapping::RANKS_MAX;

/// The value of `--map-by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) order: Option<MapBy>,
    /// Ranks on each host.
    pub(crate) per_host: Option<u32>,
    /// Cores for each rank.
    pub(crate) width: Option<u32>,
    pub(crate) oversubscribe: bool,
}

/// The value of `--bind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) to: Bind,
    pub(crate) width: Option<u32>,
}

/// Where ranks run, and what they are bound to.
#[derive(Debug, Args)]
pub(crate) struct PlacementArgs {
    /// Ranks on each host in turn, instead of its slots; without -n, N on every host
    #[arg(long, value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) per_host: Option<u32>,
    /// Order of ranks: host after host, one on each host in turn, or on each unit of a resource (hwthread, core, numa, socket); or N on each
    ///
    /// Without --bind, ranks are bound to these units. `:PE=N` at the end gives each rank N cores, `:OVERSUBSCRIBE` is --oversubscribe.
    #[arg(long, value_name = "slot|node|RESOURCE|ppr:N:RESOURCE", value_parser = mapping)]
    pub(crate) map_by: Option<Mapping>,
    /// Numbers of placed ranks: all of a host, then those of the next; or one of each host in turn
    #[arg(long, value_name = "slot|node", value_parser = ranking)]
    pub(crate) rank_by: Option<RankBy>,
    /// File with the host and the cores of each rank, in lines such as rank 0=node1 slot=0-1
    #[arg(long, value_name = "FILE", conflicts_with_all = ["per_host", "map_by", "rank_by"])]
    pub(crate) rankfile: Option<PathBuf>,
    /// Bind each rank to its share of the host's cores, if there is a core for each rank (default); to N units of hwthread, core, numa or socket; or to none
    #[arg(long, value_name = "share|RESOURCE[:N]|none", value_parser = binding)]
    pub(crate) bind: Option<Binding>,
    /// Print a line for each rank about what it is bound to
    #[arg(long)]
    pub(crate) report_bindings: bool,
    /// Do not warn if there are more ranks than cores (or NICETY_OVERSUBSCRIBE=1)
    #[arg(long)]
    pub(crate) oversubscribe: bool,
}

impl PlacementArgs {
    /// The value of `--map-by`.
    pub(crate) fn mapping(&self) -> Mapping {
        self.map_by.unwrap_or_default()
    }
}

/// The resource of this name, also by names of other launchers.
fn resource(name: &str) -> Option<Resource> {
    match name {
        "package" => Some(Resource::Socket),
        "hwthreads" | "thread" => Some(Resource::Thread),
        _ => Resource::ALL.into_iter().find(|resource| resource.name() == name),
    }
}

/// A number of units or of ranks for each.
fn units(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=1 << 20).contains(number))
}

/// Parses the value of `--bind`. Other launchers write it in any case, and with qualifiers that have no effect here.
fn binding(text: &str) -> Result<Binding, String> {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split(':');
    let to = match parts.next().unwrap_or_default() {
        "share" => Bind::Share,
        // A whole host is all that a rank can use.
        "none" | "machine" | "board" | "slot" => Bind::None,
        "rr" => Bind::To(Resource::Thread),
        name => Bind::To(resource(name).ok_or_else(|| how_to_bind(text))?),
    };
    let mut width = None;
    for part in parts {
        match part {
            "overload-allowed" | "no-overload" | "if-supported" | "ordered" | "report" | "limit" => {}
            number if matches!(to, Bind::To(_)) => {
                width = Some(units(number).ok_or_else(|| how_to_bind(text))?)
            }
            _ => return Err(how_to_bind(text)),
        }
    }
    Ok(Binding { to, width })
}

fn how_to_bind(text: &str) -> String {
    format!(
        "'{text}' is no binding; write share, core, socket, numa, hwthread, none, or, for two cores each, core:2"
    )
}

/// Parses the value of `--map-by`, in any case.
fn mapping(text: &str) -> Result<Mapping, String> {
    let wrong = || {
        format!(
            "'{text}' is no order; write slot, node, core, socket, numa, hwthread or, for example, ppr:2:socket"
        )
    };
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split(':');
    let mut mapping = Mapping::default();
    match parts.next().unwrap_or_default() {
        "" => {}
        "slot" => mapping.order = Some(MapBy::Slot),
        "node" => mapping.order = Some(MapBy::Node),
        "machine" | "board" | "none" => {}
        "ppr" => {
            let ranks = parts.next().and_then(units).ok_or_else(wrong)?;
            match parts.next().unwrap_or_default() {
                "node" | "host" => mapping.per_host = Some(ranks),
                name => mapping.order = Some(MapBy::PerResource(resource(name).ok_or_else(wrong)?, ranks)),
            }
        }
        name => mapping.order = Some(MapBy::Resource(resource(name).ok_or_else(wrong)?, 1)),
    }
    for part in parts {
        match (part, mapping.order) {
            ("oversubscribe", _) => mapping.oversubscribe = true,
            ("nooversubscribe" | "span" | "inherit" | "noinherit" | "corecpus", _) => {}
            // Hydra: the number of units that a rank takes before the next.
            (number, Some(MapBy::Resource(by, _))) if units(number).is_some() => {
                mapping.order = Some(MapBy::Resource(by, units(number).unwrap_or(1)));
            }
            (part, _) => {
                let width = part.strip_prefix("pe=").and_then(units).ok_or_else(wrong)?;
                mapping.width = Some(width);
            }
        }
    }
    Ok(mapping)
}

/// Parses the value of `--rank-by`.
fn ranking(text: &str) -> Result<RankBy, String> {
    match text.to_ascii_lowercase().as_str() {
        "slot" => Ok(RankBy::Slot),
        "node" => Ok(RankBy::Node),
        _ => Err(format!("'{text}' is no order of numbers; write slot or node")),
    }
}

/// Parses a number of ranks.
pub(super) fn ranks(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=RANKS_MAX).contains(number));
    number.ok_or_else(|| format!("'{text}' is not a number of ranks; write 1 to {RANKS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_parsed() {
        let parsed = |text: &str| binding(text).map(|binding| (binding.to, binding.width)).ok();
        assert_eq!(parsed("share"), Some((Bind::Share, None)));
        assert_eq!(parsed("none"), Some((Bind::None, None)));
        assert_eq!(parsed("CORE"), Some((Bind::To(Resource::Core), None)));
        assert_eq!(parsed("core:2"), Some((Bind::To(Resource::Core), Some(2))));
        assert_eq!(parsed("package:if-supported"), Some((Bind::To(Resource::Socket), None)));
        assert_eq!(parsed("core:overload-allowed"), Some((Bind::To(Resource::Core), None)));
        for text in ["", "cores", "core:0", "core:x", "none:2", "share:2", "user:0,1", "l2cache"] {
            assert!(binding(text).is_err_and(|why| why.contains("; write share, core")), "{text}");
        }
    }

    #[test]
    fn orders_are_parsed() {
        let order = |text: &str| mapping(text).map(|mapping| mapping.order).ok();
        assert_eq!(order("slot"), Some(Some(MapBy::Slot)));
        assert_eq!(order("Node:Span"), Some(Some(MapBy::Node)));
        assert_eq!(order("package"), Some(Some(MapBy::Resource(Resource::Socket, 1))));
        assert_eq!(order("socket:2"), Some(Some(MapBy::Resource(Resource::Socket, 2))));
        assert_eq!(order("ppr:2:numa"), Some(Some(MapBy::PerResource(Resource::Numa, 2))));
        let slots = Mapping { order: Some(MapBy::Slot), width: Some(2), ..Mapping::default() };
        assert_eq!(mapping("slot:PE=2"), Ok(slots));
        assert_eq!(mapping("ppr:3:node"), Ok(Mapping { per_host: Some(3), ..Mapping::default() }));
        assert_eq!(mapping(":OVERSUBSCRIBE"), Ok(Mapping { oversubscribe: true, ..Mapping::default() }));
        for text in ["seq", "slot:2", "ppr", "ppr:0:node", "ppr:1:disk", "core:pe=0", "core:x", "dist:span"] {
            assert!(mapping(text).is_err_and(|why| why.contains("; write slot, node")), "{text}");
        }
        assert_eq!((ranking("NODE"), ranking("slot")), (Ok(RankBy::Node), Ok(RankBy::Slot)));
        assert!(ranking("core").is_err());
    }
}
