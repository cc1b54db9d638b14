//! Lists the reasons why a child process exited.

/// Cause of a child's end: a request, a kill, or the child itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The child itself: it left or died.
    OnItsOwn,
    /// The child ended in time on request.
    Requested,
    /// The child was requested to end, did not, and was killed.
    RequestedAndKilled,
    /// The child logged that it cannot continue, did not exit, and was killed. Its last log lines have the
    /// cause.
    Stuck,
}
