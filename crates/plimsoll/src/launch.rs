//! Launch: which program runs a model, and starting it so that it dies with us.

pub(crate) mod engine;
