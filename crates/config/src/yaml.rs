//! Parses YAML into a tree in which every value has its line number and every scalar is text.
//!
//! Numbers and booleans are recognised only after macros are replaced, as in llama-swap. The size and depth
//! of the tree are limited.

use std::fmt;
use std::sync::Arc;

use plimsoll_flags::quoted;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::failure::{ConfigError, ConfigProblem};

/// The longest scalar; a command of llama-server with every flag is a tenth of it.
const LONGEST: usize = 16 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) tree: YamlTree,
    pub(crate) line: u32,
    /// A scalar that YAML itself says to be text, whatever it looks like, and that no macro may turn into a
    /// number.
    pub(crate) is_text: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum YamlTree {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) line: u32,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Self, ConfigError> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_nodes: 50_000, max_documents: 1, max_aliases: 1000, max_depth: 32 },
            // Aliases of aliases grow exponentially; all real files together need a few hundred events.
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
            with_snippet: false,
        };
        let parsed: Result<Option<Spanned<ReadTree>>, _> = serde_saphyr::from_str_with_options(text, options);
        match parsed {
            Ok(Some(root)) => Ok(root.into()),
            Ok(None) => Ok(Self::null(0)),
            Err(error) => {
                // 0 names the file: some errors, such as an exceeded budget, have no place.
                let line = error.location().map_or(0, |place| number(place.line()));
                let message = error.without_snippet().to_string();
                let tab = message.contains("tab").then(|| line_with_tab(text, line)).flatten();
                Err(ConfigError::at(file, tab.unwrap_or(line), ConfigProblem::Parse(explained(&message))))
            }
        }
    }

    pub(crate) fn null(line: u32) -> Self {
        Self { tree: YamlTree::Null, line, is_text: false }
    }

    pub(crate) fn map(pairs: Vec<Pair>, line: u32) -> Self {
        Self { tree: YamlTree::Map(pairs), line, is_text: false }
    }

    /// The value as JSON. A scalar that is not said to be text is a number or a word where it looks like one.
    pub(crate) fn to_json(&self) -> Value {
        match &self.tree {
            YamlTree::Null => Value::Null,
            YamlTree::Scalar(text) if self.is_text => Value::from(text.as_str()),
            YamlTree::Scalar(text) => match text.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                number => number.parse().map_or_else(|_| Value::from(number), Value::Number),
            },
            YamlTree::List(items) => items.iter().map(Self::to_json).collect(),
            YamlTree::Map(pairs) => {
                Value::Object(pairs.iter().map(|pair| (pair.key.clone(), pair.value.to_json())).collect())
            }
        }
    }

    /// The pairs of a map; none of an empty value.
    pub(crate) fn pairs(&self) -> Option<&[Pair]> {
        match &self.tree {
            YamlTree::Map(pairs) => Some(pairs),
            YamlTree::Null => Some(&[]),
            YamlTree::Scalar(_) | YamlTree::List(_) => None,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let pair = self.pairs()?.iter().find(|pair| pair.key == key)?;
        // `key:` without a value counts as absent, as Go's zero values do in llama-swap.
        (!matches!(pair.value.tree, YamlTree::Null)).then_some(&pair.value)
    }

    /// The text of a scalar.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.tree {
            YamlTree::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Every scalar in it, and every key.
    pub(crate) fn scalars(&mut self, each: &mut impl FnMut(&mut String, u32)) {
        match &mut self.tree {
            YamlTree::Null => {}
            YamlTree::Scalar(text) => each(text, self.line),
            YamlTree::List(items) => items.iter_mut().for_each(|item| item.scalars(each)),
            YamlTree::Map(pairs) => pairs.iter_mut().for_each(|pair| {
                each(&mut pair.key, pair.line);
                pair.value.scalars(each);
            }),
        }
    }
}

/// Parts of the YAML library's messages, and what is to be done.
const REMEDIES: [(&str, &str); 9] = [
    ("; ", ""),
    ("tabs disallowed", "; a tab indents the line: use spaces"),
    ("found a tab", "; a tab indents the line: use spaces"),
    ("escape character", "; double the backslash, or put the text in single quotes"),
    ("quoted scalar", "; a quotation mark is not closed: close it, or put the text in the other kind"),
    (
        "not allowed in this context",
        "; check the indentation, and put quotation marks around text that contains `: `",
    ),
    ("unknown anchor", "; define the anchor on an earlier line"),
    ("budget breached", "; split the file"),
    ("", "; check the indentation and the quotation marks"),
];

/// The first line from `first` on that a tab indents; the library names the line before it, where a text goes
/// on.
fn line_with_tab(text: &str, first: u32) -> Option<u32> {
    let is_indented = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    let lines = (1_u32..).zip(text.lines()).skip_while(|(number, _)| *number < first);
    lines.filter(|(_, line)| is_indented(line)).map(|(number, _)| number).next()
}

/// The library's message with a remedy, without its options and its second account of the place.
fn explained(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let duplicate = first.strip_prefix("duplicate mapping key: ").and_then(|rest| rest.rsplit_once(", set "));
    if let Some((key, _)) = duplicate {
        return format!("the key `{}` is given twice; keep one of the two", quoted(key));
    }
    let first = first.split(" at line ").next().unwrap_or_default();
    let remedy = REMEDIES.iter().find(|(part, _)| first.contains(part)).map_or("", |(_, remedy)| remedy);
    quoted(first) + remedy
}

fn number(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// A value, and true for text that holds no macro.
struct ReadTree(YamlTree, bool);

impl From<Spanned<ReadTree>> for Node {
    fn from(spanned: Spanned<ReadTree>) -> Self {
        let ReadTree(tree, is_text) = spanned.value;
        // The place of an anchor's text, not of its alias: that is where a fault can be fixed.
        Self { line: number(spanned.referenced.line()), tree, is_text }
    }
}

impl<'de> Deserialize<'de> for ReadTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlReader)
    }
}

struct YamlReader;

impl<'de> Visitor<'de> for YamlReader {
    type Value = ReadTree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<ReadTree, E> {
        Ok(ReadTree(YamlTree::Null, false))
    }

    fn visit_none<E: Error>(self) -> Result<ReadTree, E> {
        Ok(ReadTree(YamlTree::Null, false))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<ReadTree, E> {
        Ok(ReadTree(YamlTree::Scalar(value.to_string()), false))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<ReadTree, E> {
        Ok(ReadTree(YamlTree::Scalar(value.to_string()), false))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<ReadTree, E> {
        Ok(ReadTree(YamlTree::Scalar(value.to_string()), false))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<ReadTree, E> {
        Ok(ReadTree(YamlTree::Scalar(value.to_string()), false))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<ReadTree, E> {
        // Checked while reading: an alias repeats the text without costing a node of the budget.
        if value.len() > LONGEST {
            return Err(E::custom("a string is longer than 16 KiB; shorten it"));
        }
        Ok(ReadTree(YamlTree::Scalar(value.to_owned()), !value.contains("${")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ReadTree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Option<Spanned<ReadTree>>>()? {
            list.push(item.map_or(Node::null(0), Node::from));
        }
        Ok(ReadTree(YamlTree::List(list), false))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ReadTree, A::Error> {
        let mut pairs = Vec::new();
        // Pairs keep the order of the file: macros are expanded in it, models are listed in it.
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let value = entries.next_value::<Option<Spanned<ReadTree>>>()?;
            let line = number(key.referenced.line());
            pairs.push(Pair { key: key.value, line, value: value.map_or(Node::null(line), Node::from) });
        }
        Ok(ReadTree(YamlTree::Map(pairs), false))
    }
}
