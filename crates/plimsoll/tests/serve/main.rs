//! Tests of `plimsoll serve` as a process with fake engines: the client's view, and that nothing is left
//! behind.

mod asked;
mod client_verbs;
mod daemon;
mod depth;
mod exposed;
mod faults;
mod formats;
mod guarded;
mod guarded_user;
#[path = "../pages/hand_written.rs"]
mod hand_written;
mod heartbeat;
mod held;
mod http;
mod import;
mod isolation;
mod limits;
mod log;
mod memory;
mod metrics;
mod neighbours;
mod nobody;
mod operator;
#[path = "../pages/real.rs"]
mod real;
mod remote;
mod service_manager;
mod sockets;
mod storm;
mod surface;
mod top;
mod trust_aborts;
mod trust_answers;
mod trust_keys;
mod trust_neighbours;
mod trust_readings;
mod unified;
mod unnamed;
mod waiting;
mod yields;
