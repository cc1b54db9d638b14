//! HTTP server and proxy of `serve`: listener, request bodies, routing, and streaming of engines' answers.
//!
//! One thread serves all connections. The modules are listed in the order in which a request reaches them.

mod connection;
mod limits;
mod listener;

mod api;
mod auth;
mod cors;
mod models_api;
mod server;

mod body;
mod conversations;
mod model_key;
mod multipart;
mod naming;
mod prompt;
mod query;
mod rope;

mod engine_page;
mod headers;
mod model_facts;
mod model_service;
mod proxy;
mod read_limit;
mod rewrite;
mod tunnel;
mod upstream;
mod what_if;

mod events;
mod exposition;
mod feed;
mod heartbeat;
mod listing;
mod lm_studio;
mod logs;
mod ollama;
mod page;
mod problem;
mod reply;
mod sse;
mod stream;
mod tally;
mod tokens;
mod yields_api;

pub(crate) use auth::ApiKeys;
pub(crate) use connection::StallLimit;
pub(crate) use cors::Origins;
pub(crate) use events::Events;
pub(crate) use exposition::{Exposition, MetricKind};
pub(crate) use heartbeat::HEARTBEAT;
pub(crate) use limits::Limits;
pub use listener::Listen;
pub(crate) use listener::{bind, serve};
pub(crate) use listing::{HeldMemory, Modalities, ModelListing, status};
pub(crate) use model_facts::{Capability, ModelFacts};
pub(crate) use model_service::{ModelService, Pass, RouteOptions};
pub(crate) use problem::HttpProblem;
pub(crate) use prompt::RequestPrompt;
pub(crate) use rope::Rope;
pub(crate) use server::{HttpServer, HttpSettings};
pub(crate) use upstream::Upstream;
pub(crate) use what_if::WhatIfError;

#[cfg(test)]
mod tests;
