//! How a function gets its C name: one place for the attribute, the firewall and the return code.

/// Functions of `portals4.h` whose bodies give an [`crate::answer::Answer`] of nothing.
macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: `portals4.h` says what it takes and what it answers.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the header's")]
        extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            crate::answer::answer(|| $body)
        }
    )*};
}

pub(crate) use exports;
