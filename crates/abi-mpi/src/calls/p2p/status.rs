//! Statuses: their public fields, and setters of the others (MPI 5.0, sections 3.2.5 and 13.3).

use ffi::{In, Out};

use crate::answer::{Answer, Fault};
use crate::constants::MPI_ERR_ARG;
use crate::types::Status;

/// Reads a status argument, which must not be `MPI_STATUS_IGNORE`.
pub(crate) fn required_status(status: In<Status>) -> Answer<Status> {
    status.required(Fault::new(MPI_ERR_ARG, "status: MPI_STATUS_IGNORE holds nothing"))
}

/// Changes a status argument.
pub(crate) fn change(status: Out<Status>, how: impl FnOnce(&mut Status)) -> Answer {
    let ignored = || Fault::new(MPI_ERR_ARG, "status: MPI_STATUS_IGNORE cannot be set");
    let mut changed = status.get().ok_or_else(ignored)?;
    how(&mut changed);
    status.set(changed);
    Ok(())
}

/// MPI 5.0, section 3.2.5.
pub(crate) fn status_get_source(status: In<Status>, source: Out<i32>) -> Answer {
    source.set(required_status(status)?.source);
    Ok(())
}

/// MPI 5.0, section 3.2.5.
pub(crate) fn status_get_tag(status: In<Status>, tag: Out<i32>) -> Answer {
    tag.set(required_status(status)?.tag);
    Ok(())
}

/// MPI 5.0, section 3.2.5.
pub(crate) fn status_get_error(status: In<Status>, error: Out<i32>) -> Answer {
    error.set(required_status(status)?.error);
    Ok(())
}

/// MPI 5.0, section 3.8.4.
pub(crate) fn test_cancelled(status: In<Status>, flag: Out<i32>) -> Answer {
    flag.set(required_status(status)?.is_cancelled().into());
    Ok(())
}

/// MPI 5.0, section 13.3.
pub(crate) fn status_set_source(status: Out<Status>, source: i32) -> Answer {
    change(status, |status| status.source = source)
}

/// MPI 5.0, section 13.3.
pub(crate) fn status_set_tag(status: Out<Status>, tag: i32) -> Answer {
    change(status, |status| status.tag = tag)
}

/// MPI 5.0, section 13.3.
pub(crate) fn status_set_error(status: Out<Status>, error: i32) -> Answer {
    change(status, |status| status.error = error)
}

/// MPI 5.0, section 13.3.
pub(crate) fn status_set_cancelled(status: Out<Status>, flag: i32) -> Answer {
    change(status, |status| status.set_cancelled(flag != 0))
}
