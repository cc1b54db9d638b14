//! Endpoints of Ollama's API.

use std::cell::RefCell;
use std::collections::HashSet;

use plimsoll_scheduler::ModelId;

/// Endpoints whose requests go to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Chat,
    Generate,
    Embed,
    Embeddings,
}

/// Other endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreEndpoint {
    Tags,
    Show,
    Running,
    Pull,
    Delete,
    /// A name that is derived from a model.
    Create,
    Copy,
    /// Files and models go in neither direction.
    Push,
}

/// Contexts that clients asked for and the log has named.
pub(crate) type ReportedContexts = RefCell<HashSet<(ModelId, u64)>>;
