//! Checks the requests and their deadlines after each event of a simulated world.

use std::collections::BTreeSet;

use super::{Queue, RequestPlace};
use crate::time::{Moment, RequestId};

impl Queue {
    pub(crate) fn places(&self) -> impl Iterator<Item = (RequestId, RequestPlace)> {
        self.requests.iter().map(|(id, request)| (*id, request.place))
    }

    /// True if there is one deadline for each of these requests, which is its own, and no other.
    pub(crate) fn deadlines_are_of(&self, queued: &BTreeSet<RequestId>) -> bool {
        let is_own =
            |(at, id): &(Moment, RequestId)| self.get(*id).is_some_and(|request| request.deadline == *at);
        let ids: BTreeSet<RequestId> = self.deadlines.iter().map(|(_, id)| *id).collect();
        ids == *queued && ids.len() == self.deadlines.len() && self.deadlines.iter().all(is_own)
    }
}
