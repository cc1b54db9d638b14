//! HTTP server and proxy of `serve`: accepts connections, routes requests, and streams engines' answers.
//!
//! One thread serves all connections. The modules are listed in the order in which a request reaches them.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod limits;
mod listener;
mod places;

mod access_key;
mod allowance;
mod api;
mod ask;
mod auth;
mod authorise;
mod cors;
mod models_api;
mod openapi;
mod rights;
mod server;
mod standing_access;

mod body;
mod body_budget;
mod broken_json;
mod conversations;
mod cut_through;
mod download_order;
mod flags_api;
mod gather;
mod memory_page;
mod model_key;
mod multipart;
mod naming;
mod prompt;
mod query;
mod rope;

mod answer_headers;
mod engine_body;
mod engine_metrics;
mod engine_origin;
mod engine_page;
mod headers;
mod model_profile;
mod model_service;
mod proxy;
mod rewrite;
mod tunnel;
mod upstream;
mod websocket;
mod what_if;
mod wire_state;

mod events;
mod exposition;
mod feed;
mod filter;
mod heartbeat;
mod host_request;
mod listing;
mod lm_studio;
mod logs;
mod ollama;
mod page;
mod peer;
mod peer_port;
mod problem;
mod reply;
mod small_write;
mod sse;
mod stream;
mod stream_source;
mod tally;
mod tokens;
mod trace_parent;
mod yields_api;

pub use access_key::digest_of;
pub use auth::{ApiKeys, KeyChanges, shows};
pub use connection::StallLimit;
pub use cors::Origins;
pub use download_order::DownloadOrder;
pub use engine_body::{BodyFault, EngineBody};
pub use events::Events;
pub use exposition::{Exposition, Histogram, MetricKind};
pub use feed::{Feed, FeedListener};
pub use flags_api::FlagsOrder;
pub use headers::to_engine;
pub use heartbeat::HEARTBEAT;
pub use host_request::{FileAnswer, FileAnswered, HostRequest};
pub use limits::Limits;
pub use listener::Listen;
pub use listener::{bind, permit, serve};
pub use listing::{Modalities, ModelListing, OccupiedMemory, status};
pub use model_profile::{ModelAbility, ModelProfile};
pub use model_service::{ModelService, Pass, RequestRouter, RouteOptions, no_files};
pub use openapi::description as openapi;
pub use peer::{COPY, DECLINED, FILES, HOP, HOST, MODEL, NEWS, PeerGate, SEAT, no_certificate};
pub use peer_port::serve_peers;
pub use problem::{HttpProblem, without_engine_words};
pub use prompt::{CertainText, PromptPrefixes, RequestPrompt};
pub use rope::Rope;
pub use server::{HttpServer, HttpSettings};
pub use stream_source::StreamSource;
pub use tokens::AnswerTokens;
pub use trace_parent::TraceParent;
pub use upstream::{Upstream, Wire};
pub use what_if::WhatIfError;

#[cfg(test)]
mod tests;
