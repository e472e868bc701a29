//! Notification objects.

use dapl::{Agent, Cno, Error, Subtype};

use super::{mask, timeout};
use crate::dat_return::{dat_return, not_implemented};
use crate::handles::{self, Object, from_label, ia_of, invalidate, label};
use crate::types::{CnoParam, Handle, ProxyAgent};
use ffi::Out;

const ALL_FIELDS: u64 = 0x7;
const PROXY_NONE: u32 = 0;
const PROXY_AGENT: u32 = 1;

/// The program's data, for the thread that calls its agent.
struct Instance(*mut std::ffi::c_void);

// SAFETY: the pointer is only passed back to the program, whose agent may be called from another thread once it is registered
// (uDAPL 2.0, OS Wait Proxy Agent). Test: `an_agent_is_called`.
unsafe impl Send for Instance {}

/// Wraps the program's agent.
fn wrap_agent(agent: ProxyAgent) -> Option<Agent> {
    let function = agent.proxy_agent_func?;
    let instance = Instance(agent.instance_data);
    Some(Box::new(move |evd| {
        let instance = &instance;
        // SAFETY: the program gave the function for this, with this data. Test: `an_agent_is_called`.
        unsafe { function(instance.0, from_label(evd)) };
    }))
}

pub(crate) extern "C" fn create(ia: Handle, proxy: ProxyAgent, cno: Out<Handle>) -> u32 {
    dat_return("cno_create", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let place = cno.required(Error::argument(Subtype::Arg3))?;
        let cno = Cno::create(&object.ia, wrap_agent(proxy))?;
        let handle = handles::insert(Object::Cno(cno.clone()), label(ia))?;
        cno.set_label(label(handle));
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn modify_agent(cno: Handle, proxy: ProxyAgent) -> u32 {
    dat_return("cno_modify_agent", || handles::cno(cno, Subtype::HandleCno)?.modify_agent(wrap_agent(proxy)))
}

pub(crate) extern "C" fn query(cno: Handle, fields: u32, param: Out<CnoParam>) -> u32 {
    dat_return("cno_query", || {
        let object = handles::cno(cno, Subtype::HandleCno)?;
        mask(fields.into(), ALL_FIELDS, Subtype::Arg2)?;
        let agent = ProxyAgent { instance_data: std::ptr::null_mut(), proxy_agent_func: None };
        let proxy_type = if object.has_agent() { PROXY_AGENT } else { PROXY_NONE };
        param.required(Error::argument(Subtype::Arg3))?.set(CnoParam {
            ia_handle: ia_of(cno),
            proxy_type,
            agent,
        });
        Ok(())
    })
}

pub(crate) extern "C" fn free(cno: Handle) -> u32 {
    dat_return("cno_free", || {
        handles::cno(cno, Subtype::HandleCno)?.release()?;
        invalidate(cno, Subtype::HandleCno)
    })
}

pub(crate) extern "C" fn wait(cno: Handle, microseconds: u32, evd: Out<Handle>) -> u32 {
    dat_return("cno_wait", || {
        let object = handles::cno(cno, Subtype::HandleCno)?;
        let place = evd.required(Error::argument(Subtype::Arg3))?;
        place.set(std::ptr::null_mut());
        place.set(from_label(object.wait(timeout(microseconds))?));
        Ok(())
    })
}

pub(crate) extern "C" fn trigger(cno: Handle, evd: Out<Handle>) -> u32 {
    dat_return("cno_trigger", || {
        let object = handles::cno(cno, Subtype::HandleCno)?;
        let place = evd.required(Error::argument(Subtype::Arg2))?;
        let empty = Error::new(dapl::ErrorKind::QueueEmpty, Subtype::None);
        place.set(from_label(object.poll().ok_or(empty)?));
        Ok(())
    })
}

pub(crate) extern "C" fn fd_create(ia: Handle, _fd: Out<i32>, _cno: Out<Handle>) -> u32 {
    dat_return("cno_fd_create", || {
        handles::ia(ia, Subtype::HandleIa)?;
        not_implemented()
    })
}
