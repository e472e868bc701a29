//! [`Info`]: hints, as ordered pairs of a key and a value (MPI 5.0, chapter 10).

use crate::error::{Class, Error, Result};

/// Bytes of a key, without the zero that C adds (`MPI_MAX_INFO_KEY`).
pub const KEY_MAX: usize = 255;
/// Bytes of a value, without the zero that C adds (`MPI_MAX_INFO_VAL`).
pub const VALUE_MAX: usize = 1023;

/// Hints for a call (`MPI_Info`): pairs of a key and a value, in the order in which the keys were first set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    pairs: Vec<(String, String)>,
}

impl Info {
    /// Sets or replaces a value.
    ///
    /// # Errors
    /// [`Class::INFO_KEY`] for a key that is empty or longer than [`KEY_MAX`], [`Class::INFO_VALUE`] for a value that is longer
    /// than [`VALUE_MAX`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        check_key(key)?;
        if value.len() > VALUE_MAX {
            let text = format!("the value has {} bytes, but at most {VALUE_MAX} are possible", value.len());
            return Err(Error::new(Class::INFO_VALUE, text));
        }
        match self.pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.pairs.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// The value of a key, if it is set.
    ///
    /// # Errors
    /// [`Class::INFO_KEY`] as [`Info::set`].
    pub fn get(&self, key: &str) -> Result<Option<&str>> {
        check_key(key)?;
        Ok(self.pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str()))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// [`Class::INFO_NOKEY`] when it is not set; [`Class::INFO_KEY`] as [`Info::set`].
    pub fn delete(&mut self, key: &str) -> Result<()> {
        check_key(key)?;
        let at = self.pairs.iter().position(|(known, _)| known == key);
        let at = at.ok_or_else(|| Error::new(Class::INFO_NOKEY, format_args!("there is no key '{key}'")))?;
        self.pairs.remove(at);
        Ok(())
    }

    /// All pairs in their order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_MAX {
        let text = format!("the key has {} bytes, but 1 to {KEY_MAX} are possible", key.len());
        return Err(Error::new(Class::INFO_KEY, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_order_and_their_limits() {
        let mut info = Info::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
            info.set(key, value).expect("short");
        }
        assert_eq!(info.pairs(), [("b".into(), "3".into()), ("a".into(), "2".into())]);
        assert_eq!(info.get("a"), Ok(Some("2")));
        assert_eq!(info.get("c"), Ok(None));
        info.delete("b").expect("there");
        assert_eq!(info.delete("b").expect_err("gone").class, Class::INFO_NOKEY);
        info.set(&"k".repeat(KEY_MAX), &"v".repeat(VALUE_MAX)).expect("at the limit");
        assert_eq!(info.set(&"k".repeat(KEY_MAX + 1), "").expect_err("long").class, Class::INFO_KEY);
        assert_eq!(info.set("", "").expect_err("empty").class, Class::INFO_KEY);
        assert_eq!(info.set("k", &"v".repeat(VALUE_MAX + 1)).expect_err("long").class, Class::INFO_VALUE);
    }
}
