//! Exports functions under their C names: the one place for the attribute, the panic barrier and the return
//! code (Portals 4.3, chapter 3).

/// Functions of `portals4.h` whose bodies return an [`crate::answer::Answer`] without a value.
macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: `portals4.h` describes its arguments and results.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the header's")]
        extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            let result = crate::answer::run_call(stringify!($name), || $body);
            if ffi::log::reports_calls() {
                ffi::log::call(stringify!($name), &[$(&$argument),*], &result);
            }
            result
        }
    )*};
}

pub(crate) use exports;
