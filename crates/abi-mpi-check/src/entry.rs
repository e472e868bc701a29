//! The macros that export functions under MPI's names.
//!
//! Each gives its body a closure that calls the MPI library with the same arguments; `CALL` is the name of the function.

/// Exports a function. With `[NAME]`, that argument is the address of a status in any case, also if the program ignores it.
macro_rules! entry {
    ($name:ident($($arg:ident: $kind:ty),*) $call:ident $body:block) => {
        entry!(@ $name ($($arg: $kind),*) {} $call $body);
    };
    ($name:ident($($arg:ident: $kind:ty),*) [$status:ident] $call:ident $body:block) => {
        entry!(@ $name ($($arg: $kind),*) {
            let mut own = $crate::library::Status::default();
            let $status = if $status == 0 { (&raw mut own).expose_provenance() } else { $status };
        } $call $body);
    };
    (@ $name:ident($($arg:ident: $kind:ty),*) {$($before:tt)*} $call:ident $body:block) => {
        // SAFETY: MPI's name and the standard's signature; a program has the library of that name behind this one. Test:
        // `seeded_bugs_are_found`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, clippy::useless_conversion, unused_variables, dead_code)]
        pub(crate) extern "C-unwind" fn $name($($arg: $kind),*) -> i32 {
            const CALL: &str = stringify!($name);
            $($before)*
            let $call = || $crate::library::pmpi!($name($($arg: $kind),*) -> i32);
            $body
        }
    };
}
pub(crate) use entry;

/// Exports both functions of a pair: `MPI_Send`, whose counts (`n`) are `int`, and `MPI_Send_c`. `p` is an address or a handle.
macro_rules! sized {
    ($small:ident $large:ident ($($arg:ident: $kind:tt),*) $([$status:ident])? $call:ident $body:block) => {
        entry!($small($($arg: word!($kind i32)),*) $([$status])? $call $body);
        entry!($large($($arg: word!($kind i64)),*) $([$status])? $call $body);
    };
}
pub(crate) use sized;

/// The type of an argument.
macro_rules! word {
    (p $count:ty) => {
        usize
    };
    (i $count:ty) => {
        i32
    };
    (n $count:ty) => {
        $count
    };
}
pub(crate) use word;
