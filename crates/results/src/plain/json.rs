//! [`Plain`]: a deserializer wrapped around another one to read JSON from outside. It removes terminal control
//! characters from texts, including names of fields, and limits the length of texts, the memory of values and the
//! size of measured numbers.
//!
//! Values that were read through it need no care when they are shown, whatever they are shown in. A field that is added to a
//! structure is covered without being named.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use host::plain;

/// Maximum characters of a text.
pub(super) const FIELD_MAX: usize = 4096;
/// Largest measured number: sums and products of such numbers remain finite.
const REAL_MAX: f64 = 1e18;
/// Largest count: the sum of 65,536 such counts fits 64 bits.
const WHOLE_MAX: u64 = (1 << 48) - 1;

/// Bytes counted for an object: the size of the largest value that a list may hold as `{}`, a launch of a result.
pub(super) const OBJECT_SIZE: usize = 320;
/// Bytes counted for a text in addition to its own: its header, and an entry of a map.
pub(super) const TEXT_SIZE: usize = 64;

/// How the numbers of a text are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Measurements and counts: reals are at most 1e18, integers below 2^48, so that sums and products do not
    /// overflow.
    Measured,
    /// Anything else among them, such as seeds and addresses.
    Any,
}

/// The remaining limits while a text is read.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes left, by estimate. A short text may become a large value: `{}` an object.
    memory: Cell<usize>,
    numbers: Numbers,
}

impl Budget {
    pub(super) fn new(memory: usize, numbers: Numbers) -> Self {
        Self { memory: Cell::new(memory), numbers }
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.memory.get().checked_sub(bytes);
        self.memory.set(left.ok_or_else(|| E::custom("it has too many values for the memory it may take"))?);
        Ok(())
    }

    fn real<E: Error>(&self, number: f64) -> Result<f64, E> {
        self.take(size_of::<f64>())?;
        match self.numbers == Numbers::Measured && number.abs() > REAL_MAX {
            true => Err(E::custom(format_args!("the number {number:e} is beyond {REAL_MAX:e}"))),
            false => Ok(number),
        }
    }

    fn whole<E: Error>(&self, magnitude: u64) -> Result<(), E> {
        self.take(size_of::<u64>())?;
        match self.numbers == Numbers::Measured && magnitude > WHOLE_MAX {
            true => Err(E::custom(format_args!("the number {magnitude} is beyond {WHOLE_MAX}"))),
            false => Ok(()),
        }
    }
}

/// A deserializer, a visitor or an accessor, that applies a [`Budget`] and makes texts plain.
pub(super) struct Plain<'b, T> {
    inner: T,
    budget: &'b Budget,
    /// Whether it reads the name of a field. Names are compared and dropped, so their memory is not counted.
    is_key: bool,
}

impl<'b, T> Plain<'b, T> {
    pub(super) fn new(inner: T, budget: &'b Budget) -> Self {
        Self { inner, budget, is_key: false }
    }

    /// A wrapper of another part of the same value.
    fn same<U>(&self, inner: U) -> Plain<'b, U> {
        Plain { inner, budget: self.budget, is_key: self.is_key }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Plain<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.same(visitor);
        self.inner.deserialize_any(visitor)
    }

    // JSON is self-describing, except for options, enumerations and newtypes.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.same(visitor);
        self.inner.deserialize_option(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.same(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.same(visitor);
        self.inner.deserialize_enum(name, variants, visitor)
    }

    // Ignored values are not stored.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Plain<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<V::Value, E> {
        self.inner.visit_bool(v)
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<V::Value, E> {
        self.budget.whole(v.unsigned_abs())?;
        self.inner.visit_i64(v)
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<V::Value, E> {
        self.budget.whole(v)?;
        self.inner.visit_u64(v)
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<V::Value, E> {
        self.inner.visit_f64(self.budget.real(v)?)
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<V::Value, E> {
        let text = plain::limited(v, FIELD_MAX);
        if !self.is_key {
            self.budget.take(TEXT_SIZE + text.len())?;
        }
        self.inner.visit_str(&text)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.same(inner);
        self.inner.visit_some(inner)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.same(inner);
        self.inner.visit_newtype_struct(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Plain::new(inner, self.budget))
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.budget.take(OBJECT_SIZE)?;
        self.inner.visit_map(Plain::new(inner, self.budget))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Plain::new(inner, self.budget))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Plain<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let inner = self.same(inner);
        self.inner.deserialize(inner)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Plain<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(Plain::new(seed, self.budget))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Plain<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(Plain { is_key: true, ..Plain::new(seed, self.budget) })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Plain::new(seed, self.budget))
    }
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for Plain<'b, A> {
    type Error = A::Error;
    type Variant = Plain<'b, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let seed = Plain { is_key: true, ..Plain::new(seed, self.budget) };
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, Plain::new(variant, self.budget)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Plain<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Plain::new(seed, self.budget))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Plain::new(visitor, self.budget))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Plain::new(visitor, self.budget))
    }
}
