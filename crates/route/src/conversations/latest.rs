//! Remembers which model answers each of the latest conversations, up to a maximum number.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use http::header::HeaderName;
use http::request::Parts;
use plimsoll_scheduler::ModelId;
use tokio::sync::Notify;

use crate::auth::KeyNumber;
use crate::headers;

const X_CONVERSATION_ID: HeaderName = HeaderName::from_static("x-conversation-id");
/// Conversations that are remembered; the oldest is forgotten for a new one.
pub(super) const MOST: usize = 1024;
/// The longest name of a conversation; llama.cpp's page sends a UUID and the model's name.
const LONGEST: usize = 1024;

/// Models of the latest conversations.
#[derive(Debug, Default)]
pub(crate) struct Conversations(RefCell<VecDeque<Rc<Conversation>>>);

#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) id: String,
    /// The key whose conversation it is; `None` for all clients without one, or with a key without a name.
    pub(super) owner: Option<KeyNumber>,
    pub(super) model: ModelId,
    /// The request waits for its model; a notice cancels it.
    pub(super) cancel: Notify,
    pub(super) is_waiting: Cell<bool>,
}

impl Conversation {
    fn is(&self, id: &str, owner: Option<KeyNumber>) -> bool {
        self.id == id && self.owner == owner
    }
}

impl Conversations {
    pub(super) fn begin(&self, id: &str, owner: Option<KeyNumber>, model: ModelId) -> Rc<Conversation> {
        let conversation = Rc::new(Conversation {
            id: id.to_owned(),
            owner,
            model,
            cancel: Notify::new(),
            is_waiting: Cell::new(true),
        });
        let mut all = self.0.borrow_mut();
        all.retain(|other| !other.is(id, owner));
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(Rc::clone(&conversation));
        conversation
    }

    pub(super) fn find(&self, id: &str, owner: Option<KeyNumber>) -> Option<Rc<Conversation>> {
        self.0.borrow().iter().find(|conversation| conversation.is(id, owner)).cloned()
    }

    /// True if only other keys have a conversation of this name.
    pub(super) fn is_of_others(&self, id: &str, owner: Option<KeyNumber>) -> bool {
        self.find(id, owner).is_none() && self.0.borrow().iter().any(|conversation| conversation.id == id)
    }

    pub(super) fn forget(&self, id: &str, owner: Option<KeyNumber>) {
        self.0.borrow_mut().retain(|conversation| !conversation.is(id, owner));
    }
}

/// The conversation that a request belongs to.
pub(crate) fn named(head: &Parts) -> Option<String> {
    let id = headers::text(&head.headers, &X_CONVERSATION_ID)?;
    (!id.is_empty() && id.len() <= LONGEST).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_conversations_are_remembered_up_to_a_bound() {
        let all = Conversations::default();
        (0..MOST + 10).for_each(|number| drop(all.begin(&number.to_string(), None, ModelId(0))));
        assert_eq!(all.0.borrow().len(), MOST);
        assert!(all.find("9", None).is_none() && all.find("10", None).is_some());
        all.begin("10", None, ModelId(7));
        assert_eq!(all.0.borrow().len(), MOST, "a conversation goes on under its name");
        assert_eq!(all.find("10", None).unwrap().model, ModelId(7));
        all.forget("10", None);
        assert!(all.find("10", None).is_none());
    }

    #[test]
    fn a_name_that_is_too_long_or_empty_is_none() {
        let named_by = |name: &str| {
            let request = http::Request::builder().header(X_CONVERSATION_ID, name).body(()).unwrap();
            named(&request.into_parts().0)
        };
        assert_eq!(named_by("a::b").as_deref(), Some("a::b"));
        assert_eq!(named_by(""), None);
        assert_eq!(named_by(&"x".repeat(LONGEST + 1)), None);
    }
}
