//! Tests of the fake engine's binary through its command line, pipes and socket.

#[cfg(test)]
mod double {
    mod endpoints;
    mod faults;
    mod lifecycle;
    pub(crate) mod process;
}
