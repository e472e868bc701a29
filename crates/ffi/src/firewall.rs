//! The firewall: a panic ends at the border to C, which could not unwind it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A call that panicked. What it said went to standard error, as panics do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Runs a call's body; a panic in it ends here.
///
/// Objects that the body used must bear that: ours take locks that a panic does not poison, and change in one step.
///
/// # Errors
/// [`Panicked`], for the caller's number of an internal error.
#[inline]
pub fn contain<T>(body: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|thrown| {
        // What was thrown may panic when it is dropped, and so may what that throws, which is leaked.
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
    fn what_does_not_panic_comes_through() {
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
