//! Tests of the synthetic models that plans are tested with.

mod files;
mod grown;
mod recipes;
mod zoo;
