//! [`Attributes`]: values that a program attaches to objects, by keys with copy and delete functions (MPI 5.0, section 7.7).

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

/// Called when an object is duplicated: returns the copy's value, or `None` if the copy gets none.
pub type CopyFn<O> = dyn Fn(&O, usize) -> Result<Option<usize>> + Send + Sync;
/// Called with a value that is deleted or replaced, or whose object is freed.
pub type DeleteFn<O> = dyn Fn(&O, usize) -> Result<()> + Send + Sync;

/// A key of attributes of objects of one kind (`MPI_Comm_create_keyval`); cheap to clone, and equal only to its clones.
pub struct Keyval<O>(Arc<Functions<O>>);

struct Functions<O> {
    copy: Box<CopyFn<O>>,
    delete: Box<DeleteFn<O>>,
}

impl<O> Keyval<O> {
    /// Creates a key with its functions.
    pub fn new(
        copy: impl Fn(&O, usize) -> Result<Option<usize>> + Send + Sync + 'static,
        delete: impl Fn(&O, usize) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Functions { copy: Box::new(copy), delete: Box::new(delete) }))
    }

    /// Whether the key has other holders than the caller, such as an object with a value for it.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Calls the copy function.
    ///
    /// # Errors
    /// The function's.
    pub fn copy(&self, of: &O, value: usize) -> Result<Option<usize>> {
        (self.0.copy)(of, value)
    }

    /// Calls the delete function.
    ///
    /// # Errors
    /// The function's.
    pub fn delete(&self, of: &O, value: usize) -> Result<()> {
        (self.0.delete)(of, value)
    }
}

impl<O> Clone for Keyval<O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<O> PartialEq for Keyval<O> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<O> fmt::Debug for Keyval<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyval({:p})", Arc::as_ptr(&self.0))
    }
}

/// The attributes of one object, in the order in which they were set. It calls no function itself: its owner does, with no lock
/// held.
#[derive(Debug)]
pub struct Attributes<O> {
    values: Vec<(Keyval<O>, usize)>,
}

impl<O> Default for Attributes<O> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<O> Attributes<O> {
    /// The value of a key.
    pub fn get(&self, key: &Keyval<O>) -> Option<usize> {
        self.values.iter().find(|(known, _)| known == key).map(|(_, value)| *value)
    }

    /// Sets a value. The caller has removed an old value by [`Attributes::take`].
    pub fn set(&mut self, key: Keyval<O>, value: usize) {
        self.values.push((key, value));
    }

    /// Removes and returns a value.
    pub fn take(&mut self, key: &Keyval<O>) -> Option<usize> {
        let at = self.values.iter().position(|(known, _)| known == key)?;
        Some(self.values.remove(at).1)
    }

    /// All attributes, oldest first.
    pub fn all(&self) -> Vec<(Keyval<O>, usize)> {
        self.values.clone()
    }

    /// Removes and returns the attribute that was set last: attributes are deleted in the reverse order of setting.
    pub fn pop(&mut self) -> Option<(Keyval<O>, usize)> {
        self.values.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_key_and_leave_in_reverse_order() {
        let key = || Keyval::<u8>::new(|object, value| Ok(Some(value + usize::from(*object))), |_, _| Ok(()));
        let (a, b) = (key(), key());
        let mut attributes = Attributes::default();
        attributes.set(a.clone(), 1);
        attributes.set(b.clone(), 2);
        assert_eq!(
            (attributes.get(&a), attributes.get(&b), attributes.get(&key())),
            (Some(1), Some(2), None)
        );
        assert_eq!(a.copy(&5, 1), Ok(Some(6)));
        assert_eq!(attributes.take(&a), Some(1));
        attributes.set(a.clone(), 3);
        assert_eq!(attributes.pop(), Some((a, 3)));
        assert!(b.is_held());
        assert_eq!(attributes.pop(), Some((b.clone(), 2)));
        assert_eq!(attributes.pop(), None);
        assert!(!b.is_held());
    }
}
