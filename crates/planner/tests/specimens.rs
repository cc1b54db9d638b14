//! Tests of the synthetic models (specimens) by which the planner is tested.

mod files;
mod grown;
mod recipes;
mod zoo;
