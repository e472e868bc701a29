//! Functions of programs, called with no lock held: error handlers, functions of attributes, operators.
//!
//! A program passes the address of a function of the type that the standard says. That is what makes each call here sound.

use std::ffi::c_void;

use datatypes::{Datatype, Error, ErrorKind, UserFunction};
use mpi::{Class, Conversion, Generalized};

use crate::calls::known_type_handle;
use crate::memory::Raw;
use crate::types::{self, Address, Handle, Status};

/// An error handler of a program's, for whatever kind of object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub(crate) Address);

impl Function {
    /// Calls it for an object's handle and a code; the code that the failed call is to return, which it may change.
    pub(crate) fn handle_error(self, handle: usize, code: i32) -> i32 {
        type Handler = unsafe extern "C" fn(*mut usize, *mut i32, ...);
        let (mut handle, mut code) = (handle, code);
        // SAFETY: a program passes a function of this type, which reads both through their addresses while it runs. Test:
        // `errors` of tests/c/alone.c.
        unsafe {
            let handler = std::mem::transmute::<usize, Handler>(self.0.0);
            handler(&raw mut handle, &raw mut code);
        }
        code
    }
}

/// What a tool wants called when something happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFunction(pub(crate) Address);

impl EventFunction {
    /// Calls it for an instance, with the handle that it was registered for, and what was registered with it.
    pub(crate) fn call(self, instance: Address, handle: Address, safety: i32, data: Address) {
        type Heard = unsafe extern "C" fn(usize, usize, i32, usize);
        // SAFETY: a tool passes a function of this type. Test: `events` of tests/c/tools.c.
        unsafe { std::mem::transmute::<usize, Heard>(self.0.0)(instance.0, handle.0, safety, data.0) };
    }
}

/// What a tool wants called when a handle of an event is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventGone(pub(crate) Address);

impl EventGone {
    /// Calls it for a handle, with what the tool has given with it.
    pub(crate) fn call(self, handle: Address, safety: i32, data: Address) {
        type Gone = unsafe extern "C" fn(usize, i32, usize);
        // SAFETY: as in `EventFunction::call`.
        unsafe { std::mem::transmute::<usize, Gone>(self.0.0)(handle.0, safety, data.0) };
    }
}

/// What a tool wants called when events were forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventsDropped(pub(crate) Address);

impl EventsDropped {
    /// Calls it with how many they were, all from the first source.
    pub(crate) fn call(self, count: i64, handle: Address, safety: i32, data: Address) {
        type Dropped = unsafe extern "C" fn(i64, usize, i32, i32, usize);
        // SAFETY: as in `EventFunction::call`.
        unsafe { std::mem::transmute::<usize, Dropped>(self.0.0)(count, handle.0, 0, safety, data.0) };
    }
}

/// A key's functions and the word that a program keeps with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeFunctions {
    pub(crate) copy: Address,
    pub(crate) delete: Address,
    pub(crate) extra: Address,
}

/// What the standard has in place of functions that do nothing, or copy the value.
const NO_FUNCTION: Address = Address(0);
const COPY_VALUE: Address = Address(1);

impl AttributeFunctions {
    /// The copy's value, or none.
    pub(crate) fn copy(self, handle: usize, key: i32, value: usize) -> mpi::Result<Option<usize>> {
        type Copy = unsafe extern "C" fn(usize, i32, usize, usize, *mut usize, *mut i32) -> i32;
        match self.copy {
            NO_FUNCTION => return Ok(None),
            COPY_VALUE => return Ok(Some(value)),
            _ => {}
        }
        let (mut copied, mut flag) = (0_usize, 0);
        // SAFETY: a program passes a function of this type; handles and words are as wide as addresses. Test:
        // `attributes` of tests/c/alone.c.
        let code = unsafe {
            let function = std::mem::transmute::<usize, Copy>(self.copy.0);
            function(handle, key, self.extra.0, value, &raw mut copied, &raw mut flag)
        };
        done(code, "copy")?;
        Ok((flag != 0).then_some(copied))
    }

    pub(crate) fn delete(self, handle: usize, key: i32, value: usize) -> mpi::Result<()> {
        type Delete = unsafe extern "C" fn(usize, i32, usize, usize) -> i32;
        if self.delete == NO_FUNCTION {
            return Ok(());
        }
        // SAFETY: as in `copy`.
        let code = unsafe {
            let function = std::mem::transmute::<usize, Delete>(self.delete.0);
            function(handle, key, value, self.extra.0)
        };
        done(code, "delete")
    }
}

/// What an attribute's function answers.
fn done(code: i32, what: &str) -> mpi::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(mpi::Error::new(Class(code), format_args!("an attribute's {what} function failed"))),
    }
}

/// An operator of a program's, in either form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub(crate) function: Address,
    pub(crate) is_large: bool,
}

impl UserFunction for Operator {
    fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> datatypes::Result<()> {
        type Plain = unsafe extern "C" fn(*const c_void, *mut c_void, *mut i32, *mut types::Datatype);
        type Large = unsafe extern "C" fn(*const c_void, *mut c_void, *mut i64, *mut types::Datatype);
        let wrong = |text: String| Error { kind: ErrorKind::Op, text };
        let start = datatype.span(count)?.start as isize;
        let (mut handle, is_temporary) = known_type_handle(datatype).map_err(|fault| wrong(fault.text))?;
        let place = left.as_ptr().wrapping_offset(-start).cast();
        let result = right.as_mut_ptr().wrapping_offset(-start).cast();
        if self.is_large {
            let mut count = count;
            // SAFETY: a program passes a function of this type. Both slices have the elements of this many of the datatype, from
            // the addresses that it gets. Test: `datatypes` of tests/c/alone.c.
            unsafe {
                let function = std::mem::transmute::<usize, Large>(self.function.0);
                function(place, result, &raw mut count, &raw mut handle);
            }
        } else {
            let most = i32::MAX;
            let mut count = i32::try_from(count)
                .map_err(|_| wrong(format!("an operator takes at most {most} elements")))?;
            // SAFETY: as above.
            unsafe {
                let function = std::mem::transmute::<usize, Plain>(self.function.0);
                function(place, result, &raw mut count, &raw mut handle);
            }
        }
        if is_temporary {
            crate::objects::remove::<types::kind::Datatype>(Handle::new(handle.value()));
        }
        Ok(())
    }
}

/// What a program does about an operation of its own, and the word that it keeps with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFunctions {
    pub(crate) query: Address,
    pub(crate) free: Address,
    pub(crate) cancel: Address,
    pub(crate) extra: Address,
}

/// What a function of an operation answers.
fn succeeded(code: i32, what: &str) -> mpi::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(mpi::Error::new(Class(code), format_args!("the request's {what} function failed"))),
    }
}

impl Generalized for RequestFunctions {
    fn query(&self) -> mpi::Status {
        type Query = unsafe extern "C" fn(usize, *mut Status) -> i32;
        let mut status = Status::of(&mpi::Status::empty(), 0);
        // SAFETY: a program passes a function of this type, which sets the status while it runs. Test: `generalized` of
        // tests/c/alone.c.
        let code = unsafe {
            let function = std::mem::transmute::<usize, Query>(self.query.0);
            function(self.extra.0, &raw mut status)
        };
        let error = succeeded(code, "query").err().map(Into::into);
        let (source, tag) = (status.source, status.tag);
        mpi::Status { source, tag, bytes: status.bytes(), cancelled: status.is_cancelled(), error }
    }

    fn free(&self) -> mpi::Result<()> {
        type Free = unsafe extern "C" fn(usize) -> i32;
        // SAFETY: a program passes a function of this type. Test: as above.
        let code = unsafe { std::mem::transmute::<usize, Free>(self.free.0)(self.extra.0) };
        succeeded(code, "free")
    }

    fn cancel(&self, has_ended: bool) -> mpi::Result<()> {
        type Cancel = unsafe extern "C" fn(usize, i32) -> i32;
        // SAFETY: a program passes a function of this type. Test: as above.
        let code =
            unsafe { std::mem::transmute::<usize, Cancel>(self.cancel.0)(self.extra.0, has_ended.into()) };
        succeeded(code, "cancel")
    }
}

/// What a program converts data in files by, in either form, and the word that it keeps with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConversionFunctions {
    pub(crate) read: Address,
    pub(crate) write: Address,
    pub(crate) extent: Address,
    pub(crate) extra: Address,
    pub(crate) is_large: bool,
}

/// What a function of a data representation answers.
fn converted(code: i32, what: &str) -> mpi::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(mpi::Error::new(
            Class(code),
            format_args!("the data representation's {what} function failed"),
        )),
    }
}

fn uncounted(error: datatypes::Error) -> mpi::Error {
    mpi::Error::new(Class::COUNT, error.text)
}

/// Does something with a handle that a program's function gets.
fn with_handle<T>(datatype: &Datatype, act: impl FnOnce(usize) -> T) -> mpi::Result<T> {
    let wrong = |fault: crate::answer::Fault| mpi::Error::new(Class(fault.code), fault.text);
    let (handle, is_temporary) = known_type_handle(datatype).map_err(wrong)?;
    let done = act(handle.value());
    if is_temporary {
        crate::objects::remove::<types::kind::Datatype>(Handle::new(handle.value()));
    }
    Ok(done)
}

impl ConversionFunctions {
    /// Calls one of the two for all elements: `here` is the program's buffer, `there` their form in the file.
    fn convert(
        self,
        function: Address,
        here: usize,
        there: usize,
        elements: (i64, &Datatype),
    ) -> mpi::Result<i32> {
        type Plain = unsafe extern "C" fn(usize, usize, i32, usize, i64, usize) -> i32;
        type Large = unsafe extern "C" fn(usize, usize, i64, usize, i64, usize) -> i32;
        let (count, datatype) = elements;
        let many =
            || mpi::Error::new(Class::COUNT, "a conversion function takes at most 2147483647 elements");
        let plain_count = i32::try_from(count).ok().filter(|_| !self.is_large);
        if plain_count.is_none() && !self.is_large {
            return Err(many());
        }
        with_handle(datatype, |handle| match plain_count {
            // SAFETY: a program passes functions of these types, and the memory of so many elements in both forms. Test:
            // `representations` of tests/c/files.c.
            Some(count) => unsafe {
                let function = std::mem::transmute::<usize, Plain>(function.0);
                function(here, handle, count, there, 0, self.extra.0)
            },
            // SAFETY: as above.
            None => unsafe {
                let function = std::mem::transmute::<usize, Large>(function.0);
                function(here, handle, count, there, 0, self.extra.0)
            },
        })
    }
}

impl Conversion for ConversionFunctions {
    fn extent(&self, datatype: &Datatype) -> mpi::Result<i64> {
        type Extent = unsafe extern "C" fn(usize, *mut i64, usize) -> i32;
        let mut extent = 0;
        // SAFETY: a program passes a function of this type. Test: as above.
        let call = |handle| unsafe {
            let function = std::mem::transmute::<usize, Extent>(self.extent.0);
            function(handle, &raw mut extent, self.extra.0)
        };
        with_handle(datatype, call).and_then(|code| converted(code, "extent"))?;
        if extent < 0 {
            let text = format!("the data representation's extent function says {extent} bytes");
            return Err(mpi::Error::new(Class::CONVERSION, text));
        }
        Ok(extent)
    }

    fn read(&self, address: usize, count: i64, datatype: &Datatype, from: &[u8]) -> mpi::Result<()> {
        if self.read == NO_FUNCTION {
            datatype.cursor(count).map_err(uncounted)?.unpack(from, &mut Raw(Address(address)));
            return Ok(());
        }
        let there = from.as_ptr().expose_provenance();
        converted(self.convert(self.read, address, there, (count, datatype))?, "read")
    }

    fn write(&self, address: usize, count: i64, datatype: &Datatype, into: &mut [u8]) -> mpi::Result<()> {
        if self.write == NO_FUNCTION {
            datatype.cursor(count).map_err(uncounted)?.pack(&Raw(Address(address)), into);
            return Ok(());
        }
        let there = into.as_mut_ptr().expose_provenance();
        converted(self.convert(self.write, address, there, (count, datatype))?, "write")
    }
}
