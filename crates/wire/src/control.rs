//! Speaks the protocol between llama-server's router and its child processes, on a child's stdin and stdout.
//!
//! Plimsoll takes the router's place. With `LLAMA_SERVER_ROUTER_PORT` in its environment, a llama-server
//! prints its state changes and ends when its stdin is closed. Source: `tools/server/server-models.cpp @
//! b10605`.

/// Starts a state line; JSON `{"state":"loading|ready|sleeping|downloading","payload":{…}}` follows.
pub const STATE_PREFIX: &str = "cmd_child_to_router:state:";
/// State lines of earlier builds, b8799 among them.
pub const EARLY_READY: &str = "cmd_child_to_router:ready";
pub const EARLY_SLEEP: &str = "cmd_child_to_router:sleep";
/// Command to the child to finish and exit; a newline follows it.
pub const EXIT_COMMAND: &str = "cmd_router_to_child:exit";

/// Start of the line that the trampoline writes to stderr if it cannot execute the engine.
pub const EXEC_FAILED: &str = "plimsoll exec-child: cannot start ";
/// Start of the line for each part of an engine's confinement that the machine does not permit.
pub const NOT_PERMITTED: &str = "plimsoll exec-child: not permitted: ";
