//! Datatypes: their handles, and the calls that create, name and free them (MPI 5.0, section 5.1).

use datatypes::{Basic, Combiner, Datatype, Distribution, Order, TypeClass};
use ffi::{In, Out, Text, lock};

use crate::answer::{Answer, Fault};
use crate::calls::group::integers;
use crate::constants as c;
use crate::kinds::TypeObject;
use crate::memory::put_text;
use crate::objects::{Ref, datatype, get, insert, remove, type_handle};
use crate::types::{self, Handle, Number, kind};

/// Returns a newly constructed type; `N` is the form of the constructor.
fn store_new_type<N: Number>(datatype: Datatype, newtype: Out<types::Datatype>) -> Answer {
    let datatype = if N::IS_LARGE { datatype.with_large_counts() } else { datatype };
    newtype.set(insert::<kind::Datatype>(TypeObject::new(datatype))?);
    Ok(())
}

/// Reads an array of `count` numbers of either width.
pub(crate) fn numbers<N: Number>(array: In<N>, count: i64, argument: &str) -> Answer<Vec<i64>> {
    let wrong = |code, why| Fault::new(code, format!("{argument}: {why}"));
    let count = usize::try_from(count).map_err(|_| wrong(c::MPI_ERR_COUNT, "their number is negative"))?;
    let items = array.items(count).ok_or_else(|| wrong(c::MPI_ERR_ARG, "it is NULL"))?;
    Ok(items.map(Number::to_i64).collect())
}

fn get_oldtype(handle: types::Datatype) -> Answer<Ref<kind::Datatype>> {
    get(handle, "oldtype")
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_contiguous<N: Number>(
    count: N,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    store_new_type::<N>(Datatype::contiguous(count.to_i64(), &get_oldtype(oldtype)?.datatype)?, newtype)
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_vector<N: Number>(
    count: N,
    blocklength: N,
    stride: N,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let (count, length, stride) = (count.to_i64(), blocklength.to_i64(), stride.to_i64());
    store_new_type::<N>(Datatype::vector(count, length, stride, &get_oldtype(oldtype)?.datatype)?, newtype)
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_create_hvector<N: Number>(
    count: N,
    blocklength: N,
    stride: i64,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let (count, length) = (count.to_i64(), blocklength.to_i64());
    store_new_type::<N>(Datatype::hvector(count, length, stride, &get_oldtype(oldtype)?.datatype)?, newtype)
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_indexed<N: Number>(
    count: N,
    blocklengths: In<N>,
    displacements: In<N>,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let lengths = numbers(blocklengths, count.to_i64(), "array_of_blocklengths")?;
    let places = numbers(displacements, count.to_i64(), "array_of_displacements")?;
    store_new_type::<N>(Datatype::indexed(&lengths, &places, &get_oldtype(oldtype)?.datatype)?, newtype)
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_create_hindexed<N: Number>(
    count: N,
    blocklengths: In<N>,
    displacements: In<i64>,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let lengths = numbers(blocklengths, count.to_i64(), "array_of_blocklengths")?;
    let places = numbers(displacements, count.to_i64(), "array_of_displacements")?;
    store_new_type::<N>(Datatype::hindexed(&lengths, &places, &get_oldtype(oldtype)?.datatype)?, newtype)
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_create_indexed_block<N: Number>(
    count: N,
    blocklength: N,
    displacements: In<N>,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let places = numbers(displacements, count.to_i64(), "array_of_displacements")?;
    store_new_type::<N>(
        Datatype::indexed_block(blocklength.to_i64(), &places, &get_oldtype(oldtype)?.datatype)?,
        newtype,
    )
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_create_hindexed_block<N: Number>(
    count: N,
    blocklength: N,
    displacements: In<i64>,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let places = numbers(displacements, count.to_i64(), "array_of_displacements")?;
    store_new_type::<N>(
        Datatype::hindexed_block(blocklength.to_i64(), &places, &get_oldtype(oldtype)?.datatype)?,
        newtype,
    )
}

/// MPI 5.0, section 5.1.2.
pub(crate) fn type_create_struct<N: Number>(
    count: N,
    blocklengths: In<N>,
    displacements: In<i64>,
    types: In<types::Datatype>,
    newtype: Out<types::Datatype>,
) -> Answer {
    let lengths = numbers(blocklengths, count.to_i64(), "array_of_blocklengths")?;
    let places = numbers(displacements, count.to_i64(), "array_of_displacements")?;
    let types =
        types.items(lengths.len()).ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "array_of_types: it is NULL"))?;
    let types: Vec<Datatype> =
        types.map(|handle| datatype(handle, "array_of_types")).collect::<Answer<_>>()?;
    store_new_type::<N>(Datatype::structure(&lengths, &places, &types)?, newtype)
}

fn order(order: i32) -> Answer<Order> {
    match order {
        c::MPI_ORDER_C => Ok(Order::C),
        c::MPI_ORDER_FORTRAN => Ok(Order::Fortran),
        other => Err(Fault::new(c::MPI_ERR_ARG, format!("order: there is no {other}"))),
    }
}

/// MPI 5.0, section 5.1.3.
pub(crate) fn type_create_subarray<N: Number>(
    ndims: i32,
    sizes: In<N>,
    subsizes: In<N>,
    starts: In<N>,
    order_of: i32,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let sizes = numbers(sizes, ndims.to_i64(), "array_of_sizes")?;
    let subsizes = numbers(subsizes, ndims.to_i64(), "array_of_subsizes")?;
    let starts = numbers(starts, ndims.to_i64(), "array_of_starts")?;
    let old = get_oldtype(oldtype)?;
    store_new_type::<N>(
        Datatype::subarray(&sizes, &subsizes, &starts, order(order_of)?, &old.datatype)?,
        newtype,
    )
}

/// MPI 5.0, section 5.1.4.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn type_create_darray<N: Number>(
    size: i32,
    rank: i32,
    ndims: i32,
    gsizes: In<N>,
    distribs: In<i32>,
    dargs: In<i32>,
    psizes: In<i32>,
    order_of: i32,
    oldtype: types::Datatype,
    newtype: Out<types::Datatype>,
) -> Answer {
    let sizes = numbers(gsizes, ndims.to_i64(), "array_of_gsizes")?;
    let distribution = |number| match number {
        c::MPI_DISTRIBUTE_NONE => Ok(Distribution::None),
        c::MPI_DISTRIBUTE_BLOCK => Ok(Distribution::Block),
        c::MPI_DISTRIBUTE_CYCLIC => Ok(Distribution::Cyclic),
        other => Err(Fault::new(c::MPI_ERR_ARG, format!("array_of_distribs: there is no {other}"))),
    };
    let distributions = integers(distribs, ndims, "array_of_distribs")?.into_iter().map(distribution);
    let distributions: Vec<Distribution> = distributions.collect::<Answer<_>>()?;
    let argument = |number| (number != c::MPI_DISTRIBUTE_DFLT_DARG).then_some(i64::from(number));
    let arguments: Vec<Option<i64>> =
        integers(dargs, ndims, "array_of_dargs")?.into_iter().map(argument).collect();
    let processes = numbers(psizes, ndims.to_i64(), "array_of_psizes")?;
    let (size, rank, order, old) = (size.to_i64(), rank.to_i64(), order(order_of)?, get_oldtype(oldtype)?);
    let old = &old.datatype;
    let made_of = Datatype::darray(size, rank, &sizes, &distributions, &arguments, &processes, order, old)?;
    store_new_type::<N>(made_of, newtype)
}

/// MPI 5.0, section 5.1.7.
pub(crate) fn type_create_resized(
    oldtype: types::Datatype,
    lb: i64,
    extent: i64,
    newtype: Out<types::Datatype>,
) -> Answer {
    store_new_type::<i32>(Datatype::resized(&get_oldtype(oldtype)?.datatype, lb, extent)?, newtype)
}

/// MPI 5.0, section 5.1.7.
pub(crate) fn type_create_resized_c(
    oldtype: types::Datatype,
    lb: i64,
    extent: i64,
    newtype: Out<types::Datatype>,
) -> Answer {
    store_new_type::<i64>(Datatype::resized(&get_oldtype(oldtype)?.datatype, lb, extent)?, newtype)
}

/// A number, or `None` for `MPI_UNDEFINED`.
fn defined(number: i32) -> Option<i64> {
    (number != c::MPI_UNDEFINED).then_some(number.into())
}

/// MPI 5.0, section 19.1.9.
pub(crate) fn type_create_f90_integer(range: i32, newtype: Out<types::Datatype>) -> Answer {
    newtype.set(type_handle(&Datatype::f90_integer(range.into())?)?.0);
    Ok(())
}

/// MPI 5.0, section 19.1.9.
pub(crate) fn type_create_f90_real(precision: i32, range: i32, newtype: Out<types::Datatype>) -> Answer {
    newtype.set(type_handle(&Datatype::f90_real(defined(precision), defined(range))?)?.0);
    Ok(())
}

/// MPI 5.0, section 19.1.9.
pub(crate) fn type_create_f90_complex(precision: i32, range: i32, newtype: Out<types::Datatype>) -> Answer {
    newtype.set(type_handle(&Datatype::f90_complex(defined(precision), defined(range))?)?.0);
    Ok(())
}

/// MPI 5.0, section 6.9.4.
pub(crate) fn type_get_value_index(
    value_type: types::Datatype,
    index_type: types::Datatype,
    pair_type: Out<types::Datatype>,
) -> Answer {
    let (value, index) = (get(value_type, "value_type")?, get(index_type, "index_type")?);
    // Only predefined pair types are returned: other libraries have no others, and programs expect none.
    let pair = Datatype::value_index(&value.datatype, &index.datatype)?;
    let pair = pair.filter(|pair| pair.combiner() == Combiner::Named);
    let handle = pair.map(|pair| type_handle(&pair)).transpose()?;
    pair_type.set(handle.map_or(Handle::new(c::MPI_DATATYPE_NULL), |(handle, _)| handle));
    Ok(())
}

/// MPI 5.0, section 19.1.9.
pub(crate) fn type_match_size(typeclass: i32, size: i32, handle: Out<types::Datatype>) -> Answer {
    let class = match typeclass {
        c::MPI_TYPECLASS_INTEGER => TypeClass::Integer,
        c::MPI_TYPECLASS_REAL => TypeClass::Real,
        c::MPI_TYPECLASS_COMPLEX => TypeClass::Complex,
        other => return Err(Fault::new(c::MPI_ERR_ARG, format!("typeclass: there is no {other}"))),
    };
    handle.set(Handle::new(Basic::matching(class, size.into())?.abi().into()));
    Ok(())
}

/// MPI 5.0, section 5.1.10.
pub(crate) fn type_dup(oldtype: types::Datatype, newtype: Out<types::Datatype>) -> Answer {
    let object = get_oldtype(oldtype)?;
    let copy = TypeObject::new(Datatype::duplicate(&object.datatype));
    // The functions are called without the lock.
    let attributes = lock(&object.attributes).all();
    for (key, value) in attributes {
        if let Some(value) = key.copy(&oldtype, value)? {
            lock(&copy.attributes).set(key, value);
        }
    }
    newtype.set(insert::<kind::Datatype>(copy)?);
    Ok(())
}

/// MPI 5.0, section 5.1.9.
pub(crate) fn type_commit(handle: Out<types::Datatype>) -> Answer {
    get(handle_or_null(handle), "datatype")?.datatype.commit();
    Ok(())
}

fn handle_or_null(handle: Out<types::Datatype>) -> types::Datatype {
    handle.get().unwrap_or(Handle::new(c::MPI_DATATYPE_NULL))
}

/// MPI 5.0, section 5.1.9.
pub(crate) fn type_free(place: Out<types::Datatype>) -> Answer {
    let handle = handle_or_null(place);
    let object = get(handle, "datatype")?;
    if handle.is_predefined() {
        return Err(Fault::new(c::MPI_ERR_TYPE, "datatype: a predefined datatype cannot be freed"));
    }
    loop {
        let last = lock(&object.attributes).all().pop();
        let Some((key, value)) = last else { break };
        key.delete(&handle, value)?;
        lock(&object.attributes).take(&key);
    }
    remove(handle);
    place.set(Handle::new(c::MPI_DATATYPE_NULL));
    Ok(())
}

/// The name that a program gave, or the standard's.
fn name_of(handle: types::Datatype) -> Answer<String> {
    let object = get(handle, "datatype")?;
    let own = lock(&object.name).clone();
    Ok(own.unwrap_or_else(|| object.datatype.basic().map_or("", Basic::name).to_owned()))
}

/// MPI 5.0, section 7.8.
pub(crate) fn type_get_name(handle: types::Datatype, type_name: Out<u8>, resultlen: Out<i32>) -> Answer {
    let name = if handle.value() == c::MPI_DATATYPE_NULL {
        "MPI_DATATYPE_NULL".to_owned()
    } else {
        name_of(handle)?
    };
    resultlen.set(put_text(type_name, &name, c::MPI_MAX_OBJECT_NAME as usize));
    Ok(())
}

/// MPI 5.0, section 7.8.
pub(crate) fn type_set_name(handle: types::Datatype, type_name: Text) -> Answer {
    let name = type_name.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "type_name: it is NULL"))?;
    *lock(&get(handle, "datatype")?.name) = Some(name);
    Ok(())
}
