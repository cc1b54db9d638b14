//! Tests of the import of models and configurations from other servers.

mod files;
mod found;
mod store;
