//! Request of another host of the fleet: a client's request that is passed on, or the wish for news.

use plimsoll_fleet::SeatToken;

/// What another host asks for.
#[derive(Debug)]
pub(crate) enum HostRequest {
    /// The answer to a client's request, with the token of the model's seat.
    Passed(SeatToken),
    /// News of the fleet, for a host that does not watch the store.
    News,
}
