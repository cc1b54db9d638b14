//! Lists the endpoints of Ollama's API.

/// Endpoints whose requests go to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Generate,
    Embed,
    Embeddings,
}

/// Other endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEndpoint {
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
