//! [`Ah`]: address handles.

use ffi::Out;
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_grh, ibv_wc};

use crate::address::AhDestination;
use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Context, Pd};
use crate::slab::{Handle, Held, Object, Slab};
use crate::ud::Destination;

/// An address handle.
pub(crate) struct Ah {
    pd: Held<Pd>,
    target: AhDestination,
    source: ibv_gid,
}

impl Object for Ah {
    type C = ibv_ah;
    const NAME: &'static str = "ibv_ah";
    const END: Option<&'static str> = Some("ibv_destroy_ah");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Ah> = Slab::new();
        &SLAB
    }
}

fn create(pd: Held<Pd>, attr: &ibv_ah_attr) -> Answer<Handle<Ah>> {
    let engine = &pd.context().lookup()?.engine;
    let (target, source) = (engine.target(attr)?, engine.source(attr)?);
    let seen = ibv_ah { context: Context::address(pd.context()), pd: pd.handle().cast(), handle: 0 };
    let ah = Ah::slab().insert(seen, Ah { pd, target, source })?;
    pd.users.join();
    Ok(ah)
}

pub(crate) fn ibv_create_ah(pd: Handle<Pd>, attr: Out<ibv_ah_attr>) -> Answer<Handle<Ah>> {
    create(pd.lookup()?, &attr.get().ok_or_else(|| missing("attr"))?)
}

impl Held<Ah> {
    /// The destination of a request to the queue pair with this number, with this Q_Key.
    ///
    /// # Errors
    /// As [`AhDestination::process_of`].
    pub(crate) fn destination(self, qp_num: u32, qkey: u32) -> Answer<Destination> {
        let addr = self.target.process_of(qp_num)?;
        Ok(Destination { addr, qp_num, qkey, source: self.source })
    }
}

/// The address vector back to the sender of a receive, from the GID at which it arrived.
fn way_back(
    context: Handle<Context>,
    port_num: u8,
    wc: Out<ibv_wc>,
    grh: Out<ibv_grh>,
) -> Answer<ibv_ah_attr> {
    let gids = &context.lookup()?.engine.gids;
    let (wc, grh) = (wc.get().ok_or_else(|| missing("wc"))?, grh.get().ok_or_else(|| missing("grh"))?);
    if wc.wc_flags & n::IBV_WC_GRH == 0 || port_num != 1 {
        return Err(errno!(
            INVAL,
            "port_num is {port_num} (the only port is 1), and wc.wc_flags is {:#x}, which needs IBV_WC_GRH: pass the completion of a \
             received datagram",
            wc.wc_flags
        ));
    }
    let own = gids.iter().position(|gid| gid.raw == grh.dgid.raw);
    let grh = ibv_global_route {
        dgid: grh.sgid,
        flow_label: 0,
        sgid_index: own.and_then(|index| u8::try_from(index).ok()).unwrap_or(0),
        hop_limit: grh.hop_limit,
        traffic_class: 0,
    };
    let (dlid, sl, src_path_bits) = (wc.slid, wc.sl, wc.dlid_path_bits);
    Ok(ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate: 0, is_global: 1, port_num })
}

pub(crate) fn ibv_init_ah_from_wc(
    context: Handle<Context>,
    port_num: u8,
    wc: Out<ibv_wc>,
    grh: Out<ibv_grh>,
    attr: Out<ibv_ah_attr>,
) -> Answer {
    let place = attr.required_or(|| missing("ah_attr"))?;
    place.set(way_back(context, port_num, wc, grh)?);
    Ok(())
}

pub(crate) fn ibv_create_ah_from_wc(
    pd: Handle<Pd>,
    wc: Out<ibv_wc>,
    grh: Out<ibv_grh>,
    port_num: u8,
) -> Answer<Handle<Ah>> {
    let pd = pd.lookup()?;
    create(pd, &way_back(pd.context(), port_num, wc, grh)?)
}

pub(crate) fn ibv_destroy_ah(ah: Handle<Ah>) -> Answer {
    ah.lookup()?.remove()?.pd.users.leave();
    Ok(())
}
