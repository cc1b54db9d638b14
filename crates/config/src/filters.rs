//! Reads a model's `filters`: parameters that are removed from or set in its requests, and a system message.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The parameter that names the model, which no filter touches.
const PROTECTED: &str = "model";

/// Filters of one model, in the order of llama-swap: first parameters are removed, then set, then set for the
/// name that the request used. A dot in a name leads into an object: `chat_template_kwargs.enable_thinking`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestFilters {
    /// Parameters to remove.
    pub strip: Vec<String>,
    /// Parameters of requests that do not set them.
    pub default: Map<String, Value>,
    pub set: Map<String, Value>,
    /// By the name that a request uses.
    pub set_by_name: BTreeMap<String, Map<String, Value>>,
    /// The system message of conversations that begin without one.
    pub system: Option<String>,
    /// Names that were derived from the model while the server ran, and what their requests have of their
    /// own.
    pub derived: BTreeMap<String, DerivedFilters>,
}

/// Filters of a derived name, which come before those of its model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DerivedFilters {
    pub default: Map<String, Value>,
    pub system: Option<String>,
}

impl RequestFilters {
    pub fn is_empty(&self) -> bool {
        let Self { strip, default, set, set_by_name, system, derived } = self;
        strip.is_empty()
            && default.is_empty()
            && set.is_empty()
            && set_by_name.is_empty()
            && system.is_none()
            && derived.is_empty()
    }

    /// The same without what would change the model's name.
    pub(crate) fn checked(mut self) -> Self {
        self.strip = self.strip.iter().map(|name| name.trim().to_owned()).collect();
        self.strip.retain(|name| !name.is_empty() && !is_protected(name));
        for set in [&mut self.default, &mut self.set].into_iter().chain(self.set_by_name.values_mut()) {
            set.retain(|name, _| !is_protected(name));
        }
        self.set_by_name.retain(|_, set| !set.is_empty());
        self
    }

    /// True if requests that use this name may be changed.
    pub fn concerns(&self, name: &str) -> bool {
        let of_all = !(self.strip.is_empty() && self.default.is_empty() && self.set.is_empty());
        let is_own = |derived: &DerivedFilters| *derived != DerivedFilters::default();
        of_all
            || self.system.is_some()
            || self.set_by_name.contains_key(name)
            || self.derived.get(name).is_some_and(is_own)
    }

    /// Parameters that a request with this name gets where it does not set them; of two with one name, the
    /// first counts.
    pub fn defaults_for(&self, name: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.derived.get(name).into_iter().flat_map(|derived| &derived.default).chain(&self.default)
    }

    /// The system message for conversations with this name that begin without one.
    pub fn system_for(&self, name: &str) -> Option<&str> {
        let own = self.derived.get(name).and_then(|derived| derived.system.as_deref());
        own.or(self.system.as_deref())
    }

    /// Parameters to set in a request that uses this name; of two with one name, the later counts.
    pub fn set_for(&self, name: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.set.iter().chain(self.set_by_name.get(name).into_iter().flatten())
    }
}

fn is_protected(name: &str) -> bool {
    name.split('.').next() == Some(PROTECTED)
}
