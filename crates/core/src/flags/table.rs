//! llama-server's flags as data.

/// What follows a flag on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// Nothing, but there is a negative spelling too.
    Switch,
    Value,
    TwoValues,
}

/// One row: a flag with all its spellings.
#[derive(Debug)]
pub struct Flag {
    /// In llama.cpp's order; the last is the one to write.
    pub names: &'static [&'static str],
    pub negations: &'static [&'static str],
    pub env: Option<&'static str>,
    pub takes: Takes,
}

/// Rows are equal if they are the same row.
impl PartialEq for Flag {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Flag {
    /// The spelling to write for a value.
    pub fn spelling(&self, value: &super::Value) -> Option<&'static str> {
        let names = match value {
            super::Value::Switch(false) => self.negations,
            _ => self.names,
        };
        names.last().copied()
    }
}
