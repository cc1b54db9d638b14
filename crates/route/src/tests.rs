//! Tests of the HTTP server and proxy between a real client socket and a scripted engine.

mod breaking;
mod clients;
mod control;
mod conversations;
mod crowds;
mod engine_pages;
mod heartbeat;
mod hops;
mod hostile;
mod hostile_engine;
mod kept;
mod keys;
mod naming;
mod ollama;
mod ollama_define;
mod passing;
mod reach;
mod stub;
mod tasks;
mod upgrades;
