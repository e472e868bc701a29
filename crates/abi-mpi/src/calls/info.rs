//! Info objects (MPI 5.0, chapter 10).

use std::sync::Mutex;

use ffi::{Out, Text, lock};
use mpi::Info;

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::kinds::environment;
use crate::memory::{optional_strings, put_text};
use crate::objects::{get, insert, remove};
use crate::types::{self, Address, Handle, kind};

/// The pairs of an info argument; `MPI_INFO_NULL` has none.
pub(crate) fn hints(info: types::Info) -> Answer<Info> {
    if info.value() == c::MPI_INFO_NULL {
        return Ok(Info::default());
    }
    Ok(lock(&*get(info, "info")?).clone())
}

pub(crate) fn new_info(info: Info) -> Answer<types::Info> {
    insert::<kind::Info>(Mutex::new(info))
}

fn text(place: Text, argument: &str, code: i32) -> Answer<String> {
    place.get().ok_or_else(|| Fault::new(code, format!("{argument}: it is NULL")))
}

pub(crate) fn info_create(info: Out<types::Info>) -> Answer {
    info.set(new_info(Info::default())?);
    Ok(())
}

/// Without arguments, those of the process are used.
pub(crate) fn info_create_env(argc: i32, argv: Address, info: Out<types::Info>) -> Answer {
    let given = match usize::try_from(argc) {
        Ok(count @ 1..) if argv != Address(0) => {
            optional_strings(argv, count).into_iter().flatten().collect()
        }
        _ => std::env::args().collect(),
    };
    info.set(new_info(environment(given))?);
    Ok(())
}

pub(crate) fn info_dup(info: types::Info, newinfo: Out<types::Info>) -> Answer {
    let copy = lock(&*get(info, "info")?).clone();
    newinfo.set(new_info(copy)?);
    Ok(())
}

pub(crate) fn info_free(info: Out<types::Info>) -> Answer {
    let handle = info.get().unwrap_or(Handle::new(c::MPI_INFO_NULL));
    get(handle, "info")?;
    if !remove(handle) {
        return Err(Fault::new(c::MPI_ERR_INFO, "info: MPI_INFO_ENV cannot be freed"));
    }
    info.set(Handle::new(c::MPI_INFO_NULL));
    Ok(())
}

pub(crate) fn info_set(info: types::Info, key: Text, value: Text) -> Answer {
    let (key, value) = (text(key, "key", c::MPI_ERR_INFO_KEY)?, text(value, "value", c::MPI_ERR_INFO_VALUE)?);
    lock(&*get(info, "info")?).set(&key, &value)?;
    Ok(())
}

pub(crate) fn info_delete(info: types::Info, key: Text) -> Answer {
    let key = text(key, "key", c::MPI_ERR_INFO_KEY)?;
    lock(&*get(info, "info")?).delete(&key)?;
    Ok(())
}

/// The value of a key, if it is set.
fn value_of(info: types::Info, key: Text) -> Answer<Option<String>> {
    let key = text(key, "key", c::MPI_ERR_INFO_KEY)?;
    let object = get(info, "info")?;
    let value = lock(&*object).get(&key)?.map(str::to_owned);
    Ok(value)
}

/// MPI 5.0, section 16.3.
pub(crate) fn info_get(
    info: types::Info,
    key: Text,
    valuelen: i32,
    value: Out<u8>,
    flag: Out<i32>,
) -> Answer {
    let found = value_of(info, key)?;
    flag.set(found.is_some().into());
    let room =
        usize::try_from(valuelen).map_err(|_| Fault::new(c::MPI_ERR_ARG, "valuelen: it is negative"))?;
    if let Some(found) = found {
        put_text(value, &found, room + 1);
    }
    Ok(())
}

/// MPI 5.0, section 16.3.
pub(crate) fn info_get_valuelen(info: types::Info, key: Text, valuelen: Out<i32>, flag: Out<i32>) -> Answer {
    let found = value_of(info, key)?;
    flag.set(found.is_some().into());
    if let Some(found) = found {
        valuelen.set(found.len() as i32);
    }
    Ok(())
}

pub(crate) fn info_get_string(
    info: types::Info,
    key: Text,
    buflen: Out<i32>,
    value: Out<u8>,
    flag: Out<i32>,
) -> Answer {
    let found = value_of(info, key)?;
    flag.set(found.is_some().into());
    let Some(found) = found else { return Ok(()) };
    let room = buflen.get().and_then(|room| usize::try_from(room).ok());
    let room = room.ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "buflen: it is negative"))?;
    if room > 0 {
        put_text(value, &found, room);
    }
    buflen.set(found.len() as i32 + 1);
    Ok(())
}

pub(crate) fn info_get_nkeys(info: types::Info, nkeys: Out<i32>) -> Answer {
    nkeys.set(lock(&*get(info, "info")?).pairs().len() as i32);
    Ok(())
}

pub(crate) fn info_get_nthkey(info: types::Info, n: i32, key: Out<u8>) -> Answer {
    let object = get(info, "info")?;
    let object = lock(&*object);
    let pair = usize::try_from(n).ok().and_then(|n| object.pairs().get(n));
    let none = || Fault::new(c::MPI_ERR_ARG, format!("n: there is no key {n} of {}", object.pairs().len()));
    put_text(key, &pair.ok_or_else(none)?.0, c::MPI_MAX_INFO_KEY as usize);
    Ok(())
}
