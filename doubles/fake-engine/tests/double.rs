//! The real binary, driven over its command line, its pipes and its socket.

#[cfg(test)]
mod double {
    mod endpoints;
    mod faults;
    mod lifecycle;
    pub(crate) mod process;
}
