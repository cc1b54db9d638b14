//! Parses JSON lists up to a maximum length.
//!
//! DECISION: a list is bounded by its items, and not by its text alone: in memory an item of three bytes
//! takes a hundred.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

struct ListOf<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ListOf<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} items")
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::custom(format_args!("a list has more than {MOST} items")));
            }
            list.push(item);
        }
        Ok(list)
    }
}

/// A list of at most `MOST` items; `null` is an empty one.
pub(crate) fn list<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(ListOf::<T, MOST>(PhantomData))
}

struct FirstOf<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FirstOf<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<T>, A::Error> {
        let first = items.next_element()?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

/// The first item of a list, of which no other is kept.
pub(crate) fn first<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(FirstOf(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Lists {
        #[serde(default, deserialize_with = "list::<_, _, 3>")]
        some: Vec<u8>,
        #[serde(default, deserialize_with = "first")]
        one: Option<u8>,
    }

    #[test]
    fn a_list_ends_at_its_bound() {
        let read = |text: &str| serde_json::from_str::<Lists>(text);
        assert_eq!(
            read(r#"{"some":[1,2,3],"one":[4,5]}"#).unwrap(),
            Lists { some: vec![1, 2, 3], one: Some(4) }
        );
        assert_eq!(read(r#"{"some":null,"one":[]}"#).unwrap(), Lists { some: vec![], one: None });
        assert_eq!(read("{}").unwrap(), Lists { some: vec![], one: None });
        let error = read(r#"{"some":[1,2,3,4]}"#).unwrap_err().to_string();
        assert!(error.contains("more than 3 items"), "{error}");
    }
}
