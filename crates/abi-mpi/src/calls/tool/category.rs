//! Categories of variables and events (MPI 5.0, section 15.3.9). They are not nested.

use std::ops::Range;

use ffi::{Out, Text};

use super::open::{check_open, index_of_name, item_at, store_text};
use super::{cvar, pvar};
use crate::answer::Answer;

/// A category: ranges of control variables, performance variables and events.
struct Category {
    name: &'static str,
    description: &'static str,
    controls: Range<usize>,
    measured: Range<usize>,
    events: Range<usize>,
}

const CATEGORIES: [Category; 3] = [
    Category {
        name: "protocols",
        description: "how messages go, and how many have gone so",
        controls: 0..cvar::COLLECTIVES,
        measured: pvar::PROTOCOLS..pvar::COUNT,
        events: 2..3,
    },
    Category {
        name: "collectives",
        description: "algorithms of collective operations, and by what they are chosen",
        controls: cvar::COLLECTIVES..cvar::COUNT,
        measured: pvar::PROTOCOLS - 1..pvar::PROTOCOLS,
        events: 3..4,
    },
    Category {
        name: "queues",
        description: "what waits, and memory that operations use",
        controls: 0..0,
        measured: 0..pvar::PROTOCOLS - 1,
        events: 1..2,
    },
];

pub(crate) fn t_category_get_num(count: Out<i32>) -> Answer {
    check_open()?;
    count.set(CATEGORIES.len() as i32);
    Ok(())
}

/// Categories never change.
pub(crate) fn t_category_changed(update_number: Out<i32>) -> Answer {
    check_open()?;
    update_number.set(0);
    Ok(())
}

pub(crate) fn t_category_get_index(name: Text, index: Out<i32>) -> Answer {
    check_open()?;
    index.set(index_of_name(CATEGORIES.iter().map(|category| category.name.to_owned()), name)?);
    Ok(())
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn t_category_get_info(
    index: i32,
    name: Out<u8>,
    name_len: Out<i32>,
    desc: Out<u8>,
    desc_len: Out<i32>,
    num_cvars: Out<i32>,
    num_pvars: Out<i32>,
    num_categories: Out<i32>,
) -> Answer {
    check_open()?;
    let category = item_at(&CATEGORIES, index)?;
    store_text(name, name_len, category.name);
    store_text(desc, desc_len, category.description);
    num_cvars.set(category.controls.len() as i32);
    num_pvars.set(category.measured.len() as i32);
    num_categories.set(0);
    Ok(())
}

/// Returns as many indices as fit.
fn list(range: &Range<usize>, len: i32, indices: Out<i32>) {
    let room = usize::try_from(len).unwrap_or(0);
    range.clone().take(room).enumerate().for_each(|(at, index)| indices.element(at).set(index as i32));
}

pub(crate) fn t_category_get_cvars(index: i32, len: i32, indices: Out<i32>) -> Answer {
    check_open()?;
    list(&item_at(&CATEGORIES, index)?.controls, len, indices);
    Ok(())
}

pub(crate) fn t_category_get_pvars(index: i32, len: i32, indices: Out<i32>) -> Answer {
    check_open()?;
    list(&item_at(&CATEGORIES, index)?.measured, len, indices);
    Ok(())
}

pub(crate) fn t_category_get_categories(index: i32, _len: i32, _indices: Out<i32>) -> Answer {
    check_open()?;
    item_at(&CATEGORIES, index).map(drop)
}

pub(crate) fn t_category_get_num_events(index: i32, num_events: Out<i32>) -> Answer {
    check_open()?;
    num_events.set(item_at(&CATEGORIES, index)?.events.len() as i32);
    Ok(())
}

pub(crate) fn t_category_get_events(index: i32, len: i32, indices: Out<i32>) -> Answer {
    check_open()?;
    list(&item_at(&CATEGORIES, index)?.events, len, indices);
    Ok(())
}
