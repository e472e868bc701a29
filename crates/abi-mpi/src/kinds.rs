//! The objects behind handles of datatypes, operators, sessions and windows, and the predefined objects of each kind.

use std::sync::{Mutex, OnceLock};

use datatypes::{Basic, Datatype, Op, Operator};
use mpi::{Attributes, Errhandler, Group, Info, Window};

use crate::answer::Answer;
use crate::constants as c;
use crate::types;

/// A datatype with its attributes and name.
pub(crate) struct TypeObject {
    pub(crate) datatype: Datatype,
    pub(crate) name: Mutex<Option<String>>,
    pub(crate) attributes: Mutex<Attributes<types::Datatype>>,
}

impl TypeObject {
    pub(crate) fn new(datatype: Datatype) -> Self {
        Self { datatype, name: Mutex::default(), attributes: Mutex::default() }
    }
}

/// The handles of predefined datatypes: 0x200 to 0x2ff.
const BASICS: usize = 256;

pub(crate) fn predefined_type(value: usize) -> Answer<Option<&'static TypeObject>> {
    static TYPES: [OnceLock<TypeObject>; BASICS] = [const { OnceLock::new() }; BASICS];
    let Some(place) = value.checked_sub(c::MPI_DATATYPE_NULL).and_then(|at| TYPES.get(at)) else {
        return Ok(None);
    };
    if let Some(made) = place.get() {
        return Ok(Some(made));
    }
    let basic = Basic::from_abi(value as u16);
    Ok(basic.map(|basic| place.get_or_init(|| TypeObject::new(Datatype::from(basic)))))
}

/// The object behind an operator's handle.
pub(crate) struct OpObject(pub(crate) Op);

/// The handles of predefined operators: 0x20 to 0x3f.
const OPERATORS: usize = 32;

pub(crate) fn predefined_op(value: usize) -> Answer<Option<&'static OpObject>> {
    static OPS: [OnceLock<OpObject>; OPERATORS] = [const { OnceLock::new() }; OPERATORS];
    let Some(place) = value.checked_sub(c::MPI_OP_NULL).and_then(|at| OPS.get(at)) else { return Ok(None) };
    let operator = Operator::from_abi(value as u16);
    Ok(operator.map(|operator| place.get_or_init(|| OpObject(operator.into()))))
}

/// The object behind a session's handle.
pub(crate) struct SessionObject {
    pub(crate) own: mpi::Session,
    pub(crate) info: Info,
    pub(crate) errhandler: Mutex<Errhandler>,
}

/// The object behind a window's handle. Programs read its attributes through their addresses.
pub(crate) struct WinObject {
    pub(crate) window: Window,
    size: i64,
    unit: i32,
    flavor: i32,
}

/// The unified memory model: local stores and remote accesses see the same memory.
static MODEL: i32 = c::MPI_WIN_UNIFIED;

impl WinObject {
    pub(crate) fn new(window: Window) -> Self {
        let unit = i32::try_from(window.unit()).unwrap_or(i32::MAX);
        Self { size: window.size() as i64, unit, flavor: window.flavor() as i32, window }
    }

    /// The address of a predefined attribute; `None` for any other key.
    pub(crate) fn predefined(&self, keyval: i32) -> Option<usize> {
        let at = |place: *const i32| place.expose_provenance();
        match keyval {
            c::MPI_WIN_BASE => Some(self.window.base()),
            c::MPI_WIN_SIZE => Some((&raw const self.size).expose_provenance()),
            c::MPI_WIN_DISP_UNIT => Some(at(&raw const self.unit)),
            c::MPI_WIN_CREATE_FLAVOR => Some(at(&raw const self.flavor)),
            c::MPI_WIN_MODEL => Some(at(&raw const MODEL)),
            _ => None,
        }
    }
}

/// `MPI_INFO_ENV`: the command line and environment of this program.
pub(crate) fn predefined_info(value: usize) -> Answer<Option<&'static Mutex<Info>>> {
    static ENVIRONMENT: OnceLock<Mutex<Info>> = OnceLock::new();
    Ok((value == c::MPI_INFO_ENV)
        .then(|| ENVIRONMENT.get_or_init(|| Mutex::new(environment(std::env::args().collect())))))
}

/// Describes how a program with these arguments was started; the first argument is its name.
pub(crate) fn environment(arguments: Vec<String>) -> Info {
    let mut info = Info::default();
    let mut arguments = arguments.into_iter();
    let command = arguments.next();
    let directory = std::env::current_dir().ok().map(|directory| directory.display().to_string());
    let pairs = [
        ("command", command),
        ("argv", Some(arguments.collect::<Vec<_>>().join(" "))),
        ("arch", Some(std::env::consts::ARCH.to_owned())),
        ("wdir", directory),
        ("thread_level", Some("MPI_THREAD_MULTIPLE".to_owned())),
    ];
    for (key, value) in pairs {
        // Values above the length limit are omitted.
        value.and_then(|value| info.set(key, &value).ok());
    }
    info
}

pub(crate) fn predefined_errhandler(value: usize) -> Answer<Option<&'static Errhandler>> {
    static FATAL: Errhandler = Errhandler::Fatal;
    static ABORT: Errhandler = Errhandler::Abort;
    static RETURN: Errhandler = Errhandler::Return;
    Ok(match value {
        c::MPI_ERRORS_ARE_FATAL => Some(&FATAL),
        c::MPI_ERRORS_ABORT => Some(&ABORT),
        c::MPI_ERRORS_RETURN => Some(&RETURN),
        _ => None,
    })
}

pub(crate) fn predefined_group(value: usize) -> Answer<Option<&'static Group>> {
    static EMPTY: OnceLock<Group> = OnceLock::new();
    Ok((value == c::MPI_GROUP_EMPTY).then(|| EMPTY.get_or_init(Group::empty)))
}
