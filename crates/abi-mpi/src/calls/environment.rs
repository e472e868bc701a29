//! Initialization and termination, and queries of the library and the machine: versions, time, memory, addresses
//! (MPI 5.0, chapters 9 and 11).

use ffi::Out;

use super::dynamic::join_parent;
use super::info::new_info;
use super::tool::record_registered_events;
use crate::answer::{Answer, Fault};
use crate::clock::host;
use crate::constants as c;
use crate::memory::{allocate, put_text, release};
use crate::objects::get;
use crate::profile;
use crate::state;
use crate::types::{Address, Comm, Info};

/// MPI 5.0, section 20.2.
pub(crate) fn abi_get_version(major: Out<i32>, minor: Out<i32>) -> Answer {
    major.set(c::MPI_ABI_VERSION);
    minor.set(c::MPI_ABI_SUBVERSION);
    Ok(())
}

/// MPI 5.0, section 9.1.1.
pub(crate) fn get_version(version: Out<i32>, subversion: Out<i32>) -> Answer {
    version.set(c::MPI_VERSION);
    subversion.set(c::MPI_SUBVERSION);
    Ok(())
}

/// MPI 5.0, section 9.1.1.
pub(crate) fn get_library_version(version: Out<u8>, resultlen: Out<i32>) -> Answer {
    resultlen.set(put_text(version, concat!("Nicety ", env!("CARGO_PKG_VERSION")), LIBRARY_VERSION_MAX));
    Ok(())
}

/// `MPI_MAX_LIBRARY_VERSION_STRING`, with the terminating zero.
const LIBRARY_VERSION_MAX: usize = c::MPI_MAX_LIBRARY_VERSION_STRING as usize;

/// MPI 5.0, section 9.6.
pub(crate) fn wtime() -> f64 {
    host().now().since(host::Time::ZERO).as_secs_f64()
}

/// The resolution of `MPI_Wtime` in seconds: a nanosecond (MPI 5.0, section 9.6).
pub(crate) fn wtick() -> f64 {
    1e-9
}

/// MPI 5.0, section 5.1.5.
pub(crate) fn aint_add(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

/// MPI 5.0, section 5.1.5.
pub(crate) fn aint_diff(a: i64, b: i64) -> i64 {
    a.wrapping_sub(b)
}

/// MPI 5.0, section 5.1.5.
pub(crate) fn get_address(location: Address, address: Out<i64>) -> Answer {
    address.set(location.0 as i64);
    Ok(())
}

/// MPI 5.0, section 11.2.1.
pub(crate) fn init(_argc: Out<i32>, _argv: Address) -> Answer {
    start(c::MPI_THREAD_SINGLE)
}

/// Runs `MPI_Init`. Until the parent job is connected, no other thread can initialize or finalize anything.
fn start(level: i32) -> Answer {
    let _init_lock = state::init_world(level)?;
    record_registered_events();
    join_parent()
}

/// All thread levels are supported. Exactly the required level is provided, so that programs that need no locks use none.
/// MPI 5.0, section 11.2.1.
pub(crate) fn init_thread(_argc: Out<i32>, _argv: Address, required: i32, provided: Out<i32>) -> Answer {
    if !(c::MPI_THREAD_SINGLE..=c::MPI_THREAD_MULTIPLE).contains(&required) {
        return Err(Fault::new(
            c::MPI_ERR_ARG,
            format!("required: {required} is no level of thread support"),
        ));
    }
    start(required)?;
    provided.set(required);
    Ok(())
}

/// MPI 5.0, section 11.2.2.
pub(crate) fn finalize() -> Answer {
    state::finalize_world()
}

/// MPI 5.0, section 11.2.3.
pub(crate) fn initialized(flag: Out<i32>) -> Answer {
    flag.set(state::is_initialized().into());
    Ok(())
}

/// MPI 5.0, section 11.2.3.
pub(crate) fn finalized(flag: Out<i32>) -> Answer {
    flag.set(state::is_finalized().into());
    Ok(())
}

/// MPI 5.0, section 11.2.1.
pub(crate) fn query_thread(provided: Out<i32>) -> Answer {
    state::state()?;
    provided.set(state::world_level());
    Ok(())
}

/// MPI 5.0, section 11.2.1.
pub(crate) fn is_thread_main(flag: Out<i32>) -> Answer {
    flag.set((state::state()?.main == std::thread::current().id()).into());
    Ok(())
}

/// MPI 5.0, section 11.4.2.
pub(crate) fn abort(comm: Comm, errorcode: i32) -> Answer {
    let rank = state::rank().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
    let name = get(comm, "comm").map_or_else(|_| format!("{comm:?}"), |comm| comm.name());
    state::abort(errorcode, &format!("{rank}MPI_Abort with code {errorcode} on {name}"));
}

/// MPI 5.0, section 9.1.2.
pub(crate) fn get_processor_name(name: Out<u8>, resultlen: Out<i32>) -> Answer {
    let system = rustix::system::uname();
    let text = system.nodename().to_string_lossy();
    resultlen.set(put_text(name, &text, c::MPI_MAX_PROCESSOR_NAME as usize));
    Ok(())
}

/// MPI 5.0, section 9.2.
pub(crate) fn alloc_mem(size: i64, _info: Info, baseptr: Address) -> Answer {
    let bytes = usize::try_from(size).map_err(|_| Fault::new(c::MPI_ERR_ARG, "size: it is negative"))?;
    baseptr.out::<usize>().set(allocate(bytes)?.0);
    Ok(())
}

/// MPI 5.0, section 9.2.
pub(crate) fn free_mem(base: Address) -> Answer {
    release(base);
    Ok(())
}

/// MPI 5.0, section 20.2.
pub(crate) fn abi_get_info(info: Out<Info>) -> Answer {
    let mut pairs = mpi::Info::default();
    for key in ["mpi_aint_size", "mpi_count_size", "mpi_offset_size"] {
        pairs.set(key, "8")?;
    }
    info.set(new_info(pairs)?);
    Ok(())
}

/// Has an effect under `nicety mpirun --profile`; otherwise, profiling is left to tools that interpose on this library (MPI 5.0,
/// section 15.2.7).
pub(crate) fn pcontrol(level: i32) -> Answer {
    profile::control(level);
    Ok(())
}
