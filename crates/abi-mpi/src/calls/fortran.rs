//! The ABI for Fortran bindings on top of this library: they describe their compiler and query the Fortran types of this library
//! (MPI 5.0, section 20.4.1).

use std::sync::Mutex;

use datatypes::Basic;
use ffi::{Out, lock};

use super::info::{hints, new_info};
use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::memory::{copy_from, copy_to};
use crate::types::{Address, Info};

/// The bytes of `.TRUE.` and `.FALSE.` that were set, for a `LOGICAL` of this length.
static BOOLEANS: Mutex<Option<[Vec<u8>; 2]>> = Mutex::new(None);

/// Sizes and availability of Fortran's types in `datatypes`.
fn fortran_info() -> Answer<mpi::Info> {
    let mut pairs = mpi::Info::default();
    for basic in Basic::ALL {
        let name = basic.name().trim_start_matches("MPI_").to_lowercase();
        let is_sized = name.ends_with(|c: char| c.is_ascii_digit());
        match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "logical" | "integer" | "real" | "double_precision" if !is_sized => {
                pairs.set(&format!("mpi_{name}_size"), &basic.size().to_string())?;
            }
            "logical" | "integer" | "real" | "complex" if is_sized => {
                pairs.set(&format!("mpi_{name}_supported"), "true")?;
            }
            "double_complex" => pairs.set("mpi_double_complex_supported", "true")?,
            _ => {}
        }
    }
    Ok(pairs)
}

pub(crate) fn abi_get_fortran_info(info: Out<Info>) -> Answer {
    info.set(new_info(fortran_info()?)?);
    Ok(())
}

/// Accepts only values that match the existing ones: sizes of types cannot be changed.
pub(crate) fn abi_set_fortran_info(info: Info) -> Answer {
    let (known, given) = (fortran_info()?, hints(info)?);
    for (key, value) in given.pairs() {
        let fits = match known.get(key)? {
            Some(here) => here == value || (here == "true" && value == "false"),
            None => value == "false",
        };
        if !fits {
            let here = known.get(key)?.unwrap_or("not there").to_owned();
            return Err(Fault::new(c::MPI_ERR_ABI, format!("info: {key} is {here} here, and not '{value}'")));
        }
    }
    Ok(())
}

fn logical(size: i32, at: Address, argument: &str) -> Answer<Vec<u8>> {
    let wrong = || Fault::new(c::MPI_ERR_ARG, format!("logical_size: there is no LOGICAL of {size} bytes"));
    let size =
        [1, 2, 4, 8, 16].into_iter().find(|known| i32::try_from(*known) == Ok(size)).ok_or_else(wrong)?;
    if at == Address(0) {
        return Err(Fault::new(c::MPI_ERR_ARG, format!("{argument}: its address is NULL")));
    }
    let mut bytes = vec![0; size];
    copy_from(at, &mut bytes);
    Ok(bytes)
}

/// Logical operators treat any nonzero value as true and return 1, so `.TRUE.` must have its lowest bit set, and `.FALSE.` must be
/// 0.
pub(crate) fn abi_set_fortran_booleans(size: i32, logical_true: Address, logical_false: Address) -> Answer {
    let given =
        [logical(size, logical_true, "logical_true")?, logical(size, logical_false, "logical_false")?];
    if given[0][0] & 1 == 0 || given[1].iter().any(|byte| *byte != 0) {
        return Err(Fault::new(c::MPI_ERR_ABI, "logical_true: it must be odd, and .FALSE. 0, as here"));
    }
    let mut set = lock(&BOOLEANS);
    if set.is_some() {
        return Err(Fault::new(c::MPI_ERR_ABI, "the values of LOGICAL are set already"));
    }
    *set = Some(given);
    Ok(())
}

pub(crate) fn abi_get_fortran_booleans(
    size: i32,
    logical_true: Address,
    logical_false: Address,
    is_set: Out<i32>,
) -> Answer {
    let set = lock(&BOOLEANS);
    is_set.set(set.is_some().into());
    let Some(known) = &*set else { return Ok(()) };
    for (at, value) in [logical_true, logical_false].into_iter().zip(known) {
        let room = logical(size, at, "logical_true or logical_false")?.len();
        // On a little-endian machine, the longer value is the shorter one followed by its sign extension.
        let fill = if value[value.len() - 1] & 0x80 == 0 { 0 } else { 0xff };
        let mut bytes = value.clone();
        bytes.resize(room, fill);
        copy_to(at, &bytes);
    }
    Ok(())
}
