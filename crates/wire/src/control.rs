//! llama-server's own router channel, on a child's stdin and stdout.
//!
//! A llama-server that finds `LLAMA_SERVER_ROUTER_PORT` in its environment reports its state on stdout, one
//! line a change, and obeys one command on stdin; end of file on stdin ends it.
//! Source: `tools/server/server-models.cpp @ b10605`.

/// Starts a state line; JSON `{"state":"loading|ready|sleeping|downloading","payload":{…}}` follows.
pub const STATE_PREFIX: &str = "cmd_child_to_router:state:";
/// The two lines of builds before the state line, b8799 among them.
pub const EARLY_READY: &str = "cmd_child_to_router:ready";
pub const EARLY_SLEEP: &str = "cmd_child_to_router:sleep";
/// Tells the child to finish and leave; a newline ends it.
pub const EXIT_COMMAND: &str = "cmd_router_to_child:exit";

/// Starts the one line that the trampoline writes to stderr where it cannot become the engine.
pub const EXEC_FAILED: &str = "plimsoll exec-child: cannot start ";
