//! Calls of a program's functions: error handlers, attribute functions, operators and others.
//!
//! Each call here is sound because a program passes the address of a function of the standard's type.
//!
//! Error handlers are called last, with no locks held, and may leave by an exception or `longjmp`. All others are called through
//! [`call_function`], which turns an exception into an error; the firewall throws the exception again when the MPI call returns to
//! the program.

use std::sync::Mutex;

use datatypes::{Datatype, Error, ErrorKind, UserFunction};
use mpi::{Class, Conversion, Generalized};

use crate::memory::ProgramMemory;
use crate::objects::known_type_handle;
use crate::profile;
use crate::types::{self, Address, Handle, Status};

/// A program's error handler, for any kind of object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorHandlerFunction(pub(crate) Address);

impl ErrorHandlerFunction {
    /// Calls it with an object's handle and a code; returns the code, which the handler may have changed.
    pub(crate) fn handle_error(self, handle: usize, code: i32) -> i32 {
        type Handler = unsafe extern "C-unwind" fn(*mut usize, *mut i32, ...);
        let (mut handle, mut code) = (handle, code);
        // SAFETY: a program passes a function of this type, which accesses the handle and the code through their addresses while it
        // runs. Test: `errors` of tests/c/single_process.c.
        unsafe {
            let handler = std::mem::transmute::<usize, Handler>(self.0.0);
            handler(&raw mut handle, &raw mut code);
        }
        code
    }
}

/// A program's error handler with its handle.
#[derive(Debug)]
pub(crate) struct UserHandler {
    pub(crate) function: ErrorHandlerFunction,
    pub(crate) handle: Mutex<CountedHandle>,
}

/// A handle that several calls return, because programs compare handles.
#[derive(Debug, Default)]
pub(crate) struct CountedHandle {
    /// `None` after it was freed, while objects still have the handler.
    pub(crate) value: Option<types::Errhandler>,
    /// How often the handle was returned and not freed.
    pub(crate) references: usize,
}

impl UserHandler {
    pub(crate) fn new(function: Address) -> Self {
        Self { function: ErrorHandlerFunction(function), handle: Mutex::default() }
    }
}

/// Calls a function of the program or a tool, and returns its result.
///
/// # Errors
/// [`Class::OTHER`] if it threw an exception. The MPI call rethrows the exception when it returns.
fn call_function<const COUNT: usize>(function: Address, arguments: [usize; COUNT]) -> mpi::Result<i32> {
    // SAFETY: a program passes a function of the type that the standard says, which takes these words. Test:
    // `exceptions_of_callbacks_leave_the_call`.
    let returned = unsafe { ffi::call(function.0, arguments) };
    returned.map(|word| word as i32).map_err(|ffi::Thrown| exception_error())
}

/// Records and returns the error for a function of the program that threw an exception.
#[cold]
fn exception_error() -> mpi::Error {
    profile::record_exception();
    mpi::Error::new(Class::OTHER, "a function of the program threw an exception")
}

/// As [`call_function`], for a function that returns an error code; `what` names it in error texts.
fn call_checked<const COUNT: usize>(
    function: Address,
    arguments: [usize; COUNT],
    what: &str,
) -> mpi::Result<()> {
    match call_function(function, arguments)? {
        0 => Ok(()),
        code => Err(mpi::Error::new(Class(code), format_args!("{what} failed"))),
    }
}

/// The address of a variable that a function writes while it runs.
fn address_of<T>(of: &mut T) -> usize {
    (&raw mut *of).expose_provenance()
}

/// A tool's callback for an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFunction(pub(crate) Address);

impl EventFunction {
    /// Calls it with an event instance, the handle that it was registered for, and the tool's user data.
    pub(crate) fn call(self, instance: Address, handle: Address, safety: i32, data: Address) {
        // The function returns nothing; `call_function` keeps an exception.
        let _ = call_function(self.0, [instance.0, handle.0, safety as usize, data.0]);
    }
}

/// A tool's callback for a freed event handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFreed(pub(crate) Address);

impl EventFreed {
    /// Calls it with the handle and the tool's user data.
    pub(crate) fn call(self, handle: Address, safety: i32, data: Address) {
        // As above.
        let _ = call_function(self.0, [handle.0, safety as usize, data.0]);
    }
}

/// A tool's callback for dropped events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventsDropped(pub(crate) Address);

impl EventsDropped {
    /// Calls it with the number of dropped events, all from source 0.
    pub(crate) fn call(self, count: i64, handle: Address, safety: i32, data: Address) {
        // As above.
        let _ = call_function(self.0, [count as usize, handle.0, 0, safety as usize, data.0]);
    }
}

/// A key's functions and the program's extra state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeFunctions {
    pub(crate) copy: Address,
    pub(crate) delete: Address,
    pub(crate) extra: Address,
}

/// The standard's values for predefined functions: do nothing, and copy the value.
const NO_FUNCTION: Address = Address(0);
const COPY_VALUE: Address = Address(1);

impl AttributeFunctions {
    /// The value for the copy, or `None` if the attribute is not copied.
    pub(crate) fn copy(self, handle: usize, key: i32, value: usize) -> mpi::Result<Option<usize>> {
        match self.copy {
            NO_FUNCTION => return Ok(None),
            COPY_VALUE => return Ok(Some(value)),
            _ => {}
        }
        let (mut copied, mut flag) = (0_usize, 0_i32);
        let arguments =
            [handle, key as usize, self.extra.0, value, address_of(&mut copied), address_of(&mut flag)];
        call_checked(self.copy, arguments, "an attribute's copy function")?;
        Ok((flag != 0).then_some(copied))
    }

    /// Calls the attribute's delete function.
    pub(crate) fn delete(self, handle: usize, key: i32, value: usize) -> mpi::Result<()> {
        if self.delete == NO_FUNCTION {
            return Ok(());
        }
        call_checked(
            self.delete,
            [handle, key as usize, value, self.extra.0],
            "an attribute's delete function",
        )
    }
}

/// Runs `act` with a handle of a datatype that is passed to a program's function.
fn with_handle<T>(
    datatype: &Datatype,
    act: impl FnOnce(types::Datatype) -> mpi::Result<T>,
) -> mpi::Result<T> {
    let wrong = |fault: crate::answer::Fault| mpi::Error::new(Class(fault.code), fault.text);
    let (handle, is_temporary) = known_type_handle(datatype).map_err(wrong)?;
    let done = act(handle);
    if is_temporary {
        crate::objects::remove::<types::kind::Datatype>(Handle::new(handle.value()));
    }
    done
}

/// A program's operator, in either form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub(crate) function: Address,
    pub(crate) is_large: bool,
}

impl UserFunction for Operator {
    fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> datatypes::Result<()> {
        let start = datatype.span(count)?.start as isize;
        let from = left.as_ptr().expose_provenance().wrapping_add_signed(-start);
        let into = right.as_mut_ptr().expose_provenance().wrapping_add_signed(-start);
        let most = i32::MAX;
        let mut few = i32::try_from(count).ok().filter(|_| !self.is_large);
        if few.is_none() && !self.is_large {
            let text = format!("an operator takes at most {most} elements");
            return Err(Error { kind: ErrorKind::Op, text });
        }
        let mut count = count;
        let count = few.as_mut().map_or_else(|| address_of(&mut count), address_of);
        let apply = |mut handle| call_function(self.function, [from, into, count, address_of(&mut handle)]);
        let wrong = |error: mpi::Error| Error { kind: ErrorKind::Op, text: error.text };
        // The function returns nothing.
        with_handle(datatype, apply).map(drop).map_err(wrong)
    }
}

/// The functions of a generalized request, and the program's extra state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFunctions {
    pub(crate) query: Address,
    pub(crate) free: Address,
    pub(crate) cancel: Address,
    pub(crate) extra: Address,
}

impl Generalized for RequestFunctions {
    fn query(&self) -> mpi::Status {
        let mut status = Status::of(&mpi::Status::empty(), 0);
        let arguments = [self.extra.0, address_of(&mut status)];
        let error = call_checked(self.query, arguments, "the request's query function").err().map(Into::into);
        let (source, tag) = (status.source, status.tag);
        mpi::Status { source, tag, bytes: status.bytes(), cancelled: status.is_cancelled(), error }
    }

    fn free(&self) -> mpi::Result<()> {
        call_checked(self.free, [self.extra.0], "the request's free function")
    }

    fn cancel(&self, has_ended: bool) -> mpi::Result<()> {
        call_checked(self.cancel, [self.extra.0, has_ended.into()], "the request's cancel function")
    }
}

/// The conversion functions of a program's data representation, in either form, and its extra state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConversionFunctions {
    pub(crate) read: Address,
    pub(crate) write: Address,
    pub(crate) extent: Address,
    pub(crate) extra: Address,
    pub(crate) is_large: bool,
}

/// The error for a count that a datatype does not allow.
fn count_error(error: datatypes::Error) -> mpi::Error {
    mpi::Error::new(Class::COUNT, error.text)
}

impl ConversionFunctions {
    /// Converts all elements by one of the two functions: `here` is the program's buffer, `there` their form in the file.
    fn convert(
        self,
        (function, what): (Address, &str),
        here: usize,
        there: usize,
        (count, datatype): (i64, &Datatype),
    ) -> mpi::Result<()> {
        if !self.is_large && i32::try_from(count).is_err() {
            let text = "a conversion function takes at most 2147483647 elements";
            return Err(mpi::Error::new(Class::COUNT, text));
        }
        // All elements are converted in one call: the position of the first is 0.
        with_handle(datatype, |handle| {
            let arguments = [here, handle.value(), count as usize, there, 0, self.extra.0];
            call_checked(function, arguments, what)
        })
    }
}

/// Names of the functions of a data representation, for error texts.
const READ: &str = "the data representation's read function";
const WRITE: &str = "the data representation's write function";
const EXTENT: &str = "the data representation's extent function";

impl Conversion for ConversionFunctions {
    fn extent(&self, datatype: &Datatype) -> mpi::Result<i64> {
        let mut extent = 0_i64;
        with_handle(datatype, |handle| {
            call_checked(self.extent, [handle.value(), address_of(&mut extent), self.extra.0], EXTENT)
        })?;
        if extent < 0 {
            let text = format!("{EXTENT} returned {extent} bytes");
            return Err(mpi::Error::new(Class::CONVERSION, text));
        }
        Ok(extent)
    }

    fn read(&self, address: usize, count: i64, datatype: &Datatype, from: &[u8]) -> mpi::Result<()> {
        if self.read == NO_FUNCTION {
            datatype.cursor(count).map_err(count_error)?.unpack(from, &mut ProgramMemory(Address(address)));
            return Ok(());
        }
        let packed = from.as_ptr().expose_provenance();
        self.convert((self.read, READ), address, packed, (count, datatype))
    }

    fn write(&self, address: usize, count: i64, datatype: &Datatype, into: &mut [u8]) -> mpi::Result<()> {
        if self.write == NO_FUNCTION {
            datatype.cursor(count).map_err(count_error)?.pack(&ProgramMemory(Address(address)), into);
            return Ok(());
        }
        let packed = into.as_mut_ptr().expose_provenance();
        self.convert((self.write, WRITE), address, packed, (count, datatype))
    }
}
