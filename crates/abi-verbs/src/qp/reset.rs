//! Moving queue pairs to RESET (`ibv_modify_qp(3)`; IBA 10.3.1), as connection pools do to reuse them.

use ffi::lock;

use crate::answer::Answer;
use crate::objects::{Qp, Settings};
use crate::qp::device_qp::DeviceQp;
use crate::slab::Held;

/// Moves a queue pair to RESET. Its connection, requests, receives and unpolled completions are discarded without a report. It keeps
/// its number and its attachment to a shared receive queue (`ibv_modify_qp(3)`; IBA 10.3.1).
///
/// # Errors
/// When the device has no room for another queue pair, which is needed until the former one is freed; then nothing has changed. When
/// the new UD queue pair cannot be connected to its bridge; then the queue pair is in the error state.
pub(crate) fn reset(qp: Held<Qp>) -> Answer {
    let engine = qp.context.lookup()?.engine.clone();
    let former = qp.device_qp();
    let number = former.qp.reported_qp_num();
    let next = DeviceQp::create(&engine, former.qp.pd(), former.qp.init(), qp.is_datagram()).map_err(|why| {
        why.remarked(format_args!(
            "queue pair {number:#x} cannot be reset, which takes one more of its device for a moment (errno {}): destroy one \
             that is not used",
            why.0
        ))
    })?;
    former.drain(&engine);
    let mut objects = lock(&engine.objects);
    former.unregister(&engine, &mut objects);
    engine.pairing.release(&former.qp);
    let entered = next.register(&engine, &mut objects, qp.handle()).inspect_err(|_| next.qp.to_error());
    let former = qp.current.begin(next);
    drop(objects);
    drop(former);
    qp.cqs().into_iter().for_each(|cq| cq.delayed.forget(number));
    *lock(&qp.settings) = Settings::default();
    entered
}
