//! Lists the HTTP routes of `serve`, for the router and for the generated documents.
//!
//! Routes of llama-server b10605 (`tools/server/server.cpp`), and any other path under `/v1/`, go to an
//! engine. The daemon answers the rest.

use http::Method;
use plimsoll_config::KeyRight;
use plimsoll_ollama::{Endpoint, StoreEndpoint};

use super::page::PageFile;
use super::query;

/// Handling of a route: by an engine, or by this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Passes the request to the engine whose model it names, in its body or else in `?model=`.
    Engine,
    /// Passes the request to an engine if `?model=` is given; otherwise this server answers.
    EngineOr(Own),
    Own(Own),
    /// Translates the request from Ollama's API for the engine whose model its body names.
    Ollama(Endpoint),
    /// Passes the request to the engine that it names, or else to one that offers it.
    AnyEngine,
    /// A conversation's event stream, of the engine that has it.
    Stream,
    StreamLookup,
    /// `/upstream/<model>/<path>`: to the engine, as it is.
    Upstream,
}

/// Endpoints that this server answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Ollama's answer there, by which its clients find it.
    Root,
    Index,
    OpenApi,
    /// A file of the web page.
    Page(PageFile),
    Health,
    Version,
    Props,
    Models,
    Model,
    Download,
    Remove,
    Load,
    Unload,
    Pin,
    Unpin,
    ModelEvents,
    Running,
    UnloadAll,
    UnloadNamed,
    Logs,
    LogStream,
    Metrics,
    Status,
    StatusStream,
    Ollama(StoreEndpoint),
    LmStudioModels,
    LmStudioModel,
    /// Memory that is kept free for other programs: the list, a new one, the end of one.
    Yields,
    Yield,
    EndYield,
    WhatIf,
    /// Flags of a model in the configuration: as they are, planned, saved, and the former ones again.
    Flags,
    PlanFlags,
    SaveFlags,
    UndoFlags,
    Reload,
    /// Memory of each device by model and by use.
    Memory,
    /// Failures with the lines of engines, as the logs have them.
    Failures,
}

#[derive(Debug)]
pub(crate) struct Route {
    /// Path of the route; what begins with `{` matches any rest.
    pub path: &'static str,
    pub methods: &'static [Method],
    pub action: Action,
}

// Every server must support GET and HEAD (RFC 9110, section 9.1).
const GET: &[Method] = &[Method::GET, Method::HEAD];
const POST: &[Method] = &[Method::POST];
const GET_OR_POST: &[Method] = &[Method::GET, Method::POST];
const DELETE: &[Method] = &[Method::DELETE];
const GET_OR_DELETE: &[Method] = &[Method::GET, Method::HEAD, Method::DELETE];
const ANY: &[Method] = &[Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

const fn engine(path: &'static str) -> Route {
    Route { path, methods: POST, action: Action::Engine }
}

const fn own(methods: &'static [Method], path: &'static str, own: Own) -> Route {
    Route { path, methods, action: Action::Own(own) }
}

const fn ollama(path: &'static str, endpoint: Endpoint) -> Route {
    Route { path, methods: POST, action: Action::Ollama(endpoint) }
}

const fn or_own(path: &'static str, own: Own) -> Route {
    Route { path, methods: GET, action: Action::EngineOr(own) }
}

/// All routes. The first path that matches is the request's, whether or not it takes its method.
pub(crate) const ROUTES: &[Route] = &[
    engine("/v1/chat/completions"),
    engine("/v1/completions"),
    engine("/v1/embeddings"),
    engine("/v1/responses"),
    engine("/v1/messages"),
    engine("/chat/completions"),
    engine("/completion"),
    engine("/completions"),
    engine("/responses"),
    engine("/embedding"),
    engine("/embeddings"),
    engine("/rerank"),
    engine("/reranking"),
    engine("/tokenize"),
    engine("/detokenize"),
    engine("/apply-template"),
    engine("/infill"),
    engine("/audio/transcriptions"),
    engine("/chat/completions/input_tokens"),
    engine("/responses/input_tokens"),
    engine("/props"),
    engine("/lora-adapters"),
    engine("/slots/{slot}"),
    // Vertex AI's form of any of these, which llama-server has with AIP_MODE=PREDICTION.
    engine("/predict"),
    Route { path: "/tools", methods: GET_OR_POST, action: Action::AnyEngine },
    Route { path: "/cors-proxy", methods: GET_OR_POST, action: Action::AnyEngine },
    Route { path: "/v1/stream", methods: GET_OR_DELETE, action: Action::Stream },
    Route { path: "/v1/stream/{conversation}", methods: GET_OR_DELETE, action: Action::Stream },
    Route { path: "/v1/streams/lookup", methods: POST, action: Action::StreamLookup },
    // A row of its own, because `engine` makes rows for POST only.
    Route { path: "/lora-adapters", methods: GET, action: Action::Engine },
    Route { path: "/slots", methods: GET, action: Action::Engine },
    own(GET, "/", Own::Root),
    own(GET, "/api", Own::Index),
    own(GET, "/openapi.json", Own::OpenApi),
    own(GET, "/health", Own::Health),
    own(GET, "/v1/health", Own::Health),
    own(GET, "/v1/models", Own::Models),
    own(GET, "/v1/models/{model}", Own::Model),
    // llama-server's router.
    own(GET, "/models", Own::Models),
    own(POST, "/models", Own::Download),
    own(DELETE, "/models", Own::Remove),
    own(POST, "/models/load", Own::Load),
    own(POST, "/models/unload", Own::Unload),
    own(GET, "/models/sse", Own::ModelEvents),
    or_own("/props", Own::Props),
    or_own("/metrics", Own::Metrics),
    or_own("/memory", Own::Memory),
    // llama-swap, which unloads by GET too.
    own(GET, "/running", Own::Running),
    own(GET_OR_POST, "/unload", Own::UnloadAll),
    own(POST, "/api/models/unload", Own::UnloadAll),
    own(POST, "/api/models/unload/{model}", Own::UnloadNamed),
    own(GET, "/logs", Own::Logs),
    own(GET, "/logs/stream", Own::LogStream),
    own(GET, "/logs/stream/{model}", Own::LogStream),
    own(GET, "/ui", Own::Page(PageFile::Document)),
    own(GET, "/ui/", Own::Page(PageFile::Document)),
    own(GET, "/ui/page.js", Own::Page(PageFile::Script)),
    own(GET, "/ui/icon.svg", Own::Page(PageFile::Icon)),
    own(GET, "/api/version", Own::Version),
    // Ollama, whose `/api/status` is another one than ours.
    ollama("/api/chat", Endpoint::Chat),
    ollama("/api/generate", Endpoint::Generate),
    ollama("/api/embed", Endpoint::Embed),
    ollama("/api/embeddings", Endpoint::Embeddings),
    own(GET, "/api/tags", Own::Ollama(StoreEndpoint::Tags)),
    own(GET, "/api/ps", Own::Ollama(StoreEndpoint::Running)),
    own(POST, "/api/show", Own::Ollama(StoreEndpoint::Show)),
    own(POST, "/api/pull", Own::Ollama(StoreEndpoint::Pull)),
    own(POST, "/api/push", Own::Ollama(StoreEndpoint::Push)),
    own(POST, "/api/create", Own::Ollama(StoreEndpoint::Create)),
    own(POST, "/api/copy", Own::Ollama(StoreEndpoint::Copy)),
    own(POST, "/api/blobs/{digest}", Own::Ollama(StoreEndpoint::Push)),
    own(DELETE, "/api/delete", Own::Ollama(StoreEndpoint::Delete)),
    // LM Studio, whose other endpoints are those of OpenAI under another prefix.
    own(GET, "/api/v0/models", Own::LmStudioModels),
    own(GET, "/api/v0/models/{model}", Own::LmStudioModel),
    engine("/api/v0/chat/completions"),
    engine("/api/v0/completions"),
    engine("/api/v0/embeddings"),
    // Ours.
    own(POST, "/api/models/pin", Own::Pin),
    own(POST, "/api/models/unpin", Own::Unpin),
    own(GET, "/api/yield", Own::Yields),
    own(POST, "/api/yield", Own::Yield),
    own(DELETE, "/api/yield", Own::EndYield),
    own(GET, "/api/status", Own::Status),
    own(GET, "/api/status/stream", Own::StatusStream),
    own(GET, "/api/what-if", Own::WhatIf),
    own(GET, "/api/flags", Own::Flags),
    own(POST, "/api/flags", Own::SaveFlags),
    own(POST, "/api/flags/plan", Own::PlanFlags),
    own(POST, "/api/flags/undo", Own::UndoFlags),
    own(POST, "/api/reload", Own::Reload),
    own(GET, "/api/failures", Own::Failures),
    Route { path: "/upstream/{model}/{path}", methods: ANY, action: Action::Upstream },
    // Last, because the first path that fits is taken.
    Route { path: "/v1/{path}", methods: ANY, action: Action::Engine },
];

/// This server's own paths and actions, as a page for browsers.
pub(crate) fn index() -> String {
    let own = ROUTES.iter().filter(|route| {
        let is_listed = |own: Own| {
            !matches!(
                own,
                Own::Root
                    | Own::Index
                    | Own::Ollama(StoreEndpoint::Create | StoreEndpoint::Copy | StoreEndpoint::Push)
            )
        };
        matches!(route.action, Action::Own(own) if is_listed(own) && !route.path.starts_with("/ui/"))
            || matches!(route.action, Action::EngineOr(_))
    });
    let line = |route: &Route| {
        let changes = route.action.changes(&Method::GET, None);
        let get = route.methods.iter().find(|method| **method == Method::GET).filter(|_| !changes);
        let method = get.unwrap_or(&route.methods[route.methods.len() - 1]).as_str();
        format!("  {method:<4} {}\n", route.path)
    };
    let lines: String = own.map(line).collect();
    format!(
        "plimsoll {}: an OpenAI-compatible server. Send requests to /v1/…; its own paths are:\n{lines}",
        env!("CARGO_PKG_VERSION")
    )
}

/// A matching route, with the rest of the path behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RouteMatch<'a> {
    pub action: Action,
    pub rest: &'a str,
}

/// Reasons why no route matches a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RouteMissing {
    Path,
    /// The path exists for these methods.
    Method(Vec<Method>),
}

pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Result<RouteMatch<'a>, RouteMissing> {
    let fitting = ROUTES.iter().find_map(|route| Some((route, route.rest(path)?)));
    let (first, rest) = fitting.ok_or(RouteMissing::Path)?;
    if first.methods.contains(method) {
        return Ok(RouteMatch { action: first.action, rest });
    }
    // The path may have several rows, one for each method.
    let rows = || ROUTES.iter().filter(|route| route.path == first.path);
    if let Some(route) = rows().find(|route| route.methods.contains(method)) {
        return Ok(RouteMatch { action: route.action, rest });
    }
    // A 405 must name the methods that are allowed (RFC 9110, section 15.5.6).
    let mut methods: Vec<Method> = Vec::new();
    for allowed in rows().flat_map(|route| route.methods) {
        if !methods.contains(allowed) {
            methods.push(allowed.clone());
        }
    }
    Err(RouteMissing::Method(methods))
}

impl Action {
    /// True if a request changes something, so that a foreign web page must not be able to cause it. Even a
    /// request with a safe method may change something: a request for an engine loads its model and may evict
    /// others.
    pub(crate) fn changes(self, method: &Method, query: Option<&str>) -> bool {
        let has = |name| query::parameter(query, name).is_some();
        match self {
            _ if !method.is_safe() => true,
            // llama-swap's `/unload` takes GET, which any web page may send.
            Self::Engine | Self::AnyEngine | Self::Ollama(_) | Self::Upstream | Self::Own(Own::UnloadAll) => {
                true
            }
            Self::EngineOr(_) => has("model"),
            Self::Own(Own::Models) => has("reload"),
            Self::Own(_) | Self::Stream | Self::StreamLookup => false,
        }
    }

    /// True if its answer goes on until its client leaves.
    pub(crate) fn lives_on(self) -> bool {
        matches!(
            self,
            Self::Own(
                Own::ModelEvents | Own::StatusStream | Own::LogStream | Own::Ollama(StoreEndpoint::Pull)
            )
        )
    }

    /// True if it is answered without a key.
    pub(crate) fn is_public(self) -> bool {
        // Load balancers and container health checks have no key. The page asks for one, and holds no data
        // itself.
        matches!(self, Self::Own(Own::Health | Own::Page(_)))
    }
}

impl Own {
    /// The rights of which a request needs one; none for an empty list.
    pub(crate) const fn rights(self) -> &'static [KeyRight] {
        use KeyRight::{Change, Operate, See, Use};
        match self {
            Self::Root | Self::Index | Self::OpenApi | Self::Health | Self::Page(_) => &[],
            Self::Version
            | Self::Props
            | Self::Models
            | Self::Model
            | Self::LmStudioModels
            | Self::LmStudioModel
            | Self::Ollama(StoreEndpoint::Tags | StoreEndpoint::Running | StoreEndpoint::Show) => &[Use, See],
            Self::Ollama(StoreEndpoint::Pull) => &[Use, Operate],
            Self::ModelEvents
            | Self::Running
            | Self::Metrics
            | Self::Status
            | Self::StatusStream
            | Self::Yields
            | Self::WhatIf
            | Self::Memory => &[See],
            Self::Load | Self::Unload | Self::UnloadAll | Self::UnloadNamed | Self::Pin | Self::Unpin => {
                &[Change]
            }
            Self::Download | Self::Remove => &[Operate],
            // Engines log what clients send.
            Self::Logs
            | Self::LogStream
            | Self::Failures
            | Self::Yield
            | Self::EndYield
            | Self::Reload
            | Self::Flags
            | Self::PlanFlags
            | Self::SaveFlags
            | Self::UndoFlags
            | Self::Ollama(
                StoreEndpoint::Delete | StoreEndpoint::Create | StoreEndpoint::Copy | StoreEndpoint::Push,
            ) => &[Operate],
        }
    }
}

impl Route {
    fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self.path.split_once('{') {
            Some((prefix, _)) => path.strip_prefix(prefix),
            None => (path == self.path).then_some(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_by_path_and_method() {
        assert_eq!(find(&Method::POST, "/v1/chat/completions").unwrap().action, Action::Engine);
        assert_eq!(find(&Method::GET, "/v1/health").unwrap().action, Action::Own(Own::Health));
        assert_eq!(find(&Method::POST, "/v1/made/up").unwrap().action, Action::Engine);
        let upstream = find(&Method::DELETE, "/upstream/a/b").unwrap();
        assert_eq!((upstream.action, upstream.rest), (Action::Upstream, "a/b"));
        assert_eq!(find(&Method::GET, "/").unwrap().action, Action::Own(Own::Root));
        let page = index();
        for line in ["GET  /v1/models", "POST /models/load", "POST /unload", "GET  /logs/stream/{model}"] {
            assert!(page.contains(&format!("\n  {line}\n")), "{line} in {page}");
        }
        for (path, query, changes) in [
            ("/upstream/b/x.png", None, true),
            ("/v1/x", Some("model=b"), true),
            ("/slots", Some("model=b"), true),
            ("/props", Some("model=b"), true),
            ("/props", None, false),
            ("/v1/models", Some("reload"), true),
            ("/v1/models", None, false),
            ("/unload", None, true),
            ("/cors-proxy", Some("url=http://x"), true),
            ("/v1/stream", Some("conv_id=a"), false),
        ] {
            let action = find(&Method::GET, path).unwrap().action;
            assert_eq!(action.changes(&Method::GET, query), changes, "{path}");
        }
        assert_eq!(find(&Method::GET, "/tools").unwrap().action, Action::AnyEngine);
        assert_eq!(find(&Method::DELETE, "/v1/stream").unwrap().action, Action::Stream);
        assert_eq!(find(&Method::GET, "/v1/stream/a::b").unwrap().rest, "a::b");
        assert_eq!(find(&Method::GET, "/nowhere"), Err(RouteMissing::Path));
        assert_eq!(find(&Method::GET, "/tokenize"), Err(RouteMissing::Method(vec![Method::POST])));
        // Its methods are its own, and not those of `/v1/{path}`.
        let missing = find(&Method::PUT, "/v1/chat/completions");
        assert_eq!(missing, Err(RouteMissing::Method(vec![Method::POST])));
        let adapters = [Method::POST, Method::GET, Method::HEAD];
        assert_eq!(find(&Method::PUT, "/lora-adapters"), Err(RouteMissing::Method(adapters.to_vec())));
    }
}
