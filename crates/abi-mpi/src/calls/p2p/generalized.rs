//! Generalized requests: operations that the program itself defines (MPI 5.0, section 13.2).

use std::sync::Arc;

use ffi::Out;

use super::request::new_request;
use crate::answer::{Answer, Fault};
use crate::callback::RequestFunctions;
use crate::constants as c;
use crate::state;
use crate::types::{self, Address};

pub(crate) fn grequest_start(
    query: Address,
    free: Address,
    cancel: Address,
    extra: Address,
    request: Out<types::Request>,
) -> Answer {
    for (function, name) in [(query, "query_fn"), (free, "free_fn"), (cancel, "cancel_fn")] {
        if function == Address(0) {
            return Err(Fault::new(c::MPI_ERR_ARG, format!("{name}: it is NULL")));
        }
    }
    let functions = Arc::new(RequestFunctions { query, free, cancel, extra });
    new_request(state::process()?.generalized(functions), request)
}
