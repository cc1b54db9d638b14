//! Tests of imports of other servers' models.

mod files;
mod found;
mod store;
