//! Passes messages between a page and a [`Session`], over the module's own memory.
//!
//! DECISION: bytes in, bytes out, and no bindings generator: three functions need none, and every host of
//! WebAssembly calls them. The page writes a message to `message_room`, calls `reply`, and reads
//! `reply_text`. The module owns both buffers, so no pointer of the page is read here.

use std::cell::RefCell;

use crate::Session;

#[derive(Default)]
struct Conversation {
    session: Session,
    message: Vec<u8>,
    reply: String,
}

thread_local! {
    static CONVERSATION: RefCell<Conversation> = RefCell::default();
}

/// Makes room for a message of `length` bytes, and returns its place. It stands until the next call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn message_room(length: usize) -> *mut u8 {
    CONVERSATION.with_borrow_mut(|conversation| {
        conversation.message.clear();
        conversation.message.resize(length, 0);
        conversation.message.as_mut_ptr()
    })
}

/// Answers the message, and returns the length of the reply in bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn reply() -> usize {
    CONVERSATION.with_borrow_mut(|conversation| {
        let message = std::mem::take(&mut conversation.message);
        conversation.reply = conversation.session.reply(&message);
        conversation.reply.len()
    })
}

/// The place of the reply, which stands until the next message.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn reply_text() -> *const u8 {
    CONVERSATION.with_borrow(|conversation| conversation.reply.as_ptr())
}
