//! The firewall: stops a panic before it unwinds into C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A call that panicked. The panic message went to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Runs a call's body and catches a panic.
///
/// The body's objects must survive that: ours use locks that a panic does not poison, and change in one step.
///
/// # Errors
/// [`Panicked`], which the caller translates into its code of an internal error.
#[inline]
pub fn contain<T>(body: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|thrown| {
        // Dropping the payload may panic, and so may dropping that panic's payload, which is leaked.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(again))).map_err(std::mem::forget);
        }
        Panicked
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn result_without_panic_is_returned() {
        assert_eq!(contain(|| 7), Ok(7));
    }

    #[test]
    fn a_panic_ends_at_the_border() {
        assert_eq!(contain(|| panic!("on purpose")), Err::<(), _>(Panicked));
    }

    #[test]
    fn not_even_what_was_thrown_panics() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("the payload went off");
            }
        }
        assert_eq!(contain(|| std::panic::panic_any(Bomb)), Err::<(), _>(Panicked));
    }
}
