//! Reads one model's GGUF keys, `<architecture>.<name>`. A value may be one number or one for each layer.

use crate::gguf::{GgufValue, Header};
use crate::{ModelError, PerLayer};

pub(super) struct ArchKeys<'h, 'a> {
    header: &'h Header<'a>,
    architecture: &'h str,
}

impl<'h, 'a> ArchKeys<'h, 'a> {
    pub(super) fn new(header: &'h Header<'a>, architecture: &'h str) -> Self {
        Self { header, architecture }
    }

    pub(super) fn header(&self) -> &'h Header<'a> {
        self.header
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, ModelError> {
        Ok(self.header.u32(&self.key(name))?)
    }

    pub(super) fn value(&self, name: &str) -> Option<GgufValue<'a>> {
        self.header.entry(&self.key(name)).map(|entry| entry.value)
    }

    /// 0 stands for absent, as in llama.cpp.
    pub(super) fn number_or_0(&self, name: &str) -> Result<u32, ModelError> {
        Ok(self.number(name)?.unwrap_or(0))
    }

    pub(super) fn required(&self, name: &str) -> Result<u32, ModelError> {
        self.number(name)?.ok_or_else(|| ModelError::MissingKey { key: self.key(name) })
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ModelError> {
        Ok(self.header.flag(&self.key(name))?)
    }

    /// A number, unless the file has a list under this name.
    pub(super) fn scalar(&self, name: &str) -> Result<Option<u32>, ModelError> {
        if self.is_list(name) { Ok(None) } else { self.number(name) }
    }

    pub(super) fn is_list(&self, name: &str) -> bool {
        let entry = self.header.entry(&self.key(name));
        entry.is_some_and(|entry| matches!(entry.value, GgufValue::Array(_)))
    }

    /// One number for all layers, or a list with one for each of `layers`.
    /// Mirrors `llama-model-loader.cpp: get_key_or_arr @ b10605`.
    pub(super) fn per_layer(&self, name: &str, layers: u32) -> Result<Option<PerLayer<u32>>, ModelError> {
        if !self.is_list(name) {
            return Ok(self.switch_or_number(name)?.map(PerLayer::Same));
        }
        let key = self.key(name);
        let Some(array) = self.header.array(&key)? else {
            return Ok(None);
        };
        // llama.cpp refuses lists of another length too, so such a file would not load.
        if array.count != u64::from(layers) {
            return Err(ModelError::ListLength { key, expected: layers, found: array.count });
        }
        let numbers = array.integers().and_then(|numbers| {
            numbers.map(|number| u32::try_from(number).ok()).collect::<Option<Vec<u32>>>()
        });
        match numbers {
            Some(numbers) => Ok(Some(PerLayer::Each(numbers))),
            None => Err(ModelError::ListValue { key, element: array.element }),
        }
    }

    /// The same for truth values, which files write as bool or as number.
    pub(super) fn per_layer_flag(
        &self,
        name: &str,
        layers: u32,
    ) -> Result<Option<PerLayer<bool>>, ModelError> {
        Ok(self.per_layer(name, layers)?.map(|values| match values {
            PerLayer::Same(value) => PerLayer::Same(value != 0),
            PerLayer::Each(values) => PerLayer::Each(values.into_iter().map(|value| value != 0).collect()),
        }))
    }

    fn switch_or_number(&self, name: &str) -> Result<Option<u32>, ModelError> {
        match self.value(name) {
            // Converters write per-layer switches as bool or as integer.
            Some(GgufValue::Bool(yes)) => Ok(Some(u32::from(yes))),
            _ => self.number(name),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }
}
