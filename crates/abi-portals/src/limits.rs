//! Default limits from the environment, by the reference's names (`PTL_LIM_MAX_ENTRIES` and others), for
//! limits that a program leaves unset (Portals 4.3, section 3.6).

use portals::Limits;

/// The limits of a program that sets none.
pub(crate) fn from_environment() -> Limits {
    from_variables(|name| std::env::var(name).ok())
}

/// The default limits, except where `value` returns a decimal number. A number out of bounds becomes the
/// nearest bound, and 0 the default.
fn from_variables(value: impl Fn(&str) -> Option<String>) -> Limits {
    let long = |name: &str, default: u64| {
        let value = value(&format!("PTL_LIM_{name}"));
        value.and_then(|text| text.trim().parse().ok()).unwrap_or(default)
    };
    let short = |name: &str, default: u32| u32::try_from(long(name, default.into())).unwrap_or(u32::MAX);
    let defaults = Limits::default();
    let limits = Limits {
        max_entries: short("MAX_ENTRIES", defaults.max_entries),
        max_unexpected_headers: short("MAX_UNEXPECTED_HEADERS", defaults.max_unexpected_headers),
        max_mds: short("MAX_MDS", defaults.max_mds),
        max_cts: short("MAX_CTS", defaults.max_cts),
        max_eqs: short("MAX_EQS", defaults.max_eqs),
        max_pt_index: short("MAX_PT_INDEX", defaults.max_pt_index),
        max_iovecs: short("MAX_IOVECS", defaults.max_iovecs),
        max_list_size: short("MAX_LIST_SIZE", defaults.max_list_size),
        max_triggered_ops: short("MAX_TRIGGERED_OPS", defaults.max_triggered_ops),
        max_msg_size: long("MAX_MSG_SIZE", defaults.max_msg_size),
        max_atomic_size: long("MAX_ATOMIC_SIZE", defaults.max_atomic_size),
        max_fetch_atomic_size: long("MAX_FETCH_ATOMIC_SIZE", defaults.max_fetch_atomic_size),
        max_waw_ordered_size: long("MAX_WAW_ORDERED_SIZE", defaults.max_waw_ordered_size),
        max_war_ordered_size: long("MAX_WAR_ORDERED_SIZE", defaults.max_war_ordered_size),
        max_volatile_size: long("MAX_VOLATILE_SIZE", defaults.max_volatile_size),
        features: defaults.features,
    };
    Limits::grant(Some(&limits), &defaults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_limits_are_granted_within_bounds() {
        assert_eq!(from_variables(|_| None), Limits::default());
        assert_eq!(from_variables(|_| Some("many".into())), Limits::default());
        let some = from_variables(|name| match name {
            "PTL_LIM_MAX_EQS" => Some(" 7 ".into()),
            "PTL_LIM_MAX_PT_INDEX" => Some("1".into()),
            "PTL_LIM_MAX_MSG_SIZE" => Some("4096".into()),
            "PTL_LIM_MAX_ENTRIES" => Some(u64::MAX.to_string()),
            "PTL_LIM_MAX_CTS" => Some("0".into()),
            _ => None,
        });
        let most = Limits::MOST.max_entries;
        let want = Limits {
            max_eqs: 7,
            max_pt_index: 63,
            max_msg_size: 4096,
            max_entries: most,
            ..Limits::default()
        };
        assert_eq!(some, want);
    }
}
