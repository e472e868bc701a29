//! [`Error`]: MPI's error class with a text that says what was wrong and what to do (MPI 5.0, section 9.4).

use std::fmt;

/// MPI's error classes; the numbers are those of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(pub i32);

macro_rules! classes {
    ($($name:ident $number:literal $about:literal;)*) => {
        impl Class {
            $(#[doc = $about] pub const $name: Self = Self($number);)*

            /// The meaning of the class, as a sentence; `None` for a number that is not a class.
            pub fn about(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($about),)*
                    _ => None,
                }
            }
        }
    };
}

classes! {
    SUCCESS 0 "No error.";
    BUFFER 1 "The buffer is invalid.";
    COUNT 2 "The count is invalid.";
    TYPE 3 "The datatype is invalid.";
    TAG 4 "The tag is invalid.";
    COMM 5 "The communicator is invalid.";
    RANK 6 "The rank is invalid.";
    REQUEST 7 "The request is invalid.";
    ROOT 8 "The root is invalid.";
    GROUP 9 "The group is invalid.";
    OP 10 "The operation is invalid.";
    TOPOLOGY 11 "The topology is invalid.";
    DIMS 12 "The dimensions are invalid.";
    ARG 13 "An argument is invalid.";
    UNKNOWN 14 "The error is unknown.";
    TRUNCATE 15 "The message was longer than the receive, and was truncated.";
    OTHER 16 "Something else went wrong.";
    INTERN 17 "An error of the library's own.";
    PENDING 18 "The operation is pending.";
    IN_STATUS 19 "The error is in the status.";
    ACCESS 20 "Permission was denied.";
    AMODE 21 "The access mode is invalid.";
    ASSERT 22 "The assertion is invalid.";
    BAD_FILE 23 "The file name is invalid.";
    BASE 24 "The base is invalid.";
    CONVERSION 25 "A conversion function failed.";
    DISP 26 "The displacement is invalid.";
    DUP_DATAREP 27 "The data representation is defined already.";
    FILE_EXISTS 28 "The file exists.";
    FILE_IN_USE 29 "The file is in use.";
    FILE 30 "The file handle is invalid.";
    INFO_KEY 31 "The key of the info object is too long or empty.";
    INFO_NOKEY 32 "The info object has no such key.";
    INFO_VALUE 33 "The value of the info object is too long.";
    INFO 34 "The info object is invalid.";
    IO 35 "Input or output failed.";
    KEYVAL 36 "The key of the attribute is invalid.";
    LOCKTYPE 37 "The type of the lock is invalid.";
    NAME 38 "The service name is unknown.";
    NO_MEM 39 "Memory is exhausted.";
    NOT_SAME 40 "The arguments differ between the ranks.";
    NO_SPACE 41 "There is not enough space.";
    NO_SUCH_FILE 42 "There is no such file.";
    PORT 43 "The port name is invalid.";
    QUOTA 44 "The quota is exceeded.";
    READ_ONLY 45 "The file is read-only.";
    RMA_ATTACH 46 "The memory cannot be attached.";
    RMA_CONFLICT 47 "Accesses to the window conflict.";
    RMA_RANGE 48 "The target memory is not in the window.";
    RMA_SHARED 49 "The memory cannot be shared.";
    RMA_SYNC 50 "The synchronisation of the window is wrong.";
    SERVICE 51 "The service name cannot be published or withdrawn.";
    SIZE 52 "The size is invalid.";
    SPAWN 53 "Processes could not be spawned.";
    UNSUPPORTED_DATAREP 54 "The data representation is not supported.";
    UNSUPPORTED_OPERATION 55 "The operation is not supported.";
    WIN 56 "The window is invalid.";
    RMA_FLAVOR 57 "The flavor of the window is wrong.";
    PROC_ABORTED 58 "The peer process has ended or cannot be reached.";
    VALUE_TOO_LARGE 59 "The value does not fit where it is to be stored.";
    SESSION 60 "The session is invalid.";
    ERRHANDLER 61 "The error handler is invalid.";
    ABI 62 "The ABI does not fit.";
}

/// Why a call or an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// MPI's class.
    pub class: Class,
    /// The cause, and what to do if that is known.
    pub text: String,
}

/// The result of calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error of a class.
    pub fn new(class: Class, text: impl fmt::Display) -> Self {
        Self { class, text: text.to_string() }
    }

    /// The error for a process that has left the job in order.
    pub(crate) fn left(process: u32) -> Self {
        let text = format_args!(
            "process {process} has left the job: it has called MPI_Finalize, or exited after its last session, so nothing can be sent to it or received from it"
        );
        Self::new(Class::PROC_ABORTED, text)
    }

    /// The error for a process that has ended, or cannot be reached.
    pub fn lost(process: u32, why: impl fmt::Display) -> Self {
        Self::new(Class::PROC_ABORTED, format_args!("process {process} of the job is lost: {why}"))
    }
}

impl From<verbs::Error> for Error {
    fn from(error: verbs::Error) -> Self {
        Self::new(Class::OTHER, error)
    }
}

impl From<transport::Malformed> for Error {
    #[cold]
    fn from(error: transport::Malformed) -> Self {
        verbs::Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_numbers_of_the_standard_abi() {
        assert_eq!((Class::TRUNCATE.0, Class::PROC_ABORTED.0, Class::ABI.0), (15, 58, 62));
        assert!((0..=62).all(|number| Class(number).about().is_some()));
        assert_eq!(Class(63).about(), None);
    }
}
