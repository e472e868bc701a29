//! Queries of datatypes: size, bounds, constructor, and the number of received elements (MPI 5.0, chapter 5).

use datatypes::{Contents, Datatype, Envelope};
use ffi::{In, Out};

use crate::answer::{Answer, Fault};
use crate::calls::p2p::status::{change, required_status};
use crate::constants as c;
use crate::objects::{datatype, type_handle};
use crate::types::{self, Number, Status};

/// Stores a number, or `MPI_UNDEFINED` if there is none or it does not fit.
fn store_or_undefined<N: Number>(place: Out<N>, value: Option<i64>) {
    let undefined = || N::from_i64(c::MPI_UNDEFINED.into());
    if let Some(value) = value.and_then(N::from_i64).or_else(undefined) {
        place.set(value);
    }
}

/// MPI 5.0, section 5.1.5.
pub(crate) fn type_size<N: Number>(handle: types::Datatype, size: Out<N>) -> Answer {
    store_or_undefined(size, Some(datatype(handle, "datatype")?.size()));
    Ok(())
}

/// MPI 5.0, section 16.4.
pub(crate) use type_size as type_size_x;

/// MPI 5.0, section 5.1.7.
pub(crate) fn type_get_extent(handle: types::Datatype, lb: Out<i64>, extent: Out<i64>) -> Answer {
    let datatype = datatype(handle, "datatype")?;
    lb.set(datatype.lb());
    extent.set(datatype.extent());
    Ok(())
}

/// MPI 5.0, section 5.1.7.
pub(crate) use type_get_extent as type_get_extent_c;
/// MPI 5.0, section 16.4.
pub(crate) use type_get_extent as type_get_extent_x;

/// MPI 5.0, section 5.1.8.
pub(crate) fn type_get_true_extent(handle: types::Datatype, lb: Out<i64>, extent: Out<i64>) -> Answer {
    let datatype = datatype(handle, "datatype")?;
    lb.set(datatype.true_lb());
    extent.set(datatype.true_extent());
    Ok(())
}

/// MPI 5.0, section 5.1.8.
pub(crate) use type_get_true_extent as type_get_true_extent_c;
/// MPI 5.0, section 16.4.
pub(crate) use type_get_true_extent as type_get_true_extent_x;

/// The error for a type that only the large-count form can describe.
fn large() -> Fault {
    Fault::new(
        c::MPI_ERR_TYPE,
        "datatype: it was made with large counts, which only the `_c` form of this call returns",
    )
}

/// MPI 5.0, section 5.1.13.
pub(crate) fn type_get_envelope(
    handle: types::Datatype,
    integers: Out<i32>,
    addresses: Out<i32>,
    datatypes: Out<i32>,
    combiner: Out<i32>,
) -> Answer {
    let envelope: Envelope = datatype(handle, "datatype")?.envelope();
    if envelope.counts > 0 {
        return Err(large());
    }
    integers.set(envelope.integers as i32);
    addresses.set(envelope.addresses as i32);
    datatypes.set(envelope.datatypes as i32);
    combiner.set(envelope.combiner.abi());
    Ok(())
}

/// MPI 5.0, section 5.1.13.
pub(crate) fn type_get_envelope_c(
    handle: types::Datatype,
    integers: Out<i64>,
    addresses: Out<i64>,
    counts: Out<i64>,
    datatypes: Out<i64>,
    combiner: Out<i32>,
) -> Answer {
    let envelope: Envelope = datatype(handle, "datatype")?.envelope();
    integers.set(envelope.integers as i64);
    addresses.set(envelope.addresses as i64);
    counts.set(envelope.counts as i64);
    datatypes.set(envelope.datatypes as i64);
    combiner.set(envelope.combiner.abi());
    Ok(())
}

/// Checks the capacity of a list.
fn check_room(argument: &str, room: i64, len: usize) -> Answer {
    if room < len as i64 {
        return Err(Fault::new(
            c::MPI_ERR_ARG,
            format!("{argument}: there is room for {room}, and there are {len}"),
        ));
    }
    Ok(())
}

fn put_integers(contents: &Contents, integers: Out<i32>) {
    contents.integers.iter().enumerate().for_each(|(at, integer)| integers.element(at).set(*integer as i32));
}

fn put_wide(list: &[i64], place: Out<i64>) {
    list.iter().enumerate().for_each(|(at, number)| place.element(at).set(*number));
}

/// Stores handles of the contained types, which the program frees.
fn put_types(list: &[Datatype], place: Out<types::Datatype>) -> Answer {
    for (at, inside) in list.iter().enumerate() {
        place.element(at).set(type_handle(inside)?.0);
    }
    Ok(())
}

/// MPI 5.0, section 5.1.13.
pub(crate) fn type_get_contents(
    handle: types::Datatype,
    max_integers: i32,
    max_addresses: i32,
    max_datatypes: i32,
    integers: Out<i32>,
    addresses: Out<i64>,
    datatypes: Out<types::Datatype>,
) -> Answer {
    let datatype = datatype(handle, "datatype")?;
    let contents = datatype.contents()?;
    if !contents.counts.is_empty() {
        return Err(large());
    }
    check_room("max_integers", max_integers.into(), contents.integers.len())?;
    check_room("max_addresses", max_addresses.into(), contents.addresses.len())?;
    check_room("max_datatypes", max_datatypes.into(), contents.datatypes.len())?;
    put_integers(contents, integers);
    put_wide(&contents.addresses, addresses);
    put_types(&contents.datatypes, datatypes)
}

/// MPI 5.0, section 5.1.13.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn type_get_contents_c(
    handle: types::Datatype,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: Out<i32>,
    addresses: Out<i64>,
    counts: Out<i64>,
    datatypes: Out<types::Datatype>,
) -> Answer {
    let datatype = datatype(handle, "datatype")?;
    let contents = datatype.contents()?;
    check_room("max_integers", max_integers, contents.integers.len())?;
    check_room("max_addresses", max_addresses, contents.addresses.len())?;
    check_room("max_large_counts", max_large_counts, contents.counts.len())?;
    check_room("max_datatypes", max_datatypes, contents.datatypes.len())?;
    put_integers(contents, integers);
    put_wide(&contents.addresses, addresses);
    put_wide(&contents.counts, counts);
    put_types(&contents.datatypes, datatypes)
}

/// MPI 5.0, section 3.2.5.
pub(crate) fn get_count<N: Number>(status: In<Status>, handle: types::Datatype, count: Out<N>) -> Answer {
    store_or_undefined(count, datatype(handle, "datatype")?.count_in(required_status(status)?.bytes()));
    Ok(())
}

/// MPI 5.0, section 5.1.11.
pub(crate) fn get_elements<N: Number>(status: In<Status>, handle: types::Datatype, count: Out<N>) -> Answer {
    store_or_undefined(count, datatype(handle, "datatype")?.elements_in(required_status(status)?.bytes()));
    Ok(())
}

/// MPI 5.0, section 16.4.
pub(crate) use get_elements as get_elements_x;

/// MPI 5.0, section 13.3.
pub(crate) fn status_set_elements<N: Number>(
    status: Out<Status>,
    handle: types::Datatype,
    count: N,
) -> Answer {
    let count = count.to_i64();
    let none = || Fault::new(c::MPI_ERR_COUNT, format!("count: the datatype never has {count} elements"));
    let bytes = datatype(handle, "datatype")?.bytes_of_elements(count).ok_or_else(none)?;
    change(status, |status| status.set_bytes(bytes))
}

/// MPI 5.0, section 16.4.
pub(crate) use status_set_elements as status_set_elements_x;
