//! Reads values of `config.json`, each with its range, and names the field that is wrong.

use serde_json::{Map, Value};

/// No count or size of a model is larger; products of a few of them stay below `u64`.
const LARGEST: u64 = 1 << 24;

/// Error: `config.json` does not say how much memory the model takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("config.json is not a JSON object: {0}")]
    Json(String),
    #[error("config.json has no `{0}`")]
    Missing(&'static str),
    #[error("`{field}` of config.json is {value}, which is not a number from 1 to {LARGEST}")]
    Number { field: &'static str, value: String },
    #[error("`{field}` of config.json has {found} entries for {layers} layers")]
    Layers { field: &'static str, found: usize, layers: usize },
    #[error("`{field}` of config.json names the kind of layer `{kind}`, whose cache is not known")]
    Kind { field: &'static str, kind: String },
    #[error(
        "`{0}` of config.json changes the cache in a way that is not known\nhint: start vLLM once, and state \
            its memory with `memory = \"SIZE\"`"
    )]
    Unknown(&'static str),
    #[error("`{field}` of config.json is the type `{name}`, which is not known")]
    Type { field: &'static str, name: String },
}

/// The fields of one JSON object.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// A value that is there and not null.
    pub(crate) fn value(&self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// A number from 1 on; `None` where the field is absent, null or 0.
    pub(crate) fn number(&self, field: &'static str) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(0) => Ok(None),
            Some(number) if number <= LARGEST => Ok(Some(number)),
            _ => Err(ConfigError::Number { field, value: value.to_string() }),
        }
    }

    pub(crate) fn needed(&self, field: &'static str) -> Result<u64, ConfigError> {
        self.number(field)?.ok_or(ConfigError::Missing(field))
    }

    pub(crate) fn number_or(&self, field: &'static str, other: u64) -> Result<u64, ConfigError> {
        Ok(self.number(field)?.unwrap_or(other))
    }

    pub(crate) fn text(&self, field: &str) -> Option<&'a str> {
        self.value(field)?.as_str()
    }

    /// True unless the field is absent, null, false, 0, or an empty text, list or object.
    pub(crate) fn says(&self, field: &str) -> bool {
        match self.value(field) {
            None => false,
            Some(Value::Bool(is)) => *is,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Null) => false,
        }
    }

    pub(crate) fn object(&self, field: &str) -> Option<Self> {
        self.value(field)?.as_object().map(Self)
    }
}
